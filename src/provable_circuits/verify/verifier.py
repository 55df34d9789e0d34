"""The verifier: decides circuits of one network under one claim, one by one or many at once.

Everything that does not depend on the circuit is prepared once; enclosures of tensors that a later
question shares with an earlier one are found again, and a question that differs from the last proof
by a component starts from what was learnt there.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from provable_circuits import arguments
from provable_circuits.arguments import each, instance, refused, whole
from provable_circuits.claims.claim import Claim
from provable_circuits.claims.metrics import LogitDifference, MaxAbs, Norm
from provable_circuits.errors import ArgumentError
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.components import Components
from provable_circuits.rounding import InconsistentBoundsError, exact_products
from provable_circuits.verify.attacking.growth import Growth
from provable_circuits.verify.attacking.pgd import Effort
from provable_circuits.verify.attacking.replay import Candidate
from provable_circuits.verify.bounding.redundant import RedundantRemoval
from provable_circuits.verify.configuration import DEFAULT, Configuration
from provable_circuits.verify.deadline import Deadline, OutOfTime, limits
from provable_circuits.verify.outcome import Reason
from provable_circuits.verify.stage import Stage
from provable_circuits.verify.stages.claim import ClaimQuestion
from provable_circuits.verify.stages.context import Context
from provable_circuits.verify.stages.incomplete_batch import IncompleteBatch
from provable_circuits.verify.stages.preparation import prepare
from provable_circuits.verify.verdict import Proved, Refuted, Undecided, Verdict, Witness

logger = logging.getLogger(__name__)


class Verifier:
    """Decides circuits of one network under one claim.

    Args:
        components: the components that circuits are sets of.
        claim: the claim.
        seed: the seed of random starts.
        attack_steps: steps of the gradient attack.
        attack_starts: random starts of the gradient attack for each input.
        device: where bounds are computed; circuits are encoded, and witnesses replayed, on the CPU.
        reuse: whether a question may start from what earlier ones showed. Without, each is decided
            as by a new verifier, and nothing is derived from the proof of another circuit: slower,
            and with fewer places where something can go wrong.
        configuration: the tuning of all stages: how fast questions are decided, and how soon they
            are given up. No value of it makes an answer false.
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
        reuse: bool = True,
        configuration: Configuration = DEFAULT,
    ) -> None:
        expected = "Components, as from graph.components()"
        self.components: Components = instance(
            "components", components, Components, expected, "Verifier"
        )
        self.claim: Claim = instance("claim", claim, Claim, "a Claim", "Verifier")
        self.device = _device(device)
        self.seed = arguments.seed(seed)
        self.attack_steps = whole("attack_steps", attack_steps, "Verifier", least=0)
        self.attack_starts = whole("attack_starts", attack_starts, "Verifier", least=0)
        effort = Effort(self.seed, self.attack_steps, self.attack_starts)
        self.reuse = reuse
        self.configuration: Configuration = instance(
            "configuration", configuration, Configuration, "a Configuration", "Verifier"
        )
        self.context = Context.of(components, claim, self.device, effort, reuse, self.configuration)
        self.encoder, self.replay = self.context.encoder, self.context.replay
        self.knowledge = self.context.knowledge
        self._redundant = RedundantRemoval(self.encoder)
        self._screen = IncompleteBatch(self.context)
        self._growth = Growth(self.encoder, self.replay, configuration.attacking)
        self._equality = _is_equality(claim)

    @property
    def small(self) -> bool:
        """Whether many circuits go through the cheap stages as one batch."""
        return self.context.batches

    @property
    def together(self) -> int:
        """How many circuits are best asked about at once."""
        return self.configuration.stages.together if self.small else 1

    def ask(
        self,
        circuit: Circuit,
        timeout: float | None = None,
        max_nodes: int | None = None,
        budget: float | None = None,
    ) -> Verdict:
        """Prove or refute the claim of ``circuit``.

        Args:
            circuit: the circuit.
            timeout: seconds; 45 by default, and no limit where ``max_nodes`` is given.
            max_nodes: how many nodes may be bounded: a limit that is repeatable.
            budget: seconds that this question may take together with work that later ones share,
                such as bounds of the network itself; as ``timeout`` by default.
        """
        seconds, max_nodes = limits(timeout, max_nodes, self.configuration.limits.question_seconds)
        deadline = Deadline.after(seconds, max_nodes, budget)
        circuit = self._own(circuit)
        if not self.reuse:
            self.forget()
        try:
            return self._answer(circuit, deadline)
        except InconsistentBoundsError as error:
            logger.error("%s, asked about %r: nothing is concluded from it", error, circuit)
            self.forget()
            return Undecided(Reason.INCONSISTENT, Stage.BOUNDS)

    def prepare(self, timeout: float | None = None) -> None:
        """Bound what all questions have in common, so that none of them is charged for it.

        Args:
            timeout: seconds; no limit by default. What is not finished then, the questions finish.
        """
        seconds, _ = limits(timeout, None, math.inf)
        try:
            prepare(self.context, Deadline.after(seconds))
        except (OutOfTime, InconsistentBoundsError):
            return  # the questions meet it again, and say so
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise

    def forget(self) -> None:
        """Forget what earlier questions showed, their witnesses included."""
        self.knowledge.forget()
        self._screen.forget()

    def _answer(self, circuit: Circuit, deadline: Deadline) -> Verdict:
        question: ClaimQuestion | None = None
        try:
            if circuit == self.components.full():
                nowhere = torch.zeros(self.encoder.count, dtype=torch.bool)
                query = self.encoder.encode(circuit)
                question = ClaimQuestion(self.context, query, nowhere, deadline)
                identical = question.identical()
                if identical is not None:
                    return identical
            if self.reuse:
                with deadline.shared():
                    prepare(self.context, deadline)
            last = self.knowledge.last
            settled = self._redundant.settled(last, circuit)
            if last is not None and bool(settled.all()):
                self.knowledge.last = replace(last, circuit=circuit)
                return Proved(last.bound, Stage.REDUNDANT)
            if self._equality:
                verdict = self._exactly(circuit, deadline)
                if verdict is not None:
                    return verdict
            proved = self._split(circuit, deadline)
            if proved is not None:
                return proved
            question = ClaimQuestion(self.context, self.encoder.encode(circuit), settled, deadline)
            return question.identical() or question.answer()
        except OutOfTime as limit:
            return _stopped(question, limit.reason)
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            return _stopped(question, Reason.MEMORY)

    def screen(
        self, circuits: Sequence[Circuit], timeout: float | None = None
    ) -> list[Verdict | None]:
        """Cheap answers for many circuits at once; None for those that only ``ask`` can decide.

        Earlier witnesses, one pass of linear bounds and the corners that these point to, for all
        of them together. Of networks that are not small a circuit costs as much here as there, and
        all are left to ``ask``.
        """
        deadline = Deadline.after(
            *limits(timeout, None, self.configuration.limits.question_seconds)
        )
        if not self.reuse:
            return [None] * len(circuits)
        try:
            own = [self._own(c) for c in each("circuits", circuits, Circuit, "a circuit")]
            return self._screen.answers(own, deadline)
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            self._screen.forget()
            return [None] * len(circuits)
        except InconsistentBoundsError as error:
            logger.error("%s, in a screening: nothing is concluded from it", error)
            self.forget()
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
        return [None if witness is None else Refuted(witness, Stage.CARRIED) for witness in found]

    def grown(
        self, circuit: Circuit, witness: Witness, favour: Tensor
    ) -> list[tuple[Circuit, Refuted]]:
        """Refuted circuits that contain a refuted one; see ``Growth``."""
        return self._growth.grown(self._own(circuit), witness, favour)

    def _own(self, circuit: Circuit) -> Circuit:
        """The circuit as a set of this verifier's components."""
        if not isinstance(circuit, Circuit):
            raise refused("The 'circuit' parameter", "a circuit", circuit)
        if circuit.components is self.components or circuit.components == self.components:
            return circuit
        return self.components.circuit(circuit.names)

    def _split(self, circuit: Circuit, deadline: Deadline) -> Proved | None:
        """A proof by a few splits, where an incomplete batch has prepared that."""
        try:
            return self._screen.split(circuit, deadline)
        except OutOfTime:
            return None
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            self._screen.forget()
            return None

    def _exactly(self, circuit: Circuit, deadline: Deadline) -> Verdict | None:
        """The answer in exact arithmetic, where the network is small enough for it."""
        try:
            verdict = self.context.exact.decide(circuit, deadline)
        except OutOfTime as limit:
            return Undecided(limit.reason, Stage.EXACT)
        if isinstance(verdict, Refuted):
            self.knowledge.remember(verdict.witness)
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


def _stopped(question: ClaimQuestion | None, reason: str) -> Undecided:
    """What is said of a question that was stopped, perhaps before it was written down."""
    return Undecided(reason, Stage.LINEAR) if question is None else question.undecided(reason)


def _is_equality(claim: Claim) -> bool:
    """Whether the claim asks for outputs that are equal, which enclosures can never prove."""
    metric = claim.metric
    return isinstance(metric, LogitDifference | MaxAbs | Norm) and metric.tolerance == 0


def out_of_memory(error: Exception) -> bool:
    """PyTorch tells of memory that it could not get by a plain RuntimeError."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        "allocate memory" in str(error) or "not enough memory" in str(error)
    )
