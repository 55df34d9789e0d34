"""What several tests of hulls have in common."""

from __future__ import annotations

import pytest

from provable_circuits.verify.configuration import DEFAULT, Configuration


@pytest.fixture(params=["every entry", "largest entries"])
def kept_apart(request: pytest.FixtureRequest) -> Configuration:
    """All entries of a row have shares of their own, or only the largest ones."""
    if request.param == "every entry":
        return DEFAULT
    return DEFAULT.changed(neuron_hull={"few_entries": 1, "largest_share": 0.2})
