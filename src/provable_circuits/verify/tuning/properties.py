"""How plain properties are attacked, split and confirmed."""

from __future__ import annotations

from dataclasses import dataclass

from provable_circuits.tuning import Tuning, tuned


@dataclass(frozen=True, slots=True)
class PropertiesTuning(Tuning):
    """Tuning of the room ``properties``."""

    attack_starts: int = tuned(8, "points", "Random starts for each case", least=1)
    attack_steps: int = tuned(30, "steps", "Steps from each start", least=1)
    attack_cases: int = tuned(64, "cases", "Cases attacked at once", least=1)
    replayed: int = tuned(
        4, "candidates", "How many of a batch of candidates are replayed, best first", least=1
    )
    near: float = tuned(
        1e-12,
        "share of the bound",
        "Candidates that miss it by no more are for exact arithmetic",
        least=0,
    )
    alpha_steps: int = tuned(20, "steps", "Steps of alpha before any split", least=0)
    few_inputs: int = tuned(
        12, "inputs", "Up to so many varying inputs a box is halved again and again", least=0
    )
    box_width: int = tuned(128, "boxes", "Boxes bounded at once, at most", least=1)
    most_boxes: int = tuned(20_000, "boxes", "Boxes bounded in the end, at most", least=0)
    first_boxes: int = tuned(
        256, "boxes", "Boxes that come first where few units are unstable", least=0
    )
    first_subdomains: int = tuned(
        20_000, "subdomains", "Subdomains of branch and bound that come then", least=0
    )
    more_cells: int = tuned(
        64, "cells", "Where a point is known, cells in which one of floats is looked for", least=0
    )
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
