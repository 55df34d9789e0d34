"""Sequences: a random network, a random claim, and adversarial questions to one verifier."""

from __future__ import annotations

import math
import traceback
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from tests.enclosures import adapter
from tests.enclosures.adapter import Regime
from tests.enclosures.comparison import Contradiction
from tests.enclosures.networks import Dice, components, network
from tests.enclosures.points import attacked, random_points
from tests.enclosures.truth import Points, Truth
from tests.enclosures.watch import Watch
from torch import Tensor

import provable_circuits as pc
from provable_circuits.claims.domains import Domain
from provable_circuits.claims.metrics import Metric
from provable_circuits.claims.patching import Patching
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.components import Components
from provable_circuits.verify.verdict import Refuted
from provable_circuits.verify.verifier import Verifier

REGIMES = (
    Regime(),
    Regime(small=0),
    Regime(small=0),
    Regime(small=0, single=0),
    Regime(small=10**9, solved=0),
)
"""As it is; small networks treated as large ones; these in float32 besides; all as small ones whose
subdomains are put to the solver at once."""


@dataclass
class Outcome:
    """What came of a sequence."""

    seed: int
    words: str
    questions: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    contradictions: list[Contradiction] = field(default_factory=list)


def domain(dice: Dice, x: Tensor) -> Domain:
    """A domain of any kind around an input."""
    eps = dice.random.choice([0.005, 0.02, 0.1, 0.3, 0.5])
    kind = dice.between(0, 11)
    if kind == 0:
        return pc.Point(x)
    if kind <= 2:
        return pc.Box(x - eps * dice.uniform(*x.shape), x + eps * dice.uniform(*x.shape), x)
    if kind == 3:
        return pc.Ball(x, eps * dice.uniform(*x.shape))
    mask = dice.uniform(*x.shape) < 0.6 if dice.chance(0.25) else None
    clip = (0.0, 1.0) if dice.chance(0.3) else None
    if kind <= 5:
        return pc.Ball(x, eps * math.sqrt(x.numel()) * 0.5, 2, clip, mask)
    if kind == 6:
        return pc.Ball(x, eps * x.numel() * 0.3, 1, clip, mask)
    return pc.Ball(x, eps, clip=clip, mask=mask)


def patching(dice: Dice, parts: Components, count: int) -> Patching:
    """A patching of any kind."""
    shape = parts.graph.input_shape
    kind = dice.between(0, 9)
    if kind <= 3 or dice.chance(0.2):
        return pc.Zero()
    if kind == 4:
        return pc.Mean(dice.uniform(5, *shape))
    if kind == 5:
        if dice.chance(0.5):
            return pc.Constant(dice.random.choice([0.5, -1.0, 0.0]))
        layers = [site.layer for site in parts.sites if dice.chance(0.6)]
        return pc.Constant({layer.name: dice.normal(*layer.shape) for layer in layers})
    chosen = pc.Reachable if kind <= 7 else pc.IntervalHull
    if dice.chance(0.6):
        return chosen(eps=dice.random.choice([0.01, 0.1, 0.3]))
    return chosen(domains=[domain(dice, dice.uniform(*shape)) for _ in range(count)])


def metric(dice: Dice, count: int, outputs: int) -> Metric:
    """A metric of any kind, its tolerance zero."""
    kind = dice.between(0, 9)
    if kind <= 4:
        target: int | str | list[int] = dice.between(0, outputs - 1)
        if dice.chance(0.3):
            target = "predicted"
        elif dice.chance(0.2):
            target = [dice.between(0, outputs - 1) for _ in range(count)]
        return pc.LogitDifference(0.0, target)
    if kind <= 6:
        return pc.MaxAbs(0.0)
    if kind <= 8:
        return pc.Norm(0.0, dice.random.choice([1, 2, math.inf]))
    return pc.WinnerMargin(dice.uniform(1).item(), dice.random.choice(["runner-up", "all"]))


