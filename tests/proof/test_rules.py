"""The rules: no bound exceeds the objective at any point of its subdomain, in rational numbers."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from tests.proof.exact import evaluate, fractions
from tests.proof.models import FILES, METRICS, model, perceptron, written

from provable_circuits.network.ops import LeakyReLU
from provable_circuits.proof.checker.arithmetic import Arithmetic
from provable_circuits.proof.checker.network import parse_network
from provable_circuits.proof.checker.operations import Bend
from provable_circuits.proof.checker.problem import Region, build
from provable_circuits.proof.checker.rules import Side, Sign, Subdomain
from provable_circuits.proof.checker.tree import exactly

Array = Any
FLOAT, EXACT = Arithmetic(), Arithmetic(exact=True)
NETWORKS = [
    "perceptron",
    "residual",
    "grouped",
    "maximum",
    "clip",
    "leaky",
    "tanh",
    "average",
    "norm",
    "constants first",
    "strided",
    "gather",
]


class Case:
    """A problem with points of it: every tensor of network, circuit and source, as fractions."""

    def __init__(self, name: str, seed: int, arithmetic: Arithmetic = FLOAT, p: int = 0) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.data, self.arithmetic = FILES[name], arithmetic
        network = parse_network(self.data, arithmetic)
        self.names, self.input = list(network.shapes), network.input
        sizes = {tensor: int(np.prod(shape)) for tensor, shape in network.shapes.items()}
        self.p, self.centre = p, rng.normal(size=sizes[network.input])
        self.radius = rng.choice([0, 0.125, 0.5], sizes[network.input])
        self.removed = {}
        for tensor in rng.choice(self.names, min(2, len(self.names)), replace=False):
            self.removed[str(tensor)] = rng.random(sizes[tensor]) < 0.4
        self.way = ["constant", "source", "boxes"][seed % 3]
        self.patches = {tensor: rng.normal(size=size) for tensor, size in sizes.items()}
        patch: Any = {tensor: self.patches[tensor] for tensor in self.removed}
        if self.way == "source":
            patch = self.region(self.centre + 1)
        elif self.way == "boxes":
            patch = {
                tensor: Region(arithmetic.array(value - 0.25), arithmetic.array(value + 0.25))
                for tensor, value in patch.items()
            }
        self.metric = METRICS[seed % len(METRICS)]
        self.problem = build(
            arithmetic,
            network.steps,
            network.output,
            self.region(self.centre),
            self.removed,
            patch,
            self.metric,
        )
        self.output = network.output
        self.points = [self.point() for _ in range(8)]

    def region(self, centre: Array) -> Region:
        ends = centre - self.radius, centre + self.radius
        if self.p:
            return Region(*ends, self.p, 0.5, centre)
        return Region(*(self.arithmetic.array(end) for end in ends))

    def point(self) -> dict[str, Array]:
        """The values of all nodes whose tensors are in the file, and of the metric's."""
        x, source = (self.input_at(centre) for centre in (self.centre, self.centre + 1))
        found = {f"N:{t}": v for t, v in evaluate(self.data, x).items()}
        patch = {tensor: fractions(self.patches[tensor]) for tensor in self.removed}
        if self.way == "source":
            values = evaluate(self.data, source)
            found |= {f"S:{t}": v for t, v in values.items()}
            patch = {tensor: values[tensor] for tensor in self.removed}
        elif self.way == "boxes":
            steps = {t: self.rng.choice([-0.25, 0.125, 0.25], len(v)) for t, v in patch.items()}
            patch = {t: fractions(self.patches[t] + steps[t]) for t in patch}
            found |= {f"H:{t}": v for t, v in patch.items()}
        cut = {tensor: (mask, patch[tensor]) for tensor, mask in self.removed.items()}
        found |= {f"C:{t}": v for t, v in evaluate(self.data, x, cut).items()}
        off = found[f"C:{self.output}"] - found[f"N:{self.output}"]
        sizes = abs(off) if self.metric.get("p") == 1 else off * off
        return found | {"D:difference": off, "D:sizes": sizes}

    def input_at(self, centre: Array) -> Array:
        """A point of a region."""
        step = self.rng.choice([-1, -1, 0.25, 1, 1], len(centre)) * self.radius
        if self.p:
            size = np.linalg.norm(step, self.p)
            step = step * min(1.0, 0.4999 / size if size else 1.0)
        return np.clip(centre + step, centre - self.radius, centre + self.radius)

    def check(self, subdomain: Subdomain) -> None:
        """Bounds of nodes, and of random objectives with random hints, hold at all points."""
        rng, arithmetic = self.rng, self.arithmetic
        for node, (lower, upper) in zip(self.problem.nodes, subdomain.bounds, strict=True):
            for point in self.points:
                if node.name in point:
                    value = point[node.name]
                    assert (fractions(lower) <= value).all()
                    assert (value <= fractions(upper)).all()
        known = [i for i, node in enumerate(self.problem.nodes) if node.name in self.points[0]]
        for place in [self.problem.target, *rng.choice(known, 3)]:
            node = self.problem.nodes[place]
            rows = rng.normal(size=(3, node.units)) * (rng.random((3, node.units)) < 0.7)
            alpha = self.alpha(3)
            beta = rng.exponential(size=(3, len(subdomain.signs))) * rng.choice([0, 0.1, 3])
            bounds = subdomain.lower_bound(
                int(place), arithmetic.array(rows), alpha, arithmetic.array(beta)
            )
            assert bounds.shape == (3,)
            for point in self.points:
                assert (fractions(bounds) <= fractions(rows) @ point[node.name]).all()

    def alpha(self, count: int) -> dict[int, Array]:
        found = {}
        for node in self.problem.nodes:
            if isinstance(node.operation, Bend):
                shape = (self.rng.choice([1, count]), node.units)
                values = np.where(self.rng.random(shape) < 0.2, -1, self.rng.random(shape))
                found[node.inputs[0]] = self.arithmetic.array(values)
        return found

    def split(self, subdomain: Subdomain) -> Subdomain:
        """One half of a random split, and the points in it."""
        rng, nodes = self.rng, self.problem.nodes
        known = [i for i, node in enumerate(nodes) if node.name in self.points[0]]
        inputs = [i for i in known if i in subdomain.regions]
        if rng.random() < 0.3:
            place = int(rng.choice(inputs))
            unit = int(rng.integers(nodes[place].units))
            value = float(self.points[0][nodes[place].name][unit])
            above = bool(rng.random() < 0.5)
            half = subdomain.at_side(Side(place, unit, value, above))
            sign = 1 if above else -1
            kept = [p for p in self.points if sign * (p[nodes[place].name][unit] - value) >= 0]
            self.points = kept
            return half
        place = int(rng.choice(known))
        unit = int(rng.integers(nodes[place].units))
        positive = bool(self.points[0][nodes[place].name][unit] >= 0)
        half = subdomain.at_sign(Sign(place, unit, positive))
        sign = 1 if positive else -1
        self.points = [p for p in self.points if sign * p[nodes[place].name][unit] >= 0]
        return half


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("seed", range(4))
def test_bounds_of_subdomains(name: str, seed: int) -> None:
    case = Case(name, seed)
    subdomain = Subdomain.whole(case.problem)
    case.check(subdomain)
    before = [(lower.copy(), upper.copy()) for lower, upper in subdomain.bounds]
    bent = [n.inputs[0] for n in case.problem.nodes if isinstance(n.operation, Bend)]
    for place in bent:
        units = case.problem.nodes[place].units
        subdomain.tighten(place, np.arange(units)[:: seed % 2 + 1], {})
    for (old, high), (lower, upper) in zip(before, subdomain.bounds, strict=True):
        assert (old <= lower).all()
        assert (upper <= high).all()
    case.check(subdomain)
    for _ in range(3):
        subdomain = case.split(subdomain)
        assert case.points
        case.check(subdomain)


