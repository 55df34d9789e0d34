"""What several tests of the verifier have in common."""

from __future__ import annotations

import pytest

from provable_circuits.verify.configuration import DEFAULT, Configuration


@pytest.fixture
def hulls_at_once() -> Configuration:
    """Small networks are treated as large ones, and hulls tried before anything is split."""
    return DEFAULT.changed(bounding={"small_units": 0}, stages={"hulls_after": 0})