def claim(dice: Dice, parts: Components) -> tuple[pc.Claim, Circuit]:
    """A claim, and a circuit of which it is nearly true or nearly false."""
    count = dice.random.choice([1, 1, 2, 3])
    shape = parts.graph.input_shape
    inputs: list[Domain] = [domain(dice, dice.uniform(*shape)) for _ in range(count)]
    if dice.chance(0.1):
        inputs = [pc.Point(given.center) for given in inputs]
    patches = patching(dice, parts, count)
    measure = metric(dice, count, parts.graph.output_shape[0])
    some = subset(dice, parts.full(), dice.random.choice([0.1, 0.3, 0.6]))
    if isinstance(measure, pc.WinnerMargin):
        return pc.Claim(inputs, patches, measure), some
    probe = Truth(parts, pc.Claim(inputs, patches, measure))
    points = random_points(probe, 4, dice.generator)
    hard = dice.chance(0.7)
    if hard:
        points = attacked(probe, some, points, 6)
    far = float(probe.excess(some, points)[1].max())
    tolerance = far * dice.random.choice([0.97, 1.02, 1.05, 1.2] if hard else [0.3, 0.8, 1.5, 4.0])
    if not math.isfinite(tolerance) or dice.chance(0.03):
        tolerance = 0.0
    measure = replace(measure, tolerance=max(tolerance, 0.0))  # type: ignore[type-var]
    return pc.Claim(inputs, patches, measure), some


def subset(dice: Dice, circuit: Circuit, share: float) -> Circuit:
    """The circuit without a random share of its components."""
    return circuit.remove(*(name for name in circuit.names if dice.chance(share)))


class Questions:
    """Chooses circuits: each differs from the last, or from earlier ones, in some planned way."""

    def __init__(self, dice: Dice, parts: Components, close: Circuit) -> None:
        self.dice = dice
        self.parts = parts
        self.close = close
        """A circuit that is hard to decide."""
        self.asked: list[Circuit] = [parts.full()]
        self.planned: list[Circuit] = []
        self.proved: Circuit = parts.full()
        """What was proved last: questions about what it contains reuse most."""

    def next(self) -> Circuit:
        """The next circuit."""
        if not self.planned:
            self._plan()
        circuit = self.planned.pop(0)
        self.asked.append(circuit)
        return circuit

    def _plan(self) -> None:
        dice, parts = self.dice, self.parts
        last = self.proved if dice.chance(0.75) else self.asked[-1]
        kind = dice.between(0, 14)
        names = list(last.names)
        if kind <= 2 and names:
            self.planned = [last.remove(dice.random.choice(names))]
        elif kind <= 6:
            self._empty_a_layer(last)
        elif kind == 7:
            self.planned = [subset(dice, last, 0.3)]
        elif kind == 8:
            gone = (~last).names
            back = [name for name in gone if dice.chance(0.5)]
            self.planned = [parts.circuit([*last.names, *back])]
        elif kind == 9:
            self.planned = [dice.random.choice(self.asked)]
        elif kind == 10:
            self.planned = [subset(dice, parts.full(), dice.random.random())]
        elif kind == 11:
            self.planned = [dice.random.choice([parts.full(), parts.empty(), last])]
        else:
            self._near(self.close)

    def _near(self, circuit: Circuit) -> None:
        """A circuit that is hard to decide, or one that differs from it by a component or two."""
        dice = self.dice
        back, own = (~circuit).names, circuit.names
        if back and dice.chance(0.5):
            circuit = self.parts.circuit([*own, dice.random.choice(back)])
        if own and dice.chance(0.3):
            circuit = circuit.remove(dice.random.choice(own))
        self.planned = [circuit]

    def _empty_a_layer(self, last: Circuit) -> None:
        """Some components of a layer, then all of them; sometimes another's in between."""
        dice = self.dice
        own: dict[str, list[str]] = {}
        for component in last:
            own.setdefault(component.layer, []).append(component.name)
        if not own:
            self.planned = [self.parts.full()]
            return
        start = last if dice.chance(0.7) else self.parts.full()
        layer = dice.random.choice(list(own))
        names = [c.name for c in start if c.layer == layer]
        cut = dice.between(0, max(len(names) - 1, 0))
        steps = [start.remove(*names[:cut]), start.remove(*names)]
        if dice.chance(0.4):
            other = dice.random.choice(list(own))
            also = [c.name for c in start if c.layer == other]
            also = also if dice.chance(0.3) else also[:1]
            steps = [step.remove(*(n for n in also if n in step.names)) for step in steps]
        self.planned = [start, *steps] if start != last else steps


