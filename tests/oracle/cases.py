"""Random claims of all kinds about small random networks, and the truth about each.

A case is drawn from one seed. ``truth`` asks the mixed-integer program; ``claim`` writes the same
case with the public face of ``provable_circuits``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import torch
from tests.oracle.milp import NODES, Optimum, Patch, Question, solve
from tests.oracle.network import Network, Vector, exact
from tests.oracle.random_networks import Dice, convolutional, fully_connected, graph_of, residual
from tests.oracle.regions import Floats, Region

import provable_circuits as pc


@dataclass(frozen=True, eq=False)
class Truth:
    """Numbers around the threshold: proved above ``high``, refuted below ``low``.

    For WinnerMargin they bound the fraction, and the sides are swapped.
    """

    low: float
    high: float
    optima: tuple[Optimum, ...]


@dataclass(eq=False)
class Case:
    """One claim but for its tolerance."""

    seed: int
    net: Network
    kept: list[str]
    granularity: str
    regions: list[Region]
    domains: list[pc.Domain]
    patching: pc.Patching
    patches: list[Patch]
    metric: str
    target: Any = "predicted"
    notes: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        steps = " ".join(f"{s.kind}{s.size}" for s in self.net.steps)
        return (
            f"Case({self.seed}: {self.net.inputs} -> {steps}; keeps {len(self.kept)} of "
            f"{len(self.net.names)}; {len(self.regions)} x {self.domains[0]}; {self.patching}; "
            f"{self.metric}; {', '.join(self.notes)})"
        )

    @cached_property
    def graph(self) -> pc.Graph:
        """The network as the package has it: written by hand, or every eighth read from torch."""
        if self.seed % 8:
            return graph_of(self.net)
        return pc.Graph.from_torch(self.net.module, torch.zeros(1, *self.net.shape))

    @cached_property
    def circuit(self) -> pc.Circuit:
        """The circuit as the package has it."""
        return self.graph.components(self.granularity).circuit(self.kept)

    @cached_property
    def removed(self) -> dict[int, Any]:
        """Removed units by step."""
        return self.net.removed(self.kept)

    @cached_property
    def anchors(self) -> list[Floats]:
        """The network's outputs at the unperturbed inputs."""
        return [self.net.run(region.center)[-1] for region in self.regions]

    @property
    def hard(self) -> bool:
        """Whether the verifier promises no completeness: 2-norms."""
        shapes = [*self.regions, *(p for p in self.patches if isinstance(p, Region))]
        return self.metric == "norm2" or any(shape.is_round for shape in shapes)

    def keeping(self, kept: list[str]) -> Case:
        """The same case about another circuit of the same network."""
        other = replace(self, kept=kept)
        other.__dict__["graph"] = self.graph
        return other

    def holds(self, truth: Truth, tolerance: float) -> bool:
        """Whether the claim holds with this tolerance (or fraction), near the threshold or not."""
        if self.metric.startswith("winner"):
            return tolerance < truth.low
        return tolerance > truth.high

    def targets(self, j: int) -> int:
        """The target output of input j."""
        if self.target == "predicted":
            return int(self.anchors[j].argmax())
        return self.target if isinstance(self.target, int) else self.target[j]

    def claim(self, tolerance: float) -> pc.Claim:
        """The claim with this tolerance (for WinnerMargin, with this fraction)."""
        metric: pc.Metric
        if self.metric == "logit":
            metric = pc.LogitDifference(tolerance, self.target)
        elif self.metric == "max":
            metric = pc.MaxAbs(tolerance)
        elif self.metric.startswith("norm"):
            p = {"norm1": 1, "norm2": 2, "norminf": math.inf}[self.metric]
            metric = pc.Norm(tolerance, p)
        else:
            against = "all" if self.metric == "winner-all" else "runner-up"
            metric = pc.WinnerMargin(tolerance, against)
        return pc.Claim(self.domains, self.patching, metric)

    def rows(self, j: int) -> tuple[str, Floats] | tuple[str]:
        """The metric at tolerance zero, for the mixed-integer program."""
        eye = np.eye(self.net.outputs)
        if self.metric in ("norm1", "norm2"):
            return (self.metric,)
        if self.metric in ("max", "norminf"):
            return "rows", np.concatenate([eye, -eye])
        if self.metric == "logit":
            row = eye[self.targets(j)]
            return "rows", np.stack([row, -row])
        order = np.argsort(-self.anchors[j], kind="stable")
        others = order[1:2] if self.metric == "winner-runner" else order[1:]
        return "circuit", eye[others] - eye[order[0]]

    def gap(self, j: int) -> float:
        """How far the winner lies ahead of the runner-up at the unperturbed input."""
        top = np.sort(self.anchors[j])
        return float(top[-1] - top[-2])

    def truth(self, nodes: int = NODES, presolves: Sequence[bool] = (True, False)) -> Truth | None:
        """The thresholds; None if the solver did not finish, or did not agree with itself."""
        optima = []
        for j, region in enumerate(self.regions):
            question = Question(self.net, self.removed, region, self.patches[j], self.rows(j))
            found = solve(question, nodes, presolves)
            if found is None:
                return None
            # The solver's tolerances let its optimum be a little off: its point is evaluated
            # plainly, and the truth lies between that value and the solver's.
            value = float(self.value(j, found.z, found.source, found.patch))
            if abs(value - found.attained) > (1e-3 if self.hard else 1e-4) * (1 + abs(value)):
                return None
            optima.append(replace(found, attained=value, bound=max(found.bound, value)))
        if self.metric.startswith("winner"):
            gaps = [self.gap(j) for j in range(len(optima))]
            if min(gaps) < 1e-3:
                return None
            low = min(-o.bound / g for o, g in zip(optima, gaps, strict=True))
            high = min(-o.attained / g for o, g in zip(optima, gaps, strict=True))
            return Truth(low, high, tuple(optima))
        return Truth(max(o.attained for o in optima), max(o.bound for o in optima), tuple(optima))

    def value(self, j: int, z: Vector, source: Vector | None, patch: dict[int, Vector]) -> Any:
        """The metric at tolerance zero, at one point, in the arithmetic of the point."""
        reference = self.net.run(z)[-1]
        output = self.net.run(z, self.removed, self.patch_values(j, source, patch, z.dtype))[-1]
        metric = self.rows(j)
        difference = output - reference
        if len(metric) == 2:
            rows = metric[1] if z.dtype != object else exact(metric[1]).reshape(metric[1].shape)
            return max(rows @ (output if metric[0] == "circuit" else difference))
        if metric[0] == "norm1":
            return sum(abs(difference))
        return math.sqrt(sum(difference * difference))

    def patch_values(
        self, j: int, source: Vector | None, patch: dict[int, Vector], dtype: Any
    ) -> dict[int, Vector]:
        """What removed units output, by step."""
        given = self.patches[j]
        if not self.removed:
            return {}
        if isinstance(given, Region):
            if source is None:
                raise ValueError("a patch source is needed")
            run = self.net.run(source)
            return {i: run[i] for i in self.removed}
        values: dict[int, Any] = {
            i: patch[i] if isinstance(given[i], tuple) else given[i] for i in self.removed
        }
        return {i: exact(v) if dtype is object else v for i, v in values.items()}