@pytest.mark.parametrize("seed", range(6))
def test_rational_bounds_of_subdomains(seed: int) -> None:
    case = Case("perceptron", seed, EXACT)
    subdomain = Subdomain.whole(case.problem)
    case.check(subdomain)
    for _ in range(3):
        subdomain = case.split(subdomain)
        case.check(subdomain)
    assert all(
        isinstance(end, int | Fraction) for bounds in subdomain.bounds for b in bounds for end in b
    )


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("seed", range(6))
def test_bounds_over_balls(p: int, seed: int) -> None:
    case = Case("perceptron" if seed % 2 else "residual", seed, FLOAT, p)
    subdomain = Subdomain.whole(case.problem)
    case.check(subdomain)
    subdomain = case.split(subdomain)
    case.check(subdomain)


@pytest.mark.parametrize("seed", range(6))
def test_an_exact_leaf_has_the_bounds_and_the_cuts(seed: int) -> None:
    case = Case("perceptron", seed)
    subdomain = Subdomain.whole(case.problem)
    place = case.problem.place(f"N:{case.input}")
    free = int(np.argmax(case.radius))
    value = float(case.centre[free])
    subdomain = subdomain.at_side(Side(place, free, value, seed % 2 == 0))
    case.points = [
        p for p in case.points if (p[f"N:{case.input}"][free] >= value) == (seed % 2 == 0)
    ] or case.points[:0]
    subdomain = case.split(subdomain) if case.points else subdomain
    exact = Case("perceptron", seed, EXACT)
    made = exactly(subdomain, exact.problem)
    region = made.regions[place]
    cut = region.lower if seed % 2 == 0 else region.upper
    assert cut[free] == Fraction(value)
    target = exact.problem.target
    rows = exact.problem.objectives
    bounds = made.lower_bound(target, rows, {})
    assert all(isinstance(bound, int | Fraction) for bound in bounds)
    near = subdomain.lower_bound(target, case.problem.objectives, {})
    assert np.allclose(bounds.astype(float), near)
    assert (fractions(near) <= bounds).all()
    for point in case.points:
        assert (bounds <= rows @ point[case.problem.nodes[target].name]).all()
    assert made.signs == subdomain.signs
    assert made.sides == subdomain.sides


