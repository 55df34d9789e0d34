"""Small random problems for hulls, and what is true of them at points."""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import linprog
from torch import Tensor

from provable_circuits.verify.configuration import DEFAULT
from provable_circuits.verify.neuron_hull.hull_bound import Signs
from provable_circuits.verify.neuron_hull.lines import Settled
from provable_circuits.verify.neuron_hull.presolved import Presolved, Rows
from provable_circuits.verify.tuning.neuron_hull import NeuronHullTuning

FIRST, SECOND, CUBE = 7, 4, 6


def rows(dice: torch.Generator, count: int, first: int, second: int, radius: float) -> Rows:
    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=dice, dtype=torch.float64)

    cube = normal(count, CUBE) * (torch.rand(count, CUBE, generator=dice) < 0.6)
    off = radius * torch.rand(count, generator=dice, dtype=torch.float64)
    return Rows(cube, normal(count, first), normal(count, second), normal(count), off)


def problem(
    seed: int, radius: float = 0.05, tuning: NeuronHullTuning = DEFAULT.neuron_hull
) -> Presolved:
    """A random one, with bounds that interval propagation gives."""
    dice = torch.Generator().manual_seed(seed)
    first = rows(dice, FIRST, 0, 0, radius)
    second = rows(dice, SECOND, FIRST, 0, radius)
    top = (first.constant + first.cube.abs().sum(1) + first.radius).clamp_min(0)
    reach = second.cube.abs().sum(1) + second.radius
    lower = second.constant - reach - (-second.first).clamp_min(0) @ top
    upper = second.constant + reach + second.first.clamp_min(0) @ top
    goal = rows(dice, 3, FIRST, SECOND, radius)
    return Presolved(first, second, goal, top, lower, upper, CUBE, tuning)


def values(given: Presolved, seed: int, count: int = 4000) -> tuple[Tensor, Tensor, Tensor]:
    """What x, y and v are at points of the cube, each equation off by a part of its radius."""
    dice = torch.Generator().manual_seed(seed)

    def off(radius: Tensor) -> Tensor:
        share = 2 * torch.rand(count, len(radius), generator=dice, dtype=torch.float64) - 1
        return share.sign() * radius if seed % 2 else share * radius

    z = 2 * torch.rand(count, CUBE, generator=dice, dtype=torch.float64) - 1
    z[::2] = z[::2].sign()
    x = z @ given.first.cube.T + given.first.constant + off(given.first.radius)
    h = x.clamp_min(0)
    second, goal = given.second, given.goal
    y = z @ second.cube.T + h @ second.first.T + second.constant + off(second.radius)
    v = z @ goal.cube.T + h @ goal.first.T + y.clamp_min(0) @ goal.second.T + goal.constant
    return x, y, v + off(goal.radius)


def unknown(goal: Rows) -> Signs:
    return Signs(torch.zeros_like(goal.first), torch.zeros_like(goal.second))


def settled(given: Presolved, dice: torch.Generator) -> Settled:
    """Some units moving, and settled shares that nobody would choose."""
    units, width = given.sparse.values.shape
    small = Settled.small(given, 0.5 + torch.randn(units, generator=dice).double())
    wild = 0.5 + torch.randn(units, width, generator=dice).double()
    return small.with_shares(given, wild, torch.rand(units, generator=dice) < 0.6)


def settled_small(given: Presolved) -> Settled:
    """All units moving, small entries with no share in the lines."""
    return Settled.small(given, torch.zeros_like(given.top))


def best_bound(given: Presolved, row: int) -> float:
    """The largest bound of a row that a certificate can prove, by HiGHS.

    The coefficient of each first unit is p - w, with p, w >= 0: the part p x meets a slope
    d <= p, the part w a line f and the height that it needs.
    """
    names: dict[str, int] = {}
    rows: list[dict[int, float]] = []
    rights: list[float] = []
    free = (-np.inf, np.inf)
    limits: list[tuple[float, float]] = []

    def new(name: str, limit: tuple[float, float] = (0.0, np.inf)) -> int:
        names[name] = len(limits)
        limits.append(limit)
        return names[name]

    def at_most(terms: list[tuple[int, float]], right: float) -> None:
        held: dict[int, float] = {}
        for place, value in terms:
            held[place] = held.get(place, 0.0) + value
        rows.append(held)
        rights.append(right)

    first, second, goal = given.first, given.second, given.goal
    weights = goal.second[row].tolist()
    objective: list[tuple[int, float]] = []
    pull: list[list[tuple[int, float]]] = [[] for _ in range(CUBE)]
    for k, t in enumerate(weights):
        dual = new(f"D{k}", (0.0, t) if t >= 0 else free)
        objective.append((dual, float(second.constant[k])))
        for j in range(CUBE):
            pull[j].append((dual, float(second.cube[k, j])))
        if t < 0:
            bracket = new(f"bracket{k}", free)
            objective.append((bracket, 1.0))
            at_most([(bracket, 1.0), (dual, float(given.lower[k]))], 0.0)
            at_most([(bracket, 1.0), (dual, float(given.upper[k]))], t * float(given.upper[k]))
    for i in range(FIRST):
        up, down = new(f"p{i}"), new(f"w{i}")
        slope, height = new(f"d{i}"), new(f"height{i}")
        rest = [(names[f"D{k}"], float(second.first[k, i])) for k in range(SECOND)]
        for sign in (1.0, -1.0):  # p - w = o + D Q
            terms = [(up, sign), (down, -sign)] + [(place, -sign * v) for place, v in rest]
            at_most(terms, sign * float(goal.first[row, i]))
        at_most([(slope, 1.0), (up, -1.0)], 0.0)
        objective += [(slope, float(first.constant[i])), (height, -1.0)]
        flat: list[tuple[int, float]] = []
        steep = [(down, float(first.constant[i]))]
        for j in range(CUBE):
            size = float(first.cube[i, j])
            line, low, high = new(f"f{i},{j}", free), new(f"|f|{i},{j}"), new(f"|G-f|{i},{j}")
            for sign in (1.0, -1.0):
                at_most([(line, sign), (low, -1.0)], 0.0)
                at_most([(down, sign * size), (line, -sign), (high, -1.0)], 0.0)
            flat.append((low, 1.0))
            steep.append((high, 1.0))
            pull[j] += [(slope, size), (line, -1.0)]
        at_most([*flat, (height, -1.0)], 0.0)
        at_most([*steep, (height, -1.0)], 0.0)
    for j in range(CUBE):
        paid = new(f"|q|{j}")
        objective.append((paid, -1.0))
        for sign in (1.0, -1.0):
            terms = [(place, sign * value) for place, value in pull[j]] + [(paid, -1.0)]
            at_most(terms, -sign * float(goal.cube[row, j]))
    matrix = np.zeros((len(rows), len(limits)))
    for place, held in enumerate(rows):
        for column, value in held.items():
            matrix[place, column] = value
    costs = np.zeros(len(limits))
    for place, value in objective:
        costs[place] -= value
    solved = linprog(costs, A_ub=matrix, b_ub=rights, bounds=limits)
    assert solved.success
    return float(goal.constant[row]) - float(solved.fun)
