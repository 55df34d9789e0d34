"""Predicates: what a search asks of circuits.

``Decided`` asks the verifier, for the whole of the claim's domains. ``Sampled`` is the baseline of
the field: it evaluates the metric, in floating point, at the claim's unperturbed inputs and, if
asked to, at random points of their domains. It can refute a circuit; it can never prove one.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from provable_circuits.arguments import whole
from provable_circuits.claims.claim import Claim
from provable_circuits.errors import ArgumentError
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.components import Components
from provable_circuits.verify.choice import verifier_of
from provable_circuits.verify.configuration import DEFAULT, Configuration
from provable_circuits.verify.deadline import limits
from provable_circuits.verify.stage import Stage
from provable_circuits.verify.verdict import Held, Refuted, Verdict, Witness
from provable_circuits.verify.verifier import Verifier


def faithful(verdict: Verdict) -> bool:
    """Whether a circuit may be taken: proved, or held where the predicate is sampled."""
    return verdict.proved or verdict.held


class Predicate(ABC):
    """Is this circuit faithful? Asked of several circuits at once, answered in the same order."""

    components: Components

    together: int = 1
    """How many circuits are worth screening at once."""

    foresees: bool = False
    """Whether ``broken`` and ``suspects`` tell anything."""

    wave: int = 64
    """How many circuits are best asked about at once, where there are many."""

    @abstractmethod
    def ask(self, circuits: Sequence[Circuit], limit: float = math.inf) -> list[Verdict]:
        """One verdict for each circuit; ``limit`` is in seconds, for all of them."""

    def stream(
        self, circuits: Sequence[Circuit], limit: float = math.inf
    ) -> Iterator[list[Verdict]]:
        """The verdicts that ``ask`` gives, in the same order, part by part as they are there."""
        ends = time.monotonic() + limit
        for start in range(0, len(circuits), self.wave):
            part = circuits[start : start + self.wave]
            yield self.ask(part, max(ends - time.monotonic(), 0.001))

    def screen(self, circuits: Sequence[Circuit]) -> list[Verdict | None]:
        """Cheap verdicts; None for circuits that only ``ask`` can decide."""
        return [None] * len(circuits)

    def ahead(
        self, circuits: Sequence[Circuit], limit: float = math.inf
    ) -> list[Callable[[], Verdict]]:
        """Verdicts on circuits that may be wanted, each when it is called for.

        What is cheap for all together is done at once; the rest only for those called for.
        """

        def answer(circuit: Circuit, verdict: Verdict | None) -> Verdict:
            return self.ask([circuit], limit)[0] if verdict is None else verdict

        screened = self.screen(circuits) if len(circuits) > 1 else [None] * len(circuits)
        return [partial(answer, *pair) for pair in zip(circuits, screened, strict=True)]

    def carried(
        self, circuits: Sequence[Circuit], refutations: Sequence[Refuted]
    ) -> list[Refuted | None]:
        """Refutations of other circuits, each tried on one of these; None where it fails."""
        return [None] * len(circuits)

    def grown(
        self, circuit: Circuit, refuted: Refuted, favour: Tensor
    ) -> list[tuple[Circuit, Refuted]]:
        """Refuted circuits that contain a refuted one, as large as cheap means find them, if any.

        Args:
            circuit: the circuit.
            refuted: its refutation.
            favour: [growths, components]; how gladly each of several growths keeps a component.
        """
        return []

    def prepare(self, limit: float = math.inf) -> None:
        """Do the work that all questions share, within so many seconds."""

    def close(self) -> None:
        """Give back what the predicate holds besides memory."""

    def broken(self, circuits: Sequence[Circuit]) -> list[bool]:
        """Which circuits earlier witnesses seem to break; a guess that nothing may rest on."""
        return [False] * len(circuits)

    def suspects(self, circuits: Sequence[Circuit]) -> list[bool]:
        """The same, after a look for new witnesses."""
        return self.broken(circuits)


class Decided(Predicate):
    """Faithfulness everywhere in the claim's domains, decided by the verifier.

    Args:
        components: the components that circuits are sets of.
        claim: the claim.
        timeout: seconds for each question; 45 by default, and none where ``max_nodes`` is given.
        max_nodes: nodes for each question: a limit that is repeatable.
        seed: the seed of the attack's random starts.
        device: where bounds are computed.
        configuration: the tuning of the verifier.
    """

    def __init__(
        self,
        components: Components,
        claim: Claim,
        timeout: float | None = None,
        seed: int = 0,
        device: torch.device | str = "cpu",
        max_nodes: int | None = None,
        configuration: Configuration = DEFAULT,
    ) -> None:
        self.components = components
        self.claim = claim
        self.verifier = verifier_of(
            components, claim, seed=seed, device=device, configuration=configuration
        )
        usual = configuration.limits.question_seconds
        self.timeout, self.max_nodes = limits(timeout, max_nodes, usual)
        self.together = self.verifier.together
        self.foresees = self.verifier.small

    def ask(self, circuits: Sequence[Circuit], limit: float = math.inf) -> list[Verdict]:
        ends = time.monotonic() + limit
        found: list[Verdict | None] = [None] * len(circuits)
        if len(circuits) > 1:
            found = self.verifier.screen(circuits, min(self.timeout, limit))
        return [
            self._ask(circuit, ends) if verdict is None else verdict
            for circuit, verdict in zip(circuits, found, strict=True)
        ]

    def _ask(self, circuit: Circuit, ends: float) -> Verdict:
        """The verdict on a circuit, by a moment on the clock at the latest."""
        left = max(ends - time.monotonic(), 0.001)
        return self.verifier.ask(circuit, min(self.timeout, left), self.max_nodes, left)

    def prepare(self, limit: float = math.inf) -> None:
        self.verifier.prepare(limit)

    def screen(self, circuits: Sequence[Circuit]) -> list[Verdict | None]:
        return self.verifier.screen(circuits, self.timeout)

    def remember(self, witness: Witness) -> None:
        """Try a witness of another question on later ones, where it is replayed first."""
        if isinstance(self.verifier, Verifier):
            self.verifier.knowledge.remember(witness)

    def broken(self, circuits: Sequence[Circuit]) -> list[bool]:
        return self.verifier.broken(circuits)

    def suspects(self, circuits: Sequence[Circuit]) -> list[bool]:
        return self.verifier.suspects(circuits)

    def carried(
        self, circuits: Sequence[Circuit], refutations: Sequence[Refuted]
    ) -> list[Refuted | None]:
        return self.verifier.carried(circuits, [refuted.witness for refuted in refutations])

    def grown(
        self, circuit: Circuit, refuted: Refuted, favour: Tensor
    ) -> list[tuple[Circuit, Refuted]]:
        return self.verifier.grown(circuit, refuted.witness, favour)


class Sampled(Predicate):
    """Faithfulness at points: the unperturbed inputs, and random points of their domains.

    Args:
        components: the components that circuits are sets of.
        claim: the claim; its patching must be Zero, Mean or Constant.
        points: how many random points of each domain are tried besides the unperturbed input.
        seed: the seed of those points.
    """

    def __init__(
        self, components: Components, claim: Claim, points: int = 0, seed: int = 0
    ) -> None:
        claim.check(components.graph)
        if not claim.patching.is_fixed:
            raise ArgumentError(
                "Sampling needs a patching with fixed values: Zero, Mean or Constant. "
                f"Got {claim.patching!r} instead."
            )
        points = whole("points", points, least=0)
        self.components = components
        self.claim = claim
        graph = components.graph
        generator = torch.Generator().manual_seed(seed)
        samples = [
            torch.cat([domain.center.unsqueeze(0), domain.sample(points, generator)])
            for domain in claim.inputs
        ]
        # The first point of every input, then the second of every input, and so on.
        self._x = torch.stack(samples, dim=1).flatten(0, 1)
        self._patch = claim.patching.values(components)
        self._reference = graph.run(self._x)
        self._anchor = graph.run(claim.centers)

    @property
    def point_count(self) -> int:
        """How many points each circuit is tried at."""
        return len(self._x)

    def excess(self, circuits: Sequence[Circuit]) -> tuple[Tensor, Tensor]:
        """By how much each circuit exceeds the metric at each point, and its outputs there."""
        outputs = self.components.run(circuits, self._x, self._patch)
        by_input = (-1, len(self._anchor), outputs.shape[-1])
        excess = self.claim.metric.excess(
            self._anchor,
            self._reference.reshape(by_input),
            outputs.reshape(len(circuits), *by_input),
        )
        return excess.flatten(1), outputs

    def ask(self, circuits: Sequence[Circuit], limit: float = math.inf) -> list[Verdict]:
        if not circuits:
            return []
        excess, outputs = self.excess(circuits)
        excess = excess.masked_fill(excess.isnan(), torch.inf)
        worst, place = excess.max(1)
        return [
            self._refuted(float(worst[i]), int(place[i]), outputs[i])
            if worst[i] > 0
            else Held(self.point_count, float(worst[i]))
            for i in range(len(circuits))
        ]

    def carried(
        self, circuits: Sequence[Circuit], refutations: Sequence[Refuted]
    ) -> list[Refuted | None]:
        return [v if isinstance(v, Refuted) else None for v in self.ask(circuits)]

    def _refuted(self, excess: float, place: int, outputs: Tensor) -> Refuted:
        witness = Witness(
            index=place % len(self._anchor),
            z=self._x[place],
            excess=excess,
            reference=self._reference[place],
            output=outputs[place],
        )
        return Refuted(witness, Stage.SAMPLING)
