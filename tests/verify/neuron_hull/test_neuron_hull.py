"""Hulls: certificates hold whatever the multipliers, and condensing loses nothing."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from tests.verify.neuron_hull.questions import images, question
from torch import Tensor

import provable_circuits as pc
from provable_circuits.network.execution import evaluate
from provable_circuits.network.graph import Node
from provable_circuits.verify.bounding.bounds import Bounds, Structure
from provable_circuits.verify.bounding.region import Region
from provable_circuits.verify.bounding.root_problems import RootProblems
from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.encoding.encoder import Query
from provable_circuits.verify.neuron_hull import presolved as presolved
from provable_circuits.verify.neuron_hull import subdomains as parts_room
from provable_circuits.verify.neuron_hull.hull_bound import (
    Certified,
    Multipliers,
    Signs,
    allowed,
    brackets,
    certify,
)
from provable_circuits.verify.neuron_hull.joint_dual import JointDual
from provable_circuits.verify.neuron_hull.layerwise_dual import LayerwiseDual
from provable_circuits.verify.neuron_hull.lines import Settled
from provable_circuits.verify.neuron_hull.matrix import HullMatrix
from provable_circuits.verify.neuron_hull.presolve import Presolver
from provable_circuits.verify.neuron_hull.presolved import Presolved, Rows
from provable_circuits.verify.neuron_hull.proof_reuse import ProofReuse, SavedTrees
from provable_circuits.verify.neuron_hull.search import HullSearch
from provable_circuits.verify.neuron_hull.tightening import tighten_second_layer, tightened_bounds
from provable_circuits.verify.reuse.tightening import tighten_common

FIRST, SECOND, CUBE = 7, 4, 6


def rows(dice: torch.Generator, count: int, first: int, second: int, radius: float) -> Rows:
    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=dice, dtype=torch.float64)

    cube = normal(count, CUBE) * (torch.rand(count, CUBE, generator=dice) < 0.6)
    off = radius * torch.rand(count, generator=dice, dtype=torch.float64)
    return Rows(cube, normal(count, first), normal(count, second), normal(count), off)


def problem(seed: int, radius: float = 0.05) -> Presolved:
    """A random one, with bounds that interval propagation gives."""
    dice = torch.Generator().manual_seed(seed)
    first = rows(dice, FIRST, 0, 0, radius)
    second = rows(dice, SECOND, FIRST, 0, radius)
    top = (first.constant + first.cube.abs().sum(1) + first.radius).clamp_min(0)
    reach = second.cube.abs().sum(1) + second.radius
    lower = second.constant - reach - (-second.first).clamp_min(0) @ top
    upper = second.constant + reach + second.first.clamp_min(0) @ top
    return Presolved(first, second, rows(dice, 3, FIRST, SECOND, radius), top, lower, upper, CUBE)


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


@pytest.fixture(params=["every entry", "largest entries"])
def kept_apart(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether all entries of a row have shares of their own, or the largest ones."""
    every: bool = request.param == "every entry"
    if not every:
        monkeypatch.setattr(presolved, "FEW_ENTRIES", 1)
        monkeypatch.setattr(presolved, "LARGEST", 0.2)
    return every


@pytest.mark.parametrize("seed", range(8))
def test_certificates_hold_for_any_multipliers(seed: int, kept_apart: bool) -> None:
    """Also for slopes, multipliers and shares that nobody would choose."""
    given = problem(seed)
    assert bool(given.sparse.rest.any()) != kept_apart
    dice = torch.Generator().manual_seed(1000 + seed)
    x, y, v = values(given, seed)
    k = 80
    row = torch.randint(0, 3, (k,), generator=dice)

    def signs(units: int) -> Tensor:
        kept = torch.rand(k, units, generator=dice) < 0.4
        return torch.randint(-1, 2, (k, units), generator=dice).double() * kept

    known = Signs(signs(FIRST), signs(SECOND))
    some = settled(given, dice)
    width = given.sparse.values.shape[1]
    wild = torch.randn(k, len(some.moving), width, generator=dice).double()
    chosen = Multipliers(
        3 * torch.randn(k, SECOND, generator=dice).double(),
        3 * torch.rand(k, FIRST, generator=dice).double() - 1,
        torch.randn(k, FIRST, generator=dice).double(),
        0.5 + wild * torch.where(torch.rand(k, 1, 1, generator=dice) < 0.5, 1.0, 0.2),
    )
    found = certify(given, some, given.goal[row], known, chosen).value
    met = 0
    for i in range(k):
        there = ((x * known.first[i] >= 0).all(1)) & ((y * known.second[i] >= 0).all(1))
        inside = v[there, row[i]]
        met += len(inside) > 0
        assert not len(inside) or float(found[i]) <= float(inside.min())
    assert met > k / 4


