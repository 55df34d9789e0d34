"""Small networks, asked a little to either side of their exact optimum: decided in few nodes.

The optimum is that of the mixed-integer program in ``tests/oracle``, which shares no code with the
package. Limits are in nodes, so that nothing depends on the clock.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.oracle.milp import Question, solve
from tests.oracle.random_networks import graph_of
from tests.verify.small import MARGIN, at_least, drawn, f64, largest, row_of

import provable_circuits as pc
from provable_circuits.properties.verify import decide

NODES = 1200


@pytest.mark.parametrize("seed", range(20))
def test_properties_beside_the_optimum(seed: int) -> None:
    net, region, _ = drawn(seed)
    row = row_of(net)
    best = largest(net, region, row)
    for shift, wanted in ((MARGIN, "holds"), (-MARGIN, "violated")):
        question = at_least(net, region, row, best + shift)
        assert decide(graph_of(net), question, max_nodes=NODES).status == wanted, shift


@pytest.mark.parametrize("seed", range(20))
def test_claims_beside_the_optimum(seed: int) -> None:
    net, region, dice = drawn(seed)
    last = net.cuts[-1].layer
    kept = [n for n in net.names if n.startswith(last) or dice.random() < 0.7]
    removed = net.removed(kept)
    patch = {step: np.zeros(net.steps[step].size) for step in removed}
    sides = np.concatenate([np.eye(net.outputs), -np.eye(net.outputs)])
    found = solve(Question(net, removed, region, patch, ("rows", sides)))
    assert found is not None
    graph = graph_of(net)
    circuit = graph.components("filter" if seed % 5 == 4 else "neuron").circuit(kept)
    box = pc.Box(*(f64(end).reshape(net.shape) for end in (region.low, region.high)))
    for shift, wanted in ((MARGIN, "proved"), (-MARGIN, "refuted")):
        if found.attained + shift <= 0:
            continue
        claim = pc.Claim([box], pc.Zero(), pc.MaxAbs(found.attained + shift))
        assert pc.verify(graph, circuit, claim, max_nodes=NODES, certify=False).kind == wanted, (
            shift
        )
