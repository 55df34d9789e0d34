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
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from provable_circuits.discover.predicate import Predicate
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.components import Component
from provable_circuits.verify.verdict import Verdict

Listener = Callable[[Component, Circuit, Verdict], None]
"""Called after each question with the component tried, the circuit since, and the verdict."""


def greedy(
    predicate: Predicate, order: Sequence[Component], listener: Listener | None = None
) -> tuple[Circuit, dict[str, Verdict]]:
    """The circuit left after one pass, and the verdict that kept or removed each component."""
    circuit = predicate.components.full()
    verdicts: dict[str, Verdict] = {}
    for component in order:
        candidate = circuit.remove(component.name)
        (verdict,) = predicate.ask([candidate])
        verdicts[component.name] = verdict
        if verdict.proved or verdict.held:
            circuit = candidate
        if listener is not None:
            listener(component, circuit, verdict)
    return circuit, verdicts
