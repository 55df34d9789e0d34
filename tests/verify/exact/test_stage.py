"""The exact stage: ties and equalities, judged by brute force in rational numbers.

A tolerance that equals the largest excess must be Proved; one that is smaller by the least that a
float64 can say must not be. Where the maximum lies at numbers that float64 holds, it is Refuted.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
import pytest
import torch
from tests.clock import Clock
from tests.oracle.cases import draw
from tests.oracle.network import exact
from tests.oracle.random_networks import fully_connected, graph_of
from tests.verify.exact.deciding import at_or_above, circuit_of, decide, net_of
from torch import nn

import provable_circuits as pc
from provable_circuits.network import ops
from provable_circuits.network.graph import GraphBuilder
from provable_circuits.network.lowering import lower
from provable_circuits.verify.deadline import Deadline, OutOfTime
from provable_circuits.verify.encoding.encoder import Encoder
from provable_circuits.verify.exact.claims import Exact, decide_exactly
from provable_circuits.verify.exact.forms import Atoms, Form
from provable_circuits.verify.exact.network import RationalNetwork
from provable_circuits.zoo import counterexample_network, xor_network


@pytest.mark.parametrize(
    "metric", [pc.MaxAbs(0), pc.LogitDifference(0, 0), pc.Norm(0, 1), pc.Norm(0, 2)], ids=repr
)
def test_every_circuit_of_the_xor_network_under_equality(metric: pc.Metric) -> None:
    toy = xor_network()
    claim = pc.Claim([pc.Point(x) for x in toy.inputs], pc.Zero(), metric)
    stage = Exact(Encoder(toy.components, claim))
    for kept in itertools.product([0, 1], repeat=6):
        names = [f"v/v{i + 1}" for i in range(6) if kept[i]]
        equal = True
        for a, b in itertools.product([0, 1], repeat=2):
            v = [b, a, a, a ^ b, a ^ b, 0]
            left = v[0] & kept[0]
            for value, keep in zip(v[1:], kept[1:], strict=True):
                left ^= value & keep
            equal &= left == b
        verdict = stage.decide(toy.components.circuit(names), Deadline())
        assert verdict is not None
        assert verdict.kind == ("proved" if equal else "refuted"), names


@pytest.mark.parametrize("pairs", [1, 2])
@pytest.mark.parametrize(
    "domain", [pc.Box([0.0], [1.0]), pc.Ball([0.5], 0.5), pc.Ball([0.3], 0.3, p=1)], ids=repr
)
def test_every_circuit_of_the_counterexample_family(pairs: int, domain: pc.Domain) -> None:
    toy = counterexample_network(pairs)
    stage = Exact(Encoder(toy.components, pc.Claim(domain, pc.Zero(), pc.MaxAbs(0))))
    for bits in range(2 ** len(toy.components)):
        circuit = pc.Circuit(toy.components, bits)
        rising = sum(name.startswith(("p/", "v3/")) for name in circuit.names)
        falling = sum(name.startswith("q/") for name in circuit.names)
        equal = "v4/0" in circuit and rising - falling == 1
        verdict = stage.decide(circuit, Deadline())
        assert verdict is not None
        assert verdict.kind == ("proved" if equal else "refuted"), circuit


def test_the_last_bit_of_a_weight_decides() -> None:
    """q = relu(w x) cancels p = relu(x) if w is one, and not if it is the number next to it."""
    for weight, wanted in [(1.0, "proved"), (1.0 + 2.0**-52, "refuted"), (1 - 2.0**-53, "refuted")]:
        net = net_of(([[1.0], [weight], [1.0]], [0, 0, 0]), ([[1.0, -1.0, 1.0]], [0]))
        circuit = circuit_of(net, ["fc0/2", "fc1/0"])
        claim = pc.Claim(pc.Box([0.0], [1.0]), pc.Zero(), pc.MaxAbs(0))
        assert decide(circuit, claim).kind == wanted


def test_a_unit_that_only_touches_zero_is_dead() -> None:
    for bias, wanted in [(-2.0, "proved"), (-2 + 2.0**-51, "refuted")]:
        net = net_of(([[1.0, 1.0], [1.0, 0.0]], [bias, 0]), ([[5.0, 1.0]], [0]))
        circuit = circuit_of(net, ["fc0/1", "fc1/0"])
        claim = pc.Claim(pc.Ball([0.5, 0.5], 0.5), pc.Zero(), pc.MaxAbs(0))
        assert decide(circuit, claim).kind == wanted


def test_units_of_equal_weights_and_other_offsets_are_no_twins() -> None:
    net = net_of(([[2.0], [2.0], [1.0]], [0, -0.5, 0]), ([[1.0, -1.0, 1.0]], [0]))
    circuit = circuit_of(net, ["fc0/2", "fc1/0"])
    box = pc.Box([-1.0], [1.0])
    assert decide(circuit, pc.Claim(box, pc.Zero(), pc.MaxAbs(0))).refuted
    assert decide(circuit, pc.Claim(box, pc.Zero(), pc.MaxAbs(0.5))).proved
    below = pc.Claim(box, pc.Zero(), pc.MaxAbs(math.nextafter(0.5, 0)))
    assert decide(circuit, below).refuted


@pytest.mark.parametrize("size", [1e-300, 1e-160, 1e150, 1e300])
def test_weights_beyond_what_floats_can_multiply(size: float) -> None:
    """relu(s s (x - y)) over a square of side 1: products overflow or vanish in float64."""
    net = net_of(([[size, -size]], [0.0]), ([[size]], [0.0]), ([[1.0]], [0.0]))
    circuit = circuit_of(net, ["fc0/0", "fc2/0"])
    box = pc.Box([0.0, 0.0], [1.0, 1.0])
    largest = Fraction(size) ** 2
    verdict = decide(circuit, pc.Claim(box, pc.Zero(), pc.MaxAbs(0)))
    assert not verdict.proved
    if largest < Fraction(2) ** 1000:
        assert decide(circuit, pc.Claim(box, pc.Zero(), pc.MaxAbs(at_or_above(largest)))).proved
    if isinstance(verdict, pc.Refuted):
        assert 0 < Fraction(verdict.witness.excess) <= largest


def test_scaled_and_mirrored_twins_cancel_only_if_their_weights_do() -> None:
    """relu(2x) - 2 relu(x), and relu(x) - relu(-x) - x, are zero; each is found without a split."""
    net = net_of(
        ([[2.0, 2.0], [1.0, 1.0], [-1.0, -1.0], [0.0, 1.0]], [0.5, 0.25, -0.25, 3.0]),
        ([[1.0, -3.0, 1.0, 1.0], [1.0, -2.0, 0.0, 1.0]], [0.0, 0.0]),
    )
    box = pc.Box([-1.0, -1.0], [1.0, 1.0])
    outputs = ["fc1/0", "fc1/1"]
    without = circuit_of(net, ["fc0/3", *outputs])
    equal = pc.Claim(box, pc.Zero(), pc.LogitDifference(0, 1))
    assert decide(without, equal).proved
    # Output 0 loses 2 relu(f) - 3 relu(f) + relu(-f) = -f, for f = x + y + 1/4 up to 9/4 in size.
    largest = pc.Claim(box, pc.Zero(), pc.LogitDifference(2.25, 0))
    assert decide(without, largest).proved
    below = pc.Claim(box, pc.Zero(), pc.LogitDifference(math.nextafter(2.25, 0), 0))
    assert decide(without, below).refuted


# --- domains and patches --------------------------------------------------------------------------

IDENTITY = net_of(([[1.0]], [0.0]), ([[1.0]], [0.0]))
"""y = relu(x)."""


def test_ends_of_a_ball_are_not_rounded() -> None:
    """0.1 + 0.2 lies between two floats; removing the unit changes the output by x."""
    circuit = circuit_of(IDENTITY, ["fc1/0"])
    end = Fraction(0.1) + Fraction(0.2)
    least, most = 0.3, 0.30000000000000004
    assert Fraction(least) < end < Fraction(most)

    def asked(tolerance: float) -> pc.Verdict:
        return decide(circuit, pc.Claim(pc.Ball([0.1], 0.2), pc.Zero(), pc.MaxAbs(tolerance)))

    assert asked(most).proved
    close = asked(least)  # broken at the very end, which is no float
    assert isinstance(close, pc.Undecided)
    assert close.reason == "numerically too close to call"
    verdict = asked(math.nextafter(least, 0))
    assert isinstance(verdict, pc.Refuted)
    assert Fraction(float(verdict.witness.z)) <= end


@pytest.mark.parametrize(
    ("ball", "largest"),
    [
        (pc.Ball([1.0, 1.0], 0.5), 6.0),
        (pc.Ball([1.0, 1.0], [0.5, 0.25]), 5.25),
        (pc.Ball([1.0, 1.0], 0.5, clip=(0, [1.25, 1.0])), 4.25),
        (pc.Ball([1.0, 1.0], 0.5, p=1), 5.5),
        (pc.Ball([1.0, 1.0], 0.5, p=1, clip=(0, [1.5, 1.25])), 5.0),
        (pc.Ball([1.0, 1.0], 0.5, p=1, mask=[False, True]), 5.5),
        (pc.Ball([1.0, 1.0], 0.5, p=1, mask=[True, False]), 4.5),
        (pc.Ball([1.0, 1.0], 0.5, p=2, mask=[True, False]), 4.5),
        (pc.Ball([1.0, 1.0], 0.0, p=2), 4.0),
    ],
    ids=repr,
)
def test_balls_of_all_kinds(ball: pc.Ball, largest: float) -> None:
    """Removing both units changes the output by relu(x) + relu(3 y)."""
    net = net_of(([[1.0, 0.0], [0.0, 3.0]], [0, 0]), ([[1.0, 1.0]], [-1.0]))
    circuit = circuit_of(net, ["fc1/0"])
    assert decide(circuit, pc.Claim(ball, pc.Zero(), pc.MaxAbs(largest))).proved
    below = math.nextafter(largest, 0)
    assert decide(circuit, pc.Claim(ball, pc.Zero(), pc.MaxAbs(below))).refuted


def test_reachable_patches_at_a_tie() -> None:
    """|relu(x) - relu(x')| over [0, 1] and [-1, 2] is at most 2."""
    circuit = circuit_of(IDENTITY, ["fc1/0"])
    box, source = pc.Box([0.0], [1.0]), pc.Box([-1.0], [2.0])
    patching = pc.Reachable(domains=source)
    assert decide(circuit, pc.Claim(box, patching, pc.MaxAbs(2.0))).proved
    verdict = decide(circuit, pc.Claim(box, patching, pc.MaxAbs(math.nextafter(2.0, 0))))
    assert isinstance(verdict, pc.Refuted)
    assert verdict.witness.patch_input is not None
    assert float(verdict.witness.z) == 0
    assert float(verdict.witness.patch_input) == 2


def test_reachable_patches_share_one_input() -> None:
    """Two removed units that cancel at any common input: the network does not notice."""
    net = net_of(([[1.0], [1.0]], [0, 0]), ([[1.0, -1.0]], [0]))
    box = pc.Box([-1.0], [1.0])
    circuit = circuit_of(net, ["fc1/0"])
    assert decide(circuit, pc.Claim(box, pc.Reachable(domains=box), pc.MaxAbs(0))).proved
    apart = decide(circuit, pc.Claim(box, pc.IntervalHull(domains=box), pc.MaxAbs(0.999)))
    assert isinstance(apart, pc.Refuted)
    assert decide(circuit, pc.Claim(box, pc.IntervalHull(domains=box), pc.MaxAbs(1.001))).proved


def test_boxes_of_interval_patching_are_taken_as_computed() -> None:
    graph = graph_of(IDENTITY)
    circuit = graph.components("neuron").circuit(["fc1/0"])
    patching = pc.IntervalHull(domains=pc.Box([0.1], [0.7]))
    probe = pc.Claim(pc.Point([0.0]), patching, pc.MaxAbs(1.0))
    site = circuit.components.sites[0].tensor
    end = float(Encoder(circuit.components, probe).hull_at(site, 0)[1])
    tie = pc.Claim(pc.Point([0.0]), patching, pc.MaxAbs(end))
    assert decide(circuit, tie).proved
    below = pc.Claim(pc.Point([0.0]), patching, pc.MaxAbs(math.nextafter(end, 0)))
    verdict = decide(circuit, below)
    assert isinstance(verdict, pc.Refuted)
    assert verdict.witness.patch_values is not None
    assert float(verdict.witness.patch_values[site]) == end


def test_means_are_numbers_of_the_claim() -> None:
    """The mean of 0.1, 0.2 and 0.4 is what float64 makes of it."""
    circuit = circuit_of(IDENTITY, ["fc1/0"])
    patching = pc.Mean(torch.tensor([[0.1], [0.2], [0.4]], dtype=torch.float64))
    site = circuit.components.sites[0].tensor
    mean = float(patching.values(circuit.components)[site])
    assert decide(circuit, pc.Claim(pc.Point([0.0]), patching, pc.MaxAbs(mean))).proved
    below = pc.Claim(pc.Point([0.0]), patching, pc.MaxAbs(math.nextafter(mean, 0)))
    assert decide(circuit, below).refuted


def test_a_margin_that_is_met_to_the_last_bit() -> None:
    """Outputs x + 1 and x - 1 lie 2 apart; the circuit without relu(x) keeps all of that."""
    net = net_of(([[1.0], [0.0]], [0.0, 1.0]), ([[1.0, 1.0], [1.0, -1.0]], [0, 0]))
    box = pc.Ball([0.5], 0.25)
    without = circuit_of(net, ["fc0/1", "fc1/0", "fc1/1"])
    for against in ("runner-up", "all"):
        assert decide(without, pc.Claim(box, pc.Zero(), pc.WinnerMargin(1.0, against))).proved
    halved = pc.Constant({"fc0": [0.0, 0.5]})
    bare = circuit_of(net, ["fc1/0", "fc1/1"])
    assert decide(bare, pc.Claim(box, halved, pc.WinnerMargin(0.5))).proved
    more = math.nextafter(0.5, 1)
    assert decide(bare, pc.Claim(box, halved, pc.WinnerMargin(more))).refuted


def test_the_network_itself_may_break_a_margin() -> None:
    net = net_of(([[1.0], [-1.0]], [0.0, 0.0]), ([[1.0, 0.0], [0.0, 1.0]], [0, 0]))
    circuit = graph_of(net).components("neuron").full()
    claim = pc.Claim(pc.Ball([0.5], 0.25), pc.Zero(), pc.WinnerMargin(0.5))
    assert decide(circuit, claim).proved
    claim = pc.Claim(pc.Ball([0.5], 0.25), pc.Zero(), pc.WinnerMargin(math.nextafter(0.5, 1)))
    verdict = decide(circuit, claim)
    assert isinstance(verdict, pc.Refuted)
    assert float(verdict.witness.z) == 0.25


# --- operations -----------------------------------------------------------------------------------


def run(graph: pc.Graph, x: Iterable[Fraction]) -> list[Fraction]:
    network = RationalNetwork(lower(graph), Deadline())
    found = network.run(Atoms(), [Form(v) for v in x], Deadline())
    return [form.constant for form in found[network.graph.outputs[0]]]


@pytest.mark.parametrize("seed", range(12))
def test_networks_of_all_operations_compute_what_plain_fractions_do(seed: int) -> None:
    net = draw(seed).net
    x = exact(np.random.default_rng(seed).normal(size=net.inputs))
    got, wanted = run(graph_of(net), x), net.run(x)[-1]
    batch_norm = any(hasattr(net.module, f"norm{i}") for i in range(3))
    if batch_norm:  # the oracle rounds it another way
        assert [float(v) for v in got] == pytest.approx([float(v) for v in wanted], rel=1e-9)
    else:
        assert got == list(wanted)


def test_means_divide_without_a_rounded_reciprocal() -> None:
    third, ninth = Fraction(1, 3), Fraction(1, 9)
    x = [Fraction(i, 7) for i in range(9)]
    for op in (
        ops.AvgPool2d((3, 3), (3, 3)),
        ops.Mean((1, 2), 9),
        ops.AdaptiveAvgPool2d((3, 3), (1, 1)),
    ):
        builder = GraphBuilder()
        value = builder.add("mean", op, builder.input("x", (1, 3, 3)))
        assert run(builder.build([value]), x) == [sum(x) * ninth]
    builder = GraphBuilder()
    divide = ops.Divide(torch.tensor([3.0, -6.0]))
    value = builder.add("parts", divide, builder.input("x", (2,)))
    assert run(builder.build([value]), [Fraction(1), Fraction(2)]) == [third, -third]


def test_clips_and_windows() -> None:
    builder = GraphBuilder()
    x = builder.input("x", (1, 2, 2))
    clipped = builder.add("clip", ops.Clip(-0.5, 0.75), x)
    graph = builder.build([builder.add("max", ops.MaxPool2d((2, 1), (2, 1)), clipped)])
    assert run(graph, exact([-2, 0.1, -0.7, 3])) == [Fraction(-0.5), Fraction(0.75)]
    assert run(graph, exact([-0.25, 0.1, -0.7, 0])) == [Fraction(-0.25), Fraction(0.1)]


def test_a_clip_over_a_box() -> None:
    """min(max(x + y, -1/2), 3/4) without x: the change is at most 5/4."""
    builder = GraphBuilder()
    layer = builder.add("fc", ops.Linear(torch.eye(2)), builder.input("x", (2,)), layer="fc")
    total = builder.add("sum", ops.Linear(torch.ones(1, 2)), layer, layer="sum")
    graph = builder.build([builder.add("clip", ops.Clip(-0.5, 0.75), total)])
    circuit = graph.components("neuron").circuit(["fc/1", "sum/0"])
    box = pc.Box([-2.0, -2.0], [2.0, 2.0])
    assert decide(circuit, pc.Claim(box, pc.Zero(), pc.MaxAbs(1.25))).proved
    below = pc.Claim(box, pc.Zero(), pc.MaxAbs(math.nextafter(1.25, 0)))
    assert decide(circuit, below).refuted


# --- limits ---------------------------------------------------------------------------------------


def test_what_is_not_for_this_stage_gets_no_answer() -> None:
    def answer(
        net: nn.Module, size: int, domain: pc.Domain, metric: pc.Metric
    ) -> pc.Verdict | None:
        graph = pc.Graph.from_torch(net, torch.zeros(1, size))
        components = graph.components("neuron")
        claim = pc.Claim(domain, pc.Zero(), metric)
        circuit = components.full().remove(components.names[0])
        return decide_exactly(components, claim, circuit, Deadline())

    torch.manual_seed(0)
    curved = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2))
    bent = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    wide = nn.Sequential(nn.Linear(784, 5), nn.ReLU(), nn.Linear(5, 2))
    box = pc.Box([0.0, 0.0], [1.0, 1.0])
    assert answer(curved, 2, box, pc.MaxAbs(1)) is None
    assert answer(bent, 2, pc.Ball([0.0, 0.0], 1.0, p=2), pc.MaxAbs(1)) is None
    assert answer(bent, 2, box, pc.Norm(1.0, 2)) is None
    assert answer(wide, 784, pc.Ball(torch.zeros(784), 0.1), pc.MaxAbs(1)) is None
    at_point = answer(wide, 784, pc.Point(torch.rand(784)), pc.MaxAbs(0))
    assert at_point is not None
    assert not at_point.undecided


