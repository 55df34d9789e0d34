"""How hard attacks try, and how often a search is interrupted by one."""

from __future__ import annotations

from dataclasses import dataclass

from provable_circuits.tuning import Tuning, tuned


@dataclass(frozen=True, slots=True)
class AttackingTuning(Tuning):
    """Tuning of ``verify/attacking``."""

    growth_steps: int = tuned(
        2, "steps", "Steps of each climb by which a refuted circuit is enlarged", least=0
    )
    starts_factor: int = tuned(
        4,
        "multiples of the short attack's starts",
        "Random starts of a long attack for each row, at most",
        least=1,
    )
    most_numbers: int = tuned(
        2**23, "numbers", "The largest tensor of all points that are attacked at once", least=1
    )
    passes_per_node: int = tuned(
        24,
        "rows",
        "Rows that one node of a search passes backward, about, with those that choose its split",
        least=0,
    )
    first_nodes: int = tuned(
        64, "nodes", "Nodes of a search after which a large network is attacked first", least=0
    )
    small_first_nodes: int = tuned(
        256, "nodes", "The same for a small network, whose nodes cost little", least=0
    )
    nodes_factor: int = tuned(
        4,
        "multiples of the nodes before",
        "How many times as many nodes there are at each further attack",
        least=1,
    )
    suggested: int = tuned(
        8, "points", "Points that bounds suggest and a long attack starts from", least=1
    )
    pooled: int = tuned(
        4, "witnesses", "The latest witnesses that a long attack starts from", least=1
    )
    jumps: int = tuned(
        4, "steps", "Steps of a long attack that go all the way to a corner", least=0
    )
    adam_rate: float = tuned(
        2.0, "radii of the range", "The first step of Adam: from end to end", above=0
    )
    mean_decay: float = tuned(
        0.5,
        "share",
        "How much of the average of gradients a step of Adam keeps",
        least=0,
        most=0.999,
    )
    square_decay: float = tuned(
        0.9, "share", "How much of the average of their squares it keeps", least=0, most=0.999
    )
    single_slack: float = tuned(
        1e-5,
        "as the excess",
        "By how much an excess of order one can be wrong in float32",
        least=0,
    )
