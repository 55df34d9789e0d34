"""Truth: what a network and its circuits compute at points, from the definitions alone.

The network as given is walked node by node in interval arithmetic. A circuit's run does the same
and, at every tensor where components are cut, puts the patch in place of the units that are
removed. Nothing here knows how queries are encoded, merged or lowered.

A point is an input ``z`` of one of the claim's domains and, where patches range, an input of the
patching domain or a value for each unit of its box.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

import provable_circuits as pc
from provable_circuits.claims.domains import Domain
from provable_circuits.claims.metrics import Metric
from provable_circuits.claims.patching import RangingPatching
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.components import Components
from provable_circuits.network.graph import Graph
from provable_circuits.network.ops import Input, Op
from provable_circuits.rounding import Interval

CPU = torch.device("cpu")
SLACK = 1e-11
"""What this module's own sums may be off by, relative to their terms."""


@dataclass(frozen=True, eq=False)
class Points:
    """Points, n of them.

    Attributes:
        index: which of the claim's inputs each belongs to, [n].
        z: the inputs, [n, *shape].
        source: where patches are taken, [n, *shape], for patching by what is reachable.
        values: patch values by site, [n, *shape], for patching by boxes.
    """

    index: Tensor
    z: Tensor
    source: Tensor | None
    values: Mapping[str, Tensor] | None

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, some: Tensor) -> Points:
        values = self.values
        return Points(
            self.index[some],
            self.z[some],
            None if self.source is None else self.source[some],
            None if values is None else {name: value[some] for name, value in values.items()},
        )

    @staticmethod
    def joined(several: Sequence[Points]) -> Points:
        """All points of several."""
        first = several[0]
        source, values = None, None
        if first.source is not None:
            source = torch.cat([p.source for p in several if p.source is not None])
        if first.values is not None:
            values = {
                name: torch.cat([p.values[name] for p in several if p.values is not None])
                for name in first.values
            }
        return Points(
            torch.cat([p.index for p in several]), torch.cat([p.z for p in several]), source, values
        )


@dataclass(frozen=True, eq=False)
class Run:
    """A circuit's tensors by name, each [n, *shape], before and behind the patch."""

    before: Mapping[str, Interval]
    after: Mapping[str, Interval]


def meets(one: Interval, other: Interval) -> Tensor:
    """Where two intervals have a number in common; one that is NaN has none."""
    return (one[0] <= other[1]) & (other[0] <= one[1])


def inside(domain: Domain, point: Tensor) -> bool:
    """Whether a point lies in a domain, in exact arithmetic."""
    if isinstance(domain, pc.Point):
        return bool((point == domain.x).all())
    if isinstance(domain, pc.Box):
        return bool(((point >= domain.lower) & (point <= domain.upper)).all())
    if not isinstance(domain, pc.Ball):
        raise TypeError(type(domain).__name__)
    flat, center = point.flatten().tolist(), domain.x.flatten().tolist()
    moved = [Fraction(a) - Fraction(b) for a, b in zip(flat, center, strict=True)]
    if domain.mask is not None:
        free = domain.mask.expand(domain.shape).flatten().tolist()
        if any(m != 0 and not f for m, f in zip(moved, free, strict=True)):
            return False
    if domain.clip is not None:
        low, high = domain.clip
        if not bool(((point >= low) & (point <= high)).all()):
            return False
    radii = [Fraction(r) for r in domain.eps.expand(domain.shape).flatten().tolist()]
    if domain.p == math.inf:
        return all(abs(m) <= r for m, r in zip(moved, radii, strict=True))
    if domain.p == 1:
        return sum((abs(m) for m in moved), Fraction(0)) <= radii[0]
    return sum((m * m for m in moved), Fraction(0)) <= radii[0] ** 2


