"""Every error and warning a user can meet: one sentence that says what is wrong and what to do.

Each class carries the exit code that the command line ends with. A wrong call, file or model is 2;
the verdict codes (0 holds, 1 refuted, 3 undecided) are not errors and do not appear here.
"""

from __future__ import annotations

from typing import Any

MOST_CHARACTERS = 490
"""Characters of a sentence that quotes from a file."""


def one_line(text: str, most: int = MOST_CHARACTERS) -> str:
    """A text that quotes from elsewhere, on one line and of limited length.

    >>> one_line("the name 'a" + chr(10) + "b' is " + "long " * 9 + "indeed", 40)
    "the name 'a b' is long long lo ... ndeed"
    """
    plain = "".join(letter if letter.isprintable() else " " for letter in text)
    if len(plain) <= most:
        return plain
    kept = most - len(" ... ")
    return f"{plain[: kept - kept // 7]} ... {plain[-(kept // 7) :]}"


class ProvableCircuitsError(Exception):
    """The base of every error that this package raises on purpose."""

    exit_code = 2


class ArgumentError(ProvableCircuitsError, ValueError):
    """An argument has the wrong type, shape or value."""


class ModelError(ProvableCircuitsError):
    """A model cannot become a Graph."""


class UnsupportedOperationError(ModelError):
    """The model uses an operation, or a form of one, that has no exact counterpart here."""


class ModelFileError(ModelError):
    """A model file is missing, cut short or not what its name says."""


class WeightsError(ModelError):
    """A model's weights are missing, do not fit, or are NaN or infinite."""


class PropertyError(ProvableCircuitsError):
    """A VNN-LIB property is missing, malformed, or does not fit its network."""


class DataError(ProvableCircuitsError):
    """A data set is missing or malformed."""


class CertificateError(ProvableCircuitsError):
    """A certificate that could not be made, or that the checker refuses."""

    exit_code = 1


class MissingExtraError(ProvableCircuitsError, ImportError):
    """An optional dependency is needed for what was asked."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package '{package}', which is not installed: "
            f"pip install 'provable-circuits[{extra}]'."
        )


class ScaleWarning(UserWarning):
    """Inputs look like an image as files hold it, in a scale that networks rarely take."""


class UndecidedError(ProvableCircuitsError):
    """An answer depends on a question that could not be decided."""

    exit_code = 3


class ClaimFailsError(ProvableCircuitsError):
    """The network itself violates the claim, at the input named; ``verdict`` holds the witness."""

    exit_code = 1

    def __init__(self, message: str, verdict: Any) -> None:
        super().__init__(message)
        self.verdict = verdict