@pytest.mark.parametrize("scale", [-18, -6, 6, 14])
@pytest.mark.parametrize("seed", range(3))
def test_weights_of_all_magnitudes(scale: int, seed: int) -> None:
    """Weights from 1e-30 to 1e30 whose products cancel: bounds at a point enclose it."""
    rng = np.random.default_rng(seed)
    first = rng.normal(size=(3, 4)) * 10.0 ** rng.integers(-2, 3, (3, 4)) * 10.0**scale
    last = rng.normal(size=(4, 2)) * 10.0**-scale
    last[:2] = 1e16 * last[:2]
    first[:, 1] = first[:, 0] * (1 + 1e-15)
    last[1] = -last[0]
    nodes = [
        ("MatMul", ["x", "a"], "h"),
        ("Relu", ["h"], "r"),
        ("MatMul", ["r", "b"], "s"),
        ("Add", ["s", "c"], "y"),
    ]
    data = model((3,), nodes, {"a": first, "b": last, "c": -rng.normal(size=2)})
    network = parse_network(data)
    for z in (rng.normal(size=3), rng.normal(size=3) * 1e-306, np.array([1.0, 1e-300, -5e-324])):
        region = Region(z, z)
        whole = Subdomain.whole(build(FLOAT, network.steps, "y", region, {}, {}, METRICS[0]))
        exact = evaluate(data, z)
        for tensor in "hry":
            place = whole.problem.place(f"N:{tensor}")
            units = len(exact[tensor])
            lower, upper = whole.bounds[place]
            assert (fractions(lower) <= exact[tensor]).all()
            assert (exact[tensor] <= fractions(upper)).all()
            rows = np.concatenate([np.eye(units), -np.eye(units)])
            bounds = fractions(whole.lower_bound(place, rows, {}))
            assert (bounds <= fractions(rows) @ exact[tensor]).all()
            size = np.abs(first.T) @ abs(z)
            reach = {"h": size, "r": size, "y": np.abs(last.T) @ size + 10}[tensor]
            assert (
                bounds
                >= fractions(rows) @ exact[tensor] - fractions(1e-13 * np.tile(reach, 2) + 1e-250)
            ).all()


def test_leaky_networks_close_what_they_should() -> None:
    """Tightening helps, alpha helps, and what remains is near the least value at random points."""
    data = written(perceptron(11, (2, 5, 5, 2), LeakyReLU(0.25)), torch.float64)
    network = parse_network(data)
    region = Region(np.array([-0.5, -0.5]), np.array([0.5, 0.5]))
    problem = build(FLOAT, network.steps, network.output, region, {}, {}, METRICS[4])
    whole = Subdomain.whole(problem)
    bounds = [whole.lower_bound(problem.target, problem.objectives, {})[0]]
    for place in (problem.place("N:fc1"),):
        whole.tighten(place, np.arange(5), {})
    bounds.append(whole.lower_bound(problem.target, problem.objectives, {})[0])
    rng = np.random.default_rng(0)
    points = rng.uniform(-0.5, 0.5, (60, 2))
    values = [float((problem.objectives @ evaluate(data, x)["fc2"])[0]) for x in points]
    halves = [whole.at_side(Side(0, 0, 0.0, up)) for up in (False, True)]
    quarters = [h.at_side(Side(0, 1, 0.0, up)) for h in halves for up in (False, True)]
    for level in (halves, quarters):
        bounds.append(min(s.lower_bound(problem.target, problem.objectives, {})[0] for s in level))
    assert all(a <= b + 1e-12 for a, b in pairwise(bounds))
    assert bounds[-1] <= min(values) <= bounds[-1] + 0.5 * (max(values) - min(values))
