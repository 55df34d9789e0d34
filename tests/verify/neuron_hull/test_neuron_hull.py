"""Hulls: certificates hold whatever the multipliers, and they prove next to what is refuted."""

from __future__ import annotations

import importlib
from dataclasses import replace

import pytest
import torch
from tests.verify.neuron_hull.problems import (
    CUBE,
    FIRST,
    SECOND,
    best_bound,
    problem,
    settled,
    settled_small,
    unknown,
    values,
)
from tests.verify.neuron_hull.questions import images
from torch import Tensor

import provable_circuits as pc
from provable_circuits.verify.configuration import DEFAULT, Configuration
from provable_circuits.verify.deadline import Deadline
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
from provable_circuits.verify.neuron_hull.matrix import HullMatrix
from provable_circuits.verify.neuron_hull.presolved import Presolved, Rows
from provable_circuits.verify.reuse.tightening import tighten_common


@pytest.mark.parametrize("seed", range(8))
def test_certificates_hold_for_any_multipliers(seed: int, kept_apart: Configuration) -> None:
    """Also for slopes, multipliers and shares that nobody would choose."""
    given = problem(seed, tuning=kept_apart.neuron_hull)
    assert bool(given.sparse.rest.any()) != (kept_apart == DEFAULT)
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
    matrix = HullMatrix(dense, DEFAULT.neuron_hull.sparse_share)
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


def moved(seed: int, tolerance: float, configuration: Configuration) -> pc.Verdict:
    """Whether an output of some network moves by no more when two filters are patched."""
    graph = images(seed, scale=2.0)
    components = graph.components("filter")
    x = torch.rand(1, 8, 8, generator=torch.Generator().manual_seed(seed))
    circuit = components.full().remove(components.names[1]).remove(components.names[7])
    claim = pc.Claim([pc.Point(x)], pc.Reachable(0.1), pc.LogitDifference(tolerance, 0))
    verifier = pc.Verifier(components, claim, reuse=False, configuration=configuration)
    return verifier.ask(circuit)


@pytest.mark.parametrize(
    ("seed", "worst", "tightened"), [(3, 0.0103, False), (4, 0.1055, False), (4, 0.1055, True)]
)
def test_hulls_prove_next_to_what_is_refuted(
    seed: int,
    worst: float,
    tightened: bool,
    hulls_at_once: Configuration,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The output does move by ``worst``; that it moves by no more than a tenth above is proved."""
    room = importlib.import_module("provable_circuits.verify.stages.objectives")
    asked = []

    def watched(*arguments: object) -> None:
        asked.append(arguments)
        tighten_common(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(room, "tighten_common", watched)
    configuration = hulls_at_once
    if tightened:
        nothing_first = {"first_subdomains": 0, "first_work": 0}
        configuration = hulls_at_once.changed(neuron_hull=nothing_first)
    assert moved(seed, 0.97 * worst, configuration).refuted
    proof = moved(seed, 1.1 * worst, configuration)
    assert isinstance(proof, pc.Proved)
    assert proof.stage == "neuron-hull"
    assert bool(asked) == tightened
    assert -0.13 * worst <= proof.bound <= 0


@pytest.mark.parametrize(
    ("room", "easiest", "stage"),
    [(100, False, "neuron-hull"), (3, True, "neuron-hull"), (1, True, "branching")],
)
def test_few_parts_wait_where_there_is_little_room(
    room: int,
    easiest: bool,
    stage: str,
    hulls_at_once: Configuration,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those that lack least are split first; and if too many wait still, the row is given up."""
    tree = importlib.import_module("provable_circuits.verify.neuron_hull.tree")
    monkeypatch.setattr(tree, "UNIT_NUMBERS", 0)
    monkeypatch.setattr(LayerwiseDual, "entries", 1)
    few = {"few_quartered": 1, "root_steps": 1, "part_steps": 1}
    cramped = hulls_at_once.changed(neuron_hull={"most_kept": room, "width": 2, **few})
    taken = []
    honest = parts_room.Waiting.take_easiest

    def take_easiest(waiting: parts_room.Waiting, most: int) -> parts_room.HullSubdomains:
        taken.append(most)
        return honest(waiting, most)

    monkeypatch.setattr(parts_room.Waiting, "take_easiest", take_easiest)
    proof = moved(4, 1.03 * 0.1055, cramped)
    assert isinstance(proof, pc.Proved)
    assert (proof.stage, bool(taken)) == (stage, easiest)
