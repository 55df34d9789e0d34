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
earlier witness stays, any other goes), and everything foreseen is screened in one batch. Answers
count as long as they come as foreseen; from the first surprise on, the rest is foreseen anew. So
the circuit and the verdicts' kinds are those of asking one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from provable_circuits.discover.predicate import Predicate
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.components import Component
from provable_circuits.verify.verdict import Verdict

GUESSES = 4
"""How often the course of a pass is guessed anew before it is asked about."""

Listener = Callable[[Component, Circuit, Verdict], None]
"""Called after each question with the component tried, the circuit since, and the verdict."""


def greedy(
    predicate: Predicate, order: Sequence[Component], listener: Listener | None = None
) -> tuple[Circuit, dict[str, Verdict]]:
    """The circuit left after one pass, and the verdict that kept or removed each component."""
    circuit = predicate.components.full()
    verdicts: dict[str, Verdict] = {}
    place = 0
    while place < len(order):
        ahead = order[place : place + predicate.together]
        for component, foreseen in _foreseen(predicate, circuit, ahead):
            candidate = circuit.remove(component.name)
            verdict = foreseen.verdict
            if verdict is None:
                (verdict,) = predicate.ask([candidate])
            removed = verdict.proved or verdict.held
            verdicts[component.name] = verdict
            circuit = candidate if removed else circuit
            place += 1
            if listener is not None:
                listener(component, circuit, verdict)
            if removed != foreseen.removed:
                break
    return circuit, verdicts


@dataclass(frozen=True, slots=True, eq=False)
class _Foreseen:
    """Whether a component is expected to go, and the verdict of its removal if screening told."""

    removed: bool
    verdict: Verdict | None


def _path(circuit: Circuit, ahead: Sequence[Component], needed: Sequence[bool]) -> list[Circuit]:
    """What is asked about each component ahead, if those needed stay and the others go."""
    candidates = []
    for component, stays in zip(ahead, needed, strict=True):
        candidates.append(circuit.remove(component.name))
        circuit = circuit if stays else candidates[-1]
    return candidates


def _foreseen(
    predicate: Predicate, circuit: Circuit, ahead: Sequence[Component]
) -> list[tuple[Component, _Foreseen]]:
    """What a pass over the components ahead is expected to do."""
    if len(ahead) == 1 or predicate.together == 1:
        return [(component, _Foreseen(True, None)) for component in ahead]
    needed = predicate.suspects([circuit.remove(component.name) for component in ahead])
    candidates = _path(circuit, ahead, needed)
    for _ in range(GUESSES):
        guess = predicate.broken(candidates)
        if guess == needed:
            break
        needed = guess
        candidates = _path(circuit, ahead, needed)
    verdicts = predicate.screen(candidates)
    return [
        (component, _Foreseen(not stays, verdict))
        for component, stays, verdict in zip(ahead, needed, verdicts, strict=True)
    ]