def draw(seed: int) -> Case:
    """A random case."""
    dice = np.random.default_rng(seed)
    disc = bool(dice.random() < 0.12)
    kind = dice.choice(["fc", "leaky", "residual", "conv"], p=[0.4, 0.1, 0.15, 0.35])
    granularity = "neuron"
    metric = str(
        dice.choice(
            ["logit", "max", "norm1", "norminf", "winner-runner", "winner-all", "norm2"],
            p=[0.28, 0.15, 0.17, 0.08, 0.12, 0.12, 0.08],
        )
    )
    outputs = 2 if metric == "norm2" else int(dice.integers(2, 5))
    if metric in ("logit", "max", "norm1") and dice.random() < 0.1:
        outputs = 1
    inputs = int(dice.integers(2, 6))
    if kind in ("fc", "leaky"):
        depth = int(dice.choice([0, 1, 2, 3], p=[0.04, 0.32, 0.32, 0.32]))
        sizes = [inputs, *(int(dice.integers(2, 7)) for _ in range(depth)), outputs]
        net = fully_connected(dice, sizes, 0.1 if kind == "leaky" else 0.0)
    elif kind == "residual":
        net = residual(dice, inputs, int(dice.integers(2, 5)), outputs, bool(dice.random() < 0.3))
    else:
        granularity = str(dice.choice(["filter", "neuron"], p=[0.7, 0.3]))
        net = convolutional(dice, granularity == "filter")
        if metric == "norm2" and net.outputs != 2:
            metric = "max"
    count = int(dice.integers(1, 3))
    share = float(dice.choice([0.3, 0.6, 0.85, 1.0, 0.0], p=[0.25, 0.35, 0.34, 0.03, 0.03]))
    kept = [name for name in net.names if dice.random() < share]
    regions, domains = [], []
    for _ in range(count):
        region, domain = _domain(dice, net, disc)
        regions.append(region)
        domains.append(domain)
    patching, patches, note = _patching(dice, net, regions, disc)
    target: Any = "predicted"
    if dice.random() < 0.5:
        listed = [int(dice.integers(net.outputs)) for _ in range(count)]
        target = listed if dice.random() < 0.5 else listed[0]
    return Case(
        seed=seed,
        net=net,
        kept=kept,
        granularity=granularity,
        regions=regions,
        domains=domains,
        patching=patching,
        patches=patches,
        metric=metric,
        target=target,
        notes=[str(kind), granularity, note],
    )


