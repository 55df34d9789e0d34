"""What several tests of the verifier have in common."""

from __future__ import annotations

import importlib

import pytest


@pytest.fixture
def hulls_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small networks are treated as large ones, and hulls tried before anything is split."""
    bounds = importlib.import_module("provable_circuits.verify.bounding.bounds")
    monkeypatch.setattr(bounds, "SMALL", 0)
    room = importlib.import_module("provable_circuits.verify.stages.question")
    monkeypatch.setattr(room, "FEW_SUBDOMAINS", 0)