@pytest.mark.parametrize("seed", range(6))
def test_joint_ascent_comes_close_to_the_optimum(seed: int) -> None:
    """The best multipliers solve a linear program, which another solver solves as well."""
    given = problem(seed, radius=0.0)
    goal, signs = given.goal, unknown(given.goal)
    chain = LayerwiseDual(given, [], torch.float64, Deadline())
    chosen = chain.fresh(goal, [signs])
    before = chain.certify(goal, [signs], chosen).value
    for _ in range(2):
        chosen, _ = JointDual(chain).climb(goal, [signs], chosen, 100)
    after = chain.certify(goal, [signs], chosen).value
    best = torch.tensor([best_bound(given, row) for row in range(len(goal))], dtype=torch.float64)
    assert bool((after <= best + 1e-7).all())
    assert bool((best - after <= 0.02 * best.abs().clamp_min(1.0)).all())
    assert float((after - before).max()) > 0


def test_a_problem_may_have_no_first_layer() -> None:
    given = problem(2)
    nothing = torch.arange(0)
    given = replace(
        given,
        first=given.first[nothing],
        second=replace(given.second, first=given.second.first[:, :0]),
        goal=replace(given.goal, first=given.goal.first[:, :0]),
        top=given.top[:0],
    )
    chain = LayerwiseDual(given, [], torch.float32, Deadline())
    known = [replace(unknown(given.goal), first=given.goal.first)]
    chosen, _ = JointDual(chain).climb(given.goal, known, chain.fresh(given.goal, known), 20)
    bound = chain.certify(given.goal, known, chosen).value
    z = torch.rand(4000, CUBE, dtype=torch.float64) * 2 - 1
    y = z @ given.second.cube.T + given.second.constant
    inside = ((y >= given.lower) & (y <= given.upper)).all(1)
    v = z @ given.goal.cube.T + y.clamp_min(0.0) @ given.goal.second.T + given.goal.constant
    assert bool(torch.isfinite(bound).all())
    assert int(inside.sum()) > 100
    assert bool((bound <= v[inside].amin(0)).all())


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


@pytest.mark.parametrize("seed", range(6))
def test_parts_are_bounded_soundly_and_no_worse_than_the_whole(seed: int) -> None:
    """A first unit fixed to one sign and the other: ascent finds the multipliers that pay."""
    given = problem(seed, radius=0.0)
    x, _, v = values(given, seed, 20_000)
    chain = LayerwiseDual(given, [], torch.float64, Deadline())
    goal = given.goal[torch.zeros(2 * FIRST + 1, dtype=torch.long)]
    signs = unknown(goal)
    for unit in range(FIRST):
        signs.first[2 * unit, unit] = 1.0
        signs.first[2 * unit + 1, unit] = -1.0
    chosen, _ = JointDual(chain).climb(goal, [signs], chain.fresh(goal, [signs]), 100)
    found = chain.certify(goal, [signs], chosen).value
    for i in range(2 * FIRST):
        inside = v[(x * signs.first[i] >= 0).all(1), 0]
        assert not len(inside) or float(found[i]) <= float(inside.min())
    both = found[:-1].reshape(FIRST, 2).amin(1)
    assert float((both - found[-1]).min()) >= -0.15 * float(found[-1].abs())
    assert float(found[:-1].max()) > float(found[-1]) + 1e-6


@pytest.mark.parametrize(("few", "count"), [(2, 8), (1, 4)])
def test_few_parts_are_split_twice(few: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_room, "FEW", few)
    none = torch.zeros(2, 0, dtype=torch.float64)
    chosen = Multipliers(none, none, none, none.unsqueeze(2))
    scores = torch.tensor([[0.0, 3.0, 2.0, 1.0], [2.0, 1.0, 0.0, 0.0]], dtype=torch.float64)
    signs = torch.tensor([[1.0, 0, 0, 0], [0, 0, -1, 1]], dtype=torch.float64)
    given = parts_room.HullSubdomains(torch.arange(2), signs, (chosen,), torch.zeros(2), scores)
    children = parts_room.split(given)
    assert (
        len({(int(r), *s.tolist()) for r, s in zip(children.row, children.signs, strict=True)})
        == count
    )
    for row, sign in zip(children.row.tolist(), children.signs, strict=True):
        was = given.signs[row]
        assert bool((sign[was != 0] == was[was != 0]).all())
        assert int(((was == 0) & (sign != 0)).sum()) == count // 4
    assert not bool((children.scores * children.signs).any())
    last = replace(given[:1], scores=torch.tensor([[0.0, 0.0, 1.0, 0.0]]))
    assert len(parts_room.split(last)) == 2, "there is no second unit to split"