def small(seed: int, net: Network | None = None, p: float | None = None) -> Case:
    """A random case of few units: input balls, and patches that a point or a fixed value gives."""
    dice = np.random.default_rng(10_000 + seed)
    metric = ["norm1", "logit", "max", "winner-runner", "norm1", "winner-all"][seed % 6]
    if net is None:
        sizes = [2, int(dice.integers(3, 6)), int(dice.integers(2, 4)), 3]
        net = fully_connected(dice, sizes, 0.1 if seed % 4 == 3 else 0.0)
    elif metric.startswith("winner"):
        metric = "max"
    kept = [name for name in net.names if dice.random() < 0.6]
    regions, domains = [], []
    for _ in range(2):
        if p is None:
            region, domain = _domain(dice, net, disc=False)
        else:
            center, eps = np.round(dice.random(net.inputs), 3), 0.3
            widest = np.full(net.inputs, np.inf)
            region = Region(center, -widest, widest, p, eps)
            domain = pc.Ball(center.reshape(net.shape), eps, p)
        regions.append(region)
        domains.append(domain)
    patching: pc.Patching = pc.Zero()
    patches: list[Patch] = [{c.step: np.zeros(net.steps[c.step].size) for c in net.cuts}] * 2
    if seed % 2:
        widest = np.full(net.inputs, np.inf)
        patching = pc.Reachable(eps=0.2)
        patches = [Region(r.center, -widest, widest, math.inf, 0.2) for r in regions]
    return Case(
        seed=seed,
        net=net,
        kept=kept,
        granularity="neuron",
        regions=regions,
        domains=domains,
        patching=patching,
        patches=patches,
        metric=metric,
        notes=["small"],
    )


