"""What is known of a circuit before a smaller one is asked about."""

from __future__ import annotations

import torch

from provable_circuits.claims.patching import Reachable
from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.intervals import propagate
from provable_circuits.network.ops import Activation, Add, Linear
from provable_circuits.rounding import Interval
from provable_circuits.verify.bounding.differential import Known
from provable_circuits.verify.encoding.encoder import Encoder
from provable_circuits.verify.encoding.query import Query
from provable_circuits.verify.encoding.roles import Role, by_role


def known_of(encoder: Encoder, query: Query, network: bool = True) -> Known:
    """What plain propagation knows of a circuit, and of the network and the source of patches."""
    ends: dict[Role, Interval] = {}
    if network:
        box = encoder.z_range
        found = propagate(encoder.network, {encoder.z: (box.lower, box.upper)})
        ends |= {encoder.network_role(name): pair for name, pair in found.items()}
        if isinstance(encoder.claim.patching, Reachable):
            graph, ranges, roles = encoder.patch_source()
            found = propagate(graph, {n: (r.lower, r.upper) for n, r in ranges.items()})
            ends |= by_role(found, roles)
    own = propagate(query.graph, {n: (r.lower, r.upper) for n, r in query.ranges.items()})
    return Known(query.circuit, query, ends | by_role(own, query.roles))


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
