"""What is known of a circuit before a smaller one is asked about."""

from __future__ import annotations

import torch

from provable_circuits.claims.patching import Reachable
from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.intervals import propagate
from provable_circuits.network.ops import Activation, Add, Linear
from provable_circuits.rounding import Interval
from provable_circuits.verify.bounding.differential import Known
from provable_circuits.verify.encoding.encoder import Encoder, Query


def known_of(encoder: Encoder, query: Query, network: bool = True) -> Known:
    """What plain propagation knows of a circuit, and of the network and the source of patches."""
    ends: dict[str, Interval] = {}
    if network:
        box = encoder.z_range
        ends |= propagate(encoder.network, {encoder.z: (box.lower, box.upper)})
        if isinstance(encoder.claim.patching, Reachable):
            graph, ranges = encoder.patch_source()
            ends |= propagate(graph, {n: (r.lower, r.upper) for n, r in ranges.items()})
    own = propagate(query.graph, {n: (r.lower, r.upper) for n, r in query.ranges.items()})
    return Known(query.circuit, query, ends | own)


def single(op: Activation, bias: float, also: float = 0.0) -> Graph:
    """Two units that are added up, the second through an activation, and read by another."""
    builder = GraphBuilder()
    x = builder.input("x", (1,))
    one = torch.ones(1, 1, dtype=torch.float64)
    first = builder.add("first", Linear(one, torch.tensor([bias]).double()), x)
    second = builder.add("second", Linear(2 * one, torch.tensor([also]).double()), x)
    total = builder.add("total", Add(), first, second)
    acted = builder.add("acted", op, total)
    again = builder.add("again", Linear(one, torch.tensor([0.5]).double()), acted)
    return builder.build([builder.add("y", Linear(one), builder.add("last", op, again))])
