"""How plain properties are attacked and confirmed."""

from __future__ import annotations

from dataclasses import dataclass

from provable_circuits.tuning import Tuning, tuned


@dataclass(frozen=True, slots=True)
class PropertiesTuning(Tuning):
    """Tuning of the room ``properties``."""

    attack_starts: int = tuned(
        8, "points", "Random starts of the short attack for each case: it is asked once", least=1
    )
    attack_steps: int = tuned(30, "steps", "Steps from each start", least=1)
    push_steps: int = tuned(
        4, "steps", "Steps that push a candidate off the edge of constraints", least=0
    )
    push_margins: tuple[float, ...] = tuned(
        (1e-10, 1e-7, 1e-4), "share of the bound", "How far off the edge each tries to get", above=0
    )
    push_reach: float = tuned(
        1e-3, "share of an input's range", "How far an input is moved by that", least=0, most=1
    )
    push_constraints: int = tuned(64, "constraints", "With more a candidate is not pushed", least=0)
