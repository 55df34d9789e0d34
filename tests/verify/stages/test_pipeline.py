"""The contract of the stages: whatever one of them answers, alone or left out, is true."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from tests.oracle.cases import Case, draw

import provable_circuits as pc
from provable_circuits.verify.outcome import Outcome
from provable_circuits.verify.stage import Stage as StageName
from provable_circuits.verify.stages import pipeline as module
from provable_circuits.verify.stages.answer import Answer
from provable_circuits.verify.stages.pipeline import PIPELINE
from provable_circuits.verify.stages.question import Question

Stage = Callable[[Question[Any]], Answer[Any] | None]

SEEDS = (26, 31, 39, 6, 0)
NODES = 60

NEEDS: dict[Stage, tuple[Stage, ...]] = {
    Question.branch: (Question.optimise_alpha,),
    Question.neuron_hulls: (Question.optimise_alpha, Question.branch),
    Question.exact_when_near: (Question.optimise_alpha, Question.branch),
    Question.split_inputs_further: (Question.optimise_alpha,),
    Question.branch_further: (Question.optimise_alpha, Question.branch),
}
"""What a stage goes on from, apart from linear bounds."""

ANSWERS: set[Stage] = {
    Question.linear_bounds,
    Question.corners,
    Question.attack,
    Question.optimise_alpha,
    Question.branch,
    Question.exactly,
}
"""Stages that decide some of these questions alone."""


@cache
def _claims(seed: int) -> tuple[Case, pc.Claim, pc.Claim]:
    """A case, a claim about it that holds, and one that does not."""
    case = draw(seed)
    truth = case.truth(nodes=2000)
    assert truth is not None
    assert truth.low > 0
    return case, case.claim(1.3 * truth.high), case.claim(0.7 * truth.low)


def _wrong(stages: tuple[Stage, ...], patch: pytest.MonkeyPatch) -> tuple[list[str], int]:
    """Answers of some stages that are not true, and how many answers there were."""
    patch.setattr(module, "PIPELINE", stages)
    wrong, answered = [], 0
    for seed in SEEDS:
        case, holds, fails = _claims(seed)
        for claim, kind in ((holds, "proved"), (fails, "refuted")):
            verdict = pc.Verifier(case.circuit.components, claim).ask(case.circuit, max_nodes=NODES)
            answered += verdict.kind != "undecided"
            if verdict.kind not in (kind, "undecided"):
                wrong.append(f"{case}, {kind}: {verdict}")
    return wrong, answered


@pytest.mark.parametrize("stage", PIPELINE, ids=lambda stage: stage.__name__)
def test_a_stage_alone_says_nothing_false(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (Question.linear_bounds,) if stage is not Question.linear_bounds else ()
    wrong, answered = _wrong((*before, *NEEDS.get(stage, ()), stage), monkeypatch)
    assert not wrong
    assert answered or stage not in ANSWERS


@pytest.mark.parametrize("stage", PIPELINE, ids=lambda stage: stage.__name__)
def test_without_a_stage_nothing_false_is_said(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    if stage is Question.linear_bounds:
        return  # all others go on from it
    wrong, answered = _wrong(tuple(s for s in PIPELINE if s is not stage), monkeypatch)
    assert not wrong
    assert answered >= len(SEEDS)


def test_a_refutation_is_refused_a_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """The contract notices a stage that says something false."""

    def lie(question: Question[Any]) -> Answer[Any]:
        return Answer(Outcome.PROVED, StageName.LINEAR, 0.0)

    wrong, _ = _wrong((Question.linear_bounds, lie), monkeypatch)
    assert len(wrong) == len(SEEDS)
