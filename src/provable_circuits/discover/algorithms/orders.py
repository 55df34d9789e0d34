"""Orders: which component a search tries to remove first.

``"paper"`` takes later layers first and goes by index within a layer. ``"attribution"`` takes the
least important component first: its score is by how much the outputs that the metric looks at would
move, to first order, if the component took its patch,

    score(v) = sum over inputs | sum over units of v: d output / d value * (patch - value) |

at the unperturbed inputs; where patches range over an interval, half its width stands for the
difference, unit by unit. ``"random"`` shuffles by a seed. A list of names is an order of one's own.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from provable_circuits.arguments import each
from provable_circuits.claims.claim import Claim
from provable_circuits.claims.metrics import LogitDifference, WinnerMargin, target_outputs
from provable_circuits.errors import ArgumentError
from provable_circuits.network.components import Component, Components
from provable_circuits.network.execution import evaluate
from provable_circuits.network.intervals import propagate

ORDERS = ("paper", "attribution", "random")


def ordered(
    components: Components, claim: Claim, order: str | Sequence[str] = "paper", seed: int = 0
) -> list[Component]:
    """The components in the order asked for."""
    if not isinstance(order, str):
        names = each("order", order, str, "a component's name")
        by_name = {component.name: component for component in components}
        if sorted(names) != sorted(by_name):
            raise ArgumentError(
                "The 'order' parameter must name every component once: "
                f"{len(by_name)} components, got {len(names)} names."
            )
        return [by_name[name] for name in names]
    if order == "paper":
        return list(components.discovery_order())
    if order == "attribution":
        scores = attribution(components, claim).tolist()
        # Equal scores: as in the paper's order.
        return sorted(
            components.discovery_order(), key=lambda c: scores[components.index_of(c.name)]
        )
    if order == "random":
        shuffled = torch.randperm(len(components), generator=torch.Generator().manual_seed(seed))
        return [components[i] for i in shuffled.tolist()]
    raise ArgumentError(
        f"The 'order' parameter must be one of {', '.join(ORDERS)}, or a list of all "
        f"components' names. Got {order!r} instead."
    )


def attribution(components: Components, claim: Claim) -> Tensor:
    """The score of every component, in graph order: [components]."""
    graph = components.graph
    names = [site.tensor for site in components.sites]
    x = claim.centers.requires_grad_()
    with torch.enable_grad():
        run = evaluate(graph, {graph.inputs[0]: x}, [*names, graph.outputs[0]])
    output = run[graph.outputs[0]]
    change, signed = _change(components, claim, {name: run[name].detach() for name in names})
    scores = torch.zeros(len(components), dtype=torch.float64)
    for probe in _probes(claim, output.detach()):
        gradients = torch.autograd.grad(
            (output * probe).sum(), [run[name] for name in names], retain_graph=True
        )
        for site, gradient in zip(components.sites, gradients, strict=True):
            effect = gradient * change[site.tensor]
            effect = effect if signed else effect.abs()
            labels = site.labels.expand(site.layer.shape).flatten()
            total = torch.zeros(len(x), len(site.components) + 1, dtype=torch.float64)
            total.index_add_(1, labels % (len(site.components) + 1), effect.flatten(1))
            own = slice(site.start, site.start + len(site.components))
            scores[own] += total[:, :-1].abs().sum(0)
    return scores


def _change(
    components: Components, claim: Claim, values: dict[str, Tensor]
) -> tuple[dict[str, Tensor], bool]:
    """By how much each unit would change, and whether the sign of that means anything."""
    patching, graph = claim.patching, components.graph
    if patching.is_fixed:
        patches = patching.values(components)
        return {name: patches[name] - value for name, value in values.items()}, True
    ends = [patching.domain(i, claim.inputs).bounds() for i in range(len(claim.inputs))]
    lower, upper = (torch.stack(side) for side in zip(*ends, strict=True))
    hull = propagate(graph, {graph.inputs[0]: (lower, upper)})
    return {name: (hull[name][1] - hull[name][0]) * 0.5 for name in values}, False


def _probes(claim: Claim, output: Tensor) -> list[Tensor]:
    """Combinations of outputs that the metric looks at, each [inputs, outputs]."""
    metric, outputs = claim.metric, output.shape[1]
    unit = torch.eye(outputs, dtype=torch.float64)
    if isinstance(metric, LogitDifference):
        return [unit[target_outputs(metric.target, output)]]
    if isinstance(metric, WinnerMargin):
        top = output.topk(2, dim=-1).indices
        return [unit[top[:, 0]] - unit[top[:, 1]]]
    return [unit[i].expand_as(output) for i in range(outputs)]
