"""When a stage hands on to the next, what is remembered between questions, and time limits."""

from __future__ import annotations

from dataclasses import dataclass

from provable_circuits.tuning import Tuning, tuned


@dataclass(frozen=True, slots=True)
class StagesTuning(Tuning):
    """Tuning of ``verify/stages``."""

    tightened_share: float = tuned(
        0.8,
        "share of the relaxation's costs",
        "The units that make up so much are tightened before an attack",
        least=0,
        most=1,
    )
    alpha_steps: int = tuned(20, "steps", "Steps of alpha before any split", least=0)
    small_alpha_steps: int = tuned(4, "steps", "The same in small networks", least=0)
    hulls_after: int = tuned(
        16, "subdomains", "So many of a large network, and neuron hulls are tried", least=0
    )
    first_boxes: int = tuned(
        256, "boxes", "Where inputs are split first: boxes, if few units are unstable", least=0
    )
    first_subdomains: int = tuned(
        20_000, "subdomains", "Subdomains of branch and bound that come then", least=0
    )
    most_boxes: int = tuned(
        20_000, "boxes", "Boxes of a piecewise-linear problem before its tree goes on", least=0
    )
    replayed: int = tuned(
        4, "candidates", "How many of a batch of candidates are replayed, best first", least=1
    )
    near: float = tuned(
        1e-12,
        "share of the threshold",
        "Candidates that miss it by no more are for exact arithmetic",
        least=0,
    )
    together: int = tuned(64, "circuits", "Circuits of a small network bounded at once", least=1)


@dataclass(frozen=True, slots=True)
class ReuseTuning(Tuning):
    """Tuning of ``verify/reuse``."""

    witnesses: int = tuned(
        64, "witnesses", "How many are kept to be tried on later circuits", least=1
    )
    own_numbers: int = tuned(
        2**25,
        "numbers",
        "Lower bounds of circuits' own tensors that are kept: half a gigabyte with the upper ones",
        least=0,
    )
    saved_numbers: int = tuned(
        2**28, "numbers of two bytes", "What saved trees of proofs hold together", least=0
    )


@dataclass(frozen=True, slots=True)
class LimitsTuning(Tuning):
    """How long an answer may take where its caller does not say."""

    question_seconds: float = tuned(45.0, "seconds", "For a question about a circuit", above=0)
    property_seconds: float = tuned(60.0, "seconds", "For a plain property", above=0)
    confirmation_seconds: float = tuned(
        10.0, "seconds", "For the proof once more of what a search has found, at least", above=0
    )
    certificate_seconds: float = tuned(
        10.0, "seconds", "For the certificate of an answer, at least", above=0
    )
    certificate_nodes: int = tuned(
        100_000, "nodes", "For the certificate of an answer, at most: trees are kept", least=1
    )
    confirmation_nodes: int = tuned(
        16,
        "multiples of a question's nodes",
        "The nodes of such a proof, which starts from nothing",
        least=1,
    )
