"""Ways of breaking the verifier, each of which lets it prove something false."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import provable_circuits as pc
from provable_circuits.verify.bounding import crown as backward
from provable_circuits.verify.bounding import relaxation, relaxed
from provable_circuits.verify.bounding.bounds import Bounds
from provable_circuits.verify.bounding.differential import DifferentialBounds
from provable_circuits.verify.bounding.redundant import RedundantRemoval
from provable_circuits.verify.bounding.region import Region
from provable_circuits.verify.bounding.relaxation import Lines
from provable_circuits.verify.branching.branch_and_bound import BranchAndBound
from provable_circuits.verify.branching.subdomains import Subdomains
from provable_circuits.verify.stages.incomplete_batch import IncompleteBatch

Patch = pytest.MonkeyPatch


def around(patch: Patch, owner: Any, name: str, change: Callable[..., Any]) -> None:
    """Have ``change`` called with what a function returned, and with its arguments."""
    old = getattr(owner, name)

    def changed(*arguments: Any, **named: Any) -> Any:
        return change(old(*arguments, **named), *arguments)

    patch.setattr(owner, name, staticmethod(changed) if name == "_halve" else changed)


def narrowed_bounds(patch: Patch) -> None:
    def narrow(_: None, bounds: Bounds, *rest: Any) -> None:
        for name, (lower, upper) in bounds.ends.items():
            middle = (lower + upper) / 2
            bounds.ends[name] = ((lower + middle) / 2, (upper + middle) / 2)

    around(patch, Bounds, "compute", narrow)


def bounds_that_forget_the_batch(patch: Patch) -> None:
    """Tensor bounds of the first problem for all of them."""

    def first(_: None, bounds: Bounds, *rest: Any) -> None:
        for name, (lower, upper) in bounds.ends.items():
            bounds.ends[name] = (lower[:1].expand_as(lower) * 0.5, upper[:1].expand_as(upper) * 0.5)

    around(patch, Bounds, "compute", first)


def difference_without_jump(patch: Patch) -> None:
    """Bounds are carried over as if nothing were removed."""
    patch.setattr(
        DifferentialBounds, "_at_site", lambda self, known, node, *rest: self._still(node.name)
    )


def half_of_the_box(patch: Patch) -> None:
    def half(found: torch.Tensor, region: Region, name: str, rows: torch.Tensor) -> torch.Tensor:
        middle = (region._box[name][0].flatten(1).unsqueeze(2),)[0]
        return (found + (rows @ middle).squeeze(2)) / 2

    around(patch, Region, "_least_in_box", half)


def centre_of_the_region(patch: Patch) -> None:
    def centre(_: Any, region: Region, name: str, rows: torch.Tensor) -> torch.Tensor:
        lower, upper = region.ends(name)
        middle = ((lower + upper) / 2).flatten(1).unsqueeze(2)
        return (rows.flatten(2) @ middle).squeeze(2)

    around(patch, Region, "least", centre)


def sign_flipped(patch: Patch) -> None:
    old = backward._through
    patch.setattr(
        backward,
        "_through",
        lambda rows, line: tuple(
            None if part is None else -part if i else part for i, part in enumerate(old(rows, line))
        ),
    )


def offsets_dropped(patch: Patch) -> None:
    around(patch, backward, "_offsets", lambda found, *rest: found * 0)


def constants_without_signs(patch: Patch) -> None:
    around(patch, backward, "_dot", lambda found, *rest: found.abs())


def errors_dropped(patch: Patch) -> None:
    patch.setattr(backward._Error, "result", lambda *rest: -1.0)


def rows_halved(patch: Patch) -> None:
    around(patch, backward, "_through", lambda found, *rest: (found[0] * 0.5, found[1]))


def _lines(patch: Patch, change: Callable[[Lines], Lines]) -> None:
    for module in (relaxation, relaxed):
        around(patch, module, "piecewise_linear_lines", lambda found, *rest: change(found))


def chord_through_zero(patch: Patch) -> None:
    _lines(patch, lambda line: replace(line, above_offset=line.above_offset * 0))


def chord_below(patch: Patch) -> None:
    """The line above stands below too."""

    def same(line: Lines) -> Lines:
        return replace(line, below_slope=line.above_slope, below_offset=line.above_offset)

    _lines(patch, same)


def slopes_too_steep(patch: Patch) -> None:
    _lines(patch, lambda line: replace(line, below_slope=line.below_slope * 1.5))


def one_child_twice(patch: Patch) -> None:
    """The half of a split at which its unit is positive is never looked at."""

    def twice(found: Subdomains, *rest: Any) -> Subdomains:
        half = found[len(found) // 2 :]
        return Subdomains.joined([half, half])

    around(patch, Subdomains, "split", twice)


def everything_inert(patch: Patch) -> None:
    module = sys.modules["provable_circuits.verify.verifier"]
    patch.setattr(RedundantRemoval, "settled", lambda *rest: torch.ones(1, dtype=torch.bool))
    patch.setattr(module, "replace", lambda last, **named: last)
    old = pc.Verifier._answer

    def answer(self: Any, circuit: Any, deadline: Any) -> Any:
        self.knowledge.last = SimpleNamespace(bound=1.0)
        return old(self, circuit, deadline)

    patch.setattr(pc.Verifier, "_answer", answer)


def leaves_closed(patch: Patch) -> None:
    patch.setattr(BranchAndBound, "_leaf", lambda *rest: "closed")
    patch.setattr(BranchAndBound, "_bound", lambda *rest: [])


def contradictions_hidden(patch: Patch) -> None:
    """Crossed bounds say that there is no point, whether or not anything was split."""

    def met(bounds: Bounds, name: str, lower: torch.Tensor, upper: torch.Tensor) -> Any:
        bounds.empty = torch.ones_like(bounds.empty)
        return torch.minimum(lower, upper), torch.maximum(lower, upper)

    patch.setattr(Bounds, "_met", met)


def proofs_from_nowhere(patch: Patch) -> None:
    patch.setattr(pc.Verifier, "_split", lambda *rest: pc.Proved(1.0, "branch"))


def screened(patch: Patch) -> None:
    patch.setattr(IncompleteBatch, "forget", lambda *rest: None)
    patch.setattr(pc.Verifier, "_exactly", lambda *rest: pc.Proved(1.0, "exact"))
    old = pc.Verifier.__init__

    def start(self: Any, *arguments: Any, **named: Any) -> None:
        old(self, *arguments, **named)
        self._equality = True

    patch.setattr(pc.Verifier, "__init__", start)


def as_it_was(patch: Patch) -> None:
    """Bounds carried over from a larger circuit miss what was removed since; and wherever bounds
    contradict each other, the subdomain counts as empty."""

    def met(bounds: Bounds, name: str, lower: torch.Tensor, upper: torch.Tensor) -> Any:
        crossed = (lower > upper).flatten(1).any(1).expand(bounds.problems)
        bounds.empty = bounds.empty | crossed
        return torch.minimum(lower, upper), torch.maximum(lower, upper)

    difference_without_jump(patch)
    patch.setattr(Bounds, "_met", met)


VERIFIER = [
    narrowed_bounds, bounds_that_forget_the_batch, half_of_the_box, centre_of_the_region,
    sign_flipped, offsets_dropped, constants_without_signs, errors_dropped, rows_halved,
    chord_through_zero, chord_below, slopes_too_steep, one_child_twice, leaves_closed,
    everything_inert, contradictions_hidden, proofs_from_nowhere, screened,
]  # fmt: skip
