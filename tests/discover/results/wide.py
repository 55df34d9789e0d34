"""Components of one wide layer, and monotonicity that is only assumed."""

from __future__ import annotations

import torch

from provable_circuits.discover.predicates.monotonicity import Monotonicity
from provable_circuits.network.components import Components
from provable_circuits.network.graph import GraphBuilder
from provable_circuits.network.ops import Linear

ASSUMED = Monotonicity(False, True, "assumed")


def wide(count: int) -> Components:
    builder = GraphBuilder()
    layer = builder.add("fc", Linear(torch.ones(count, 1)), builder.input("x", (1,)))
    return builder.build([layer]).components("neuron")
