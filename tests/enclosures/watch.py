"""A watch over one verifier: every enclosure that it holds must meet the truth at points.

While a watch is on, the places where enclosures come to be, are kept or are found again are
wrapped, and so are those where a subdomain is bounded, split, closed or called empty. What is found
wrong is noted, and the verifier goes on, so that one sequence shows all that is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from tests.enclosures.comparison import product_of, rows_of
from tests.enclosures.questions import Questions
from tests.enclosures.subdomains import SubdomainWatch
from tests.enclosures.truth import SLACK
from torch import Tensor

from provable_circuits.network.circuit import Circuit
from provable_circuits.rounding import InconsistentBoundsError, Interval
from provable_circuits.verify.bounding.bounds import Bounds
from provable_circuits.verify.bounding.differential import DifferentialBounds, Known
from provable_circuits.verify.bounding.redundant import RedundantRemoval
from provable_circuits.verify.branching.branch_and_bound import BranchAndBound
from provable_circuits.verify.branching.subdomains import Subdomains
from provable_circuits.verify.encoding.batched import BatchedProblem
from provable_circuits.verify.encoding.encoder import Encoder
from provable_circuits.verify.encoding.query import Query
from provable_circuits.verify.neuron_hull.search import HullSearch
from provable_circuits.verify.reuse import tightening
from provable_circuits.verify.reuse.memory import Memory
from provable_circuits.verify.stages import incomplete_batch as screen_module
from provable_circuits.verify.stages import objectives as objectives_module
from provable_circuits.verify.stages.claim import ClaimQuestion
from provable_circuits.verify.verdict import Verdict


class Watch(SubdomainWatch, Questions):
    """Compares one verifier with the truth, wherever an enclosure comes to be."""

    @contextmanager
    def on(self) -> Iterator[None]:
        """Watch whatever any verifier does within."""
        with ExitStack() as stack:
            for owner, name, make in (
                (Encoder, "encode", self._hook_encode),
                (Encoder, "patch_source", self._hook_source),
                (screen_module, "encode_batch", self._hook_together),
                (ClaimQuestion, "answer", self._hook_answer),
                (Bounds, "compute", self._hook_compute),
                (Bounds, "backward", self._hook_backward),
                (DifferentialBounds, "enclosures", self._hook_difference),
                (Memory, "recall", self._hook_recall),
                (RedundantRemoval, "settled", self._hook_inert),
                (objectives_module, "optimise", self._hook_optimise),
                (BranchAndBound, "_refined", self._hook_refined),
                (BranchAndBound, "_bounded", self._hook_bounded),
                (BranchAndBound, "_best_split", self._hook_split),
                (BranchAndBound, "_costliest_split", self._hook_split),
                (BranchAndBound, "_solved", self._hook_solved),
                (BranchAndBound, "_leaf", self._hook_leaf),
                (tightening, "tightened_bounds", self._hook_closer),
                (HullSearch, "run", self._hook_hulls),
            ):
                stack.enter_context(_replaced(owner, name, make))
            yield

    def _hook_encode(self, plain: Callable[..., Query]) -> Callable[..., Query]:
        def encode(encoder: Encoder, circuit: Circuit) -> Query:
            query = plain(encoder, circuit)
            self.encoded(query)
            return query

        return encode

    def _hook_source(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def patch_source(encoder: Encoder) -> Any:
            graph, ranges, roles = plain(encoder)
            self.roles.update(roles)
            return graph, ranges, roles

        return patch_source

    def _hook_answer(self, plain: Callable[..., Verdict]) -> Callable[..., Verdict]:
        def answer(question: ClaimQuestion) -> Verdict:
            before, self.circuit = self.circuit, question.query.circuit
            try:
                return plain(question)
            finally:
                self.circuit = before

        return answer

    def _hook_together(self, plain: Callable[..., BatchedProblem]) -> Callable[..., BatchedProblem]:
        def encode(encoder: Encoder, circuits: Any) -> BatchedProblem:
            batched = plain(encoder, circuits)
            self.batched(batched)
            return batched

        return encode

    def _hook_compute(self, plain: Callable[..., None]) -> Callable[..., None]:
        def compute(bounds: Bounds, *args: Any, **kwargs: Any) -> None:
            try:
                plain(bounds, *args, **kwargs)
            except InconsistentBoundsError as error:
                self.note("inconsistent", "a subdomain" if self.below else "the root", str(error))
                raise
            finally:
                self.bounds(bounds)
            self.empty(bounds, bounds.empty)

        return compute

    def _hook_backward(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def backward(bounds: Bounds, start: str, rows: Tensor, **kwargs: Any) -> Any:
            passed = plain(bounds, start, rows, **kwargs)
            whole = not self.below and kwargs.get("multipliers") is None
            if whole and kwargs.get("rigorous", True) and start in bounds.structure.graph.outputs:
                self.least("backward", bounds, start, rows, passed.value)
            return passed

        return backward

    def _hook_difference(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def enclosures(difference: DifferentialBounds, known: Known, query: Query) -> Any:
            derived = plain(difference, known, query)
            true = self.merged.nodes(query.graph, query.circuit)
            self.by_input("difference", derived, true)
            return derived

        return enclosures

    def _hook_recall(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def recall(memory: Memory, query: Query) -> Any:
            found = plain(memory, query)
            true = self.merged.nodes(query.graph, query.circuit)
            self.by_input("memory, recalled", found, true)
            return found

        return recall

    def _hook_inert(self, plain: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def settled(inert: RedundantRemoval, known: Known | None, circuit: Circuit) -> Tensor:
            found = plain(inert, known, circuit)
            if known is not None:
                self.inert(known, circuit, found)
            return found

        return settled

    def _hook_optimise(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def optimise(relaxed: Any, start: str, rows: Tensor, *args: Any, **kwargs: Any) -> Any:
            choice = plain(relaxed, start, rows, *args, **kwargs)
            self.least("slopes", relaxed.bounds, start, rows, choice.found.value)
            return choice

        return optimise

    def _hook_refined(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def refined(search: BranchAndBound, subdomains: Subdomains) -> Any:
            self.below += 1
            try:
                return plain(search, subdomains)
            finally:
                self.below -= 1

        return refined

    def _hook_bounded(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def bounded(search: BranchAndBound, batch: Subdomains, *args: Any) -> Any:
            relaxed, choice, left = plain(search, batch, *args)
            self.bounded(search, batch, relaxed, choice, left)
            return relaxed, choice, left

        return bounded

    def _hook_split(self, plain: Callable[..., Subdomains]) -> Callable[..., Subdomains]:
        def split(search: BranchAndBound, subdomains: Subdomains) -> Subdomains:
            children = plain(search, subdomains)
            self.cover("split", search, subdomains, children, self.within(search, subdomains))
            return children

        return split

    def _hook_solved(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def solved(search: BranchAndBound, programs: Any, subdomains: Subdomains) -> Any:
            left = plain(search, programs, subdomains)
            if left is not None:
                broken = self.within(search, subdomains) & self.violated(search)[subdomains.root]
                self.cover("solved subdomain", search, subdomains, left, broken)
            return left

        return solved

    def _hook_leaf(self, plain: Callable[..., str]) -> Callable[..., str]:
        def leaf(search: BranchAndBound, part: Subdomains) -> str:
            status = plain(search, part)
            broken = self.within(search, part) & self.violated(search)[part.root]
            if status == "proved" and bool(broken.any()):
                self.note("closed subdomain", "leaf", "the claim is broken there")
            return status

        return leaf

    def _hook_closer(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def tightened_bounds(bounds: Bounds, wanted: Any) -> Iterator[tuple[str, Interval]]:
            for name, ends in plain(bounds, wanted):
                rows, _, true = self.pairs(bounds)
                self.compare("closer", name, rows_of(ends, rows), true[name])
                self.crossed("closer", name, ends)
                yield name, ends

        return tightened_bounds

    def _hook_hulls(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def run(search: HullSearch) -> Tensor | None:
            left: Tensor | None = plain(search)
            if left is None:
                return left
            rows, _, true = self.pairs(search.roots.bounds)
            closed = ~torch.isin(rows, left)
            _, high = product_of(search.roots.rows.double()[rows], true[search.start])
            reached = high[:, 0] + search.roots.offsets[rows]
            self.counts["hull compared"] += 1
            if bool((reached[closed] < -SLACK * (1 + high[:, 0].abs()[closed])).any()):
                self.note(
                    "hull", "row", f"proved, and {float(reached[closed].min()):.6g} is reached"
                )
            return left

        return run


@contextmanager
def _replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """An attribute wrapped for a while."""
    plain = getattr(owner, name)
    setattr(owner, name, make(plain))
    try:
        yield
    finally:
        setattr(owner, name, plain)
