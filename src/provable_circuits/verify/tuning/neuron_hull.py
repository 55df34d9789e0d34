"""How neuron hulls choose their lines and multipliers, and how far they go."""

from __future__ import annotations

from dataclasses import dataclass

from provable_circuits.tuning import Tuning, tuned


@dataclass(frozen=True, slots=True)
class NeuronHullTuning(Tuning):
    """Tuning of ``verify/neuron_hull``."""

    chunk_elements: int = tuned(
        2**20, "numbers", "The largest tensor of rows that one pass of presolve holds", least=1
    )
    narrow: float = tuned(
        1e-9,
        "share of the widest",
        "An input or a gap no wider counts as an error, and has no coordinate",
        least=0,
        most=1,
    )
    largest_share: float = tuned(
        0.98, "share of a row", "How much of it the entries make up that are kept apart", least=0
    )
    few_entries: int = tuned(
        64,
        "entries of a row",
        "So many are kept apart in any case, and all where that is not twice as many",
        least=1,
    )
    sparse_share: float = tuned(
        0.2, "share of entries", "A matrix with no more nonzero ones is sparse", least=0, most=1
    )
    most_entries: int = tuned(
        2**22, "entries", "Entries of all lines that are chosen at once, at most", least=1
    )
    root_steps: int = tuned(40, "steps", "Steps of ascent for a whole row", least=1)
    part_steps: int = tuned(12, "steps", "Steps of ascent for a subdomain of it", least=1)
    share_rate: float = tuned(0.35, "share per step", "The first step of shares", above=0)
    sign_rate: float = tuned(
        0.7, "multiples of the coefficient", "The first step of multipliers of signs", above=0
    )
    momentum: float = tuned(
        0.6, "share", "How much of its direction a step of shares keeps", least=0, most=1
    )
    beta_rate: float = tuned(
        0.07, "multiples of the weight", "The first step of the second layer's duals", above=0
    )
    split_rate: float = tuned(
        0.5,
        "multiples of the weight",
        "The same of units with a fixed sign, whose multipliers have no bound and far to go",
        above=0,
    )
    last_rate: float = tuned(
        0.13, "share of the first step", "The last step of an ascent", above=0, most=1
    )
    enough: float = tuned(
        1e-6, "as the bound", "Where all bounds are above this, ascent ends early", least=0
    )
    look_every: int = tuned(4, "steps", "How often that is looked at", least=1)
    moving_share: float = tuned(
        0.99,
        "share of what is lost under lines",
        "How much of it the units make up whose lines each subdomain has of its own",
        least=0,
        most=1,
    )
    worth_certifying: float = tuned(
        0.05,
        "share of what lacked before",
        "A subdomain that lacks no more is certified, rigorously",
        least=0,
    )
    least_score: float = tuned(
        1e-9, "as the bound", "What fixing a unit promises at least, so that it can be", above=0
    )
    width: int = tuned(16, "subdomains", "Subdomains that are split at once", least=1)
    few_quartered: int = tuned(
        8,
        "subdomains",
        "So few are split into quarters: a batch of these costs hardly more than one of halves",
        least=0,
    )
    most_kept: int = tuned(
        2**28,
        "numbers of two bytes",
        "What all waiting subdomains of a row have; from half of it on the easiest go first",
        least=0,
    )
    first_subdomains: int = tuned(
        64, "subdomains", "So many of a row, and it is given up at first", least=0
    )
    most_subdomains: int = tuned(
        2**14, "subdomains", "So many of a row, and it is given up in the end", least=0
    )
    first_work: int = tuned(
        2**29,
        "units of all subdomains times coordinates of the cube",
        "Up to so many a row is not given up at first: tightening common bounds would cost more",
        least=0,
    )
    sample: int = tuned(
        64, "leaves", "Leaves of an earlier proof by which it is judged whether it serves", least=1
    )
    sample_share: float = tuned(
        0.25, "share of these", "It serves if so many close as they are", least=0, most=1
    )
    tightened_share: float = tuned(
        0.95,
        "share of the costs",
        "The second units whose bounds are tightened make up so much",
        least=0,
        most=1,
    )
    second_steps: int = tuned(12, "steps", "Steps of ascent for these bounds", least=0)
    second_work: int = tuned(
        2**23, "entries", "Entries of lines chosen for these, at most: half a second", least=0
    )
    common_steps: int = tuned(
        20, "steps", "Steps of ascent for bounds that all questions have in common", least=0
    )
    common_work: int = tuned(
        2**25, "entries", "Entries of lines chosen for those, at most: a few seconds", least=0
    )
