"""Networks and questions on which the verifier once called something false proved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from tests.enclosures import adapter
from tests.enclosures.networks import Dice
from tests.enclosures.points import attacked, random_points
from tests.enclosures.truth import Truth
from tests.enclosures.watch import Watch

import provable_circuits as pc
from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.ops import Add, AvgPool2d, Conv2d, Linear, ReLU, Reshape, Tanh
from provable_circuits.verify.verifier import Verifier

SIDE = 16


@dataclass(frozen=True, eq=False)
class Finding:
    """A network, a claim, and the components that go, question by question."""

    graph: Graph
    granularity: str
    claim: pc.Claim
    removed: tuple[tuple[str, ...], ...]


def part_of_a_layer_then_all() -> Finding:
    """Convolution, ReLU, and two linear layers: one filter goes, then all three."""
    builder = GraphBuilder()
    x = builder.input("x", (1, SIDE, SIDE))
    weight = torch.full((3, 1, 3, 3), 0.001, dtype=torch.float64)
    ones = torch.ones(3, dtype=torch.float64)
    x = builder.add("conv", Conv2d(weight, ones, padding=(1, 1)), x)
    x = builder.add("flat", Reshape((3 * SIDE**2,)), builder.add("relu", ReLU(), x))
    shares = torch.tensor([0.6, 0.2, 0.2], dtype=torch.float64).repeat_interleave(SIDE**2) / SIDE**2
    x = builder.add("fc", Linear(torch.stack([6 * shares, 3.6 * shares]), -ones[:2]), x)
    last = torch.tensor([[1.8, -3.0], [0.0, 0.0]], dtype=torch.float64)
    graph = builder.build([builder.add("out", Linear(last), builder.add("relu2", ReLU(), x))])
    center = torch.full((1, SIDE, SIDE), 0.5, dtype=torch.float64)
    claim = pc.Claim(pc.Ball(center, eps=0.1), pc.Zero(), pc.LogitDifference(0.3, 0))
    return Finding(graph, "filter", claim, (("conv/0",), ("conv/0", "conv/1", "conv/2")))


def beside_a_skip(share: float) -> Finding:
    """Convolution, average pooling and ReLU beside a skip: one filter goes, then all three.

    The tolerance is a share of what a random search reaches.
    """
    dice = Dice(1)
    builder = GraphBuilder()
    x = builder.input("x", (1, SIDE, SIDE))
    pool = AvgPool2d((2, 2), (2, 2))
    first = Conv2d(
        (dice.uniform(3, 1, 3, 3) - 0.5) / 15, torch.full((3,), 3.0).double(), padding=(1, 1)
    )
    inner = builder.add("pool", pool, builder.add("a", first, x))
    inner = builder.add("relu", ReLU(), inner)
    second = 0.1 + 0.02 * dice.uniform(4, 3, 3, 3)
    inner = builder.add("b", Conv2d(second, torch.full((4,), 0.1).double(), padding=(1, 1)), inner)
    beside = Conv2d(
        (dice.uniform(4, 1, 3, 3) - 0.5) / 1.5, (dice.uniform(4) - 0.5) / 1.5, padding=(1, 1)
    )
    outer = builder.add("skip_pool", pool, builder.add("skip", beside, x))
    x = builder.add("relu2", ReLU(), builder.add("sum", Add(), inner, outer))
    last = (dice.uniform(2, 4 * (SIDE // 2) ** 2) - 0.5) / 8
    last -= last.mean(1, keepdim=True)
    flat = builder.add("flat", Reshape((last.shape[1],)), x)
    graph = builder.build([builder.add("fc", Linear(last), flat)])
    gone = ("a/0", "a/1", "a/2")
    claim = _sized(graph, pc.Ball(dice.uniform(1, SIDE, SIDE), eps=0.3), gone, share)
    return Finding(graph, "filter", claim, (("a/0",), gone))


def depthwise(share: float) -> Finding:
    """Depthwise convolution, average pooling and tanh: one filter goes at each of two layers."""
    dice, channels = Dice(2), 8
    builder = GraphBuilder()
    x = builder.input("x", (1, 12, 12))
    first = (dice.uniform(channels, 1, 3, 3) - 0.5) * 16 / 3
    bias = (dice.uniform(channels) - 0.5) * 2 / 3
    x = builder.add("tanh", Tanh(), builder.add("conv1", Conv2d(first, bias, padding=(1, 1)), x))
    second = (dice.uniform(channels, 1, 3, 3) - 0.5) * 2
    second[1] *= 0.02
    offset = torch.full((channels,), 1.5, dtype=torch.float64)
    x = builder.add("dw", Conv2d(second, offset, padding=(1, 1), groups=channels), x)
    x = builder.add("tanh2", Tanh(), builder.add("pool", AvgPool2d((2, 2), (2, 2)), x))
    last = (dice.uniform(3, channels * 36) - 0.5) * 6 / (channels * 36) ** 0.5
    flat = builder.add("flat", Reshape((channels * 36,)), x)
    graph = builder.build([builder.add("fc", Linear(last), flat)])
    gone = ("conv1/0", "dw/1")
    claim = _sized(graph, pc.Ball(dice.uniform(1, 12, 12), eps=0.5), gone, share)
    return Finding(graph, "filter", claim, (gone,))


def _sized(graph: Graph, ball: pc.Ball, gone: tuple[str, ...], share: float) -> pc.Claim:
    """A claim that allows a share of the difference that an attack reaches."""
    subdomains = graph.components("filter")
    circuit = subdomains.full().remove(*gone)
    truth = Truth(subdomains, pc.Claim(ball, pc.Zero(), pc.LogitDifference(0.0, 0)))
    points = random_points(truth, 8, torch.Generator().manual_seed(0))
    points = attacked(truth, circuit, points, 20)
    best = float(truth.excess(circuit, points)[0].max())
    return pc.Claim(ball, pc.Zero(), pc.LogitDifference(share * best, 0))


def findings() -> Iterator[tuple[str, Finding]]:
    """All of them, by name."""
    yield "part of a layer, then all of it", part_of_a_layer_then_all()
    for share in (0.99, 0.7, 0.4):
        yield f"beside a skip, {share}", beside_a_skip(share)
    yield "depthwise, then pooling", depthwise(0.97)


def watched(finding: Finding) -> Watch:
    """All questions of a finding to one verifier, watched."""
    with torch.no_grad():
        subdomains = finding.graph.components(finding.granularity)
        truth = Truth(subdomains, finding.claim)
        points = random_points(truth, 6, torch.Generator().manual_seed(0))
        last = subdomains.full().remove(*finding.removed[-1])
        watch = Watch(truth, attacked(truth, last, points, 8))
        with watch.on():
            verifier = Verifier(subdomains, finding.claim)
            for gone in finding.removed:
                circuit = subdomains.full().remove(*gone)
                watch.circuit = circuit
                verdict = adapter.ask(verifier, circuit, 120)
                watch.verdict(circuit, verdict)
                watch.verifier(verifier)
    return watch
