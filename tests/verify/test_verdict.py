"""Verdicts are not booleans."""

from __future__ import annotations

import pytest
import torch

from provable_circuits.verify.verdict import Held, Proved, Refuted, Undecided, Verdict, Witness

WITNESS = Witness(
    index=1,
    z=torch.zeros(2, dtype=torch.float64),
    excess=0.5,
    reference=torch.zeros(1),
    output=torch.ones(1),
)
VERDICTS: dict[str, Verdict] = {
    "proved": Proved(-0.1, "interval"),
    "refuted": Refuted(WITNESS, "attack"),
    "undecided": Undecided("out of time", "branching"),
    "held": Held(3, -0.2),
}


@pytest.mark.parametrize("kind", VERDICTS)
def test_a_verdict_is_not_a_boolean(kind: str) -> None:
    verdict = VERDICTS[kind]
    with pytest.raises(TypeError, match=r"say verdict\.proved"):
        bool(verdict)
    with pytest.raises(TypeError):
        _ = 1 if verdict else 0
    with pytest.raises(TypeError):
        _ = not verdict


@pytest.mark.parametrize("kind", VERDICTS)
def test_a_verdict_is_of_one_kind(kind: str) -> None:
    verdict = VERDICTS[kind]
    answers = {name: getattr(verdict, name) for name in VERDICTS}
    assert answers == {name: name == kind for name in VERDICTS}
    assert verdict.kind == kind


@pytest.mark.parametrize("kind", VERDICTS)
def test_a_verdict_cannot_be_changed(kind: str) -> None:
    verdict = VERDICTS[kind]
    with pytest.raises(AttributeError):
        verdict.stage = "other"  # type: ignore[misc]


def test_what_verdicts_carry() -> None:
    held = Held(3, -0.2)
    assert (held.points, held.worst, held.stage) == (3, -0.2, "sampling")
    assert Refuted(WITNESS, "attack").witness.index == 1
    assert Undecided("out of time", "branching").reason == "out of time"
    assert Proved(-0.1, "interval").bound == -0.1
