"""How far rational arithmetic goes, which costs thousands of times as much as floating point."""

from __future__ import annotations

from dataclasses import dataclass

from provable_circuits.tuning import Tuning, tuned


@dataclass(frozen=True, slots=True)
class ExactTuning(Tuning):
    """Tuning of ``verify/exact``."""

    most_weights: int = tuned(
        50_000, "weights", "Weights written as rational numbers: a run takes 0.1 s or so", least=0
    )
    most_variables: int = tuned(
        64,
        "numbers that range",
        "More make exact linear programs slow: a tenth of a second",
        least=0,
    )
    most_units: int = tuned(
        128, "ReLUs", "Over anything but points: to write so many forms takes a second", least=0
    )
    most_cells: int = tuned(
        4096, "cells", "Cells that the search for one circuit may open, 5 to 30 ms each", least=0
    )
    more_cells: int = tuned(
        64, "cells", "Where a point is known, cells in which one of floats is looked for", least=0
    )
    solver_margin: float = tuned(
        1e-6,
        "as the objective",
        "How far from zero a solver's optimum is clear; its tolerances are 1e-7",
        above=0,
    )
    inward_steps: tuple[float, ...] = tuned(
        (2.0**-50, 2.0**-40, 2.0**-30, 2.0**-20, 2.0**-10),
        "shares of the way",
        "Steps from a maximum towards the inside of its cell at which points are tried",
        above=0,
        most=1,
    )
    inside_variables: int = tuned(
        8, "variables", "Up to so many the inside of a cell is looked for", least=0
    )
    retreats: tuple[int, ...] = tuned(
        (0, 1, 2, 8, 2**10, 2**20),
        "multiples of 2^-52",
        "By how much a point of a 1-ball is drawn in until rounding leaves it inside",
        least=0,
    )
    added_rows: int = tuned(
        4, "rows", "Violated rows that join an exact linear program together", least=1
    )
    rows_at_once: int = tuned(
        256, "rows", "Unit rows pulled back together: large layers take little memory", least=1
    )