def test_parts_wait_in_the_order_of_their_bounds() -> None:
    values, owners = [-1.0, -4.0, -2.0, -3.0], [0, 1, 2, 0]
    own = torch.tensor(values, dtype=torch.float64).unsqueeze(1)
    chosen = Multipliers(own, own, own, own.unsqueeze(2))
    row, value = torch.tensor(owners), own[:, 0]
    given = parts_room.HullSubdomains(row, own, (chosen,), value, own)
    waiting = parts_room.Waiting()
    waiting.add(given[:3])
    waiting.add(given[:0])
    waiting.add(given[3:])
    assert len(waiting) == 4
    first, rest = waiting.take(3), waiting.take(2)
    assert (first.row.tolist(), first.value.tolist()) == ([1, 0, 2], [-4.0, -3.0, -2.0])
    assert (rest.row.tolist(), rest.value.tolist()) == ([0], [-1.0])
    assert first.chosen[0].shares.flatten().tolist() == [-4.0, -3.0, -2.0], "with multipliers"
    assert len(waiting) == 0
    for _ in range(3):
        waiting.add(given[1:])
        waiting.add(given[:1])
        assert sorted(waiting.take_easiest(2).value.tolist()) == [-2.0, -1.0]
        assert waiting.take(3).value.tolist() == [-4.0, -3.0]