def test_the_two_norm_where_it_is_linear() -> None:
    net = net_of(([[1.0]], [0.0]), ([[3.0], [4.0]], [0.0, 0.0]))
    circuit = circuit_of(net, ["fc1/0", "fc1/1"])
    at_point = pc.Claim(pc.Point([1.0]), pc.Zero(), pc.Norm(5.0, 2))
    assert decide(circuit, at_point).proved
    below = pc.Claim(pc.Point([1.0]), pc.Zero(), pc.Norm(math.nextafter(5.0, 0), 2))
    assert decide(circuit, below).refuted
    assert decide(circuit, pc.Claim(pc.Box([-1.0], [0.0]), pc.Zero(), pc.Norm(0, 2))).proved
    assert decide(circuit, pc.Claim(pc.Box([-1.0], [1.0]), pc.Zero(), pc.Norm(0, 2))).refuted


@pytest.mark.parametrize("limit", [0.5, 1.5, 40.5, 400.5])
def test_the_deadline_is_kept(limit: float, clock: Clock) -> None:
    """Looking at the clock takes a second: the look that finds the time over is the last."""
    dice = np.random.default_rng(0)
    net = fully_connected(dice, [6, 40, 40, 3])
    kept = [name for name in net.names if name != "fc0/3"]
    circuit = circuit_of(net, kept)
    claim = pc.Claim(pc.Box([-2.0] * 6, [2.0] * 6), pc.Zero(), pc.MaxAbs(3.0))
    clock.step = 1.0
    deadline = Deadline(clock.now + limit)
    with pytest.raises(OutOfTime):
        decide_exactly(circuit.components, claim, circuit, deadline)
    assert clock.looks == math.ceil(limit)
