"""Greedy discovery: one pass that removes whatever can be removed.

    C = all components
    for each component v, in the given order:
        if C without v is faithful:
            C = C without v

It asks one question per component. With a proved predicate the result is faithful, and no component
that was refuted could have been removed when it was tried. If the predicate is monotone the result
is subset-minimal; in general it need not even be locally minimal, because a component that was
needed early in the pass may have become removable later. In the paper: Algorithm 1.

A removal counts only if it is proved or, for sampling, held; an undecided one keeps its component.

Questions are asked ahead: what the pass will ask is foreseen (a component whose removal breaks an
earlier witness stays, any other goes), and everything foreseen is asked in one batch, or of several
workers. Answers count as long as they come as foreseen; from the first surprise on, the rest is
foreseen anew. So the circuit and the verdicts' kinds are those of asking one by one.

Where the predicate is known to be monotone and questions are costly, the pass tries to remove the
next few components together. If that is faithful, so is what one by one would have asked on the
way; if not, the group is halved until the component that must stay is found. Groups grow while they
succeed, and are tried less often the more they fail. The circuit is the same.

    >>> from provable_circuits.zoo.toy import xor_network
    >>> import provable_circuits as pc
    >>> toy = xor_network()
    >>> claim = pc.Claim([pc.Point(x) for x in toy.inputs], pc.Zero(), pc.MaxAbs(0.0))
    >>> pc.discover(toy.graph, claim, toy.components).circuit
    Circuit(5 of 6: v v1, v2, v3, v4, v5)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from provable_circuits.discover.predicates.predicate import faithful
from provable_circuits.discover.search import Search
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.components import Component
from provable_circuits.verify.verdict import Verdict

GUESSES = 4
"""How often the course of a pass is guessed anew before it is asked about."""


def greedy(search: Search, circuit: Circuit | None = None) -> Circuit:
    """The circuit left after one pass over the search's order, from ``circuit`` or everything."""
    circuit = search.components.full() if circuit is None else circuit
    order = [component for component in search.order if component in circuit]
    search.phase("greedy pass", len(order))
    if search.monotone.known and search.predicate.together == 1:
        return _in_groups(search, circuit, order)
    return _one_by_one(search, circuit, order)


def _one_by_one(search: Search, circuit: Circuit, order: Sequence[Component]) -> Circuit:
    place = 0
    went = True
    while place < len(order):
        search.check()
        ahead = order[place : place + search.predicate.together]
        for component, goes, answer in _foreseen(search, circuit, ahead, went):
            candidate = circuit.remove(component.name)
            verdict: Verdict | None = search.known(candidate)
            if verdict is None:
                verdict = search.timed(answer)
                search.record(candidate, verdict, component.name)
            went = faithful(verdict)
            circuit = candidate if went else circuit
            place += 1
            if went != goes:
                break
            search.check()
    return circuit


def _foreseen(
    search: Search, circuit: Circuit, ahead: Sequence[Component], went: bool
) -> list[tuple[Component, bool, Callable[[], Verdict]]]:
    """What a pass over the components ahead is expected to do: whether each goes, and how to know.

    Where earlier witnesses tell nothing, things are expected to go on as they went last.
    """
    predicate = search.predicate
    needed = [not went] * len(ahead)
    if predicate.foresees:
        needed = predicate.suspects([circuit.remove(component.name) for component in ahead])
    candidates = _path(circuit, ahead, needed)
    for _ in range(GUESSES if predicate.foresees else 0):
        guess = predicate.broken(candidates)
        if guess == needed:
            break
        needed = guess
        candidates = _path(circuit, ahead, needed)
    answers = predicate.ahead(candidates, search.left)
    return [
        (component, not stays, answer)
        for component, stays, answer in zip(ahead, needed, answers, strict=True)
    ]


def _path(circuit: Circuit, ahead: Sequence[Component], needed: Sequence[bool]) -> list[Circuit]:
    """What is asked about each component ahead, if those needed stay and the others go."""
    candidates = []
    for component, stays in zip(ahead, needed, strict=True):
        candidates.append(circuit.remove(component.name))
        circuit = circuit if stays else candidates[-1]
    return candidates


def _in_groups(search: Search, circuit: Circuit, order: Sequence[Component]) -> Circuit:
    """The pass of a monotone predicate, several components at a time where that pays.

    ``trouble`` is where a group ended that could not go: someone before it must stay. It is found
    by halving. Groups double while they go, and start again after some single removals in a row,
    the more of them the more groups failed lately.
    """
    place, size, trouble = 0, 1, 0
    streak, patience = 0, 2
    while place < len(order):
        if place < trouble:
            size = max((trouble - place) // 2, 1)
        group = order[place : place + size]
        candidate = circuit.remove(*(component.name for component in group))
        verdict: Verdict | None = search.known(candidate)
        if verdict is None:
            verdict = search.ask(candidate, group[0].name)
        if faithful(verdict):
            circuit = candidate
            place += len(group)
            streak += len(group)
            if place >= trouble and streak >= patience:
                size, patience = 2 * size, 2
        elif len(group) > 1:
            patience = min(2 * patience, 16) if place >= trouble else patience
            trouble = place + len(group)
        else:
            place += 1
            trouble, size, streak = 0, 1, 0
    return circuit
