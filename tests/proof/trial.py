"""A mutant on trial: the checker is asked, and what it says is held against the judge."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from tests.proof.certificates import make, names
from tests.proof.judge import false_statements
from tests.proof.mutants import mutate

from provable_circuits.proof.checker.arithmetic import RefusedError
from provable_circuits.proof.checker.check import Finding, check_folder

LONGEST = 400
"""No refusal is longer."""


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant.

    Attributes:
        kind: what was changed.
        verdict: "refused", "same" (accepted, and states what the original states), "true"
            (accepted, and states something else that the judge finds no fault with), or "none"
            (there was nothing of the kind to change).
        false: what the judge holds against its statements; None if it cannot read them.
        wrong: what must not be.
    """

    kind: str
    verdict: str
    false: tuple[str, ...] | None
    wrong: tuple[str, ...]


def check(files: Mapping[str, bytes]) -> list[Finding] | str:
    """What the checker says of files: findings, or why it refuses them all."""
    with TemporaryDirectory() as folder:
        for name, data in files.items():
            (Path(folder) / name).write_bytes(data)
        try:
            return check_folder(folder)
        except RefusedError as refused:
            return str(refused)


def stated(files: Mapping[str, bytes]) -> tuple[object, ...]:
    """What a certificate states, as bytes and values: everything but the proof."""
    manifest = json.loads(files["certificate.json"])
    sections = [manifest[name] for name in ("components", "claim", "circuit", "statements")]
    kept = [files[name] for name in ("network.onnx", "claim.safetensors", "witnesses.safetensors")]
    return (*sections, *kept)


def sentence(text: str) -> bool:
    """Whether a text is one line of bounded length that any terminal can show."""
    return 0 < len(text) <= LONGEST and text.isprintable()


def judged(files: Mapping[str, bytes]) -> tuple[str, ...] | None:
    """What the judge holds against a certificate; None if it cannot read it."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return tuple(false_statements(files))
    except Exception:  # whatever is wrong with a mutant
        return None


@cache
def _original(name: str) -> tuple[object, ...]:
    return stated(make(name).files)


def run(seed: int, judge_all: bool = False) -> Outcome:
    """Make the mutant of a seed and ask about it.

    Args:
        seed: of the mutant.
        judge_all: whether the judge is asked about refused mutants too, for the count.
    """
    every = names()
    name, other = every[seed % len(every)], every[(seed * 7 + 3) % len(every)]
    mutant = mutate(make(name).files, make(other).files, seed)
    if mutant is None:
        return Outcome("", "none", None, ())
    kind, files = mutant
    try:
        found = check(files)
    except Exception as error:
        return Outcome(kind, "refused", None, (f"{name}: raises {error!r}",))
    if isinstance(found, str):
        texts, accepted = [found], False
    else:
        texts = [text for finding in found for text in (finding.statement, finding.reason)]
        accepted = bool(found) and all(finding.holds for finding in found)
    wrong = [f"{name}: says {text[:LONGEST]!r}" for text in texts if not sentence(text)]
    if not accepted:
        false = judged(files) if judge_all and found != [] else None
        return Outcome(kind, "refused", false, tuple(wrong))
    if stated(files) == _original(name):
        return Outcome(kind, "same", (), tuple(wrong))
    false = judged(files)
    if false is None:
        wrong.append(f"{name}: accepted, and the judge cannot read it")
    elif false:
        wrong.append(f"{name}: accepted, and false: {false}")
    return Outcome(kind, "true", false, tuple(wrong))
