"""A claim: for all inputs in these domains, under this patching, the metric holds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from provable_circuits.arguments import each, instance, parameter, refused, whole
from provable_circuits.claims.domains import Domain
from provable_circuits.claims.finite import Finite
from provable_circuits.claims.metrics import Metric
from provable_circuits.claims.patching import Patching
from provable_circuits.errors import ArgumentError
from provable_circuits.network.graph import Graph


@dataclass(frozen=True)
class Claim:
    """The faithfulness predicate, but for the circuit: inputs, patching and metric.

    Attributes:
        inputs: one or more domains; the claim must hold on each.
        patching: what removed components output.
        metric: how far the circuit's outputs may lie from the network's.
        positions: of outputs with positions, [positions, outputs], those that count; None for all.
    """

    inputs: tuple[Domain, ...]
    patching: Patching
    metric: Metric
    positions: tuple[int, ...] | None = None

    def __init__(
        self,
        inputs: Domain | Iterable[Domain],
        patching: Patching,
        metric: Metric,
        positions: Iterable[int] | None = None,
    ) -> None:
        kind = "a Domain such as Ball or Box"
        if isinstance(inputs, Domain):
            domains: tuple[Domain, ...] = (inputs,)
        elif isinstance(inputs, Iterable) and not isinstance(inputs, str | type):
            domains = each("inputs", inputs, Domain, kind, "Claim")
        else:
            raise refused(parameter("inputs", "Claim"), f"{kind}, or several", inputs)
        if not domains:
            raise ArgumentError(
                "The 'inputs' parameter of Claim must hold at least one domain. Got none instead."
            )
        instance("patching", patching, Patching, "a Patching such as Zero()", "Claim")
        instance("metric", metric, Metric, "a Metric such as LogitDifference(2.0)", "Claim")
        object.__setattr__(self, "inputs", domains)
        object.__setattr__(self, "patching", patching)
        object.__setattr__(self, "metric", metric)
        finite = [isinstance(domain, Finite) for domain in domains]
        if any(finite) and not all(finite):
            raise ArgumentError(
                "The 'inputs' parameter of Claim must hold finite domains alone, or none. "
                "Got both instead."
            )
        named = None
        if positions is not None:
            named = tuple(whole("positions", place, "Claim", least=0) for place in positions)
            if not named or len(set(named)) != len(named):
                raise refused(parameter("positions", "Claim"), "distinct positions", positions)
        object.__setattr__(self, "positions", named)

    @property
    def finite(self) -> bool:
        """Whether the claim is about each input of finite sets."""
        return isinstance(self.inputs[0], Finite)

    @property
    def count(self) -> int:
        """How many inputs there are: domains, or the inputs of all finite domains together."""
        if not self.finite:
            return len(self.inputs)
        return sum(len(domain) for domain in self.inputs if isinstance(domain, Finite))

    @property
    def centers(self) -> Tensor:
        """The unperturbed inputs, [inputs, *shape], float64; all of them in finite domains."""
        parts = [d.points(0, len(d)) for d in self.inputs if isinstance(d, Finite)]
        return torch.cat(parts) if parts else torch.stack([d.center for d in self.inputs])

    def domain(self, index: int) -> Domain:
        """The domain that an input belongs to."""
        if not self.finite:
            return self.inputs[index]
        for domain in self.inputs:
            if isinstance(domain, Finite):
                if index < len(domain):
                    return domain
                index -= len(domain)
        raise ArgumentError("The claim has no such input.")

    def check(self, graph: Graph) -> None:
        """Refuse a claim that does not fit the network."""
        for domain in self.inputs:
            if domain.shape != graph.input_shape:
                raise ArgumentError(
                    f"The claim's inputs have shape {list(domain.shape)}, the network takes "
                    f"{list(graph.input_shape)}: reshape the inputs, without a batch dimension."
                )
        shape = graph.output_shape
        if len(shape) != 1 and not (self.finite and len(shape) == 2):
            raise ArgumentError(
                "The network must give one vector of outputs per input. Its outputs have shape "
                f"{list(shape)} instead."
            )
        if self.positions is not None and len(shape) == 1:
            raise ArgumentError(
                "The 'positions' parameter of Claim is for outputs with positions. The network's "
                f"outputs have shape {list(shape)}."
            )
        if self.positions is not None and max(self.positions) >= shape[0]:
            raise ArgumentError(
                f"The 'positions' parameter of Claim must name positions below {shape[0]}. "
                f"Got {max(self.positions)} instead."
            )
        self.metric.check(self.count, shape[-1])
