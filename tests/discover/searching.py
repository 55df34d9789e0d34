"""What tests of searches share: predicates that answer as told, and searches that keep a log."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from provable_circuits.discover.predicates.monotonicity import Monotonicity
from provable_circuits.discover.predicates.predicate import Predicate
from provable_circuits.discover.search import Search
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.components import Component, Components
from provable_circuits.progress import Listener
from provable_circuits.verify.verdict import Proved, Refuted, Undecided, Verdict, Witness

MONOTONE = Monotonicity(True, False, "told so")
NOT_MONOTONE = Monotonicity(False, False, "not told")

Answer = Callable[[frozenset[str]], bool | None]
"""Faithful or not, by the names kept; None for undecided."""


class Given(Predicate):
    """A predicate that answers as it is told, and remembers what it was asked."""

    def __init__(self, components: Components, answer: Answer) -> None:
        self.components = components
        self.answer = answer
        self.asked: list[frozenset[str]] = []

    def ask(self, circuits: Sequence[Circuit], limit: float = math.inf) -> list[Verdict]:
        verdicts: list[Verdict] = []
        for circuit in circuits:
            names = frozenset(circuit.names)
            self.asked.append(names)
            verdicts.append(self.verdict(self.answer(names)))
        return verdicts

    def verdict(self, faithful: bool | None) -> Verdict:
        if faithful is None:
            return Undecided("told so", "test")
        return Proved(0.0, "test") if faithful else Refuted(_nowhere(), "test")


def _nowhere() -> Witness:
    nothing = torch.zeros(1)
    return Witness(0, nothing, 1.0, nothing, nothing)


class Logged(Search):
    """A search that keeps every answer."""

    def __init__(
        self,
        predicate: Predicate,
        order: Sequence[Component] | None = None,
        monotone: Monotonicity = NOT_MONOTONE,
        listener: Listener | None = None,
        budget: float | None = None,
    ) -> None:
        order = predicate.components.discovery_order() if order is None else order
        super().__init__(predicate, order, monotone, listener, budget)
        self.log: list[tuple[Circuit, Verdict, str | None]] = []

    def record(self, circuit: Circuit, verdict: Verdict, doing: str | None = None) -> None:
        self.log.append((circuit, verdict, doing))
        super().record(circuit, verdict, doing)

    @property
    def by_component(self) -> dict[str, Verdict]:
        """The last verdict on each component's removal, in the order of asking."""
        return {doing: verdict for _, verdict, doing in self.log if doing is not None}
