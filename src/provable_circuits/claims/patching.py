"""Patching: what a removed component outputs.

Fixed patches give each unit of a removed component one value: zero, the unit's mean over some data,
or any constant. Their values are float64 numbers that belong to the claim. Ranging patches give
them any value that a domain of inputs allows: ``Reachable`` what the network computes at one common
input, ``IntervalHull`` any value of each unit's interval.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from provable_circuits.arguments import each, number, order_of_norm, parameter, refused
from provable_circuits.claims.domains import Ball, Domain, clip_ends
from provable_circuits.claims.finite import Finite
from provable_circuits.errors import ArgumentError
from provable_circuits.network.arrays import real_tensor, warn_of_scale
from provable_circuits.network.components import Components
from provable_circuits.network.execution import as_batch, evaluate
from provable_circuits.network.graph import Graph
from provable_circuits.network.layers import layers_of

BATCH = 256
"""Samples that go through the network together while means are taken."""


class Patching(ABC):
    """What removed components output.

    One of three things is true of a patching, and says what a removed unit's value is.

    Attributes:
        is_fixed: one number for each unit, which ``values`` gives.
        has_source: what the network computes at one common input of ``domain``.
        has_boxes: any number of the unit's interval over ``domain``, independently.
    """

    is_fixed: ClassVar[bool] = False
    has_source: ClassVar[bool] = False
    has_boxes: ClassVar[bool] = False

    @abstractmethod
    def description(self, radius: str | None = None) -> str:
        """What a removed component outputs, in words; ``radius`` is how the eps is told."""

    def values(self, components: Components) -> Mapping[str, Tensor]:
        """For each site's tensor, by name, float64 values [1, *shape] for its units, if fixed."""
        raise ArgumentError(
            "The 'patch' parameter must give each removed unit one value, as Zero, Mean and "
            "Constant do: a circuit whose patches range is no single function. "
            f"Got {self!r} instead."
        )

    def domain(self, index: int, inputs: Sequence[Domain]) -> Domain:
        """The domain that patch values come from for the input at ``index``, if they range."""
        raise ArgumentError(f"The values of {self!r} are fixed and come from no domain.")

    @property
    def radius(self) -> tuple[float, float] | None:
        """The radius and the norm of the balls that values range over, where these are balls."""
        return None

    def without_data(self, components: Components) -> Patching:
        """The same patching of these components, with numbers in place of data."""
        return self


class FixedPatching(Patching):
    """A patching that gives every unit one value."""

    is_fixed: ClassVar[bool] = True

    @abstractmethod
    def values(self, components: Components) -> Mapping[str, Tensor]:
        """For each site's tensor, by name, float64 values [1, *shape] for its units."""


@dataclass(frozen=True)
class Zero(FixedPatching):
    """Removed components output zero."""

    def values(self, components: Components) -> Mapping[str, Tensor]:
        return {
            site.tensor: torch.zeros(1, *site.layer.shape, dtype=torch.float64)
            for site in components.sites
        }

    def description(self, radius: str | None = None) -> str:
        return "zero"

    def __repr__(self) -> str:
        return "Zero()"


