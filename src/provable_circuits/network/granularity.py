"""Granularity: how the units of a layer are grouped into components.

Subclass ``Granularity`` for a grouping of your own, or list the groups with ``Groups``:

    >>> import torch
    >>> from provable_circuits.network.graph import GraphBuilder
    >>> from provable_circuits.network.ops import Linear
    >>> builder = GraphBuilder()
    >>> x = builder.input("x", (2,))
    >>> graph = builder.build([builder.add("fc", Linear(torch.eye(2)), x)])
    >>> graph.components(Groups({"fc": {"both": [0, 1]}}))
    Components(1: fc 1)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from provable_circuits.arguments import instance, refused, whole
from provable_circuits.errors import ArgumentError
from provable_circuits.network.arrays import as_tensor
from provable_circuits.network.layers import Layer

Partition = tuple[Sequence[str], Tensor]
"""Names of a layer's components, and labels: an integer tensor that broadcasts to the layer's
shape and holds, for each unit, the index of its component, or -1 for a unit in no component."""


class Granularity(ABC):
    """How the units of a layer are grouped into components."""

    @abstractmethod
    def partition(self, layer: Layer) -> Partition | None:
        """The layer's components, or None for a layer that is always kept whole."""


def _along_channels(layer: Layer) -> Partition:
    count = layer.shape[layer.channel_dim]
    size = [1] * len(layer.shape)
    size[layer.channel_dim] = count
    return [str(i) for i in range(count)], torch.arange(count).reshape(size)


@dataclass(frozen=True, slots=True)
class Neurons(Granularity):
    """Each unit of each linear layer."""

    def partition(self, layer: Layer) -> Partition | None:
        return _along_channels(layer) if layer.kind == "linear" else None


@dataclass(frozen=True, slots=True)
class Filters(Granularity):
    """Each channel of each convolution, with its whole feature map."""

    def partition(self, layer: Layer) -> Partition | None:
        return _along_channels(layer) if layer.kind == "conv" else None


@dataclass(frozen=True, slots=True)
class Blocks(Granularity):
    """Runs of ``size`` neighbouring neurons or filters of every layer."""

    size: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", whole("size", self.size, "Blocks", least=1))

    def partition(self, layer: Layer) -> Partition | None:
        _, labels = _along_channels(layer)
        labels = labels // self.size
        return [str(i) for i in range(int(labels.max()) + 1)], labels


@dataclass(frozen=True, slots=True)
class Patches(Granularity):
    """Rectangles of ``height`` x ``width`` positions of feature maps, all channels together."""

    height: int
    width: int

    def __post_init__(self) -> None:
        for name in ("height", "width"):
            object.__setattr__(self, name, whole(name, getattr(self, name), "Patches", least=1))

    def partition(self, layer: Layer) -> Partition | None:
        if layer.kind != "conv":
            return None
        _, height, width = layer.shape
        rows = torch.arange(height) // self.height
        columns = torch.arange(width) // self.width
        across = int(columns.max()) + 1
        labels = rows[:, None] * across + columns
        names = [
            f"{row},{column}" for row in range(int(rows.max()) + 1) for column in range(across)
        ]
        return names, labels.unsqueeze(0)


