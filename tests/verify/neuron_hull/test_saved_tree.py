"""Saved trees: what an earlier proof leaves to a question saves time, and never decides it."""

from __future__ import annotations

import itertools
import math
from dataclasses import astuple, replace

import pytest
import torch
from tests.verify.neuron_hull.questions import images, question
from torch import Tensor

import provable_circuits as pc
from provable_circuits.verify.configuration import DEFAULT, Configuration
from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.encoding.circuit_tensor import Cut, Unread
from provable_circuits.verify.encoding.roles import Role, RoleKind
from provable_circuits.verify.neuron_hull.hull_bound import Multipliers
from provable_circuits.verify.neuron_hull.index_map import IndexMap, Match
from provable_circuits.verify.neuron_hull.layerwise_dual import LayerwiseDual
from provable_circuits.verify.neuron_hull.proof_reuse import POSITIONS, ProofReuse, SavedTrees
from provable_circuits.verify.neuron_hull.saved_tree import Cover, covering
from provable_circuits.verify.neuron_hull.subdomains import (
    HullSubdomains,
    SubdomainBounds,
    moving_units,
)
from provable_circuits.verify.neuron_hull.tree import Ground, HullTree

UNITS = 5


def grown(dice: torch.Generator, signs: Tensor, chance: float) -> list[Tensor]:
    """The leaves of a random tree."""
    free = (signs == 0).nonzero().flatten()
    if not len(free) or float(torch.rand(1, generator=dice)) > chance:
        return [signs]
    unit = free[torch.randint(len(free), (1,), generator=dice)]
    both = (signs.index_fill(0, unit, sign) for sign in (1.0, -1.0))
    return [leaf for half in both for leaf in grown(dice, half, chance)]


def uncovered(leaves: Tensor, sure: Tensor) -> int:
    """How many patterns that agree with the sure signs no leaf has."""
    count = 0
    for pattern in itertools.product((1.0, -1.0), repeat=len(sure)):
        signs = torch.tensor(pattern)
        if bool(((sure == 0) | (sure == signs)).all()):
            count += not bool(((leaves == 0) | (leaves == signs)).all(1).any())
    return count


@pytest.mark.parametrize("seed", range(40))
def test_leaves_cover_whatever_units_are_missing_or_sure(seed: int) -> None:
    """Also where several are taken for the same one."""
    dice = torch.Generator().manual_seed(seed)
    leaves = torch.stack(grown(dice, torch.zeros(UNITS), 0.9))
    assert uncovered(leaves, torch.zeros(UNITS)) == 0
    units = torch.randperm(UNITS + 2, generator=dice)[:UNITS]
    if seed % 2:
        units = torch.randint(UNITS + 2, (UNITS,), generator=dice)
    units = torch.where(units < UNITS, units, -1)
    sure = torch.randint(-1, 2, (UNITS,), generator=dice).float()
    sure *= torch.rand(UNITS, generator=dice) < 0.5
    some, signs = covering(leaves, units, sure)
    assert uncovered(signs, sure) == 0
    assert bool((signs[:, sure != 0] == sure[sure != 0]).all())
    assert bool((signs[:, (units < 0) & (sure == 0)] == 0).all())
    if len(leaves) > 1:
        assert uncovered(leaves[1:], torch.zeros(UNITS)) > 0, "no leaf could be left out"
        free, _ = covering(leaves, torch.arange(UNITS), torch.zeros(UNITS))
        assert free.tolist() == list(range(len(leaves)))
    assert set(some.tolist()) <= set(range(len(leaves)))


def problem(seed: int) -> tuple[SubdomainBounds, IndexMap]:
    """A problem that is not proved whole, and its frame with numbers made up."""
    _, presolver = question(torch.Generator().manual_seed(seed), images(seed))
    chain = LayerwiseDual(presolver.problem, presolver.below(), torch.float64, Deadline())
    units = 1000 + torch.arange(sum(chain.sizes))
    return SubdomainBounds(chain), IndexMap.of(
        chain, units, torch.arange(chain.problem.goal.cube.shape[1])
    )