@dataclass(frozen=True, eq=False)
class Mean(FixedPatching):
    """Each unit of a removed component outputs its mean activation over ``data``.

    ``data`` is one array of inputs or an iterable of batches (or of pairs of a batch and labels),
    which is streamed: no more than one batch is held at a time. The mean is taken when it is first
    needed and kept, so that an iterator, which can be read once, serves one network.
    """

    data: Any
    _means: dict[str, Mapping[str, Tensor]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        what, data = parameter("data", "Mean"), self.data
        if isinstance(data, Finite):
            object.__setattr__(self, "data", data.inputs)
            return
        if hasattr(data, "shape") and not isinstance(data, type):
            if real_tensor(data, what).ndim == 0:
                raise refused(what, "an array of inputs or an iterable of batches", data)
            warn_of_scale(data, what, level=4)
        elif isinstance(data, str | bytes | Mapping | type) or not isinstance(data, Iterable):
            raise refused(what, "an array of inputs or an iterable of batches", data)

    def values(self, components: Components) -> Mapping[str, Tensor]:
        graph = components.graph
        known = self._means.get(graph.digest, {})
        missing = [site.tensor for site in components.sites if site.tensor not in known]
        if missing:
            found = mean_activations(graph, self.data, missing)
            self._means[graph.digest] = {**found, **known}
        return self._means[graph.digest]

    def without_data(self, components: Components) -> Patching:
        values = self.values(components)
        return Constant({site.layer.name: values[site.tensor][0] for site in components.sites})

    def description(self, radius: str | None = None) -> str:
        return "its mean over some data"

    def __repr__(self) -> str:
        return "Mean(data)"


@dataclass(frozen=True, eq=False)
class Constant(FixedPatching):
    """Removed components output ``value``: one number, or for each layer a number or an array.

    A layer that a mapping does not name is patched with zero.
    """

    value: float | Mapping[str, Any]

    def __post_init__(self) -> None:
        if not isinstance(self.value, Mapping):
            object.__setattr__(self, "value", number("value", self.value, "Constant"))
            return
        for name, value in self.value.items():
            if not isinstance(name, str):
                raise refused("A layer that the value of Constant names", "a text", name)
            real_tensor(value, f"The value of Constant for layer '{name}'")

    def values(self, components: Components) -> Mapping[str, Tensor]:
        layers = {site.layer.name: site for site in components.sites}
        given = self.value
        if not isinstance(given, Mapping):
            given = dict.fromkeys(layers, given)
        unknown = set(given) - set(layers)
        if unknown:
            raise ArgumentError(
                f"The 'value' parameter of Constant names {sorted(unknown)[0]!r}, which is no "
                f"layer with components; those are {', '.join(layers)}."
            )
        values = dict(Zero().values(components))
        for name, value in given.items():
            site = layers[name]
            tensor = real_tensor(value, f"The value of Constant for layer '{name}'").cpu().double()
            try:
                values[site.tensor] = tensor.expand(site.layer.shape).unsqueeze(0).clone()
            except RuntimeError:
                raise ArgumentError(
                    f"The value of Constant for layer '{name}' must broadcast to "
                    f"{list(site.layer.shape)}. Got {list(tensor.shape)} instead."
                ) from None
        return values

    def description(self, radius: str | None = None) -> str:
        return "a fixed value"

    def __repr__(self) -> str:
        return f"Constant({'by layer' if isinstance(self.value, Mapping) else self.value})"


def mean_activations(graph: Graph, data: Any, also: Iterable[str] = ()) -> dict[str, Tensor]:
    """The mean of every layer's activation over ``data``: float64 [1, *shape] by tensor name.

    Args:
        graph: the network.
        data: the inputs.
        also: other tensors whose mean is wanted.
    """
    tensors = list(dict.fromkeys([*(layer.tensor for layer in layers_of(graph)), *also]))
    totals = {name: torch.zeros(graph[name].shape, dtype=torch.float64) for name in tensors}
    count = 0
    for batch in _batches(graph, data):
        values = evaluate(graph, {graph.inputs[0]: batch}, tensors)
        for name in tensors:
            totals[name] += values[name].sum(0)
        count += len(batch)
    if count == 0:
        raise ArgumentError("The 'data' parameter of Mean must hold at least one input. Got none.")
    for name, total in totals.items():
        if not bool(torch.isfinite(total).all()):
            raise ArgumentError(
                "The 'data' parameter of Mean must give finite activations. "
                f"Got NaN or infinity at {name!r} instead."
            )
    return {name: (total / count).unsqueeze(0) for name, total in totals.items()}


def _batches(graph: Graph, data: Any) -> Iterator[Tensor]:
    """Batches of an array, or of an iterable of arrays (pairs of inputs and labels allowed)."""
    if hasattr(data, "shape"):
        yield from _batch(graph, data, parameter("data", "Mean")).split(BATCH)
        return
    for place, part in enumerate(data):
        pair = isinstance(part, tuple | list) and len(part) > 0 and hasattr(part[0], "shape")
        what = f"Batch {place} of the 'data' parameter of Mean"
        batch = _batch(graph, part[0] if pair else part, what)
        if place == 0:
            warn_of_scale(part[0] if pair else part, what)
        yield batch


def _batch(graph: Graph, values: Any, what: str) -> Tensor:
    """Inputs of the network, float64 [n, *shape]."""
    tensor, shape = real_tensor(values, what), graph.input_shape
    if tuple(tensor.shape) != shape and tuple(tensor.shape[1:]) != shape:
        raise ArgumentError(
            f"{what} must be inputs of shape {list(shape)} behind a batch dimension. "
            f"Got {list(tensor.shape)} instead."
        )
    return as_batch(graph, tensor, torch.float64)


@dataclass(frozen=True, eq=False)
class RangingPatching(Patching):
    """A patching whose values range over a domain of inputs: one around each claimed input.

    Either ``eps`` gives the radius of a ball around each input's centre (with ``p`` and ``clip`` as
    in ``Ball``), or ``domains`` gives the domains: one for all inputs, or one for each.
    """

    eps: float | None = None
    domains: Domain | Sequence[Domain] | None = None
    p: float = math.inf
    clip: tuple[Any, Any] | None = None

    def __post_init__(self) -> None:
        owner = type(self).__name__
        if (self.eps is None) == (self.domains is None):
            raise ArgumentError(
                f"{owner} takes either 'eps', a radius around each input, or "
                "'domains'. Got both or neither instead."
            )
        if isinstance(self.eps, Domain):
            raise refused(
                parameter("eps", owner), "a number", self.eps, "give a domain as domains=..."
            )
        object.__setattr__(self, "p", order_of_norm(self.p, owner))
        if self.eps is not None:
            object.__setattr__(self, "eps", number("eps", self.eps, owner, least=0))
        elif not isinstance(self.domains, Domain):
            kind = "a Domain such as Ball or Box"
            object.__setattr__(self, "domains", each("domains", self.domains, Domain, kind, owner))
        if self.clip is not None:
            clip_ends(self.clip, owner)

    def domain(self, index: int, inputs: Sequence[Domain]) -> Domain:
        """The domain that patch values come from for the input at ``index``."""
        if self.domains is None:
            return Ball(inputs[index].center, self.eps, self.p, self.clip)
        if isinstance(self.domains, Domain):
            return self.domains
        if len(self.domains) != len(inputs):
            raise ArgumentError(
                f"The 'domains' parameter of {type(self).__name__} must be one domain, or one for "
                f"each of the {len(inputs)} inputs. Got {len(self.domains)} instead."
            )
        return self.domains[index]

    @property
    def radius(self) -> tuple[float, float] | None:
        return None if self.eps is None else (self.eps, self.p)

    def _region(self, radius: str | None) -> str:
        if self.eps is None:
            return "of a region"
        return f"within {radius or f'{self.eps:.4g}'} of the claimed one"

    def __repr__(self) -> str:
        what = f"eps={self.eps:g}" if self.eps is not None else "domains"
        return f"{type(self).__name__}({what})"


@dataclass(frozen=True, eq=False, repr=False)
class Reachable(RangingPatching):
    """All removed components take the activations they have in the network at one common input.

    That input ranges over the whole domain, independently of the claimed input.
    """

    has_source: ClassVar[bool] = True

    def description(self, radius: str | None = None) -> str:
        return (
            f"whatever the network computes in its place at some input {self._region(radius)}, "
            "the same input for all removed components"
        )


@dataclass(frozen=True, eq=False, repr=False)
class IntervalHull(RangingPatching):
    """Each unit of a removed component takes any value of its interval, independently.

    The intervals are those of plain interval propagation of the domain through the network, node by
    node, rounded outward. They are part of the claim.
    """

    has_boxes: ClassVar[bool] = True

    def description(self, radius: str | None = None) -> str:
        return (
            f"any value of the interval that bounds it over all inputs {self._region(radius)}, "
            "each unit independently of the others"
        )
