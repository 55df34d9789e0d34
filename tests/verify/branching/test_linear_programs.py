"""Linear programs of subdomains: they choose, and prove nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.oracle.random_networks import graph_of
from tests.verify.small import MARGIN, at_least, drawn, largest, row_of

from provable_circuits.properties.verify import decide
from provable_circuits.verify.attacking.attack import Attack
from provable_circuits.verify.branching.warm_program import ProgramOptimum, WarmProgram
from provable_circuits.verify.configuration import DEFAULT

NODES = 4000

PROGRAMS = DEFAULT.changed(
    branching={"programs_after": 0, "every_program_after": 0, "few_inputs": 0}
)
"""The solver is asked about every subdomain, and no boxes are halved."""


def test_programs_take_over_at_once() -> None:
    """With the solver asked about every subdomain, and no boxes halved, the answers are the
    same."""
    for seed in range(0, 20, 3):
        net, region, _ = drawn(seed)
        row = row_of(net)
        best = largest(net, region, row)
        for shift, wanted in ((MARGIN, "holds"), (-MARGIN, "violated")):
            question = at_least(net, region, row, best + shift)
            verdict = decide(graph_of(net), question, max_nodes=NODES, configuration=PROGRAMS)
            assert verdict.status == wanted, (seed, shift)


@pytest.mark.parametrize("lie", ["duals", "values", "points", "none"])
def test_nothing_rests_on_the_solver(lie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A solver that makes its numbers up costs nodes, and no false answer."""
    dice = np.random.default_rng(5)

    honest = WarmProgram.solve

    def lying(self: WarmProgram, *args: Any) -> ProgramOptimum | None:
        answer = honest(self, *args)
        if answer is None or lie == "none":
            return None
        if lie == "duals":
            above, ground = (np.abs(dice.normal(size=self.units)) * 100 for _ in range(2))
            return replace(answer, above=above, ground=ground)
        if lie == "values":
            return replace(answer, value=1e9)
        return replace(answer, inputs=dice.normal(size=self.inputs))

    monkeypatch.setattr(WarmProgram, "solve", lying)
    monkeypatch.setattr(Attack, "short", lambda *_: False)
    for seed in range(0, 20, 4):
        net, region, _ = drawn(seed)
        row = row_of(net)
        best = largest(net, region, row)
        for shift, wrong in ((MARGIN, "violated"), (-MARGIN, "holds")):
            question = at_least(net, region, row, best + shift)
            verdict = decide(graph_of(net), question, max_nodes=600, configuration=PROGRAMS)
            assert verdict.status != wrong, (seed, shift)
