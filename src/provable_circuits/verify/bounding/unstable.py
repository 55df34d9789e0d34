"""Unstable units: the ReLUs of a graph whose sign is not settled, in one flat order.

Of the thousands of ReLUs of a network few are unstable on a small region, and only those take part
in a search: their bounds, slopes, splits and multipliers are kept as tensors [n, units], one row
for each problem or subdomain. ``gather`` reads such a tensor off the network's own ones, ``put``
writes it back into them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from provable_circuits.network.graph import Node
from provable_circuits.rounding import Interval
from provable_circuits.verify.bounding.bounds import Bounds
from provable_circuits.verify.bounding.relaxation import leak


class UnstableUnits:
    """The units of ReLU-like activations that are open in at least one problem of some bounds.

    Attributes:
        nodes: the activations that have unstable units, in the graph's order.
        columns: for each of them the unstable units, as positions in the flat tensor.
        leaks: for each unit the slope left of zero.
        sizes: for each unit the largest absolute value in its tensor.
    """

    def __init__(self, bounds: Bounds) -> None:
        structure = bounds.structure
        self.nodes: list[Node] = []
        self.columns: dict[str, Tensor] = {}
        leaks: list[Tensor] = []
        sizes: list[Tensor] = []
        for node in structure.activations:
            slope = leak(structure.ops[node.name])
            if slope is None:
                continue
            lower, upper = bounds.ends[node.inputs[0]]
            columns = ((lower < 0) & (upper > 0)).flatten(1).any(0).nonzero().flatten()
            if not len(columns):
                continue
            self.nodes.append(node)
            self.columns[node.name] = columns
            leaks.append(lower.new_full((len(columns),), slope))
            sizes.append(lower.new_full((len(columns),), bounds.sizes[node.inputs[0]]))
        nothing = torch.zeros(0, dtype=torch.float64, device=structure.device)
        self.leaks = torch.cat(leaks) if leaks else nothing
        self.sizes = torch.cat(sizes) if sizes else nothing
        self.counts = [len(columns) for columns in self.columns.values()]

    def __len__(self) -> int:
        return len(self.leaks)

    def gather(self, tensors: Mapping[str, Tensor], count: int) -> Tensor:
        """The units [count, units] of tensors by activation, zero where one is missing."""
        pieces = []
        for name, columns in self.columns.items():
            if name not in tensors:
                pieces.append(self.leaks.new_zeros(count, len(columns)))
                continue
            flat = tensors[name].flatten(1).expand(count, -1)
            pieces.append(flat if flat.shape[1] == len(columns) else flat[:, columns])
        return torch.cat(pieces, dim=1) if pieces else self.leaks.new_zeros(count, 0)

    def ends(self, ends: Mapping[str, Interval], count: int) -> Interval:
        """The bounds [count, units] of what the units read."""
        lower = {node.name: ends[node.inputs[0]][0] for node in self.nodes}
        upper = {node.name: ends[node.inputs[0]][1] for node in self.nodes}
        return self.gather(lower, count), self.gather(upper, count)

    def split(self, values: Tensor) -> dict[str, Tensor]:
        """Values [n, units] as [n, own units] by activation."""
        return dict(zip(self.columns, values.split(self.counts, dim=1), strict=True))

    def put(self, node: Node, values: Tensor, base: Tensor | None = None) -> Tensor:
        """One activation's values [n, own units] in place of those of ``base``, or of zeros."""
        size = math.prod(node.shape)
        if values.shape[1] == size:
            whole: Tensor = values.unflatten(1, node.shape)
            return whole
        if base is None:
            base = values.new_zeros(len(values), size)
        flat = base.flatten(1).expand(len(values), size)
        replaced: Tensor = flat.index_copy(1, self.columns[node.name], values)
        return replaced.reshape(len(values), *node.shape)

    def spread(self, values: Tensor) -> dict[str, Tensor]:
        """Values [n, units] as tensors [n, *shape], zero elsewhere; all-zero ones are left out."""
        pieces = self.split(values)
        return {
            node.name: self.put(node, pieces[node.name])
            for node in self.nodes
            if bool(pieces[node.name].any())
        }
