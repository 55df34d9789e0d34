"""A clock that tests move by hand: how fast the machine is decides nothing."""

from __future__ import annotations

import importlib

import pytest

LIMITED = (
    "discover.confirmation",
    "discover.predicates.distributed",
    "discover.predicates.predicate",
    "discover.search",
    "parallel",
    "verify.deadline",
    "properties.outside.marabou",
    "properties.outside.process",
    "properties.verify",
)
"""The modules that measure a limit in seconds; the others only report how long something took."""


class Clock:
    """Stands for the module ``time``: it stands still unless it is moved.

    Attributes:
        now: what it shows.
        step: how far each look moves it.
        looks: how often somebody looked.
    """

    def __init__(self) -> None:
        self.now = 1000.0
        self.step = 0.0
        self.looks = 0

    def monotonic(self) -> float:
        """What ``time.monotonic`` would say."""
        self.looks += 1
        self.now += self.step
        return self.now

    def install(self, patch: pytest.MonkeyPatch, *modules: str) -> None:
        """Let modules of the package look at this clock."""
        for name in modules:
            patch.setattr(importlib.import_module(f"provable_circuits.{name}"), "time", self)