@pytest.mark.parametrize("changed", [False, True])
def test_multipliers_are_found_again_by_their_numbers(changed: bool) -> None:
    """Those of the same unit, and shares of the same coordinate; usual ones for what is new."""
    bounds, old = problem(1)
    before = bounds.roots().left[:1].chosen
    dice = torch.Generator().manual_seed(0)
    new = old
    if changed:
        units = old.units + (torch.rand(len(old.units), generator=dice) < 0.2) * 10_000
        below = torch.randperm(len(units) - old.sizes[0], generator=dice) + old.sizes[0]
        units = torch.cat([units[: old.sizes[0]].flip(0), units[below]])
        order = torch.randperm(len(old.coordinates), generator=dice)
        new = replace(old, units=units, coordinates=old.coordinates[order])
    usual = tuple(Multipliers(*(-torch.ones_like(x) for x in astuple(own))) for own in before)
    after = Match(old, new).carried(before, usual)

    def flat(name: str, chosen: tuple[Multipliers, ...]) -> list[float]:
        return torch.cat([getattr(own, name).flatten(1) for own in chosen], dim=1)[0].tolist()

    def pairs(index_map: IndexMap) -> list[tuple[int, int]]:
        own = index_map.coordinates.tolist()
        columns = [own[i] if i < len(own) else -1 for i in index_map.columns.tolist()]
        return list(zip(index_map.units[index_map.owners].tolist(), columns, strict=True))

    def named(name: str, index_map: IndexMap) -> list[object]:
        if name == "shares":
            return list(pairs(index_map))
        seconds = index_map.sizes[0]
        return (
            index_map.units[:seconds] if name == "second" else index_map.units[seconds:]
        ).tolist()

    for name in ("second", "alpha", "first", "shares"):
        known = dict(zip(named(name, old), flat(name, before), strict=True))
        known = {k: v for k, v in known.items() if name != "shares" or k[1] >= 0}  # type: ignore[index]
        wanted = [known.get(key, -1.0) for key in named(name, new)]
        assert flat(name, after) == wanted
        assert (-1.0 in wanted) == (changed or name == "shares"), "nothing was missing"
        assert sum(value >= 0 for value in wanted) > 0 or name == "second"


def tree() -> tuple[Ground, HullSubdomains, HullTree]:
    """A row shifted so that it is proved by splitting it, and the tree that proves it."""
    bounds, index_map = problem(3)
    found = bounds.roots()
    ground = Ground(bounds, index_map, lambda cube: False, Deadline())
    worst = float(found.left.value[0])
    goal = bounds.problem.goal
    goal = replace(goal, constant=goal.constant - 0.95 * worst)
    shifted = SubdomainBounds(bounds.chain.of(replace(bounds.problem, goal=goal)))
    found = shifted.roots()
    ground = replace(ground, bounds=shifted)
    row = found.left[:1]
    planted = HullTree(ground, row, moving_units(found.lined[0], DEFAULT.neuron_hull.moving_share))
    assert planted.proved(planted.root, 4000)
    return ground, row, planted


def test_the_same_row_closes_as_it_did() -> None:
    ground, row, planted = tree()
    saved_tree = planted.saved_tree
    assert saved_tree is not None
    assert len(saved_tree.leaves) > 20
    depths = (saved_tree.leaves.signs != saved_tree.root.signs).sum(1)
    assert float((0.5**depths).sum()) == 1, "leaves of a tree, none of them missing"
    again = HullTree(ground, *saved_tree.carried(ground.index_map, row))
    cover = Cover(saved_tree, again.index_map, again.root)
    assert len(cover) == len(saved_tree.leaves)
    assert again.fits(cover)
    assert len(again.begun(cover)) <= 0.1 * len(cover), "halves are rounded, no more"


def test_leaves_that_prove_nothing_are_not_taken_up() -> None:
    """Another row, for which the multipliers are of no use."""
    ground, row, planted = tree()
    saved_tree = planted.saved_tree
    assert saved_tree is not None
    goal = ground.bounds.problem.goal
    lower = SubdomainBounds(
        ground.bounds.chain.of(
            replace(ground.bounds.problem, goal=replace(goal, constant=goal.constant - 10.0))
        )
    )
    again = HullTree(replace(ground, bounds=lower), *saved_tree.carried(ground.index_map, row))
    assert not again.fits(Cover(saved_tree, again.index_map, again.root))