@dataclass(frozen=True, eq=False)
class Groups(Granularity):
    """Groups listed by hand: layer name -> component name -> units.

    Units are indices of neurons or filters, or a boolean array that broadcasts to the layer's
    activation (``[channels, height, width]`` for a convolution). Layers that are not named are kept
    whole. Two components of a layer must not share a unit.
    """

    groups: Mapping[str, Mapping[str, Any]]

    def __post_init__(self) -> None:
        expected = "a mapping from names of layers to components"
        instance("groups", self.groups, Mapping, expected, "Groups")
        for layer, own in self.groups.items():
            if not isinstance(own, Mapping):
                what = f"The groups of layer {layer!r} in Groups"
                raise refused(what, "a mapping from names to units", own)

    def partition(self, layer: Layer) -> Partition | None:
        groups = self.groups.get(layer.name)
        if groups is None:
            return None
        labels = torch.full(layer.shape, -1)
        for index, (name, units) in enumerate(groups.items()):
            mask = self._mask(layer, name, units)
            clash = labels[mask]
            if bool((clash >= 0).any()):
                other = list(groups)[int(clash.max())]
                raise ArgumentError(
                    f"Components of a layer must be disjoint: '{other}' and '{name}' of layer "
                    f"'{layer.name}' share a unit."
                )
            labels[mask] = index
        return list(groups), labels

    @staticmethod
    def _mask(layer: Layer, name: str, units: Any) -> Tensor:
        where = f"The units of component '{name}' of layer '{layer.name}'"
        try:
            given = as_tensor(units)
        except (TypeError, ValueError, RuntimeError):
            raise ArgumentError(
                f"{where} must be a list of indices or a mask. Got {units!r} instead."
            ) from None
        if given.dtype == torch.bool:
            try:
                mask = given.expand(layer.shape)
            except RuntimeError:
                raise ArgumentError(
                    f"{where} must be a mask that broadcasts to {list(layer.shape)}. "
                    f"Got shape {list(given.shape)} instead."
                ) from None
        else:
            count = layer.shape[layer.channel_dim]
            indices = given.ndim == 1 and not given.is_floating_point()
            if given.numel() and not (indices and bool(((given >= 0) & (given < count)).all())):
                raise ArgumentError(
                    f"{where} must be a list of indices from 0 to {count - 1}. "
                    f"Got {units!r} instead."
                )
            chosen = torch.zeros(count, dtype=torch.bool)
            chosen[given.long()] = True
            size = [1] * len(layer.shape)
            size[layer.channel_dim] = count
            mask = chosen.reshape(size).expand(layer.shape)
        if not bool(mask.any()):
            raise ArgumentError(f"{where} must not be empty.")
        return mask


@dataclass(frozen=True, slots=True)
class Heads(Granularity):
    """Each attention head, cut where its pattern has mixed the values; over all positions."""

    def partition(self, layer: Layer) -> Partition | None:
        if layer.kind != "head":
            return None
        count = layer.shape[0] if len(layer.shape) == 3 else 1
        labels = torch.arange(count).reshape(count, *([1] * (len(layer.shape) - 1)))
        return [f"h{i}" for i in range(count)], labels[:, 0] if len(layer.shape) < 3 else labels


@dataclass(frozen=True, slots=True)
class MLPs(Granularity):
    """Each MLP block as a whole, cut at its output."""

    def partition(self, layer: Layer) -> Partition | None:
        if layer.kind != "mlp":
            return None
        return ["mlp"], torch.zeros([1] * len(layer.shape), dtype=torch.long)


@dataclass(frozen=True, slots=True)
class Along(Granularity):
    """Slices of one named tensor along a per-sample dimension, such as heads nobody recognised.

    Attributes:
        tensor: the name of the tensor in the graph; ``graph.summary()`` lists them.
        dim: the dimension, 0 for the first after the batch.
    """

    tensor: str
    dim: int

    def __post_init__(self) -> None:
        instance("tensor", self.tensor, str, "the name of a tensor of the graph", "Along")
        object.__setattr__(self, "dim", whole("dim", self.dim, "Along", least=0))

    def partition(self, layer: Layer) -> Partition | None:
        if layer.kind != "along" or layer.tensor != self.tensor:
            return None
        if self.dim >= len(layer.shape):
            raise ArgumentError(
                f"The 'dim' parameter of Along must be a dimension of '{self.tensor}', whose "
                f"shape is {list(layer.shape)}. Got {self.dim} instead."
            )
        count = layer.shape[self.dim]
        size = [1] * len(layer.shape)
        size[self.dim] = count
        return [str(i) for i in range(count)], torch.arange(count).reshape(size)


NAMED: dict[str, Granularity] = {
    "neuron": Neurons(),
    "filter": Filters(),
    "head": Heads(),
    "mlp": MLPs(),
}


def named_granularity(name: str, layers: Sequence[Layer]) -> Granularity:
    """The granularity for ``"neuron"``, ``"filter"`` or ``"auto"``."""
    if name in NAMED:
        return NAMED[name]
    if name == "auto":
        return Filters() if any(layer.kind == "conv" for layer in layers) else Neurons()
    raise ArgumentError(
        "The 'granularity' parameter must be 'neuron', 'filter', 'head', 'mlp', 'auto', several of "
        f"them, or a Granularity. Got {name!r} instead."
    )
