"""The attacks: what they reach, what they count, and how their work is bounded."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import linprog
from torch import Tensor, nn

import provable_circuits as pc
from provable_circuits.network.execution import evaluate
from provable_circuits.verify.attacking import pgd as attack
from provable_circuits.verify.attacking import restarts
from provable_circuits.verify.attacking.pgd import (
    ascend,
    climb,
    diverse_starts,
    excess_at,
    gradients_of,
    random_points,
    rounds_of,
)
from provable_circuits.verify.bounding.region import Region
from provable_circuits.verify.configuration import DEFAULT
from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.encoding.problem import InputRange
from provable_circuits.verify.verifier import Verifier

WIDTH, RIDGES = 12, 4
STEPS, STARTS = 30, 16


def ridge(seed: int) -> tuple[pc.Graph, NDArray[np.float64]]:
    """One output: slope . x - |walls x|_1, whose maximum over a box lies on a narrow ridge.

    Next to the ridge the walls outweigh the slope, and every step across one of them turns most
    signs of the gradient.
    """
    generator = np.random.default_rng(seed)
    slope = generator.normal(size=WIDTH)
    walls = 4 * generator.normal(size=(RIDGES, WIDTH))
    first = nn.Linear(WIDTH, 2 * RIDGES + 2, bias=False)
    second = nn.Linear(2 * RIDGES + 2, 1, bias=False)
    with torch.no_grad():
        first.weight.copy_(torch.from_numpy(np.vstack([walls, -walls, slope, -slope])))
        second.weight.copy_(torch.tensor([[-1.0] * (2 * RIDGES) + [1.0, -1.0]]))
    graph = pc.Graph.from_torch(nn.Sequential(first, nn.ReLU(), second), torch.zeros(1, WIDTH))
    return graph, first.weight.detach().double().numpy()


def largest(weights: NDArray[np.float64]) -> float:
    """The maximum over [-1, 1]^n, by a linear program: the function is concave."""
    walls, slope = weights[:RIDGES], weights[2 * RIDGES]
    cost = np.concatenate([-slope, np.ones(RIDGES)])
    above = np.hstack([walls, -np.eye(RIDGES)])
    below = np.hstack([-walls, -np.eye(RIDGES)])
    box = [(-1.0, 1.0)] * WIDTH + [(0.0, None)] * RIDGES
    found = linprog(cost, np.vstack([above, below]), np.zeros(2 * RIDGES), bounds=box)
    assert found.status == 0
    return -float(found.fun)


def box(problems: int = 1) -> Region:
    """[-1, 1]^n for the input of such a network."""
    ones = torch.ones((problems, WIDTH), dtype=torch.float64)
    return Region({"input": InputRange(-ones, ones)})


def starts_of(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Problems [n] and rows [n, 1, 1] of an attack on the one output, from so many starts."""
    return torch.zeros(count, dtype=torch.long), torch.ones((count, 1, 1), dtype=torch.float64)


@pytest.mark.parametrize("seed", range(6))
def test_an_adaptive_step_size_reaches_what_signed_steps_miss(seed: int) -> None:
    graph, weights = ridge(seed)
    region, rounds = box(), rounds_of(STEPS)
    problems, rows = starts_of(STARTS)
    half = torch.full((STARTS, 1), -largest(weights) / 2, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    points = diverse_starts(graph, region, problems, 1, generator)
    found = ascend(graph, region, problems, points, rows, half, rounds, Deadline())
    assert bool((found.excess > 0).any())

    steps = gradients_of(STARTS, rounds) // STARTS
    points = random_points(region, problems, generator)
    missed = climb(graph, region, problems, points, rows, half, steps, Deadline())
    assert not bool((missed.excess > 0).any()), "choose a case where signed steps stall"


def test_the_excess_of_an_attack_is_that_at_its_points_which_lie_in_the_region() -> None:
    graph, weights = ridge(0)
    problems, rows = starts_of(STARTS)
    offsets = torch.full((STARTS, 1), -2 * largest(weights), dtype=torch.float64)
    points = diverse_starts(graph, box(), problems, 1, torch.Generator().manual_seed(1))
    found = ascend(graph, box(), problems, points, rows, offsets, rounds_of(STEPS), Deadline())
    x = found.points["input"]
    assert bool((x.abs() <= 1).all())
    torch.testing.assert_close(
        excess_at(graph, found.points, rows, offsets).squeeze(1), found.excess
    )
    assert len(found.excess.unique()) > 1
    before = excess_at(graph, points, rows, offsets).squeeze(1)
    assert bool((found.excess >= before).all())
    assert bool((found.excess > before).any())


def test_the_gradients_of_an_attack_are_as_many_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, weights = ridge(0)
    problems, rows = starts_of(STARTS)
    offsets = torch.full((STARTS, 1), -2 * largest(weights), dtype=torch.float64)
    points = diverse_starts(graph, box(), problems, 1, torch.Generator().manual_seed(1))
    taken = []

    def counted(graph: pc.Graph, points: Mapping[str, Tensor]) -> dict[str, Tensor]:
        taken.append(len(points["input"]))
        return evaluate(graph, points)

    monkeypatch.setattr(attack, "evaluate", counted)
    ascend(graph, box(), problems, points, rows, offsets, rounds_of(STEPS), Deadline())
    assert sum(taken) == gradients_of(STARTS, rounds_of(STEPS))
    assert len(set(taken)) == 3, "fewer starts go on after each round"


def test_the_work_of_attacks_is_a_share_of_the_searchs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients never exceed what the search passed backward, but for the least attack."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(10, 60), nn.ReLU(), nn.Linear(60, 60), nn.ReLU(), nn.Linear(60, 2)
    )
    graph = pc.Graph.from_torch(net, torch.zeros(1, 10))
    components = graph.components("neuron")
    circuit = components.full().remove(*components.full().names[::5])
    ledger: list[tuple[int, int, int]] = []
    attacked = restarts.Restarts.attack

    def recorded(
        self: restarts.Restarts, problems: Tensor, constraints: Tensor
    ) -> tuple[dict[str, Tensor], Tensor]:
        before, tuning = self.gradients, DEFAULT.attacking
        found = attacked(self, problems, constraints)
        least = gradients_of(
            tuning.suggested + tuning.pooled + len(problems), rounds_of(verifier.attack_steps)
        )
        spent = self.passed + tuning.passes_per_node * self._deadline.spent
        ledger.append((self.gradients - before, self.gradients, max(spent, before + least)))
        return found

    monkeypatch.setattr(restarts.Restarts, "attack", recorded)
    ball = pc.Ball(torch.zeros(10), 1.0)
    claim = pc.Claim([ball], pc.Zero(), pc.MaxAbs(1.5))
    verifier = Verifier(components, claim, attack_starts=256)
    verifier.ask(circuit, max_nodes=4000)
    assert len(ledger) >= 2, "choose a case that is attacked more than once"
    assert all(gradients > 0 for gradients, _, _ in ledger)
    assert all(total <= allowed for _, total, allowed in ledger)
