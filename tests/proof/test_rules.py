"""The rules: no bound exceeds the objective at any point of its subdomain, in rational numbers."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from tests.proof.exact import evaluate, fractions
from tests.proof.models import FILES, model, perceptron, written

from provable_circuits.network.ops import LeakyReLU
from provable_circuits.proof.checker.arithmetic import Arithmetic, RefusedError
from provable_circuits.proof.checker.network import parse_network
from provable_circuits.proof.checker.operations import Bend, Linear, Matrix, Square
from provable_circuits.proof.checker.problem import Problem, Region, Step, build
from provable_circuits.proof.checker.rules import Side, Sign, Subdomain, _Total

Array = Any
FLOAT, EXACT = Arithmetic(), Arithmetic(exact=True)
METRICS: list[dict[str, Any]] = [
    {"kind": "max-abs", "tolerance": 0.5},
    {"kind": "logit-difference", "tolerance": 0.25, "target": 1},
    {"kind": "norm", "p": 1, "tolerance": 0.5},
    {"kind": "norm", "p": 2, "tolerance": 0.5},
    {"kind": "winner-margin", "winner": 1, "others": [0], "margin": 0.125},
]
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
    made = subdomain.exactly(exact.problem)
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


# --- by hand ------------------------------------------------------------------------------------


def small(objectives: Any = None, arithmetic: Arithmetic = EXACT) -> Problem:
    """y = relu(z0 + z1) - relu(z0 - z1) over [-1, 1] x [-1, 3], and the circuit that is it."""
    hidden = arithmetic.array(np.array([[1.0, 1], [1, -1]]))
    out = arithmetic.array(np.array([[1.0], [-1]]))
    steps = [
        Step("z", None, (), 2),
        Step("h", Matrix(hidden), ("z",), 2),
        Step("r", Bend(0.0), ("h",), 2),
        Step("y", Matrix(out), ("r",), 1),
    ]
    region = Region(arithmetic.array([-1.0, -1]), arithmetic.array([1.0, 3]))
    return build(arithmetic, steps, "y", region, {}, {}, {"kind": "max-abs", "tolerance": 1.0})


def row(*values: Any) -> Array:
    return np.array([[Fraction(value) for value in values]], dtype=object)


def test_a_backward_bound_by_hand() -> None:
    """h0 in [-2, 4], h1 in [-4, 2]; chords 2/3 (h0 + 2) and 1/3 (h1 + 4)."""
    whole = Subdomain.whole(small())
    h, y = whole.problem.place("N:h"), whole.problem.place("N:y")
    assert [end.tolist() for end in whole.bounds[h]] == [[-2, -4], [4, 2]]
    assert [end.tolist() for end in whole.bounds[y]] == [[-2], [4]]
    # y >= a h0 - (h1 + 4) / 3, and with a = 1, that is 2/3 z0 + 4/3 z1 - 4/3 >= -10/3.
    assert whole.lower_bound(y, row(1), {}).tolist() == [Fraction(-10, 3)]
    assert whole.lower_bound(y, row(1), {h: row(1, 0)}).tolist() == [Fraction(-10, 3)]
    # With a = 0: -z0 / 3 + z1 / 3 - 4/3 >= -2.
    assert whole.lower_bound(y, row(1), {h: row(0, 0)}).tolist() == [-2]
    # With a = 1/2: z0 / 6 + 5/6 z1 - 4/3 >= -7/3.
    assert whole.lower_bound(y, row(1), {h: row(Fraction(1, 2), 1)}).tolist() == [Fraction(-7, 3)]
    # -y >= -2/3 (h0 + 2) + a h1, where the line below h1 is 0 if none is chosen.
    assert whole.lower_bound(y, row(-1), {}).tolist() == [-4]
    assert whole.lower_bound(y, row(-1), {h: row(-1, 1)}).tolist() == [Fraction(-20, 3)]


def test_betas_by_hand() -> None:
    whole = Subdomain.whole(small())
    h, y = whole.problem.place("N:h"), whole.problem.place("N:y")
    half = whole.at_sign(Sign(h, 0, False))
    assert half.bounds[h][1].tolist() == [0, 2]
    assert whole.bounds[h][1].tolist() == [4, 2]
    assert half.bounds[y][1].tolist() == [0]
    # y >= -(h1 + 4) / 3 + beta h0 with h0 <= 0: (beta - 1/3) z0 + (beta + 1/3) z1 - 4/3.
    for beta in (Fraction(0), Fraction(1, 3), Fraction(1)):
        least = -abs(beta - Fraction(1, 3)) - (beta + Fraction(1, 3)) - Fraction(4, 3)
        assert half.lower_bound(y, row(1), {}, row(beta)).tolist() == [least]
    upper = whole.at_sign(Sign(h, 0, True))
    assert upper.bounds[h][0].tolist() == [0, -4]
    # y = h0 - relu(h1) >= (2/3 - beta) z0 + (4/3 - beta) z1 - 4/3 with h0 >= 0.
    for beta in (Fraction(0), Fraction(1), Fraction(2)):
        a, b = Fraction(2, 3) - beta, Fraction(4, 3) - beta
        least = -abs(a) + min(-b, 3 * b) - Fraction(4, 3)
        assert upper.lower_bound(y, row(1), {}, row(beta)).tolist() == [least]
    both = upper.at_sign(Sign(h, 1, True))
    # y = h0 - h1 = 2 z1, and h0 + h1 = 2 z0.
    assert both.lower_bound(y, row(1), {}, row(0, 0)).tolist() == [-2]
    assert both.lower_bound(y, row(1), {}, row(1, 0)).tolist() == [-2]
    assert both.lower_bound(y, row(1), {}, row(Fraction(1, 2), 0)).tolist() == [-2]
    for bad in (row(-1, 0), row(0), row(0, 0, 0), np.zeros((2, 2)), np.zeros((0, 2))):
        with pytest.raises(RefusedError, match="beta"):
            both.lower_bound(y, row(1), {}, bad)


def test_an_empty_half_is_shown_by_a_positive_bound_of_nothing() -> None:
    whole = Subdomain.whole(small())
    h, y = whole.problem.place("N:h"), whole.problem.place("N:y")
    corner = whole.at_side(Side(0, 0, 0.5, True)).at_side(Side(0, 1, 0.5, True))
    none = corner.at_sign(Sign(h, 0, False))
    assert none.lower_bound(y, row(0), {}, row(2)).tolist() == [2]
    assert none.bounds[h][0].tolist() == [1, Fraction(-5, 2)]
    assert none.bounds[h][1].tolist() == [1, Fraction(1, 2)]  # contradicting: any will do
    assert corner.lower_bound(y, row(0), {}, np.zeros((1, 0))).tolist() == [0]


def test_roundings_of_a_backward_pass_are_counted() -> None:
    """Of coefficients that meet at a node, and of those behind an activation."""
    whole = Subdomain.whole(small(arithmetic=FLOAT))
    h, u = whole.problem.place("N:h"), 2.0**-53
    for unit, (low, high) in enumerate(((-2, 4), (-4, 2))):
        part = np.array([[0.1, 0.0]])[:, :: 1 - 2 * unit]
        size = max(-low, high)
        total, carried = _Total(FLOAT, 1), {h: part}
        whole._pass(carried, total, h, 2 * part)
        assert (carried[h] == part + 2 * part).all()
        assert u * 0.3 * size <= total._error[0] <= 1.01 * u * 0.3 * size
        before = total._error
        whole._pass(carried, total, h - 1, part)
        whole._pass(carried, total, h, 0 * part)
        assert (total._error == before).all()
        assert list(carried) == [h, h - 1]
        for sign in (1, -1):
            total, carried = _Total(FLOAT, 1), {}
            whole._activation(
                carried, total, whole.problem.nodes[h + 1], sign * part, {h: np.ones((1, 2))}
            )
            slope = abs(carried[h][0, unit])
            gap = 0.1 * 4 / 3 * (sign < 0)
            assert u * slope * size <= total._error[0] <= 1.1 * u * (slope * size + 4 * gap)
            assert total._error[0] >= u * (slope * size + 2 * gap)
            assert total._sum[0] == pytest.approx(-gap)


def test_tightened_bounds_by_hand() -> None:
    """A second layer whose intervals forget that its inputs belong together."""
    one = EXACT.array(np.array([[1.0, 1.0]]))
    two = EXACT.array(np.array([[1.0], [-1.0]]))
    steps = [
        Step("z", None, (), 1),
        Step("h", Matrix(one), ("z",), 2),
        Step("d", Matrix(two), ("h",), 1),
        Step("e", Bend(0.0), ("d",), 1),
    ]
    region = Region(row(-1)[0], row(1)[0])
    problem = build(EXACT, steps, "e", region, {}, {}, {"kind": "max-abs", "tolerance": 0.0})
    whole = Subdomain.whole(problem)
    assert [end.tolist() for end in whole.bounds[2]] == [[-2], [2]]
    whole.tighten(2, np.array([], dtype=int), {})
    assert [end.tolist() for end in whole.bounds[2]] == [[-2], [2]]
    whole.tighten(2, np.array([0]), {})
    assert [end.tolist() for end in whole.bounds[2]] == [[0], [0]]
    assert [end.tolist() for end in whole.bounds[3]] == [[0], [0]]


@pytest.mark.parametrize("rows", [0, 2, 3])
def test_alphas_that_do_not_fit_are_refused(rows: int) -> None:
    """Of no rows above all: then there would be no bound that fails to be reached."""
    for arithmetic in (FLOAT, EXACT):
        whole = Subdomain.whole(small(arithmetic=arithmetic))
        h, y = whole.problem.place("N:h"), whole.problem.place("N:y")
        with pytest.raises(RefusedError, match="alpha"):
            whole.lower_bound(y, arithmetic.array([[1.0]]), {h: arithmetic.zeros(rows, 2)})
        with pytest.raises(RefusedError, match="alpha"):
            whole.lower_bound(y, arithmetic.array([[1.0]]), {h: arithmetic.zeros(1, 3)})


def test_splits_of_inputs_stay_within() -> None:
    whole = Subdomain.whole(small())
    for value in (-1.5, 1.25):
        with pytest.raises(RefusedError, match="outside its range"):
            whole.at_side(Side(0, 0, value, True))
    assert whole.at_side(Side(0, 0, -1.0, False)).regions[0].upper.tolist() == [-1, 3]
    above = whole.at_side(Side(0, 1, 2.0, True))
    assert above.regions[0].lower.tolist() == [-1, 2]
    assert whole.regions[0].lower.tolist() == [
        -1,
        -1,
    ]
    assert above.bounds[1][0].tolist() == [1, -4]


def test_bounds_that_contradict_each_other_or_are_too_large_are_refused() -> None:
    whole = Subdomain.whole(small(arithmetic=FLOAT))
    with pytest.raises(RefusedError, match="where nothing was split"):
        whole.propagate({1: (np.array([9.0, 9]), np.array([10.0, 10]))})
    for bad in (np.nan, np.inf, 2.0**61):
        for ends in ((-bad, 1.0), (-1.0, bad)):
            region = Region(np.array([ends[0], 0.0]), np.array([ends[1], 0.0]))
            problem = small(arithmetic=FLOAT)
            problem.regions[0] = region
            with pytest.raises(RefusedError):
                Subdomain.whole(problem)
    problem = small(arithmetic=FLOAT)
    problem.regions[0] = Region(np.array([-(2.0**60), 0]), np.array([2.0**60, 0]))
    with pytest.raises(RefusedError, match="too large"):
        Subdomain.whole(problem)  # the network's difference is twice as large


def test_bounds_may_be_as_large_as_2_to_60() -> None:
    large = np.array([2.0**60, 2.0**60])
    steps = [Step("z", None, (), 2)]
    whole = Subdomain.whole(build(FLOAT, steps, "z", Region(-large, large), {}, {}, METRICS[4]))
    assert whole.bounds[0][1].tolist() == large.tolist()


def test_an_empty_subdomain_may_have_any_bounds() -> None:
    """By a sign that no point has, and by sides of a box that leave the ball."""
    steps = [Step("z", None, (), 2), Step("h", Matrix(np.array([[1.0], [1]])), ("z",), 1)]
    box = Region(np.array([1.0, 1]), np.array([2.0, 2]))
    metric = {"kind": "norm", "p": 1, "tolerance": 1.0}
    whole = Subdomain.whole(build(FLOAT, steps, "h", box, {}, {}, metric))
    none = whole.at_sign(Sign(0, 1, False))
    assert none.bounds[0][0].tolist() == [1, 1]
    assert none.bounds[0][1].tolist() == [2, 1]
    centre = np.zeros(2)
    ball = Region(centre - 0.5, centre + 0.5, 2, 0.5, centre)
    whole = Subdomain.whole(build(FLOAT, steps, "h", ball, {}, {}, metric))
    corner = whole.at_side(Side(0, 0, 0.5, True)).at_side(Side(0, 1, 0.5, True))
    corner.tighten(1, np.array([0]), {})
    lower, upper = corner.bounds[1]
    assert lower[0] == upper[0] == pytest.approx(1)


def test_rational_arithmetic_has_no_balls() -> None:
    region = Region(fractions([0.0]), fractions([1.0]), 2, 0.5, fractions([0.5]))
    steps = [Step("z", None, (), 1)]
    with pytest.raises(RefusedError, match="no balls"):
        build(EXACT, steps, "z", region, {}, {}, METRICS[0])
    box = Region(fractions([0.0]), fractions([1.0]))
    with pytest.raises(RefusedError, match="no balls"):
        build(EXACT, steps, "z", box, {}, region, METRICS[0])


# --- problems -----------------------------------------------------------------------------------


def built(name: str, removed: dict[str, Any], patch: Any, metric: Any) -> Problem:
    network = parse_network(FILES[name])
    units = network.steps[0].units
    region = Region(np.zeros(units), np.ones(units))
    return build(FLOAT, network.steps, network.output, region, removed, patch, metric)


def test_only_what_a_removal_reaches_is_a_node_of_the_circuit() -> None:
    removed = {"relu0": np.array([False, True, False, False])}
    problem = built("perceptron", removed, {"relu0": np.full(4, 7.0)}, METRICS[0])
    names = [node.name for node in problem.nodes]
    assert not {"C:x", "C:fc0"} & set(names)
    assert {"C:relu0", "C:fc1", "C:relu1"} <= set(names)
    assert problem.place("C:fc0") == problem.place("N:fc0")
    node: Any = problem.nodes[problem.place("C:relu0")]
    assert node.twin == problem.place("N:relu0")
    assert node.differ.tolist() == removed["relu0"].tolist()
    assert node.removed is removed["relu0"]
    assert node.patch.tolist() == [7.0] * 4
    whole = Subdomain.whole(problem)
    lower, upper = whole.bounds[problem.place("C:relu0")]
    assert lower[1] == upper[1] == 7
    assert (upper[[0, 2, 3]] == whole.bounds[node.twin][1][[0, 2, 3]]).all()
    after: Any = problem.nodes[problem.place("C:fc1")]
    assert after.differ.all()
    assert after.removed is None
    with pytest.raises(RefusedError, match="which there is not"):
        problem.place("C:nothing")


def test_nothing_removed_is_the_network() -> None:
    problem = built("perceptron", {"relu0": np.zeros(4, dtype=bool)}, {}, METRICS[0])
    assert problem.place("C:fc2") == problem.place("N:fc2")
    whole = Subdomain.whole(problem)
    bounds = whole.lower_bound(problem.target, problem.objectives, {})
    assert (bounds <= 0).all()
    assert (bounds > -1e-13).all()


def test_a_removed_input() -> None:
    mask = np.array([True, False, True])
    problem = built("perceptron", {"x": mask}, {"x": np.array([0.5, 9.0, -0.5])}, METRICS[0])
    whole = Subdomain.whole(problem)
    lower, upper = whole.bounds[problem.place("C:x")]
    assert lower.tolist() == [0.5, 0, -0.5]
    assert upper.tolist() == [0.5, 1, -0.5]
    rows = np.eye(3)
    assert np.allclose(whole.lower_bound(problem.place("C:x"), rows, {}), lower)
    assert np.allclose(whole.lower_bound(problem.place("C:x"), -rows, {}), -upper)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: str(metric["kind"]))
def test_metrics(metric: dict[str, Any]) -> None:
    """The objectives are at least 0 where the claim holds, and below elsewhere."""
    problem = built("perceptron", {"relu1": np.ones(4, dtype=bool)}, {"relu1": np.ones(4)}, metric)
    node = problem.nodes[problem.target]
    for network, circuit in (
        ([1.0, 3], [1.25, 3]),
        ([1.0, 3], [3.0, 2]),
        ([0.0, 0], [0.0, -0.375]),
        ([0.0, 0], [0.375, 0.375]),
        ([0.0, 0], [0.0, -0.75]),
        ([0.0, 0], [-0.75, 0.0]),
    ):
        n, c = np.array(network), np.array(circuit)
        off = c - n
        kind = metric["kind"]
        holds = {
            "max-abs": abs(off).max() <= 0.5,
            "logit-difference": abs(off[1]) <= 0.25,
            "norm": np.linalg.norm(off, metric.get("p")) <= 0.5,
            "winner-margin": c[1] - c[0] >= 0.125,
        }[kind]
        value = {"C:fc2": c, "D:difference": off, "D:sizes": abs(off) ** metric.get("p", 1)}[
            node.name
        ]
        assert ((problem.objectives @ value + problem.offsets >= 0).all()) == holds
    assert problem.offsets.shape == (len(problem.objectives),)
    if metric.get("p") == 2:
        assert problem.offsets[0] < 0.25
        assert isinstance(node.operation, Square)
    if node.name == "D:difference":
        assert isinstance(node.operation, Linear)
        assert node.inputs == (
            problem.place("C:fc2"),
            problem.place("N:fc2"),
        )


def test_other_metrics_are_refused() -> None:
    for metric in ({"kind": "norm", "p": 3, "tolerance": 1.0}, {"kind": "kl", "tolerance": 1.0}):
        with pytest.raises(RefusedError, match="none that can be proved"):
            built("perceptron", {}, {}, metric)


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
