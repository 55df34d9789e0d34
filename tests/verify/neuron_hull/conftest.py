"""What several tests of hulls have in common."""

from __future__ import annotations

import pytest

from provable_circuits.verify.neuron_hull import presolved as presolved


@pytest.fixture(params=["every entry", "largest entries"])
def kept_apart(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether all entries of a row have shares of their own, or the largest ones."""
    every: bool = request.param == "every entry"
    if not every:
        monkeypatch.setattr(presolved, "FEW_ENTRIES", 1)
        monkeypatch.setattr(presolved, "LARGEST", 0.2)
    return every