def _domain(dice: Dice, net: Network, disc: bool) -> tuple[Region, pc.Domain]:
    """One domain, for the oracle and for the package."""
    center = np.round(dice.random(net.inputs), 3)
    shaped = center.reshape(net.shape)
    widest = np.full(net.inputs, np.inf)
    kind = str(dice.choice(["point", "box", "inf", "one"], p=[0.2, 0.15, 0.45, 0.2]))
    eps = float(dice.choice([0.02, 0.1, 0.3, 0.7]))
    if net.inputs > 8:
        eps = min(eps, 0.3)
    if kind == "point" and not disc:
        return Region(center, center, center), pc.Point(shaped)
    if kind == "box" and not disc:
        lower = center - eps * dice.random(net.inputs)
        upper = center + eps * dice.random(net.inputs)
        if dice.random() < 0.5:
            box = pc.Box(lower.reshape(net.shape), upper.reshape(net.shape))
            middle = box.center.numpy().ravel()  # a number of the claim, however it was rounded
            return Region(middle, lower, upper), box
        region = Region(center, lower, upper)
        return region, pc.Box(lower.reshape(net.shape), upper.reshape(net.shape), shaped)
    p = 2.0 if disc else (1.0 if kind == "one" else math.inf)
    low, high, clip = -widest, widest, None
    if dice.random() < 0.4:
        clip = (0.0, 1.0) if dice.random() < 0.7 else (shaped - 0.6 * eps, shaped + 0.4 * eps)
        low, high = (np.broadcast_to(np.ravel(end), net.inputs).astype(float) for end in clip)
    free = None
    if disc and net.inputs > 2:
        free = np.zeros(net.inputs, dtype=bool)
        free[dice.choice(net.inputs, 2, replace=False)] = True
    elif not disc and dice.random() < 0.25:
        free = dice.random(net.inputs) < 0.6
    radius: Any = eps
    if p == math.inf and dice.random() < 0.15:
        radius = eps * dice.random(net.inputs)
    elif p == 1 and dice.random() < 0.5:
        radius = 2 * eps
    mask = None if free is None else free.reshape(net.shape)
    shape = np.reshape(radius, net.shape) if np.ndim(radius) else radius
    return Region(center, low, high, p, radius, free), pc.Ball(shaped, shape, p, clip, mask)


def _patching(
    dice: Dice, net: Network, regions: list[Region], disc: bool
) -> tuple[pc.Patching, list[Patch], str]:
    """What removed components output: for the package, and for each input for the oracle."""
    kind = str(
        dice.choice(
            ["zero", "constant", "by layer", "mean", "reachable", "hull"],
            p=[0.27, 0.08, 0.05, 0.1, 0.27, 0.23],
        )
    )
    steps = {cut.step: net.steps[cut.step].size for cut in net.cuts}
    count = len(regions)
    if kind in ("zero", "constant"):
        number = 0.0 if kind == "zero" else round(float(dice.normal()), 3)
        fixed: Patch = {step: np.full(size, number) for step, size in steps.items()}
        return (pc.Zero() if kind == "zero" else pc.Constant(number)), [fixed] * count, kind
    if kind == "by layer":
        chosen = [cut for cut in net.cuts if dice.random() < 0.7]
        drawn = {cut.layer: np.round(dice.normal(size=1), 3) for cut in chosen}
        values = {step: np.zeros(size) for step, size in steps.items()}
        values |= {c.step: np.full(steps[c.step], drawn[c.layer][0]) for c in chosen}
        return pc.Constant(drawn), [values] * count, kind
    if kind == "mean":
        data = np.round(dice.random((5, net.inputs)), 3)
        runs = [net.run(x) for x in data]
        means = {step: np.mean([run[step] for run in runs], axis=0) for step in steps}
        return pc.Mean(data.reshape(5, *net.shape)), [means] * count, kind
    given, sources, note = _sources(dice, net, regions, disc)
    if kind == "reachable":
        return pc.Reachable(**given), list(sources), f"reachable {note}"
    hulls: list[Patch] = []
    for source in sources:
        boxes = net.intervals(*source.ends)
        hulls.append({step: boxes[step] for step in steps})
    return pc.IntervalHull(**given), hulls, f"hull {note}"


