"""``discover``: find a small circuit that is faithful to its network."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from provable_circuits.claims.claim import Claim
from provable_circuits.discover.greedy import Listener, greedy
from provable_circuits.discover.predicate import Decided, Predicate, Sampled
from provable_circuits.discover.result import Result
from provable_circuits.errors import ArgumentError, ClaimFailsError
from provable_circuits.network.components import Component, Components
from provable_circuits.network.granularity import Granularity
from provable_circuits.network.graph import Graph

ALGORITHMS = ("greedy",)
METHODS = ("proof", "sampling")


def discover(
    graph: Graph,
    claim: Claim,
    granularity: str | Granularity = "auto",
    algorithm: str = "greedy",
    *,
    method: str = "proof",
    outputs: bool = True,
    shortcuts: bool = False,
    order: Sequence[str] | None = None,
    timeout: float = 45.0,
    points: int = 0,
    seed: int = 0,
    device: torch.device | str = "cpu",
    listener: Listener | None = None,
) -> Result:
    """Find a small circuit of ``graph`` for which the claim holds.

    Args:
        graph: the network.
        claim: over which inputs, under which patching, by which metric.
        granularity: what components are; see ``Graph.components``.
        algorithm: ``"greedy"``.
        method: ``"proof"`` decides each question over the whole of the claim's domains;
            ``"sampling"`` evaluates it at points, the baseline of the field, and proves nothing.
        outputs: whether units of the output layer are components.
        shortcuts: whether projections on shortcut paths are.
        order: names of all components in the order in which they are tried; later layers first by
            default.
        timeout: seconds for each question (proof).
        points: random points of each domain that are tried besides the unperturbed input
            (sampling).
        seed: the seed of whatever is random.
        device: where bounds are computed (proof).
        listener: called after each question with the component, the circuit since, and the verdict.

    Raises:
        ClaimFailsError: the network itself violates the claim, so that no circuit can be asked for.
    """
    if algorithm not in ALGORITHMS:
        raise ArgumentError(
            f"The 'algorithm' parameter must be one of {', '.join(ALGORITHMS)}. "
            f"Got {algorithm!r} instead."
        )
    if method not in METHODS:
        raise ArgumentError(
            f"The 'method' parameter must be 'proof' or 'sampling'. Got {method!r} instead."
        )
    began = time.monotonic()
    components = graph.components(granularity, outputs=outputs, shortcuts=shortcuts)
    predicate: Predicate
    if method == "proof":
        predicate = Decided(components, claim, timeout, seed, device)
    else:
        predicate = Sampled(components, claim, points, seed)
    (whole,) = predicate.ask([components.full()])
    if whole.refuted:
        raise ClaimFailsError(
            "The network itself violates the claim, so no circuit can satisfy it: choose smaller "
            "domains, a larger tolerance, or inputs that the network gets right.",
            whole,
        )
    circuit, tried = greedy(predicate, _ordered(components, order), listener)
    verdict = next((v for name, v in reversed(tried.items()) if name not in circuit), whole)
    faithful = "proved" if verdict.proved else "sampled" if verdict.held else "undecided"
    kept = {
        name: "refuted-when-tried" if tried[name].refuted else "undecided" for name in circuit.names
    }
    return Result(
        circuit=circuit,
        claim=claim,
        faithful=faithful,
        verdict=verdict,
        kept=kept,
        tried=tried,
        algorithm=algorithm,
        seconds=time.monotonic() - began,
    )


def _ordered(components: Components, order: Sequence[str] | None) -> list[Component]:
    if order is None:
        return list(components.discovery_order())
    by_name = {component.name: component for component in components}
    if sorted(order) != sorted(by_name):
        raise ArgumentError(
            "The 'order' parameter must name every component once: "
            f"{len(by_name)} components, got {len(order)} names."
        )
    return [by_name[name] for name in order]
