"""The four notions of minimality, decided by their definitions.

A circuit C is faithful, and

- ``quasi``-minimal: without some component of it, it is not faithful;
- ``local``ly minimal: without any one component, it is not faithful;
- ``subset``-minimal: without any non-empty set of its components, it is not faithful;
- ``cardinal``ly minimal: no circuit of fewer components is faithful.

Each implies the one before it, for circuits that are not empty. An empty circuit that is faithful
is minimal in every sense but the first, which asks for a component.

``holds`` asks as many questions as the definition needs, up to two to the number of components: it
is meant for small networks, and judges the algorithms in the tests.

    >>> import provable_circuits as pc
    >>> from provable_circuits.discover.predicates.predicate import Decided
    >>> from provable_circuits.zoo.toy import xor_network
    >>> toy = xor_network()
    >>> claim = pc.Claim([pc.Point(x) for x in toy.inputs], pc.Zero(), pc.MaxAbs(0.0))
    >>> predicate = Decided(toy.components, claim)
    >>> circuit = toy.components.circuit(["v/v1", "v/v2", "v/v3"])
    >>> [pc.minimality.holds(circuit, predicate, notion) for notion in pc.minimality.NOTIONS]
    [True, True, False, False]
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator

from provable_circuits.discover.predicates.predicate import Predicate, faithful
from provable_circuits.errors import ArgumentError, UndecidedError
from provable_circuits.network.circuit import Circuit

NOTIONS = ("quasi", "local", "subset", "cardinal")

MOST = 2**20
"""Questions above which a definition is not worked through."""


def holds(circuit: Circuit, predicate: Predicate, notion: str) -> bool:
    """Whether a circuit is faithful, and minimal in the sense of ``notion``.

    Raises:
        UndecidedError: a question on which the answer depends could not be decided.
        ArgumentError: the definition asks more questions than can be worked through.
    """
    if notion not in NOTIONS:
        raise ArgumentError(
            f"The 'notion' parameter must be one of {', '.join(NOTIONS)}. Got {notion!r} instead."
        )
    size, of = len(circuit), len(circuit.components)
    questions = {"quasi": size, "local": size, "subset": 2**size}.get(
        notion, sum(math.comb(of, k) for k in range(size))
    )
    if questions > MOST:
        raise ArgumentError(
            f"Whether a circuit of {size} components is {notion}-minimal takes {questions} "
            f"questions by definition, more than {MOST}."
        )
    if not _any_faithful(predicate, [circuit]):
        return False
    singles = (circuit.remove(component.name) for component in circuit)
    if notion == "quasi":
        return _any_unfaithful(predicate, singles)
    smaller = {
        "local": singles,
        "subset": _within(circuit),
        "cardinal": _smaller(circuit),
    }[notion]
    return not _any_faithful(predicate, smaller)


def _within(circuit: Circuit) -> Iterator[Circuit]:
    """Every circuit strictly within another."""
    names = circuit.names
    for size in range(len(names)):
        for kept in itertools.combinations(names, size):
            yield circuit.components.circuit(kept)


def _smaller(circuit: Circuit) -> Iterator[Circuit]:
    """Every circuit of fewer components."""
    components = circuit.components
    for size in range(len(circuit)):
        for kept in itertools.combinations(components.names, size):
            yield components.circuit(kept)


def _any_faithful(predicate: Predicate, circuits: Iterable[Circuit]) -> bool:
    """Whether one of the circuits is faithful."""
    return _some(predicate, circuits, wanted=True)


def _any_unfaithful(predicate: Predicate, circuits: Iterable[Circuit]) -> bool:
    """Whether one of the circuits is not faithful."""
    return _some(predicate, circuits, wanted=False)


def _some(predicate: Predicate, circuits: Iterable[Circuit], wanted: bool) -> bool:
    """Whether one of the circuits is faithful, or is not; an undecided one matters if none is."""
    undecided = None
    rest = iter(circuits)
    while part := list(itertools.islice(rest, predicate.wave)):
        for circuit, verdict in zip(part, predicate.ask(part), strict=True):
            if verdict.undecided:
                undecided = circuit
            elif faithful(verdict) == wanted:
                return True
    if undecided is not None:
        raise UndecidedError(f"Whether {undecided!r} is faithful could not be decided.")
    return False
