"""What inputs show, where that is known, and which of them the network gets wrong.

A circuit is proved to behave like the network, also where the network is mistaken. So results mark
an input whose largest output is not at its label. A network of one output has no class to be wrong
about, and nothing is marked.

    >>> outputs = np.array([[0.1, 0.9], [0.7, 0.3]])
    >>> told = label_document(outputs, np.array([1, 1]))
    >>> told
    {'given': [1, 1], 'predicted': [1, 0], 'wrong': [1]}
    >>> label_lines(told)
    ['Labels: the network gets 1 of 2 inputs right', '  input 1 is WRONG: label 1, network says 0']
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provable_circuits.arguments import got
from provable_circuits.errors import ArgumentError

Array = NDArray[Any]

LABELS = {"given": [int], "predicted": [int], "wrong": [int]}
"""The shape of what a document tells of labels."""

MOST = 10
"""Inputs that the network gets wrong which are listed; of more, their number."""


def check_labels(labels: Any, count: int) -> Array:
    """Labels as an array of whole numbers, one for each input.

    Raises:
        ArgumentError: there are more or fewer, or they are no whole numbers.
    """
    try:
        found = np.asarray(labels)
    except (TypeError, ValueError, RuntimeError):
        raise ArgumentError(
            f"The 'labels' parameter must be one whole number for each of the {count} inputs. "
            f"Got {got(labels)} instead."
        ) from None
    if found.shape != (count,) or not _whole(found):
        raise ArgumentError(
            f"The 'labels' parameter must be one whole number for each of the {count} inputs. "
            f"Got {found.dtype} of shape {list(found.shape)} instead."
        )
    return found.astype(np.int64)


def _whole(values: Array) -> bool:
    return values.dtype.kind in "iub" or (
        values.dtype.kind == "f" and bool((values == np.round(values)).all())
    )


def label_document(outputs: Array, labels: Array | None) -> dict[str, list[int]] | None:
    """The labels, the places of the largest outputs, and the inputs where they differ, from 0.

    Args:
        outputs: the network's outputs at the inputs, [inputs, outputs].
        labels: what the inputs show, [inputs].

    Returns:
        None if labels are not known, are no classes, or the network has a single output.
    """
    if labels is None or labels.shape != outputs.shape[:1] or not _whole(labels):
        return None
    if outputs.ndim != 2 or outputs.shape[1] < 2:
        return None
    predicted = outputs.argmax(axis=1)
    return {
        "given": [int(label) for label in labels],
        "predicted": predicted.tolist(),
        "wrong": np.flatnonzero(predicted != labels).tolist(),
    }


def label_lines(told: Mapping[str, Any] | None) -> list[str]:
    """How many inputs the network gets right, and which ones it does not; inputs count from 0."""
    if told is None:
        return []
    count, wrong = len(told["given"]), told["wrong"]
    lines = [f"Labels: the network gets {count - len(wrong)} of {count} inputs right"]
    for place in wrong[:MOST]:
        given, predicted = told["given"][place], told["predicted"][place]
        lines.append(f"  input {place} is WRONG: label {given}, network says {predicted}")
    if len(wrong) > MOST:
        lines.append(f"  and {len(wrong) - MOST} more are wrong")
    return lines


def is_wrong(document: Mapping[str, Any], place: int) -> bool:
    """Whether the network is known to get an input wrong; inputs count from 0."""
    told = document.get("labels")
    return told is not None and place in told["wrong"]


def input_words(document: Mapping[str, Any], place: int) -> str:
    """An input by its number from 0, marked if the network gets it wrong."""
    mark = " (which the network gets wrong)" if is_wrong(document, place) else ""
    return f"input {place}{mark}"
