"""A claim: for all inputs in these domains, under this patching, the metric holds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from provable_circuits.arguments import each, instance, parameter, refused
from provable_circuits.claims.domains import Domain
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
    """

    inputs: tuple[Domain, ...]
    patching: Patching
    metric: Metric

    def __init__(
        self, inputs: Domain | Iterable[Domain], patching: Patching, metric: Metric
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

    @property
    def centers(self) -> Tensor:
        """The unperturbed inputs, [inputs, *shape], float64."""
        return torch.stack([domain.center for domain in self.inputs])

    def check(self, graph: Graph) -> None:
        """Refuse a claim that does not fit the network."""
        for domain in self.inputs:
            if domain.shape != graph.input_shape:
                raise ArgumentError(
                    f"The claim's inputs have shape {list(domain.shape)}, the network takes "
                    f"{list(graph.input_shape)}: reshape the inputs, without a batch dimension."
                )
        if len(graph.output_shape) != 1:
            raise ArgumentError(
                "The network must give one vector of outputs per input. Its outputs have shape "
                f"{list(graph.output_shape)} instead."
            )
        self.metric.check(len(self.inputs), graph.output_shape[0])
