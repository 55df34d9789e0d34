"""Presolved networks keep what the network computes, and tightened bounds contain it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from tests.verify.neuron_hull.questions import images, question
from torch import Tensor

import provable_circuits as pc
from provable_circuits.network.execution import evaluate
from provable_circuits.network.graph import Node
from provable_circuits.verify.bounding.bounds import Bounds, Structure
from provable_circuits.verify.bounding.region import Region
from provable_circuits.verify.bounding.root_problems import RootProblems
from provable_circuits.verify.configuration import DEFAULT, Configuration
from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.encoding.query import Query
from provable_circuits.verify.neuron_hull.hull_bound import Multipliers
from provable_circuits.verify.neuron_hull.joint_dual import JointDual
from provable_circuits.verify.neuron_hull.layerwise_dual import LayerwiseDual
from provable_circuits.verify.neuron_hull.presolve import Presolver
from provable_circuits.verify.neuron_hull.proof_reuse import ProofReuse, SavedTrees
from provable_circuits.verify.neuron_hull.search import HullSearch
from provable_circuits.verify.neuron_hull.tightening import tighten_second_layer, tightened_bounds
from provable_circuits.verify.reuse.tightening import tighten_common


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
def test_chains_hold_for_any_multipliers_and_signs(seed: int, kept_apart: Configuration) -> None:
    """Subdomains are where a point of the network lies, units of all layers fixed as they are
    there."""
    dice = torch.Generator().manual_seed(seed)
    query, presolver = question(dice, images(seed), configuration=kept_apart)
    given, start = presolver.problem, query.graph.outputs[0]
    chain = LayerwiseDual(given, presolver.below(), torch.float64, Deadline())
    assert len(chain.layers) == 1
    for each in chain.problems:
        assert bool(each.sparse.rest.any()) != (kept_apart == DEFAULT)
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
    memory, roles = verifier.knowledge.memory, query.roles
    bounds = Bounds(Structure(query.graph, torch.device("cpu")), Region(query.ranges), 2)
    bounds.compute()
    memory.keep(bounds, roles)
    before, lines = dict(memory.whole), dict(memory.lines)
    tighten_common(memory, bounds, roles, torch.tensor([1, 1]))
    changed = {name for name, ends in memory.whole.items() if ends is not before[name]}
    assert changed
    for name in changed:
        (old_low, old_high), (low, high) = before[name], memory.whole[name]
        assert torch.equal(low[0], old_low[0])
        assert torch.equal(high[0], old_high[0])
        assert bool((low >= old_low).all() & (high <= old_high).all())
        activations = bounds.structure.activations
        readers = {
            roles[node.name] for node in activations if name in {roles[n] for n in node.inputs}
        }
        assert readers & lines.keys()
        assert not readers & memory.lines.keys()
    assert {problem for _, problem in memory.tightened} == {1}
    after = dict(memory.whole)
    tighten_common(memory, bounds, roles, torch.tensor([1]))
    assert all(memory.whole[name] is after[name] for name in after), "nothing is done twice"


def test_only_what_is_too_large_is_given_up() -> None:
    """Of two inputs, one has more unstable units than there is room for; the other is proved."""
    components = images(0).components("filter")
    x = torch.rand(1, 8, 8, generator=torch.Generator().manual_seed(0))
    claim = pc.Claim([pc.Ball(x, 0.03), pc.Ball(x, 0.3)], pc.Zero(), pc.LogitDifference(1e3, 0))
    circuit = components.full().remove(components.names[0])
    query = pc.Verifier(components, claim).encoder.encode(circuit)

    def roots_of(configuration: Configuration) -> RootProblems:
        structure = Structure(query.graph, torch.device("cpu"), configuration)
        bounds = Bounds(structure, Region(query.ranges), 2)
        bounds.compute()
        return RootProblems(bounds, torch.arange(2), -query.rows[:, :1], -query.offsets[:, 0])

    roots = roots_of(DEFAULT)
    few, many = (
        Presolver(
            roots.bounds.select(torch.tensor([i])),
            roots.start,
            roots.rows[i : i + 1],
            roots.offsets[:1],
        ).problem.sparse.values.numel()
        for i in range(2)
    )
    assert few < many

    def left(roots: RootProblems) -> tuple[list[int], set[int]]:
        search = HullSearch(
            roots, lambda points, problems: False, Deadline(), ProofReuse(SavedTrees(), query)
        )
        found = search.run()
        assert found is not None
        return found.tolist(), search.too_large

    assert left(roots) == ([], set())
    narrow = DEFAULT.changed(neuron_hull={"most_entries": many - 1})
    assert left(roots_of(narrow)) == ([1], {1})