class Truth:
    """One claim about one network, at points."""

    def __init__(self, components: Components, claim: pc.Claim) -> None:
        self.components = components
        self.graph: Graph = components.graph
        self.claim = claim
        self.ops: dict[str, Op] = {
            node.name: node.op.to(torch.float64, CPU) for node in self.graph.nodes
        }
        self.sites = {site.tensor: site for site in components.sites}
        self.anchor = self.forward(None, torch.stack([d.center for d in claim.inputs]), {})
        self.fixed = self._fixed()
        self.boxes = [self._boxes(j) for j in range(len(claim.inputs))]

    # --- what patches are -------------------------------------------------------------------------

    def patch_domain(self, index: int) -> Domain:
        """The domain that patches come from, for one of the claim's inputs."""
        patching = self.claim.patching
        if not isinstance(patching, RangingPatching):
            raise TypeError("these patches are fixed")
        if patching.domains is None:
            return pc.Ball(self.claim.inputs[index].center, patching.eps, patching.p, patching.clip)
        if isinstance(patching.domains, Domain):
            return patching.domains
        return patching.domains[index]

    def _fixed(self) -> dict[str, Tensor] | None:
        """The values of a fixed patching by site, [1, *shape]."""
        patching, found = self.claim.patching, {}
        if isinstance(patching, RangingPatching):
            return None
        for name, site in self.sites.items():
            shape = site.layer.shape
            if isinstance(patching, pc.Zero):
                found[name] = torch.zeros(1, *shape, dtype=torch.float64)
            elif isinstance(patching, pc.Constant):
                value = patching.value
                if isinstance(value, Mapping):
                    value = value.get(site.layer.name, 0.0)
                number = torch.as_tensor(value, dtype=torch.float64)
                found[name] = number.expand(shape).unsqueeze(0)
            elif isinstance(patching, pc.Mean):
                # The means belong to the claim as they are; here they must only be the means.
                found[name] = patching.values(self.components)[name]
                own = self.tensors(patching.data)[name].mean(0)
                if not torch.allclose(found[name][0], own, rtol=1e-9, atol=1e-9):
                    raise AssertionError(f"the mean at {name} is not one")
            else:
                raise TypeError(type(patching).__name__)
        return found

    def _boxes(self, index: int) -> dict[str, Interval] | None:
        """The boxes of interval patching by site, [1, *shape]."""
        if not isinstance(self.claim.patching, pc.IntervalHull):
            return None
        lower, upper = self.patch_domain(index).bounds()
        found = self.network((lower.unsqueeze(0), upper.unsqueeze(0)))
        return {name: found[name] for name in self.sites}

    # --- runs -------------------------------------------------------------------------------------

    def network(self, given: Interval) -> dict[str, Interval]:
        """Every tensor of the network over inputs within ``given``, [n, *shape]."""
        found: dict[str, Interval] = {}
        for node in self.graph.nodes:
            if isinstance(node.op, Input):
                found[node.name] = given
            else:
                ends = self.ops[node.name].interval(*(found[name] for name in node.inputs))
                found[node.name] = _expanded(ends, len(given[0]))
        return found

    def patches(self, points: Points) -> dict[str, Interval]:
        """What the units of every site output where they are removed."""
        if self.fixed is not None:
            return {name: (value, value) for name, value in self.fixed.items()}
        if points.values is not None:
            return {name: (value, value) for name, value in points.values.items()}
        if points.source is None:
            raise ValueError("these points have no patches")
        found = self.network((points.source, points.source))
        return {name: found[name] for name in self.sites}

    def run(self, circuit: Circuit, points: Points) -> Run:
        """A circuit's run."""
        patches = self.patches(points)
        keep = self.kept(circuit)
        before: dict[str, Interval] = {}
        after: dict[str, Interval] = {}
        for node in self.graph.nodes:
            if isinstance(node.op, Input):
                ends = (points.z, points.z)
            else:
                ends = self.ops[node.name].interval(*(after[name] for name in node.inputs))
            ends = _expanded(ends, len(points))
            before[node.name] = ends
            if node.name in keep:
                mask, patch = keep[node.name], patches[node.name]
                ends = (torch.where(mask, ends[0], patch[0]), torch.where(mask, ends[1], patch[1]))
            after[node.name] = ends
        return Run(before, after)

    def kept(self, circuit: Circuit) -> dict[str, Tensor]:
        """Which units of every site a circuit keeps, [*shape]."""
        names = set(circuit.names)
        found = {}
        for tensor, site in self.sites.items():
            mask = torch.ones(site.layer.shape, dtype=torch.bool)
            labels = site.labels.expand(site.layer.shape)
            for component in site.components:
                if component.name not in names:
                    mask &= labels != component.index
            found[tensor] = mask
        return found

    # --- plain floating point, for finding points -------------------------------------------------

    def tensors(
        self,
        z: Tensor,
        circuit: Circuit | None = None,
        patches: Mapping[str, Tensor] | None = None,
    ) -> dict[str, Tensor]:
        """Every tensor of a run in float64, which can be differentiated."""
        keep = {} if circuit is None else self.kept(circuit)
        found: dict[str, Tensor] = {}
        for node in self.graph.nodes:
            if isinstance(node.op, Input):
                value = z
            else:
                value = self.ops[node.name].forward(*(found[name] for name in node.inputs))
            if node.name in keep and patches is not None:
                value = torch.where(keep[node.name], value, patches[node.name])
            found[node.name] = value
        return found

    def forward(self, circuit: Circuit | None, z: Tensor, patches: Mapping[str, Tensor]) -> Tensor:
        """The outputs of a circuit, or of the network, in float64."""
        output = self.tensors(z, circuit, patches)[self.graph.outputs[0]]
        return output.expand(len(z), -1)

    # --- the metric -------------------------------------------------------------------------------

    def excess(self, circuit: Circuit, points: Points) -> Interval:
        """By how much the metric is exceeded at points, at least and at most: [n]."""
        output = self.graph.outputs[0]
        own = self.run(circuit, points).after[output]
        reference = self.network((points.z, points.z))[output]
        return excess(self.claim.metric, self.anchor[points.index], reference, own, points.index)


