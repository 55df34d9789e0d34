"""The exact stage on random networks: judged by brute force, and by a mixed-integer program."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from tests.oracle.cases import Case, broken, draw, small
from tests.oracle.line import maximum
from tests.oracle.network import Network, Vector, exact
from tests.oracle.random_networks import fully_connected, graph_of
from tests.verify.exact.deciding import at_or_above, circuit_of, decide, net_of

import provable_circuits as pc
from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.exact.claims import decide_exactly


def corners(net: Network, lower: Vector, upper: Vector) -> list[Vector]:
    """For one hidden layer and two inputs: all points where two of the bends and edges meet."""
    weight, bias = net.steps[0].matrix, net.steps[0].vector
    assert weight is not None
    assert bias is not None
    lines = [
        tuple(Fraction(float(v)) for v in (*row, b)) for row, b in zip(weight, bias, strict=True)
    ]
    lines += [(Fraction(1), Fraction(0), -end) for end in (lower[0], upper[0])]
    lines += [(Fraction(0), Fraction(1), -end) for end in (lower[1], upper[1])]
    found = []
    for (a, b, p), (c, d, q) in itertools.combinations(lines, 2):
        size = a * d - b * c
        if size:
            point = np.array([(b * q - d * p) / size, (c * p - a * q) / size], dtype=object)
            if (point >= lower).all() and (point <= upper).all():
                found.append(point)
    return found


METRICS: dict[str, Callable[[float], pc.Metric]] = {
    "max": pc.MaxAbs,
    "logit": lambda tolerance: pc.LogitDifference(tolerance, 1),
    "norm1": lambda tolerance: pc.Norm(tolerance, 1),
}


def excess(metric: str, difference: Vector) -> Fraction:
    """The metric at tolerance zero."""
    if metric == "logit":
        return abs(Fraction(difference[1]))
    sizes = [abs(Fraction(d)) for d in difference]
    return max(sizes) if metric == "max" else sum(sizes, Fraction(0))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("seed", range(10))
def test_the_largest_excess_of_random_networks_to_the_last_bit(seed: int, metric: str) -> None:
    """One hidden layer of small whole weights, with twins, mirrors and dead units."""
    dice = np.random.default_rng(seed)
    first = dice.integers(-3, 4, (6, 2)).astype(float)
    bias = dice.integers(-3, 4, 6) / 2
    first[3], bias[3] = first[0], bias[0]  # a twin
    first[4], bias[4] = -first[1], -bias[1]  # a mirror
    bias[5] = -float(abs(first[5]).sum())  # at most zero on the box
    last = dice.integers(-2, 3, (2, 6)).astype(float)
    last[:, 3] = -last[:, 0]
    net = net_of((first, bias), (last, dice.integers(-2, 3, 2)))
    number = float(dice.choice([0.0, 0.0, 0.5]))
    patching = pc.Constant(number) if number else pc.Zero()
    patch = {c.step: exact(np.full(net.steps[c.step].size, number)) for c in net.cuts}
    lower, upper = exact([-1, -1]), exact([1, 0.75])
    box = pc.Box([-1.0, -1.0], [1.0, 0.75])
    graph = graph_of(net)
    for pick in range(5):
        kept = [n for n in net.names if dice.random() < 0.6 or n.startswith("fc1")]
        if pick == 0:  # the twins and the dead unit go: equal, if patched with zero
            kept = [n for n in net.names if n not in ("fc0/0", "fc0/3", "fc0/5")]
        removed = net.removed(kept)
        largest = max(
            excess(metric, net.run(x, removed, patch)[-1] - net.run(x)[-1])
            for x in corners(net, lower, upper)
        )
        circuit = graph.components("neuron").circuit(kept)
        if pick == 0 and not number:
            assert largest == 0
        tie = at_or_above(largest)
        assert decide(circuit, pc.Claim(box, patching, METRICS[metric](tie))).proved
        if largest > 0:
            under = math.nextafter(tie, 0)
            assert not decide(circuit, pc.Claim(box, patching, METRICS[metric](under))).proved
            less = pc.Claim(box, patching, METRICS[metric](float(largest) * (1 - 1e-9)))
            verdict = decide(circuit, less)
            assert isinstance(verdict, pc.Refuted)
            z = exact(verdict.witness.z.numpy())
            difference = net.run(z, removed, patch)[-1] - net.run(z)[-1]
            broken_by = excess(metric, difference) - Fraction(less.metric.tolerance)  # type: ignore[attr-defined]
            assert broken_by >= Fraction(verdict.witness.excess) > 0


@pytest.mark.parametrize("seed", range(12))
def test_deep_networks_of_one_input_to_the_last_bit(seed: int) -> None:
    dice = np.random.default_rng(seed)
    sizes = [1, *(int(n) for n in dice.integers(2, 5, 3)), 2]
    net = fully_connected(dice, sizes, slope=0.1 if seed % 3 == 2 else 0.0)
    kept = [name for name in net.names if dice.random() < 0.7]
    patch = {c.step: np.zeros(net.steps[c.step].size) for c in net.cuts}
    lower, upper = np.array([-1.5]), np.array([2.0])
    rows = np.concatenate([np.eye(2), -np.eye(2)])
    largest = maximum(net, net.removed(kept), patch, lower, upper, rows)
    circuit = circuit_of(net, kept)

    def asked(tolerance: float) -> pc.Verdict:
        return decide(circuit, pc.Claim(pc.Box(lower, upper), pc.Zero(), pc.MaxAbs(tolerance)))

    tie = at_or_above(largest)
    assert asked(tie).proved
    if largest > 0:
        assert not asked(math.nextafter(tie, 0)).proved
        assert asked(tie * (1 - 1e-9)).refuted


def test_verdicts_agree_with_the_mixed_integer_program() -> None:
    """Claims of all kinds, on both sides of an optimum that is known to a few digits.

    Some draws have no exact optimum, and some have more variables than this stage takes.
    """
    decided = [seed for seed in range(30) if _agrees(draw(400 + seed) if seed % 2 else small(seed))]
    assert len(decided) >= 24


def _agrees(case: Case) -> bool:
    """Whether the stage decided both sides of a case; it may not decide one wrongly."""
    truth = case.truth()
    if truth is None or case.hard:
        return False
    step = 2e-5 * (1 + abs(truth.high))
    winner = case.metric.startswith("winner")
    for tolerance in (truth.low - step, truth.high + step):
        if tolerance < 0 or (winner and tolerance > 1):
            continue
        claim, circuit = case.claim(tolerance), case.circuit
        deadline = Deadline()
        verdict = decide_exactly(circuit.components, claim, circuit, deadline)
        if verdict is None:
            return False
        assert verdict.kind == ("proved" if case.holds(truth, tolerance) else "refuted")
        if isinstance(verdict, pc.Refuted):
            assert broken(case, tolerance, verdict.witness) is None
    return True
