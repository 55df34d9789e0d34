"""Repeated greedy discovery: passes until nothing more goes, and pairs that cancel.

    C = all components
    repeat
        one greedy pass over C
        for each pair of C whose effects on the outputs are opposite:
            if C without both is faithful:
                C = C without both
    until nothing was removed

The last pass asks about every component that is left, against the final circuit: with a proved
predicate the result is locally minimal, unconditionally, but for questions that stay undecided. It
asks as many questions as there are components in the first pass, and as many as are left in each
other.

Two components that cancel each other cannot go one at a time. Effects are the changes of the
outputs, at some of the claim's inputs, when one component is removed, in plain floating point; a
pair is tried if the sum of both is small beside the two. That only chooses what is asked.

    >>> from provable_circuits.zoo.toy import xor_network
    >>> import provable_circuits as pc
    >>> toy = xor_network()
    >>> claim = pc.Claim([pc.Point(x) for x in toy.inputs], pc.Zero(), pc.MaxAbs(0.0))
    >>> pc.discover(toy.graph, claim, toy.components, "repeated-greedy").minimality.notion
    'local'
"""

from __future__ import annotations

import torch
from torch import Tensor

from provable_circuits.claims.claim import Claim
from provable_circuits.discover.algorithms.greedy import greedy
from provable_circuits.discover.predicates.predicate import faithful
from provable_circuits.discover.search import Search
from provable_circuits.network.circuit import Circuit

SAMPLE = 128
"""Inputs at which effects are measured."""

CANCELS = 0.2
"""A pair is tried if the sum of its effects is at most this part of the two."""

MOST_PAIRS = 64
"""Pairs that are tried after each pass."""


def repeated_greedy(search: Search) -> Circuit:
    """The circuit left after passes until one of them, and its pairs, remove nothing."""
    circuit = greedy(search)
    while True:
        before = circuit
        circuit = _without_pairs(search, circuit)
        circuit = greedy(search, circuit)
        if circuit == before:
            return circuit


def _without_pairs(search: Search, circuit: Circuit) -> Circuit:
    """The circuit without pairs that cancel and can go together."""
    pairs = opposite_pairs(circuit, getattr(search.predicate, "claim", None))
    if pairs:
        search.phase("pairs that cancel", len(pairs))
    for first, second in pairs:
        if first in circuit and second in circuit:
            candidate = circuit.remove(first, second)
            if search.known(candidate) is None and faithful(search.ask(candidate, first)):
                circuit = candidate
    return circuit


def opposite_pairs(circuit: Circuit, claim: Claim | None) -> list[tuple[str, str]]:
    """Pairs of components whose effects cancel, those that cancel best first."""
    if claim is None or not claim.patching.is_fixed or len(circuit) < 2:
        return []
    points = claim.centers
    points = points[:: max(1, len(points) // SAMPLE)][:SAMPLE]
    names = list(circuit.names)
    patch = claim.patching.values(circuit.components)
    smaller = [circuit.remove(name) for name in names]
    outputs = circuit.components.run([circuit, *smaller], points, patch, torch.float64)
    effects = (outputs[1:] - outputs[:1]).flatten(1)
    return [(names[i], names[j]) for i, j in _cancelling(effects)]


def _cancelling(effects: Tensor) -> list[tuple[int, int]]:
    size = effects.norm(dim=1)
    product = effects @ effects.T
    together = (size.square()[:, None] + size.square() + 2 * product).clamp_min(0).sqrt()
    share = together / (size[:, None] + size).clamp_min(1e-300)
    share[(size == 0), :] = torch.inf
    share[:, (size == 0)] = torch.inf
    rows, columns = torch.triu_indices(len(size), len(size), 1)
    found = share[rows, columns]
    order = found.argsort(stable=True)[:MOST_PAIRS]
    return [(int(rows[place]), int(columns[place])) for place in order if found[place] <= CANCELS]