def excess(
    metric: Metric, anchor: Tensor, reference: Interval, output: Interval, index: Tensor
) -> Interval:
    """By how much a metric is exceeded, at least and at most: [n].

    Args:
        metric: the metric.
        anchor: the network's outputs at the unperturbed inputs, [n, outputs].
        reference: the network's outputs at the points.
        output: the circuit's.
        index: which of the claim's inputs each point belongs to.
    """
    size = 1 + output[0].abs() + output[1].abs() + reference[0].abs() + reference[1].abs()
    slack = (SLACK * size).sum(1)
    place = torch.arange(len(anchor))
    low, high = output[0] - reference[1], output[1] - reference[0]
    far = torch.maximum(low.abs(), high.abs())
    near = torch.where((low <= 0) & (high >= 0), 0.0, torch.minimum(low.abs(), high.abs()))
    if isinstance(metric, pc.LogitDifference):
        if isinstance(metric.target, str):
            target = anchor.argmax(1)
        elif isinstance(metric.target, int):
            target = torch.full((len(anchor),), metric.target)
        else:
            target = torch.tensor(list(metric.target))[index]
        least, most = near[place, target], far[place, target]
    elif isinstance(metric, pc.MaxAbs):
        least, most = near.amax(1), far.amax(1)
    elif isinstance(metric, pc.Norm):
        least = torch.linalg.vector_norm(near, metric.p, dim=1)
        most = torch.linalg.vector_norm(far, metric.p, dim=1)
    elif isinstance(metric, pc.WinnerMargin):
        return _margin(metric, anchor, output, slack)
    else:
        raise TypeError(type(metric).__name__)
    tolerance = float(metric.tolerance)
    return least - tolerance - slack, most - tolerance + slack


def _margin(metric: pc.WinnerMargin, anchor: Tensor, output: Interval, slack: Tensor) -> Interval:
    order = anchor.argsort(dim=1, descending=True, stable=True)
    place = torch.arange(len(anchor))
    winner = order[:, 0]
    gap = metric.fraction * (anchor[place, winner] - anchor[place, order[:, 1]])
    rivals = order[:, 1:2] if metric.against == "runner-up" else order[:, 1:]
    low, high = (end.gather(1, rivals).amax(1) for end in output)
    return (
        gap - (output[1][place, winner] - low) - slack,
        gap - (output[0][place, winner] - high) + slack,
    )


def _expanded(ends: Interval, count: int) -> Interval:
    lower, upper = ends
    return lower.expand(count, *lower.shape[1:]), upper.expand(count, *upper.shape[1:])
