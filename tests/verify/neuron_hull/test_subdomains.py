"""Parts of a problem: bounded soundly, split, and taken up in the order of their bounds."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.verify.neuron_hull.problems import FIRST, problem, unknown, values
from tests.verify.neuron_hull.questions import images, question

from provable_circuits.verify.configuration import Configuration
from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.neuron_hull import subdomains as parts_room
from provable_circuits.verify.neuron_hull.hull_bound import Multipliers
from provable_circuits.verify.neuron_hull.joint_dual import JointDual
from provable_circuits.verify.neuron_hull.layerwise_dual import LayerwiseDual


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
def test_few_parts_are_split_twice(few: int, count: int) -> None:
    none = torch.zeros(2, 0, dtype=torch.float64)
    chosen = Multipliers(none, none, none, none.unsqueeze(2))
    scores = torch.tensor([[0.0, 3.0, 2.0, 1.0], [2.0, 1.0, 0.0, 0.0]], dtype=torch.float64)
    signs = torch.tensor([[1.0, 0, 0, 0], [0, 0, -1, 1]], dtype=torch.float64)
    given = parts_room.HullSubdomains(torch.arange(2), signs, (chosen,), torch.zeros(2), scores)
    children = parts_room.split(given, few)
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
    assert len(parts_room.split(last, few)) == 2, "there is no second unit to split"


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
def test_parts_go_on_from_what_is_settled(moving: float, kept_apart: Configuration) -> None:
    """Whatever is settled, the multipliers prove what they did, and what ascent makes of them."""
    _, presolver = question(torch.Generator().manual_seed(1), images(1), configuration=kept_apart)
    chain = LayerwiseDual(presolver.problem, presolver.below(), torch.float64, Deadline())
    whole = parts_room.SubdomainBounds(chain)
    found = whole.roots()
    root = found.left[torch.tensor([0])]
    narrow, same = whole.narrowed(root, parts_room.moving_units(found.lined[0], moving))
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
