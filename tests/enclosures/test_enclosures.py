"""Every enclosure that a verifier holds meets the truth; see ``watch``."""

from __future__ import annotations

import pytest
from tests.enclosures.findings import Finding, findings, watched
from tests.enclosures.sequences import play

SEQUENCES, LARGE = 320, 16


def shown(contradictions: list[object]) -> str:
    return "\n".join(str(one) for one in contradictions[:20])


@pytest.mark.parametrize("finding", [pytest.param(f, id=name) for name, f in findings()])
def test_what_was_once_proved_falsely(finding: Finding) -> None:
    found = watched(finding).contradictions
    assert not found, shown([*found])


@pytest.mark.parametrize("group", range(16))
def test_sequences(group: int) -> None:
    for seed in range(group, SEQUENCES, 16):
        outcome = play(seed)
        assert not outcome.contradictions, f"seed {seed}: {shown([*outcome.contradictions])}"


@pytest.mark.parametrize("seed", range(LARGE))
def test_sequences_of_large_networks(seed: int) -> None:
    outcome = play(seed, large=True)
    assert not outcome.contradictions, f"seed {seed}: {shown([*outcome.contradictions])}"
