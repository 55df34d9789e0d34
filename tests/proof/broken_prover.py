"""Ways of breaking the prover and the writer, which then certify false statements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from tests.proof.broken_verifier import Patch, around

from provable_circuits.claims.domains import Domain
from provable_circuits.claims.patching import Zero
from provable_circuits.network.intervals import propagate
from provable_circuits.proof import certify as certifying
from provable_circuits.proof.checker.claim import Claim as Stated
from provable_circuits.proof.checker.rules import Subdomain
from provable_circuits.proof.prover import Plan, Prover, Tree
from provable_circuits.proof.writing import Writer


def optimistic(patch: Patch) -> None:
    around(patch, Prover, "reached", lambda found, *rest: found + 100.0)


def all_closed(patch: Patch) -> None:
    def plan(self: Prover) -> Plan:
        return Plan([], [Tree(list(range(len(self.problem.objectives))), [{"close": {}}])])

    patch.setattr(Prover, "plan", plan)


def all_empty(patch: Patch) -> None:
    def plan(self: Prover) -> Plan:
        return Plan([], [Tree(list(range(len(self.problem.objectives))), [{"empty": {}}])])

    patch.setattr(Prover, "plan", plan)


def one_objective(patch: Patch) -> None:
    """Objectives that are closed, and no others."""

    def plan(self: Prover) -> Plan:
        root = Subdomain.whole(self.problem)
        rows = np.arange(len(self.problem.objectives))
        reached = self.reached(root, rows, {}, None)
        return Plan([], [Tree(rows[reached >= 0].tolist(), [{"close": {}}])])

    patch.setattr(Prover, "plan", plan)


def no_objectives(patch: Patch) -> None:
    patch.setattr(Prover, "plan", lambda self: Plan([], [Tree([], [{"close": {}}])]))


def one_half(patch: Patch) -> None:
    """Splits whose upper halves are missing."""

    def tree(self: Prover, root: Any, row: int) -> list[dict[str, Any]]:
        place = next(iter(self.bends))
        return [{"split": [self.problem.nodes[place].name, 0]}, {"close": {}}]

    patch.setattr(Prover, "_tree", tree)


def halves_that_repeat(patch: Patch) -> None:
    def tree(self: Prover, root: Any, row: int) -> list[dict[str, Any]]:
        place = next(iter(self.bends))
        split = {"split": [self.problem.nodes[place].name, 0]}
        return [split, split, {"empty": {}}, {"empty": {}}, {"empty": {}}]

    patch.setattr(Prover, "_tree", tree)


def negative_beta(patch: Patch) -> None:
    """Splits with constraints of the wrong sign, which make any bound as large as one likes."""

    def tree(self: Prover, root: Any, row: int) -> list[dict[str, Any]]:
        place = next(iter(self.bends))
        beta = np.full((1, 1), -1e6)
        leaf_: dict[str, Any] = {"close": {"beta": beta}}
        return [{"split": [self.problem.nodes[place].name, 0]}, leaf_, leaf_]

    patch.setattr(Prover, "_tree", tree)


def cuts_outside(patch: Patch) -> None:
    """An input split at a value that leaves nothing, or everything, on one side."""

    def tree(self: Prover, root: Any, row: int) -> list[dict[str, Any]]:
        place, region = next(iter(self.problem.regions.items()))
        name = self.problem.nodes[place].name
        side = {"side": [name, 0, float(region.lower[0]) - 1.0]}
        return [side, {"close": {}}, {"close": {}}]

    patch.setattr(Prover, "_tree", tree)


def larger_offsets(patch: Patch) -> None:
    """The prover proves another tolerance than the one that is written."""
    _problems(patch, lambda problem: replace(problem, offsets=problem.offsets + 100.0))


def smaller_regions(patch: Patch) -> None:
    def shrink(problem: Any) -> Any:
        regions = {}
        for place, region in problem.regions.items():
            middle = region.lower * 0.5 + region.upper * 0.5
            regions[place] = replace(region, lower=middle, upper=middle, p=0)
        return replace(problem, regions=regions)

    _problems(patch, shrink)


def _problems(patch: Patch, change: Callable[[Any], Any]) -> None:
    """Have the prover work on other problems; the checker builds its own."""
    old = Prover.__init__

    def start(self: Prover, problem: Any, rational: Any, limit: Any, tuning: Any) -> None:
        old(self, change(problem), None, limit, tuning)

    patch.setattr(Prover, "__init__", start)


def another_circuit(patch: Patch) -> None:
    """The proof is about the whole network."""
    old = certifying._prove

    def prove(writer: Writer, limit: Any, tuning: Any) -> Any:
        stated = Stated.problem
        with patch.context() as inner:

            def whole(self: Any, place: int, circuit: Any, arithmetic: Any) -> Any:
                every = frozenset(name for _, _, names in self._sites for name in names)
                return stated(self, place, every, arithmetic)

            inner.setattr(Stated, "problem", whole)
            return old(writer, limit, tuning)

    patch.setattr(certifying, "_prove", prove)


def first_input_only(patch: Patch) -> None:
    old = Writer.faithful
    patch.setattr(Writer, "faithful", lambda self, plans, names: old(self, plans[:1] * 2, names))
    optimistic(patch)


def larger_tolerance(patch: Patch) -> None:
    _section(patch, "_metric", lambda metric: {**metric, "tolerance": metric["tolerance"] * 1.05})
    optimistic(patch)


def another_target(patch: Patch) -> None:
    def change(metric: Any) -> Any:
        return (
            {**metric, "targets": [0 for _ in metric["targets"]]} if "targets" in metric else metric
        )

    _section(patch, "_metric", change)
    optimistic(patch)


def narrow_boxes(patch: Patch) -> None:
    """Boxes of interval hulls that the network leaves."""

    def boxes(self: Any, domain: Domain) -> Any:
        lower, upper = (end.unsqueeze(0) for end in domain.bounds())
        ends = propagate(self._graph, {self._graph.inputs[0]: ((lower + upper) / 2,) * 2})
        return {
            site.tensor: [self._put(0, end[0].double(), "end") for end in ends[site.tensor]]
            for site in self._circuit.components.sites
        }

    patch.setattr(Writer, "_boxes", boxes)
    optimistic(patch)


def smaller_balls(patch: Patch) -> None:
    def shrink(domain: Any) -> Any:
        eps = domain.get("eps")
        return {**domain, "eps": eps * 0.99} if isinstance(eps, float) else domain

    _section(patch, "_domain", shrink)
    optimistic(patch)


def zero_for_any_patch(patch: Patch) -> None:
    """Whatever the patching, zero is written."""
    old = Writer._patching

    def patching(self: Any) -> Any:
        claim = self._claim
        self._claim = SimpleNamespace(patching=Zero(), inputs=claim.inputs)
        try:
            return old(self)
        finally:
            self._claim = claim

    patch.setattr(Writer, "_patching", patching)
    optimistic(patch)


def _section(patch: Patch, name: str, change: Callable[[Any], Any]) -> None:
    around(patch, Writer, name, lambda found, *rest: change(found))


PROVER = [
    optimistic, all_closed, all_empty, one_objective, no_objectives, one_half, halves_that_repeat,
    negative_beta, cuts_outside, larger_offsets, smaller_regions, another_circuit,
    first_input_only, larger_tolerance, another_target, narrow_boxes, smaller_balls,
    zero_for_any_patch,
]  # fmt: skip
