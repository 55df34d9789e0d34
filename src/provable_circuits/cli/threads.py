"""How many threads PyTorch computes with, in a program of ours."""

from __future__ import annotations

import math

import torch

from provable_circuits.network.graph import Graph
from provable_circuits.network.ops import Activation

FEW = 600
"""Units up to which threads cost more than they bring: their tensors are small."""


def use_threads_for(graph: Graph) -> None:
    """One thread for a small network; for others as many as PyTorch chose."""
    units = sum(math.prod(node.shape) for node in graph.nodes if isinstance(node.op, Activation))
    if units <= FEW:
        torch.set_num_threads(1)
