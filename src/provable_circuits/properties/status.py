"""What is known of a property, as an enum that carries its explanation."""

from __future__ import annotations

from provable_circuits.verify.outcome import Explained


class PropertyStatus(Explained):
    """The answer about a property."""

    HOLDS = "holds", "no input of the box meets what must not happen: proved"
    VIOLATED = "violated", "a counterexample was found and replayed"
    UNKNOWN = "unknown", "neither was shown, and more time would not help"
    TIMEOUT = "timeout", "neither was shown when the limit in seconds or nodes was reached"