def test_numbers_are_those_of_the_network() -> None:
    """Positions of a circuit's tensor that lacks channels are those of the network's."""
    components = images(0).components("filter")
    x = torch.rand(1, 8, 8, generator=torch.Generator().manual_seed(0))
    claim = pc.Claim([pc.Point(x)], pc.Reachable(0.1), pc.LogitDifference(1.0, 0))
    verifier = pc.Verifier(components, claim)
    saved_trees = SavedTrees()
    cut = 0
    for name in components.names[4:8]:
        query = verifier.encoder.encode(components.full().remove(components.names[1]).remove(name))
        proof_reuse = ProofReuse(saved_trees, query)
        for tensor, held in query.tensors.items():
            if held.node not in query.graph:
                continue
            shape = verifier.encoder.network[tensor].shape
            network = torch.arange(math.prod(shape)).reshape(shape)
            wanted = network[held.kept] if isinstance(held, Cut | Unread) else network
            numbers = proof_reuse.numbers(held.node, torch.arange(wanted.numel()))
            assert torch.equal(numbers % POSITIONS, wanted.flatten())
            number = saved_trees.tensors[Role(RoleKind.CIRCUIT, tensor)]
            assert bool((numbers // POSITIONS == number).all())
            cut += isinstance(held, Cut | Unread)
    assert cut > 0


@pytest.mark.parametrize(
    ("seed", "radius"), [*((seed, 0.0) for seed in range(5)), (0, 0.02), (4, 0.02)]
)
def test_questions_one_after_the_other_are_answered_as_alone(
    seed: int, radius: float, hulls_at_once: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is left from earlier proofs; and it is made use of."""
    taken: list[int] = []
    honest = HullTree.begun

    def begun(grown: HullTree, cover: Cover) -> HullSubdomains:
        taken.append(len(cover))
        return honest(grown, cover)

    monkeypatch.setattr(HullTree, "begun", begun)
    hasty = hulls_at_once.changed(neuron_hull={"root_steps": 1})
    graph = images(seed, scale=2.0)
    components = graph.components("filter")
    x = torch.rand(1, 8, 8, generator=torch.Generator().manual_seed(seed))
    answers = []
    for tolerance in (0.01, 0.03, 0.1, 0.3):
        given = pc.Ball(x, radius) if radius else pc.Point(x)
        claim = pc.Claim([given], pc.Reachable(0.1), pc.LogitDifference(tolerance, 0))
        verifier = pc.Verifier(components, claim, configuration=hasty)
        circuit = components.full()
        for name in components.names:
            verdict = verifier.ask(circuit.remove(name))
            other = pc.Verifier(components, claim, configuration=hasty)
            alone = other.ask(circuit.remove(name))
            assert verdict.kind == alone.kind
            answers.append(verdict.kind)
            if verdict.proved:
                circuit = circuit.remove(name)
    assert {"proved", "refuted"} <= set(answers)
    assert taken, "no outline was taken up"


def test_rows_that_meet_no_open_unit_have_frames() -> None:
    """So narrow a ball leaves no unit open."""
    _, presolver = question(torch.Generator().manual_seed(0), images(0), 1e-9)
    chain = LayerwiseDual(presolver.problem, presolver.below(), torch.float64, Deadline())
    units, cube = presolver.numbered(lambda name, positions: positions)
    index_map = IndexMap.of(chain, units, cube)
    assert len(index_map.units) == len(index_map.owners) == 0
    assert len(index_map.coordinates) == chain.problem.goal.cube.shape[1]
    row = SubdomainBounds(chain).roots().left[:1]
    assert Match(index_map, index_map).carried(row.chosen, row.chosen)[0].shares.numel() == 0


def test_rows_are_split_afresh_where_an_earlier_proof_does_not_help(
    hulls_at_once: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it was begun with is given up; the verdict is the same."""
    given_up = 0
    honest = HullTree.proved

    def proved(grown: HullTree, left: HullSubdomains, most: int) -> bool:
        nonlocal given_up
        begun = left is not grown.root
        given_up += begun
        return not begun and honest(grown, left, most)

    hasty = hulls_at_once.changed(neuron_hull={"root_steps": 1})
    graph = images(4, scale=2.0)
    components = graph.components("filter")
    x = torch.rand(1, 8, 8, generator=torch.Generator().manual_seed(4))
    claim = pc.Claim([pc.Point(x)], pc.Reachable(0.1), pc.LogitDifference(0.1, 0))

    def kinds() -> list[str]:
        verifier = pc.Verifier(components, claim, configuration=hasty)
        circuit, found = components.full(), []
        for name in components.names:
            verdict = verifier.ask(circuit.remove(name))
            found.append(f"{verdict.kind} {verdict.stage}")
            circuit = circuit.remove(name) if verdict.proved else circuit
        return found

    expected = kinds()
    assert "proved neuron-hull" in expected
    monkeypatch.setattr(HullTree, "proved", proved)
    assert kinds() == expected
    assert given_up


def test_the_oldest_outlines_are_forgotten() -> None:
    _, _, planted = tree()
    saved_tree = planted.saved_tree
    assert saved_tree is not None
    saved_trees = SavedTrees(2 * saved_tree.numbers)
    for index in range(3):
        saved_trees.keep({(index, (1.0,)): saved_tree})
    saved_trees.keep({(1, (1.0,)): saved_tree})
    assert [index for index, _ in saved_trees.rows] == [2, 1]


def test_numbers_are_counted() -> None:
    """What a saved tree says it holds is what its tensors hold, or more, but not much more."""
    _, _, planted = tree()
    saved_tree = planted.saved_tree
    assert saved_tree is not None
    subdomains = (saved_tree.leaves, saved_tree.root)
    held = [x for p in subdomains for x in (p.row, p.signs, p.value, p.scores)]
    held += [x for p in subdomains for own in p.chosen for x in astuple(own)]
    held += [x for f in (saved_tree.index_map, saved_tree.whole) for x in (f.owners, f.columns)]
    size = sum(x.numel() * x.element_size() for x in held) / 2
    assert size <= saved_tree.numbers <= 3 * size


def test_no_two_units_have_the_same_number() -> None:
    """Where inputs range the network's own tensors are there as well as the circuit's."""
    components = images(0).components("filter")
    x = torch.rand(1, 8, 8, generator=torch.Generator().manual_seed(0))
    claim = pc.Claim([pc.Ball(x, 0.05)], pc.Reachable(0.1), pc.LogitDifference(1.0, 0))
    circuit = components.full().remove(components.names[1]).remove(components.names[5])
    query = pc.Verifier(components, claim).encoder.encode(circuit)
    proof_reuse = ProofReuse(SavedTrees(), query)
    numbers = [
        proof_reuse.numbers(node.name, torch.arange(math.prod(node.shape)))
        for node in query.graph.nodes
    ]
    everyone = torch.cat(numbers)
    assert len(everyone.unique()) == len(everyone)
