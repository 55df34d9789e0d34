"""Pictures of a result as files: its circuit, its course, and what makes a component necessary.

The ending of a file's name decides: ``.svg`` needs nothing, ``.png`` the extra ``plot``.
"""

from __future__ import annotations

from os import PathLike

from provable_circuits.discover.results.pictures import size_chart, verdict_chart
from provable_circuits.discover.results.result import Result
from provable_circuits.drawing.files import save
from provable_circuits.drawing.witness import witness_picture
from provable_circuits.errors import ArgumentError
from provable_circuits.verify.verdict import Refuted

File = str | PathLike[str]


def plot_size(result: Result, path: File) -> None:
    """The size of the best circuit and the lower bound over time."""
    save(size_chart(result.document()), path)


def plot_verdicts(result: Result, path: File) -> None:
    """How many questions each stage of the verifier answered how."""
    save(verdict_chart(result.document()), path)


def plot_witness(result: Result, component: str, path: File) -> None:
    """The input that breaks the circuit without a component, beside the clean one.

    Raises:
        ArgumentError: there is no witness for the component.
    """
    kept = result.kept.get(component)
    if kept is None or not isinstance(kept.verdict, Refuted):
        known = [name for name, why in result.kept.items() if isinstance(why.verdict, Refuted)]
        raise ArgumentError(
            f"There is no witness for the component {component!r}; there is one for "
            f"{', '.join(known) or 'none'}."
        )
    witness = kept.verdict.witness
    clean = result.claim.inputs[witness.index].center
    patch = None if witness.patch_input is None else witness.patch_input.numpy()
    title = f"Without {component} the claim fails at input {witness.index}, by {witness.excess:.3g}"
    save(witness_picture(clean.numpy(), witness.z.numpy(), title=title, patch=patch), path)
