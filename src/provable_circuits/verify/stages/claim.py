"""A claim about one circuit as a problem, and the answer to it as a verdict."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor

from provable_circuits.network.ops import Constant
from provable_circuits.rounding import Interval
from provable_circuits.verify.attacking.candidates import candidate_at, pool_points
from provable_circuits.verify.bounding.differential import Known
from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.encoding.definition import ClauseKey
from provable_circuits.verify.encoding.query import Query
from provable_circuits.verify.outcome import Outcome
from provable_circuits.verify.reuse.memory import moved
from provable_circuits.verify.stage import Stage
from provable_circuits.verify.stages.answer import Answer, Means
from provable_circuits.verify.stages.context import Context
from provable_circuits.verify.stages.pipeline import decide
from provable_circuits.verify.stages.question import Question
from provable_circuits.verify.verdict import Proved, Refuted, Undecided, Verdict, Witness

CPU = torch.device("cpu")


class ClaimDefinition:
    """What is asked about one circuit; a witness is replayed by network and circuit as given."""

    def __init__(self, context: Context, query: Query) -> None:
        self.context = context
        self.query = query
        self._decided = False

    def replay(
        self, points: Mapping[str, Tensor], problems: Tensor, clauses: Tensor
    ) -> Witness | None:
        """The witness at the first of some candidates that is one; all are run together."""
        context, circuit = self.context, self.query.circuit
        candidates = [
            candidate_at(context.encoder, circuit, self.query.roles, points, i, index)
            for i, index in enumerate(problems.tolist())
        ]
        replayed = context.replay.witnesses(candidates)
        return next((witness for witness in replayed if witness is not None), None)

    def exactly(
        self, clauses: Sequence[ClauseKey], deadline: Deadline
    ) -> tuple[frozenset[ClauseKey], Witness | None]:
        """Rational arithmetic decides all clauses of the claim at once, and is asked once."""
        if self._decided:
            return frozenset(), None
        self._decided = True
        verdict = self.context.exact.decide(self.query.circuit, deadline)
        if isinstance(verdict, Refuted):
            return frozenset(), verdict.witness
        if not isinstance(verdict, Proved):
            return frozenset(), None
        inputs, count = self.query.rows.shape[:2]
        return frozenset((j, i) for j in range(inputs) for i in range(count)), None

    def earlier(
        self, problems: Collection[int] | None = None, most: int | None = None
    ) -> tuple[dict[str, Tensor], list[int]]:
        """The witness pool."""
        pool = [w for w in self.context.knowledge.pool if problems is None or w.index in problems]
        pool = pool if most is None else pool[-most:]
        points = pool_points(self.query, pool) if pool else {}
        return points, [witness.index for witness in pool]

    def derived(self) -> Mapping[str, Interval] | None:
        """Differential bounds from the circuit that was proved last, if this is a subset of it."""
        context, query = self.context, self.query
        last = context.knowledge.last
        if not context.reuse or last is None or not query.circuit <= last.circuit:
            return None
        return context.differential.enclosures(last, query)


class ClaimQuestion:
    """One circuit under a claim.

    Args:
        context: what is prepared and remembered for all circuits.
        query: the circuit, encoded.
        settled: for each input of the claim, whether it is known to hold there already.
        deadline: when to stop.
    """

    def __init__(self, context: Context, query: Query, settled: Tensor, deadline: Deadline) -> None:
        self.context = context
        self.settled = settled
        self.query = query = query.to(context.device)
        means = Means(
            context.device, context.effort, context.knowledge.memory, context.configuration
        )
        definition = ClaimDefinition(context, query)
        self.question = Question(means, query, definition, deadline, settled)

    def identical(self) -> Proved | None:
        """A proof for the network itself, where the claim compares the circuit with it: no work."""
        (output,) = self.query.graph.outputs
        op = self.query.graph[output].op
        if not isinstance(op, Constant) or bool(op.value.any()):
            return None
        bound = float(self.query.offsets.max())
        if not bound <= 0:
            return None
        return Proved(self.context.encoder.specification.at_most(bound), Stage.IDENTICAL)

    def answer(self) -> Verdict:
        """Prove, refute, or say why neither."""
        return self._verdict(decide([self.question]))

    def undecided(self, reason: str) -> Undecided:
        """Neither was shown; the bound says how far it got."""
        answer = self.question.undecided(reason)
        specification = self.context.encoder.specification
        return Undecided(reason, answer.stage, specification.at_most(max(answer.bound, 0.0)))

    def _verdict(self, answer: Answer[Witness]) -> Verdict:
        """The verdict, and what it leaves to later questions."""
        knowledge = self.context.knowledge
        if answer.outcome == Outcome.PROVED:
            bound = self.context.encoder.specification.at_most(answer.bound)
            if knowledge.last is not None and bool(self.settled.any()):
                bound = max(bound, knowledge.last.bound)
            ends, roles = self.question.bounds.ends, self.query.roles
            known = {roles[name]: moved(pair, CPU) for name, pair in ends.items()}
            knowledge.last = Known(self.query.circuit, self.query, known, bound)
            return Proved(bound, answer.stage)
        if answer.found is not None:
            if answer.stage != Stage.POOL:
                knowledge.remember(answer.found)
            return Refuted(answer.found, answer.stage)
        return self.undecided(answer.reason)