def play(seed: int, large: bool = False, questions: int = 8) -> Outcome:
    """One sequence, from its seed."""
    dice = Dice(seed)
    graph = network(dice, large)
    parts = components(dice, graph)
    about, close = claim(dice, parts)
    regime = Regime() if large else dice.random.choice(REGIMES)
    outcome = Outcome(
        seed,
        f"{parts!r}; {', '.join(map(repr, about.inputs))}; {about.patching!r}; {about.metric!r}; "
        f"{regime!r}",
    )
    with torch.no_grad():
        truth = Truth(parts, about)
        watch = Watch(
            truth, random_points(truth, 4 if len(about.inputs) > 1 else 6, dice.generator)
        )
        with watch.on():
            _ask_all(dice, Questions(dice, parts, close), watch, outcome, questions, regime)
        outcome.counts, outcome.contradictions = watch.counts, watch.contradictions
    return outcome


def _ask_all(
    dice: Dice, plan: Questions, watch: Watch, outcome: Outcome, count: int, regime: Regime
) -> None:
    parts = plan.parts
    verifier = Verifier(
        parts, watch.truth.claim, seed=outcome.seed, configuration=regime.configuration
    )
    while outcome.questions < count:
        if dice.chance(0.15):
            _screen(dice, verifier, plan, watch, outcome)
            continue
        circuit = plan.next()
        looks = dice.between(0, 12) if dice.chance(0.12) else 120
        watch.circuit = circuit
        try:
            verdict = adapter.ask(verifier, circuit, looks)
        except Exception as error:  # whatever is raised is a finding of its own
            watch.note("raised", type(error).__name__, _last_line(error))
            outcome.questions += 1
            continue
        outcome.questions += 1
        more = None
        if verdict.proved:
            plan.proved = circuit
            more = attacked(watch.truth, circuit, watch.points, 4)
        watch.verdict(circuit, verdict, more)
        watch.verifier(verifier)
        if isinstance(verdict, Refuted) and dice.chance(0.15):
            favour = torch.zeros(1, len(parts), dtype=torch.float64)
            for grown, refuted in verifier.grown(circuit, verdict.witness, favour):
                watch.verdict(grown, refuted)
        if more is not None and dice.chance(0.3):
            watch.take(_mixed(watch.points, more))


def _last_line(error: Exception) -> str:
    """Where an error was raised, and what it says."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(frame.filename).name}, {frame.name}: {error}"


def _mixed(points: Points, more: Points) -> Points:
    """Half of the points anew, and half of those that an attack found."""
    some = torch.arange(len(points))
    return Points.joined([points[some[some % 2 == 0]], more[some[some % 2 == 1]]])


def _screen(
    dice: Dice, verifier: Verifier, plan: Questions, watch: Watch, outcome: Outcome
) -> None:
    """Several circuits at once, some of which are asked about later."""
    last = plan.asked[-1]
    some = [last.remove(name) for name in last.names if dice.chance(0.4)][:5]
    some += [subset(dice, plan.parts.full(), 0.5)]
    if dice.chance(0.2):
        verifier.suspects(some)
    looks = 0 if dice.chance(0.1) else 60
    for circuit, verdict in zip(some, adapter.screen(verifier, some, looks), strict=True):
        if verdict is not None:
            watch.verdict(circuit, verdict)
    outcome.questions += 1
    plan.planned = [dice.random.choice(some), *plan.planned]
    watch.verifier(verifier)
