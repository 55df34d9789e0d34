"""The pipeline: the stages in the order in which a problem goes through them.

Adding, dropping or moving a stage is a line of ``PIPELINE``; ``question`` says what each one does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from provable_circuits.verify.outcome import Outcome, Reason
from provable_circuits.verify.stages.answer import Answer, Given
from provable_circuits.verify.stages.question import Question

PIPELINE: tuple[Callable[[Question[Any]], Answer[Any] | None], ...] = (
    Question.pool,
    Question.linear_bounds,
    Question.corners,
    Question.tighten_costliest,
    Question.attack,
    Question.tighten_all,
    Question.split_inputs,
    Question.optimise_alpha,
    Question.branch,
    Question.neuron_hulls,
    Question.exact_when_near,
    Question.exactly,
    Question.split_inputs_further,
    Question.branch_further,
)
"""The stages in order: each answers, or leaves what it learnt to the next ones."""


def decide(questions: Sequence[Question[Given]]) -> Answer[Given]:
    """The stages of ``PIPELINE`` over several problems, all of which must hold.

    Each stage takes all of them a step further before the next one does, so that a cheap witness of
    one does not wait for a dear proof of another.
    """
    left = list(questions)
    for stage in PIPELINE:
        for question in tuple(left):
            answer = stage(question)
            if answer is None:
                continue
            if answer.outcome == Outcome.REFUTED:
                return answer
            left.remove(question)
            if not left:
                return answer
    first = left[0]
    return first.undecided(Reason.NOT_TIGHT if first.curved else Reason.TOO_CLOSE)
