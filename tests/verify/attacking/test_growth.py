"""Growing refuted circuits: what comes out is refuted, contains what went in, and is large."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import provable_circuits as pc
from provable_circuits.network.graph import GraphBuilder
from provable_circuits.network.ops import Linear

PATCHINGS = {
    "zero": pc.Zero(),
    "reachable": pc.Reachable(eps=0.2),
    "interval": pc.IntervalHull(eps=0.1),
}


def verifier(seed: int, patching: str, convolution: bool) -> pc.Verifier:
    torch.manual_seed(seed)
    if convolution:
        net = nn.Sequential(
            nn.Conv2d(1, 4, 2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4, 3)
        )
        shape: tuple[int, ...] = (1, 3, 3)
    else:
        net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2))
        shape = (4,)
    graph = pc.Graph.from_torch(net, torch.zeros(1, *shape))
    x = torch.rand(2, *shape, generator=torch.Generator().manual_seed(seed))
    inputs = [pc.Ball(x[0], 0.1), pc.Ball(x[1], 0.1, p=2)]
    claim = pc.Claim(inputs, PATCHINGS[patching], pc.LogitDifference(0.001))
    return pc.Verifier(graph.components(), claim)


@pytest.mark.parametrize("convolution", [False, True])
@pytest.mark.parametrize("patching", PATCHINGS)
@pytest.mark.parametrize("seed", range(1, 5))
def test_what_grew_is_refuted(seed: int, patching: str, convolution: bool) -> None:
    own = verifier(seed, patching, convolution)
    components = own.components
    start = components.circuit(components.names[:2])
    verdict = own.ask(start)
    assert isinstance(verdict, pc.Refuted)
    favour = torch.rand(5, len(components), generator=torch.Generator().manual_seed(seed))
    grown = own.grown(start, verdict.witness, favour.double())
    assert grown
    fresh = verifier(seed, patching, convolution)
    for circuit, refuted in grown:
        assert start <= circuit < components.full()
        assert fresh.carried([circuit], [refuted.witness])[0] is not None
        assert fresh.ask(circuit).refuted
    assert max(len(circuit) for circuit, _ in grown) > len(start)


def test_growth_reaches_a_circuit_that_lacks_one_component() -> None:
    """Two outputs, each fed by a unit of its own: all but the one that matters can be kept."""
    builder = GraphBuilder()
    hidden = builder.add("fc1", Linear(torch.eye(2)), builder.input("x", (2,)))
    graph = builder.build([builder.add("fc2", Linear(torch.eye(2)), hidden)])
    claim = pc.Claim([pc.Ball([1.0, 1.0], 0.1)], pc.Zero(), pc.LogitDifference(0.5, 0))
    own = pc.Verifier(graph.components(), claim)
    empty = graph.components().empty()
    verdict = own.ask(empty)
    assert isinstance(verdict, pc.Refuted)
    ((circuit, _),) = own.grown(empty, verdict.witness, torch.zeros(1, 4, dtype=torch.float64))
    assert len(circuit) == 3
