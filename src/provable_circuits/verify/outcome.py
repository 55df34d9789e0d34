"""How a search ends, and why a question stays undecided: enums that carry their explanations."""

from __future__ import annotations

from enum import StrEnum


class Explained(StrEnum):
    """A text, and what it means in a sentence."""

    explanation: str

    def __new__(cls, text: str, explanation: str) -> Explained:
        """A member with both."""
        made = str.__new__(cls, text)
        made._value_ = text
        made.explanation = explanation
        return made

    def __repr__(self) -> str:
        return repr(self.value)


class Outcome(Explained):
    """How a search over subdomains ends."""

    PROVED = "proved", "every subdomain was closed by a rigorous bound"
    REFUTED = "refuted", "a candidate point was replayed, and breaks the claim"
    MORE = "more", "more subdomains are needed than the search may have for now"
    CLOSE = "close", "a subdomain stays open that no split can close: rounding decides"
    OPEN = "open", "the search is not for this question, or gave it up"


class Reason(Explained):
    """Why a question stays undecided."""

    TIME = "time", "the limit in seconds was reached"
    NODES = "nodes", "the limit in branch-and-bound nodes was reached"
    MEMORY = "memory", "there was not enough memory"
    INTERRUPTED = "interrupted", "the search was interrupted"
    WORKER_DIED = "worker died", "the process that was asked ended before it answered"
    TOO_CLOSE = (
        "numerically too close to call",
        "the claim holds or fails by less than rounding errors, and the network is too large for "
        "rational arithmetic",
    )
    NOT_TIGHT = (
        "the bounds of what is curved are not tight enough",
        "activations or balls that are not piecewise linear were split as far as that helps",
    )
    NO_RELAXATION = (
        "an operation has no linear relaxation yet",
        "products of activations, softmax, norms and the like are decided over finite domains "
        "(Finite, Tokens), input by input, and not yet over regions",
    )
    INCONSISTENT = (
        "bounds contradict each other, an internal inconsistency that should be reported",
        "a fault of the verifier was noticed, and nothing is concluded from it",
    )


def reason_named(text: str) -> Reason | str:
    """The reason of a text; the text itself where it is that of an outside verifier."""
    return {reason.value: reason for reason in Reason}.get(text, text)
