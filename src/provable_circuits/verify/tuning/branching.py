"""How a tree is searched: steps, batches, linear programs, input splits."""

from __future__ import annotations

from dataclasses import dataclass

from provable_circuits.tuning import Tuning, tuned


@dataclass(frozen=True, slots=True)
class BranchingTuning(Tuning):
    """Tuning of ``verify/branching``."""

    steps: int = tuned(6, "steps", "Steps of ascent for each subdomain", least=1)
    long_steps: int = tuned(
        40,
        "steps",
        "Steps for what few do not close, once the tree of a small network is large",
        least=1,
    )
    long_after: int = tuned(
        512, "subdomains", "So many make the tree of a small network large: it begins anew", least=0
    )
    candidates: int = tuned(8, "units", "Units tried before a subdomain is split", least=1)
    small_candidates: int = tuned(20, "units", "The same in small networks", least=1)
    levels: int = tuned(1, "units", "Units that a subdomain is split at together", least=1)
    small_levels: int = tuned(2, "units", "The same in small networks", least=1)
    width: int = tuned(16, "subdomains", "Subdomains bounded at once, at most", least=1)
    small_width: int = tuned(256, "subdomains", "The same in small networks", least=1)
    tried_width: int = tuned(
        16, "subdomains", "Subdomains whose candidates are tried in one backward pass", least=1
    )
    batch_elements: int = tuned(
        2**21, "numbers", "The largest tensor of a batch of subdomains or boxes, about", least=1
    )
    most_numbers: int = tuned(
        2**26, "numbers", "Each tensor of waiting subdomains, at most: half a gigabyte", least=0
    )
    costliest_units: int = tuned(
        3, "units", "Units of each subdomain that a shallow search splits at once", least=1
    )
    batched_rounds: int = tuned(
        2, "rounds", "How often the open rows of a batch of circuits are split", least=0
    )
    batched_subdomains: int = tuned(
        4, "subdomains", "A row of such a batch with more open subdomains is given up", least=0
    )
    most_failures: int = tuned(
        5,
        "failures",
        "After so many in a row the pause before the next try stays",
        least=0,
        most=30,
    )
    programs_after: int = tuned(
        48,
        "subdomains",
        "Where programs are small: so many, and the roots are tightened by programs",
        least=0,
    )
    every_program_after: int = tuned(
        512,
        "subdomains",
        "So many, and each subdomain that ascent leaves open is put to the solver",
        least=0,
    )
    program_units: int = tuned(
        128, "units", "Unstable units up to which a program takes a few milliseconds", least=0
    )
    program_inputs: int = tuned(
        256, "inputs", "Inputs up to which a program takes a few milliseconds", least=0
    )
    pivots: int = tuned(
        50, "multiples of its rows", "Pivots of the simplex method that a program may take", least=0
    )
    most_bases: int = tuned(
        1024, "programs", "Final bases that are kept for other programs to start from", least=1
    )
    program_candidates: int = tuned(
        6, "units", "Units whose two sides are put to the solver before one is split", least=0
    )
    reliable_splits: int = tuned(
        4, "splits", "Splits of a unit after which its pseudo-costs are believed", least=1
    )
    least_gap: float = tuned(
        1e-9, "as the unit", "Gaps of the relaxation below this are the solver's rounding", above=0
    )
    violation_price: float = tuned(
        1e4,
        "multiples of the largest coefficient",
        "What a violated sign costs in a program, so that there always is a solution",
        above=0,
    )
    solver_seconds: float = tuned(
        0.05, "seconds", "What a linear-programming solver is given in any case", above=0
    )
    ball_cuts: int = tuned(
        24, "programs", "How often the solver closes in on a ball of the 2-norm, at most", least=1
    )
    few_inputs: int = tuned(
        12, "inputs", "Up to so many numbers that range, splitting inputs pays", least=0
    )
    box_width: int = tuned(128, "boxes", "Boxes of input splits bounded at once, at most", least=1)