@pytest.mark.parametrize("moving", [0.0, 0.7])
@pytest.mark.usefixtures("kept_apart")
def test_parts_go_on_from_what_is_settled(moving: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is settled, the multipliers prove what they did, and what ascent makes of them."""
    monkeypatch.setattr(parts_room, "MOVING", moving)
    _, presolver = question(torch.Generator().manual_seed(1), images(1))
    chain = LayerwiseDual(presolver.problem, presolver.below(), torch.float64, Deadline())
    whole = parts_room.SubdomainBounds(chain)
    found = whole.roots()
    root = found.left[torch.tensor([0])]
    narrow, same = whole.narrowed(root, parts_room.moving_units(found.lined[0]))
    assert narrow.chain.entries < chain.entries
    assert (narrow.chain.entries > 0) == (moving > 0)
    goal = chain.problem.goal[root.row]
    before = chain.certify(goal, chain.known(root.signs), root.chosen)
    after = narrow.chain.certify(goal, chain.known(same.signs), same.chosen)
    assert after.value.tolist() == pytest.approx(before.value.tolist(), abs=1e-9)
    assert float((after.cube - before.cube).abs().max()) < 1e-9
    halves = same.split()
    known, goals = chain.known(halves.signs), chain.problem.goal[halves.row]
    joint = JointDual(narrow.chain)
    _, seen = joint.climb(goals, known, halves.chosen, 0)
    proved = narrow.chain.certify(goals, known, halves.chosen)
    assert seen.value.tolist() == pytest.approx(proved.value.tolist(), abs=1e-9)
    better, seen = joint.climb(goals, known, halves.chosen, 60)
    proved = narrow.chain.certify(goals, known, better)
    assert seen.value.tolist() == pytest.approx(proved.value.tolist(), abs=1e-9)
    assert float(proved.value.min()) > float(before.value)


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize(("many", "share"), [(2, 0.05), (20, 0.05), (20, 0.5)])
def test_products_are_those_of_the_matrix(
    many: int, share: float, kernels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where PyTorch has no kernels for sparse matrices."""
    made = []
    honest = Tensor.to_sparse_csr

    def compress(matrix: Tensor) -> Tensor:
        made.append(matrix.shape)
        if not kernels:
            raise RuntimeError("not on this device")
        return honest(matrix)

    monkeypatch.setattr(Tensor, "to_sparse_csr", compress)
    dice = torch.Generator().manual_seed(0)
    dense = torch.randn(30, 50, generator=dice) * (torch.rand(30, 50, generator=dice) < share)
    matrix = HullMatrix(dense)
    for _ in range(2):
        rows, points = (torch.randn(many, size, generator=dice) for size in (30, 50))
        assert torch.allclose(matrix.rows(rows), rows @ dense, atol=1e-5)
        assert torch.allclose(matrix.at(points), points @ dense.T, atol=1e-5)
    assert len(made) == ((2 if kernels else 1) if share < 0.2 else 0), "once"


def test_nothing_is_closed_without_a_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever plain floating point says of a subdomain, its certificate decides."""
    given = problem(1, radius=0.0)
    goal = replace(given.goal, constant=given.goal.constant + 100.0)
    bounds = parts_room.SubdomainBounds(
        LayerwiseDual(replace(given, goal=goal), [], torch.float32, Deadline())
    )
    found = bounds.roots()
    assert len(found.closed) == len(found.bounds) == len(goal)
    assert len(found.left) == 0
    honest = LayerwiseDual.certify

    def short(*arguments: object) -> Certified:
        proved = honest(*arguments)  # type: ignore[arg-type]
        return replace(proved, value=-proved.value)

    monkeypatch.setattr(LayerwiseDual, "certify", short)
    found = bounds.roots()
    assert len(found.closed) == 0
    assert len(found.left) == len(goal)
    assert float(found.left.value.min()) > 0, "this is a guess, and closes nothing"


@pytest.mark.parametrize("off", [0.0, 0.25])
def test_the_hull_of_a_unit_is_exact_where_a_chord_is_not(off: float) -> None:
    """v = z1 - relu(z1 + z2) is least at a corner, which the chord of z1 + z2 does not see."""
    one = torch.ones(1, dtype=torch.float64)
    nothing = torch.zeros(1, 0, dtype=torch.float64)
    first = Rows(torch.tensor([[1.0, 1.0]]).double(), nothing, nothing, 0 * one, off * one)
    goal = Rows(torch.tensor([[1.0, 0.0]]).double(), -one.reshape(1, 1), nothing, 0 * one, 0 * one)
    none = torch.zeros(0, dtype=torch.float64)
    second = Rows(torch.zeros(0, 2).double(), torch.zeros(0, 1).double(), nothing[:0], none, none)
    given = Presolved(first, second, goal, (2 + off) * one, none, none, 2)
    still = torch.zeros(1, 1, dtype=torch.float64)
    signs = Signs(still, goal.second)
    taken = torch.where(given.sparse.columns == 0, 1.0, 0.0).double()
    shares = taken.unsqueeze(0)
    chord = torch.full_like(shares, 0.5)
    best, worse = (
        certify(
            given, settled_small(given), goal, signs, Multipliers(goal.second, still, still, each)
        ).value
        for each in (shares, chord)
    )
    assert float(best) == pytest.approx(-1.0 - off)
    assert float(best) <= -1.0 - off
    assert float(worse) == pytest.approx(-2.0 - off)


@pytest.mark.parametrize("seed", range(4))
def test_every_radius_counts_in_full(seed: int) -> None:
    """With all signs fixed the problem is linear, and its least value is known exactly."""
    given = problem(seed, radius=0.3)
    first, second, goal = given.first, given.second, given.goal
    signs = Signs(torch.ones_like(goal.first), torch.ones_like(goal.second))
    rows = goal.first + goal.second @ second.first
    cube = goal.cube + goal.second @ second.cube + rows @ first.cube
    truth = goal.constant + goal.second @ second.constant + rows @ first.constant
    truth = truth - cube.abs().sum(1) - goal.radius
    truth = truth - goal.second.abs() @ second.radius - rows.abs() @ first.radius
    none = torch.zeros_like(goal.first)
    shares = torch.zeros(len(goal), *given.sparse.values.shape, dtype=torch.float64)
    chosen = Multipliers(goal.second, none, none, shares)
    found = certify(given, settled_small(given), goal, signs, chosen).value
    assert bool((found <= truth).all())
    assert found.tolist() == pytest.approx(truth.tolist(), abs=1e-9)


@pytest.mark.parametrize("sides", ["both", "above", "below"])
def test_brackets_are_what_they_say(sides: str) -> None:
    """Also where ends are on one side of zero without a sign being fixed."""
    dice = torch.Generator().manual_seed(0)
    ends = torch.randn(2, 500, generator=dice, dtype=torch.float64).sort(dim=0).values
    ends = {"both": ends, "above": ends.abs(), "below": -ends.abs()}[sides].sort(dim=0).values
    t, beta = 2 * torch.randn(2, 500, generator=dice, dtype=torch.float64)
    none = torch.zeros_like(t)
    beta = allowed(beta, none, t)
    given = replace(problem(0), lower=ends[0], upper=ends[1])
    found = brackets(given, beta, none, t)
    y = ends[0] + torch.linspace(0, 1, 50, dtype=torch.float64).unsqueeze(1) * (ends[1] - ends[0])
    least = (t * y.clamp_min(0) - beta * y).amin(0)
    assert bool((found <= least + 1e-12).all())
    assert bool((found[t < 0] >= least[t < 0] - 1e-12).all())


def test_no_bound_is_had_from_what_is_not_finite() -> None:
    given = problem(0)
    given.goal.constant[0] = torch.nan
    given.goal.constant[1] = torch.inf
    signs = unknown(given.goal)
    (start,) = LayerwiseDual(given, [], torch.float64, Deadline()).fresh(given.goal, [signs])
    shares = torch.zeros(3, *given.sparse.values.shape, dtype=torch.float64)
    chosen = replace(start, shares=shares)
    small = settled_small(given)
    found = certify(given, small, given.goal, signs, chosen).value
    assert found[0] == -torch.inf
    assert found[1] == -torch.inf
    assert found[2] > -torch.inf
    shares[2, 0, 0] = torch.nan
    assert certify(given, small, given.goal, signs, chosen).value[2] == -torch.inf
    worthless = torch.full((FIRST, given.sparse.values.shape[1]), torch.nan)
    chosen = replace(start, shares=start.shares[:, :0])
    none = small.with_shares(given, worthless, torch.zeros(FIRST, dtype=torch.bool))
    assert certify(given, none, given.goal, signs, chosen).value.tolist() == [-torch.inf] * 3


def anywhere(dice: torch.Generator, query: Query, count: int) -> dict[str, Tensor]:
    """Random points of a question's inputs."""
    return {
        name: box.lower
        + (box.upper - box.lower)
        * torch.rand(count, *box.lower.shape[1:], generator=dice, dtype=torch.float64)
        for name, box in query.ranges.items()
    }


def coordinates(
    query: Query, presolver: Presolver, points: dict[str, Tensor], held: Mapping[str, Tensor]
) -> list[Tensor]:
    """Where points are in the cube: by input, then by activation with gaps."""
    z = []
    for name, columns in presolver.inputs.items():
        box = query.ranges[name]
        middle, reach = (box.lower + box.upper) / 2, (box.upper - box.lower) / 2
        z.append(((points[name] - middle) / reach.clamp_min(1e-300)).flatten(1)[:, columns])
    for name, gap in presolver.gaps.items():
        node = query.graph[name]
        read, given = held[node.inputs[0]].flatten(1), held[name].flatten(1)
        slope = presolver.view.lines[name].below_slope.flatten()
        z.append((2 * (given - slope * read) / gap - 1)[:, presolver._loose(name)])
    return z


@pytest.mark.parametrize("seed", range(3))
def test_condensing_keeps_what_the_network_computes(seed: int) -> None:
    """Every equation holds at every input, gaps put in, up to its radius, which is tiny."""
    dice = torch.Generator().manual_seed(seed)
    query, presolver = question(dice, images(seed))
    given, start = presolver.problem, query.graph.outputs[0]
    assert len(given.first) > 3
    assert len(given.second) > 1
    assert float(given.goal.radius.max()) < 1e-8
    points = anywhere(dice, query, 50)
    held = evaluate(query.graph, points, [node.name for node in query.graph.nodes])

    def own(node: Node, before: bool) -> Tensor:
        name = node.inputs[0] if before else node.name
        return held[name].flatten(1)[:, presolver.own[node.name]]

    z = coordinates(query, presolver, points, held)
    cube = torch.cat(z, dim=1)
    assert float(cube.abs().max()) <= 1 + 1e-6
    h = torch.cat([own(node, before=False) for node in presolver.first], dim=1)
    g = torch.cat([own(node, before=False) for node in presolver.second], dim=1)
    for some, truth in (
        (given.first, torch.cat([own(node, before=True) for node in presolver.first], dim=1)),
        (given.second, torch.cat([own(node, before=True) for node in presolver.second], dim=1)),
        (given.goal, held[start]),
    ):
        said = cube @ some.cube.T + some.constant
        said = said + (h @ some.first.T if some.first.shape[1] else 0)
        said = said + (g @ some.second.T if some.second.shape[1] else 0)
        assert float((said - truth).abs().max()) < 1e-8

    forgotten = dict(presolver.named)
    lowest = min(presolver.gaps, key=lambda name: presolver.depths[name])
    presolver.named[lowest] = torch.zeros_like(forgotten[lowest])
    node = presolver.first[-1]
    some = presolver._rows(presolver._walk_units(node))
    kept = torch.cat(_pieces(z, presolver, lowest), dim=1)
    off = (kept @ some.cube.T + some.constant - own(node, before=True)).abs()
    assert bool((off <= some.radius + 1e-9).all()), "units without a coordinate are in the radius"
    presolver.named = forgotten

    layers = presolver.below()
    assert len(layers) == 1
    for layer in layers:
        nodes = [query.graph[name] for name in presolver.gaps if presolver.depths[name] == 1]
        read = torch.cat([own(node, before=True) for node in nodes], dim=1)
        output = torch.cat([own(node, before=False) for node in nodes], dim=1)
        assert float((cube @ layer.rows.cube.T + layer.rows.constant - read).abs().max()) < 1e-8
        base = torch.randn(5, generator=dice, dtype=torch.float64)
        pull = torch.randn(5, cube.shape[1], generator=dice, dtype=torch.float64)
        goal = layer.goal(base, pull)
        assert not bool(goal.cube[:, layer.columns].any())
        said = cube @ goal.cube.T + output @ goal.first.T + goal.constant
        assert float((said - (base + cube @ pull.T)).abs().max()) < 1e-7


def test_inputs_that_hardly_range_have_no_coordinate_and_count_in_every_radius() -> None:
    """A third of the inputs range, a third does by very little, a third is fixed."""
    dice = torch.Generator().manual_seed(4)
    radius = torch.tensor([0.1, 4e-11, 0.0]).repeat(22)[:64].reshape(1, 8, 8)
    query, presolver = question(dice, images(4), radius)
    assert [len(columns) for columns in presolver.inputs.values()] == [22] * len(query.ranges)
    points = anywhere(dice, query, 200)
    for name, box in query.ranges.items():
        points[name] = torch.where(points[name] > (box.lower + box.upper) / 2, box.upper, box.lower)
    held = evaluate(query.graph, points, [node.name for node in query.graph.nodes])
    cube = torch.cat(coordinates(query, presolver, points, held), dim=1)
    layer = presolver.below()[0]
    nodes = [query.graph[name] for name in presolver.gaps if presolver.depths[name] == 1]
    read = torch.cat([held[n.inputs[0]].flatten(1)[:, presolver.own[n.name]] for n in nodes], dim=1)
    off = (cube @ layer.rows.cube.T + layer.rows.constant - read).abs()
    assert float(off.max()) > 1e-11, "what hardly ranges is met"
    assert bool((off <= layer.rows.radius).all())


@pytest.mark.parametrize("end", [1e-12, 1e-300])
def test_a_unit_that_is_hardly_open_spoils_nothing(end: float) -> None:
    """Its gap is too small to be a coordinate; whatever is divided by it would not be finite."""
    _, presolver = question(torch.Generator().manual_seed(0), images(0))
    bounds, eye = presolver.bounds, torch.eye(3, dtype=torch.float64).unsqueeze(0)
    start = bounds.structure.graph.outputs[0]

    def bound(chain: LayerwiseDual) -> Tensor:
        goal = chain.problem.goal
        known = chain.known(goal.constant.new_zeros(len(goal), sum(chain.sizes)))
        chosen, _ = JointDual(chain).climb(goal, known, chain.fresh(goal, known), 20)
        return chain.certify(goal, known, chosen).value

    def chain_of(presolver: Presolver) -> LayerwiseDual:
        return LayerwiseDual(presolver.problem, presolver.below(), torch.float32, Deadline())

    before = chain_of(presolver)
    lowest = min(presolver.gaps, key=lambda name: presolver.depths[name])
    source = bounds.structure.graph[lowest].inputs[0]
    unit = presolver.own[lowest].nonzero()[0]
    lower, upper = (ends.clone() for ends in bounds.ends[source])
    lower.flatten()[unit], upper.flatten()[unit] = -end, end
    bounds.ends[source] = (lower, upper)
    after = chain_of(Presolver(bounds, start, eye, eye.new_zeros(3)))
    assert sum(after.sizes) == sum(before.sizes) - 1
    assert bool((bound(after) >= bound(before) - 1e-3).all())


@pytest.mark.parametrize("seed", range(2))
def test_chains_hold_for_any_multipliers_and_signs(seed: int, kept_apart: bool) -> None:
    """Subdomains are where a point of the network lies, units of all layers fixed as they are
    there."""
    dice = torch.Generator().manual_seed(seed)
    query, presolver = question(dice, images(seed))
    given, start = presolver.problem, query.graph.outputs[0]
    chain = LayerwiseDual(given, presolver.below(), torch.float64, Deadline())
    assert len(chain.layers) == 1
    for each in chain.problems:
        assert bool(each.sparse.rest.any()) != kept_apart
    points = anywhere(dice, query, 60)
    held = evaluate(query.graph, points, [node.name for node in query.graph.nodes])
    below = [query.graph[name] for name in presolver.gaps if presolver.depths[name] == 1]
    read = [
        held[node.inputs[0]].flatten(1)[:, presolver.own[node.name]]
        for node in (*presolver.second, *presolver.first, *below)
    ]
    there = torch.cat(read, dim=1).sign()
    assert there.shape[1] == sum(chain.sizes)
    some = torch.rand(there.shape, generator=dice) < torch.rand(60, 1, generator=dice)
    known = chain.known(there * some)
    joint = JointDual(chain)
    for row in range(3):
        goal = given.goal[torch.full((60,), row)]
        chosen = chain.fresh(goal, known)
        better, _ = joint.climb(goal, known, chosen, 40)
        wild = [
            Multipliers(*(torch.randn(part.shape, generator=dice).double() for part in subdomains))
            for subdomains in ((m.second, m.alpha, m.first, m.shares) for m in chosen)
        ]
        found = [chain.certify(goal, known, each).value for each in (chosen, better, wild)]
        masks = [torch.rand(size, generator=dice) < 0.5 for size in chain.sizes[1:]]
        narrow, _ = chain.narrowed(wild, masks)
        left = [replace(m, shares=m.shares[:, n]) for m, n in zip(better, masks, strict=True)]
        found.append(narrow.certify(goal, known, left).value)
        for value in found:
            assert bool((value <= held[start][:, row]).all())
        assert float((found[1] - found[0]).mean()) > 0


def _pieces(z: list[Tensor], presolver: Presolver, without: str) -> list[Tensor]:
    """Coordinates by input and activation, those of one activation left out."""
    place = len(presolver.inputs) + list(presolver.gaps).index(without)
    return [piece for i, piece in enumerate(z) if i != place]


@pytest.mark.parametrize("seed", range(3))
def test_tightened_bounds_are_closer_and_contain_what_units_read(seed: int) -> None:
    dice = torch.Generator().manual_seed(seed)
    query, presolver = question(dice, images(seed))
    bounds = presolver.bounds
    held = evaluate(
        query.graph, anywhere(dice, query, 3000), [node.name for node in query.graph.nodes]
    )
    sources = [node.inputs[0] for node in bounds.structure.activations]
    found = dict(tightened_bounds(bounds, sources))
    assert not bounds.structure.single_layer & found.keys()
    gained = []
    for name, (lower, upper) in found.items():
        before = bounds.ends[name]
        assert bool((lower >= before[0]).all() & (upper <= before[1]).all())
        assert bool((held[name] >= lower).all() & (held[name] <= upper).all())
        gained.append(float((before[1] - before[0]).sum() / (upper - lower).sum()))
    assert max(gained) > 1.02

    chain = LayerwiseDual(presolver.problem, presolver.below(), torch.float64, Deadline())
    given, tightened = chain.problem, tighten_second_layer(chain).problem
    own = [
        held[node.inputs[0]].flatten(1)[:, presolver.own[node.name]] for node in presolver.second
    ]
    read = torch.cat(own, dim=1)
    assert bool((read >= tightened.lower).all() & (read <= tightened.upper).all())
    assert float((tightened.upper - tightened.lower).sum()) < float(
        (given.upper - given.lower).sum()
    )


def test_no_ends_are_brought_closer_where_no_unit_is_open() -> None:
    dice = torch.Generator().manual_seed(0)
    _, presolver = question(dice, images(0), 1e-7)
    bounds = presolver.bounds
    assert not any(bool(mask.any()) for mask in presolver.open.values())
    assert not list(tightened_bounds(bounds, bounds.ends.keys()))


def test_tightened_bounds_of_common_tensors_are_remembered() -> None:
    """For the inputs that were asked about, once; and lines are those of the bounds remembered."""
    dice = torch.Generator().manual_seed(5)
    graph = images(5)
    components = graph.components("filter")
    claim = pc.Claim(
        [pc.Ball(torch.rand(1, 8, 8, generator=dice), 0.1) for _ in range(2)],
        pc.Reachable(eps=0.12),
        pc.LogitDifference(0.5, 0),
    )
    verifier = pc.Verifier(components, claim)
    query = verifier.encoder.encode(components.full().remove(components.names[0]))
    memory, common = verifier.knowledge.memory, query.common
    bounds = Bounds(Structure(query.graph, torch.device("cpu")), Region(query.ranges), 2)
    bounds.compute()
    memory.keep(bounds, common)
    before, lines = dict(memory.whole), dict(memory.lines)
    tighten_common(memory, bounds, common, torch.tensor([1, 1]))
    changed = {name for name, ends in memory.whole.items() if ends is not before[name]}
    assert changed
    for name in changed:
        (old_low, old_high), (low, high) = before[name], memory.whole[name]
        assert torch.equal(low[0], old_low[0])
        assert torch.equal(high[0], old_high[0])
        assert bool((low >= old_low).all() & (high <= old_high).all())
        readers = {node.name for node in bounds.structure.activations if name in node.inputs}
        assert readers & lines.keys()
        assert not readers & memory.lines.keys()
    assert {problem for _, problem in memory.tightened} == {1}
    after = dict(memory.whole)
    tighten_common(memory, bounds, common, torch.tensor([1]))
    assert all(memory.whole[name] is after[name] for name in after), "nothing is done twice"


def test_only_what_is_too_large_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two inputs, one has more unstable units than there is room for; the other is proved."""
    components = images(0).components("filter")
    x = torch.rand(1, 8, 8, generator=torch.Generator().manual_seed(0))
    claim = pc.Claim([pc.Ball(x, 0.03), pc.Ball(x, 0.3)], pc.Zero(), pc.LogitDifference(1e3, 0))
    circuit = components.full().remove(components.names[0])
    query = pc.Verifier(components, claim).encoder.encode(circuit)
    bounds = Bounds(Structure(query.graph, torch.device("cpu")), Region(query.ranges), 2)
    bounds.compute()
    roots = RootProblems(bounds, torch.arange(2), -query.rows[:, :1], -query.offsets[:, 0])
    few, many = (
        Presolver(
            bounds.select(torch.tensor([i])), roots.start, roots.rows[i : i + 1], roots.offsets[:1]
        ).problem.sparse.values.numel()
        for i in range(2)
    )
    assert few < many

    def left() -> tuple[list[int], set[int]]:
        search = HullSearch(
            roots, lambda points, problems: False, Deadline(), ProofReuse(SavedTrees(), query)
        )
        found = search.run()
        assert found is not None
        return found.tolist(), search.too_large

    assert left() == ([], set())
    room = importlib.import_module("provable_circuits.verify.neuron_hull.search")
    monkeypatch.setattr(room, "MOST_ENTRIES", many - 1)
    assert left() == ([1], {1})


def moved(seed: int, tolerance: float) -> pc.Verdict:
    """Whether an output of some network moves by no more when two filters are patched."""
    graph = images(seed, scale=2.0)
    components = graph.components("filter")
    x = torch.rand(1, 8, 8, generator=torch.Generator().manual_seed(seed))
    circuit = components.full().remove(components.names[1]).remove(components.names[7])
    claim = pc.Claim([pc.Point(x)], pc.Reachable(0.1), pc.LogitDifference(tolerance, 0))
    return pc.verify(graph, circuit, claim)


@pytest.mark.usefixtures("hulls_at_once")
@pytest.mark.parametrize(
    ("seed", "worst", "tightened"), [(3, 0.0103, False), (4, 0.1055, False), (4, 0.1055, True)]
)
def test_hulls_prove_next_to_what_is_refuted(
    seed: int, worst: float, tightened: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The output does move by ``worst``; that it moves by no more than a tenth above is proved."""
    room = importlib.import_module("provable_circuits.verify.stages.question")
    asked = []

    def watched(*arguments: object) -> None:
        asked.append(arguments)
        tighten_common(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(room, "tighten_common", watched)
    if tightened:
        monkeypatch.setattr(room, "FIRST_SUBDOMAINS", 0)
    assert moved(seed, 0.97 * worst).refuted
    proof = moved(seed, 1.1 * worst)
    assert isinstance(proof, pc.Proved)
    assert proof.stage == "hull"
    assert bool(asked) == tightened
    assert -0.13 * worst <= proof.bound <= 0


@pytest.mark.usefixtures("hulls_at_once")
@pytest.mark.parametrize(
    ("room", "easiest", "stage"), [(100, False, "hull"), (3, True, "hull"), (1, True, "branching")]
)
def test_few_parts_wait_where_there_is_little_room(
    room: int, easiest: bool, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that lack least are split first; and if too many wait still, the row is given up."""
    tree = importlib.import_module("provable_circuits.verify.neuron_hull.tree")
    monkeypatch.setattr(tree, "MOST_KEPT", room)
    monkeypatch.setattr(tree, "UNIT_NUMBERS", 0)
    monkeypatch.setattr(tree, "WIDTH", 2)
    monkeypatch.setattr(LayerwiseDual, "entries", 1)
    for name in ("FEW", "ROOT_STEPS", "PART_STEPS"):
        monkeypatch.setattr(parts_room, name, 1)
    taken = []
    honest = parts_room.Waiting.take_easiest

    def take_easiest(waiting: parts_room.Waiting, most: int) -> parts_room.HullSubdomains:
        taken.append(most)
        return honest(waiting, most)

    monkeypatch.setattr(parts_room.Waiting, "take_easiest", take_easiest)
    proof = moved(4, 1.03 * 0.1055)
    assert isinstance(proof, pc.Proved)
    assert (proof.stage, bool(taken)) == (stage, easiest)
