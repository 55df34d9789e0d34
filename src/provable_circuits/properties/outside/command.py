"""Any verifier that can be called from a command line.

    >>> tool = Command(
    ...     "python run.py --net {onnx} --spec {vnnlib} --limit {timeout} --out {result}"
    ... )
    >>> tool.name
    'python'

``{onnx}``, ``{vnnlib}`` and ``{timeout}`` (whole seconds, rounded up) are replaced in each word of
the command. With ``{result}`` the tool writes its answer into that file, else it prints it. As in
VNN-COMP, the answer is a word, ``unsat``, ``sat``, ``unknown`` or ``timeout`` (or ``holds`` and
``violated``), alone on its line; behind ``sat`` may follow a counterexample:

    sat
    ((X_0 0.5)
     (X_1 -1.0)
     (Y_0 2.25))

In a result file it is the first line; in what a tool prints, the first line of that form.
"""

from __future__ import annotations

import math
import re
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from provable_circuits.errors import ArgumentError
from provable_circuits.properties.outside.base import OutsideAnswer, OutsideVerifier
from provable_circuits.properties.outside.process import run_limited
from provable_circuits.properties.status import PropertyStatus

WORDS = {
    "unsat": PropertyStatus.HOLDS,
    "sat": PropertyStatus.VIOLATED,
    **{status.value: status for status in PropertyStatus},
}

_PLACE = re.compile(r"\{(\w+)\}")
_ANSWER = re.compile(r"^\s*(\w+)\s*(?:$|\()", re.MULTILINE)
_INPUT = re.compile(r"\(\s*X_(\d{1,9})\s+([^\s()]+)\s*\)")


class Command(OutsideVerifier):
    """A verifier behind a command of the user's.

    Args:
        template: the command, as one line or as a list of words; no shell sees it.
        name: what it is called in answers; by default the program's name.
        dense: whether circuits are exported to it with linear layers and activations only.
        dtype: the type of the weights of circuits exported to it; by default whichever is exact.
    """

    def __init__(
        self,
        template: str | Sequence[str],
        name: str | None = None,
        *,
        dense: bool = False,
        dtype: torch.dtype | None = None,
    ) -> None:
        try:
            words = shlex.split(template) if isinstance(template, str) else list(template)
        except ValueError as error:
            raise ArgumentError(
                f"The 'template' parameter must be a command. Got {template!r}: {error}."
            ) from None
        places = {place for word in words for place in _PLACE.findall(word)}
        if not {"onnx", "vnnlib"} <= places <= {"onnx", "vnnlib", "timeout", "result"}:
            raise ArgumentError(
                "The 'template' parameter must be a command with {onnx} and {vnnlib} in it, and "
                f"may use {{timeout}} and {{result}}. Got {template!r} instead."
            )
        self.words = tuple(words)
        self.name = name or Path(words[0]).name
        self.dense = dense
        self.dtype = dtype

    def ask(self, onnx: Path, vnnlib: Path, timeout: float) -> OutsideAnswer:
        with tempfile.TemporaryDirectory(prefix="provable-circuits-") as folder:
            result = Path(folder) / "result.txt"
            values = {
                "onnx": str(onnx),
                "vnnlib": str(vnnlib),
                "timeout": str(math.ceil(timeout)),
                "result": str(result),
            }
            words = [_PLACE.sub(lambda place: values[place[1]], word) for word in self.words]
            done = run_limited(words, timeout)
            if done.code is None:
                return OutsideAnswer(PropertyStatus.TIMEOUT, None, self.name, done.seconds)
            text, first = done.output, False
            if any("{result}" in word for word in self.words):
                first = True
                text = result.read_text(errors="replace") if result.is_file() else ""
        status, x = parse_answer(text, first_line=first)
        reason = ""
        if status is None or done.code < 0:
            # What a program says that was then killed by a signal is not to be relied on.
            status, x, reason = (
                PropertyStatus.UNKNOWN,
                None,
                f"{self.name} gave no answer: {done.complaint}",
            )
        elif status == PropertyStatus.UNKNOWN:
            reason = f"{self.name} does not know"
        return OutsideAnswer(status, x, self.name, done.seconds, reason)


def parse_answer(text: str, first_line: bool) -> tuple[PropertyStatus | None, Tensor | None]:
    """The status a tool's text tells, None if it tells none; and its counterexample, flat.

    >>> parse_answer("sat ((X_1 2e-1) (X_0 1.5))", first_line=True)
    ('violated', tensor([1.5000, 0.2000], dtype=torch.float64))
    """
    for match in _ANSWER.finditer(text.strip()):
        status = WORDS.get(match[1].lower())
        if status is not None:
            break
        if first_line:
            return None, None
    else:
        return None, None
    if first_line and match.start() != 0:
        return None, None
    return status, _counterexample(text) if status == PropertyStatus.VIOLATED else None


def _counterexample(text: str) -> Tensor | None:
    """The inputs of a counterexample; None unless each is given once, as a number."""
    values: dict[int, float] = {}
    for index, word in _INPUT.findall(text):
        try:
            value = float(word)
        except ValueError:
            return None
        if int(index) in values:
            return None
        values[int(index)] = value
    if not values or set(values) != set(range(len(values))):
        return None
    return torch.tensor([values[i] for i in range(len(values))], dtype=torch.float64)
