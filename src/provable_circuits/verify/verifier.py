"""The verifier: decides circuits of one network under one claim, one by one or many at once.

Everything that does not depend on the circuit is prepared once; enclosures of tensors that a later
question shares with an earlier one are found again, and a question that differs from the last proof
by a component starts from what was learnt there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from provable_circuits import arguments
from provable_circuits.arguments import each, instance, refused, time_limit, whole
from provable_circuits.claims.claim import Claim
from provable_circuits.claims.encoding import Encoder
from provable_circuits.claims.metrics import LogitDifference, MaxAbs, Norm
from provable_circuits.errors import ArgumentError
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.components import Components
from provable_circuits.network.graph import Graph
from provable_circuits.network.ops import Activation
from provable_circuits.rounding import Interval, exact_products
from provable_circuits.verify.bounds import Bounds, Structure
from provable_circuits.verify.branching import SMALL
from provable_circuits.verify.deadline import Deadline, OutOfTime
from provable_circuits.verify.difference import Difference, Known
from provable_circuits.verify.exact.stage import Exact
from provable_circuits.verify.growth import Growth
from provable_circuits.verify.inert import Inert
from provable_circuits.verify.memory import Memory
from provable_circuits.verify.question import Question
from provable_circuits.verify.region import Region
from provable_circuits.verify.replay import Candidate, Replay
from provable_circuits.verify.screen import Screen
from provable_circuits.verify.verdict import Proved, Refuted, Undecided, Verdict, Witness

POOL = 64
"""How many witnesses are kept to be tried on later circuits."""


class Verifier:
    """Decides circuits of one network under one claim.

    Args:
        components: the components that circuits are sets of.
        claim: the claim.
        seed: the seed of random starts.
        attack_steps: steps of the gradient attack.
        attack_starts: random starts of the gradient attack for each input.
        device: where bounds are computed; circuits are encoded, and witnesses replayed, on the CPU.
    """

    def __init__(
        self,
        components: Components,
        claim: Claim,
        *,
        seed: int = 0,
        attack_steps: int = 12,
        attack_starts: int = 2,
        device: torch.device | str = "cpu",
    ) -> None:
        expected = "Components, as from graph.components()"
        self.components: Components = instance(
            "components", components, Components, expected, "Verifier"
        )
        self.claim: Claim = instance("claim", claim, Claim, "a Claim", "Verifier")
        self.device = _device(device)
        self.encoder = Encoder(components, claim)
        self.replay = Replay(self.encoder)
        self.memory = Memory()
        self.pool: list[Witness] = []
        self.inert = Inert(self.encoder)
        self.difference = Difference(self.encoder)
        self.exact = Exact(self.encoder)
        self.last: Known | None = None
        self.seed = arguments.seed(seed)
        self.attack_steps = whole("attack_steps", attack_steps, "Verifier", least=0)
        self.attack_starts = whole("attack_starts", attack_starts, "Verifier", least=0)
        units = sum(
            math.prod(node.shape)
            for node in self.encoder.network.nodes
            if isinstance(node.op, Activation)
        )
        self.small = 3 * units <= SMALL and self.device.type == "cpu"
        """Whether many circuits go through the cheap stages as one batch: network, circuit and
        source of patches together are small."""
        self._screen = Screen(self)
        self._growth = Growth(self.encoder, self.replay)
        self._equality = _is_equality(claim)

    def ask(self, circuit: Circuit, timeout: float = 45.0) -> Verdict:
        """Prove or refute the claim of ``circuit``, within ``timeout`` seconds."""
        deadline = Deadline.after(time_limit("timeout", timeout))
        circuit = self._own(circuit)
        settled = self.inert.settled(self.last, circuit)
        if self.last is not None and bool(settled.all()):
            self.last = replace(self.last, circuit=circuit)
            return Proved(self.last.bound, "inert")
        if self._equality:
            verdict = self._exactly(circuit, deadline)
            if verdict is not None:
                return verdict
        proved = self._split(circuit, deadline)
        if proved is not None:
            return proved
        question = Question(self, self.encoder.encode(circuit), settled, deadline)
        try:
            if self.last is None and not self.small and self.encoder.specification.needs_reference:
                self._begin(deadline)
            return question.answer()
        except OutOfTime:
            return question.undecided("time")
        except (MemoryError, RuntimeError) as error:
            if not _out_of_memory(error):
                raise
            return question.undecided("memory")

    def screen(self, circuits: Sequence[Circuit], timeout: float = 45.0) -> list[Verdict | None]:
        """Cheap answers for many circuits at once; None for those that only ``ask`` can decide.

        Earlier witnesses, one pass of linear bounds and the corners that these point to, for all
        of them together. Of networks that are not small a circuit costs as much here as there, and
        all are left to ``ask``.
        """
        deadline = Deadline.after(time_limit("timeout", timeout))
        try:
            own = [self._own(c) for c in each("circuits", circuits, Circuit, "a circuit")]
            return self._screen.answers(own, deadline)
        except (MemoryError, RuntimeError) as error:
            if not _out_of_memory(error):
                raise
            self._screen.forget()
            return [None] * len(circuits)

    def broken(self, circuits: Sequence[Circuit]) -> list[bool]:
        """Which circuits earlier witnesses seem to break, by plain runs: a guess, no verdict."""
        return self._screen.broken([self._own(circuit) for circuit in circuits])

    def suspects(self, circuits: Sequence[Circuit]) -> list[bool]:
        """The same, after one step of an attack on each; what that finds is remembered."""
        return self._screen.suspects([self._own(circuit) for circuit in circuits])

    def carried(
        self, circuits: Sequence[Circuit], witnesses: Sequence[Witness]
    ) -> list[Refuted | None]:
        """Witnesses of other circuits, each replayed on one of these; None where it fails."""
        candidates = [
            Candidate(self._own(circuit), w.index, w.z, w.patch_input, w.patch_values)
            for circuit, w in zip(circuits, witnesses, strict=True)
        ]
        found = self.replay.witnesses(candidates) if candidates else []
        return [None if witness is None else Refuted(witness, "carried") for witness in found]

    def grown(
        self, circuit: Circuit, witness: Witness, favour: Tensor
    ) -> list[tuple[Circuit, Refuted]]:
        """Refuted circuits that contain a refuted one; see ``Growth``."""
        return self._growth.grown(self._own(circuit), witness, favour)

    def remember(self, witness: Witness) -> None:
        """Keep a witness for later circuits."""
        self.pool.append(witness)
        del self.pool[:-POOL]

    def network_ends(self, deadline: Deadline) -> Mapping[str, Interval]:
        """Enclosures of the network's own tensors at the claimed inputs.

        None where they are known as numbers, because the inputs are single points.
        """
        encoder = self.encoder
        if encoder.folded:
            return {}
        region = Region({encoder.z: encoder.z_range.to(self.device)})
        return self.common_bounds(encoder.network, region, deadline).ends

    def common_bounds(self, graph: Graph, region: Region, deadline: Deadline) -> Bounds:
        """Enclosures of tensors that all questions have in common, computed once."""
        memory = self.memory
        names = frozenset(node.name for node in graph.nodes)
        bounds = Bounds(
            Structure(graph, self.device),
            region,
            self.encoder.count,
            {name: memory.whole[name] for name in names & memory.whole.keys()},
            {name: memory.started[name][0] for name in names & memory.started.keys()},
            memory.lines,
            deadline,
            refined={name: memory.started[name][1] for name in names & memory.started.keys()},
        )
        try:
            bounds.compute()
        except OutOfTime:
            memory.keep_unfinished(bounds, names)
            raise
        memory.keep(bounds, names)
        return bounds

    def _begin(self, deadline: Deadline) -> None:
        """Ask about the network itself, whose proof is where those of its circuits start from.

        It compares equal with itself, so that this takes no more than enclosures of its tensors.
        """
        full = self.components.full()
        settled = torch.zeros(self.encoder.count, dtype=torch.bool)
        Question(self, self.encoder.encode(full), settled, deadline).answer()

    def _own(self, circuit: Circuit) -> Circuit:
        """The circuit as a set of this verifier's components."""
        if not isinstance(circuit, Circuit):
            raise refused("The 'circuit' parameter", "a circuit", circuit)
        if circuit.components is self.components or circuit.components == self.components:
            return circuit
        return self.components.circuit(circuit.names)

    def _split(self, circuit: Circuit, deadline: Deadline) -> Proved | None:
        """A proof by a few splits, where a screening has prepared that."""
        try:
            return self._screen.split(circuit, deadline)
        except OutOfTime:
            return None
        except (MemoryError, RuntimeError) as error:
            if not _out_of_memory(error):
                raise
            self._screen.forget()
            return None

    def _exactly(self, circuit: Circuit, deadline: Deadline) -> Verdict | None:
        """The answer in exact arithmetic, where the network is small enough for it."""
        try:
            verdict = self.exact.decide(circuit, deadline)
        except OutOfTime:
            return Undecided("time", "exact")
        if isinstance(verdict, Refuted):
            self.remember(verdict.witness)
        return verdict


def _device(name: torch.device | str) -> torch.device:
    """A device on which float64 is what rounding is bounded for."""
    try:
        device = torch.device(name)
        sound = exact_products(torch.float64, device)
    except (RuntimeError, TypeError, AssertionError, NotImplementedError) as error:
        reason = str(error).split("\n")[0]
        raise ArgumentError(
            f"The 'device' parameter must name a device that computes in float64. Got {name!r} "
            f"instead ({reason})."
        ) from None
    if not sound:
        raise ArgumentError(
            f"The 'device' parameter names {name!r}, where convolutions in float64 are not sums of "
            "the products they are defined by, so that their rounding cannot be bounded."
        )
    return device


def _is_equality(claim: Claim) -> bool:
    """Whether the claim asks for outputs that are equal, which enclosures can never prove."""
    metric = claim.metric
    return isinstance(metric, LogitDifference | MaxAbs | Norm) and metric.tolerance == 0


def _out_of_memory(error: Exception) -> bool:
    """PyTorch tells of memory that it could not get by a plain RuntimeError."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        "allocate memory" in str(error) or "not enough memory" in str(error)
    )