def _sources(
    dice: Dice, net: Network, regions: list[Region], disc: bool
) -> tuple[dict[str, Any], list[Region], str]:
    """Where patch inputs range: a radius around each input, one domain for all, or one for each."""
    way = str(dice.choice(["radius", "one", "each"], p=[0.6, 0.2, 0.2]))
    if way == "radius":
        eps = float(dice.choice([0.02, 0.1, 0.3]))
        p = math.inf
        if dice.random() < 0.3:
            p = 2.0 if disc and net.inputs == 2 else 1.0
        widest = np.full(net.inputs, np.inf)
        low, high, clip = -widest, widest, None
        if dice.random() < 0.3:
            low, high, clip = np.full(net.inputs, -4.0), np.full(net.inputs, 4.0), (-4.0, 4.0)
        around = [Region(region.center, low, high, p, eps) for region in regions]
        return {"eps": eps, "p": p, "clip": clip}, around, f"radius, p={p:g}"
    pairs = [_domain(dice, net, disc and net.inputs == 2) for _ in regions]
    if way == "one":
        return {"domains": pairs[0][1]}, [pairs[0][0]] * len(regions), "one domain"
    return {"domains": [d for _, d in pairs]}, [r for r, _ in pairs], "domain each"


# --- judging a witness --------------------------------------------------------------------------


def _intervals(given: Mapping[int, Any], removed: Mapping[int, Any]) -> dict[int, tuple[Any, Any]]:
    """The intervals that removed units take their values from, if they are patched so."""
    return {step: given[step] for step in removed if isinstance(given[step], tuple)}


def broken(case: Case, tolerance: float, witness: pc.Witness) -> str | None:
    """What is wrong with a witness: None if it is inside its domains and breaks the claim.

    Inside exactly; and broken in exact arithmetic, unless numbers of the claim itself (means,
    margins, batch normalisation, hulls) are rounded ones, which are then trusted to 1e-11.
    """
    j = witness.index
    z = witness.z.numpy().ravel()
    if not case.regions[j].contains(z):
        return "the input lies outside its domain"
    given = case.patches[j]
    hull = {} if isinstance(given, Region) else _intervals(given, case.removed)
    source = None
    patch: dict[int, Vector] = {}
    if case.removed and isinstance(given, Region):
        if witness.patch_input is None:
            return "the patch input is missing"
        source = witness.patch_input.numpy().ravel()
        if not given.contains(source):
            return "the patch input lies outside its domain"
    elif hull:
        names = {cut.step: cut.layer for cut in case.net.cuts}
        sites = {site.layer.name: site.tensor for site in case.circuit.components.sites}
        for step, gone in case.removed.items():
            if witness.patch_values is None or sites[names[step]] not in witness.patch_values:
                return "a patch value is missing"
            value = witness.patch_values[sites[names[step]]].numpy().ravel()
            low, high = hull[step]
            slack = 1e-11 * (1 + np.maximum(abs(low), abs(high)))
            if ((value < low - slack) | (value > high + slack))[gone].any():
                return "a patch value lies outside its interval"
            patch[step] = value
    winner = case.metric.startswith("winner")
    limit = -tolerance * case.gap(j) if winner else tolerance
    excess = case.value(j, z, source, patch) - limit
    if excess > 1e-9:
        return None
    rounded = winner or isinstance(case.patching, pc.Mean) or case.metric == "norm2"
    rounded |= any(hasattr(case.net.module, f"norm{i}") for i in range(3))
    if rounded:
        return None if excess > -1e-11 else f"the excess is only {excess}"
    source = None if source is None else exact(source)
    value = case.value(j, exact(z), source, patch)
    return (
        None
        if value - Fraction(limit) > 0
        else f"the excess is only {float(value - Fraction(limit))}"
    )
