"""A watch over one verifier: every enclosure that it holds must meet the truth at points.

While a watch is on, the places where enclosures come to be, are kept or are found again are
wrapped, and so are those where a subdomain is bounded, split, closed or called empty. What is found
wrong is noted, and the verifier goes on, so that one sequence shows all that is wrong.

A point belongs to a subdomain if it certainly has what the subdomain starts from: it lies in the
region, and the unit's values lie within the ends that the split left. Whatever a step makes of the
subdomain must still meet the values there. The whole domain holds every point, and every child of a
split those of its parent on its side, so that no step can lose a point unseen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from tests.enclosures import adapter
from tests.enclosures.truth import SLACK, Points, Truth, inside, meets
from torch import Tensor

from provable_circuits.claims.encoding import Encoder, Query
from provable_circuits.claims.together import Together
from provable_circuits.network.circuit import Circuit
from provable_circuits.rounding import InconsistentBoundsError, Interval
from provable_circuits.verify import question as question_module
from provable_circuits.verify import screen as screen_module
from provable_circuits.verify.bounds import Bounds
from provable_circuits.verify.branching import BranchAndBound
from provable_circuits.verify.difference import Difference, Known
from provable_circuits.verify.hull import closer as closer_module
from provable_circuits.verify.hull.search import HullSearch
from provable_circuits.verify.inert import Inert
from provable_circuits.verify.memory import Memory
from provable_circuits.verify.parts import Parts
from provable_circuits.verify.verdict import Proved, Refuted, Undecided, Verdict
from provable_circuits.verify.verifier import Verifier

MOST_NUMBERS = 2**21
"""Numbers that are compared at once, at most: of many pairs of rows and points, some are."""


@dataclass(frozen=True)
class Contradiction:
    """Something that the truth contradicts.

    Attributes:
        kind: what held it, such as ``difference`` or ``proved``.
        where: the node of the merged graph, or what else it is about.
        detail: numbers.
        circuit: the components that the circuit in question lacks.
    """

    kind: str
    where: str
    detail: str
    circuit: str = ""

    def __str__(self) -> str:
        return f"{self.kind} at {self.where}: {self.detail} (without {self.circuit or 'nothing'})"


@dataclass(frozen=True, eq=False)
class SearchTruth:
    """The roots of a branch and bound at points.

    Attributes:
        member: which points lie in the region of each root, [roots, points].
        units: what the units read there, [roots, points, units].
        value: what the row of each root is there, without its offset, [roots, points].
    """

    member: Tensor
    units: Interval
    value: Interval


class Watch:
    """Compares one verifier with the truth.

    Args:
        truth: the truth of its claim.
        points: where they are compared at first; ``take`` takes others.
    """

    def __init__(self, truth: Truth, points: Points) -> None:
        self.truth = truth
        self.contradictions: list[Contradiction] = []
        self.counts: Counter[str] = Counter()
        self.circuit: Circuit = truth.components.full()
        self._below = 0
        self._searches: dict[int, tuple[object, SearchTruth]] = {}
        self.take(points)

    def take(self, points: Points) -> None:
        """Compare at these points from now on."""
        self.points = points
        self.merged = adapter.Merged(self.truth, points)
        self._searches.clear()

    # --- notes ------------------------------------------------------------------------------------

    def note(self, kind: str, where: str, detail: str) -> None:
        """Something is wrong."""
        lacks = ", ".join((~self.circuit).names)
        self.contradictions.append(Contradiction(kind, where, detail, lacks))

    def compare(self, kind: str, where: str, held: Interval, true: Interval) -> bool:
        """Whether enclosures meet true values, both [n, ...]; notes where they do not."""
        self.counts["enclosures"] += held[0].numel()
        self.counts[f"{kind} compared"] += 1
        apart = ~meets(held, true)
        if not bool(apart.any()):
            return True
        wide = torch.broadcast_tensors(apart, *held, *true)
        place = tuple(int(i) for i in apart.nonzero()[0])
        low, high, least, most = (float(part[place]) for part in wide[1:])
        self.note(
            kind,
            where,
            f"[{low:.6g}, {high:.6g}] is held of [{least:.6g}, {most:.6g}], "
            f"{int(apart.sum())} of {apart.numel()} units",
        )
        return False

    # --- roots ------------------------------------------------------------------------------------

    def by_input(
        self, kind: str, held: Mapping[str, Interval], true: Mapping[str, Interval]
    ) -> None:
        """Compare enclosures with a row for each of the claim's inputs, or one for all."""
        index = self.points.index
        for name, (lower, upper) in held.items():
            if name not in true:
                continue
            if len(lower) > 1:
                lower, upper = lower[index], upper[index]
            self.compare(kind, name, (lower, upper), true[name])
            self.crossed(kind, name, (lower, upper))

    def crossed(self, kind: str, where: str, held: Interval) -> None:
        """Note enclosures of a whole domain that hold nothing at all."""
        wrong = ~(held[0] <= held[1])
        if bool(wrong.any()):
            place = tuple(int(i) for i in wrong.nonzero()[0])
            self.note(
                f"{kind}, crossed",
                where,
                f"[{float(held[0][place]):.6g}, {float(held[1][place]):.6g}] is empty",
            )

    def members(self, bounds: Bounds) -> Tensor:
        """Which points lie in the region of which rows, [rows, points].

        Where each row has patch values of its own they are moved into its boxes, see ``adapter``.
        """
        graph, ranges = bounds.structure.graph, bounds.region.ranges
        own_boxes = self.merged.gated(graph)
        found = torch.ones(bounds.problems, len(self.points), dtype=torch.bool)
        given = self.merged.inputs(graph, self.circuit, moved=own_boxes)
        for name, (first, last) in given.items():
            box = ranges[name]
            lower, upper = box.lower.flatten(1).unsqueeze(1), box.upper.flatten(1).unsqueeze(1)
            found &= ((last.flatten(1) >= lower) & (first.flatten(1) <= upper)).all(2)
            for i, domain in enumerate(box.domains or ()):
                found[i] &= domain.contains(first)
        return found

    def pairs(self, bounds: Bounds) -> tuple[Tensor, Tensor, dict[str, Interval]]:
        """Rows and points that belong together, [n] each, and the graph's tensors there."""
        graph = bounds.structure.graph
        rows, points = self.members(bounds).nonzero().T
        most = max(1, MOST_NUMBERS // bounds.structure.largest)
        if len(rows) > most:
            some = torch.linspace(0, len(rows) - 1, most).long()
            rows, points = rows[some], points[some]
        if self.merged.gated(graph):
            ranges = bounds.region.ranges
            return rows, points, self.merged.of_rows(graph, self.circuit, points, ranges, rows)
        true = self.merged.nodes(graph, self.circuit)
        return rows, points, {name: (a[points], b[points]) for name, (a, b) in true.items()}

    def bounds(self, bounds: Bounds) -> None:
        """Compare all that some bounds hold."""
        rows, _, true = self.pairs(bounds)
        if self._below:
            own = torch.ones(len(rows), dtype=torch.bool)
            for name, pair in bounds.prior.items():
                lower, upper = _rows(pair, rows)
                least, most = true[name]
                own &= ((lower <= least) & (most <= upper)).flatten(1).all(1)
            rows, true = rows[own], {name: (a[own], b[own]) for name, (a, b) in true.items()}
            self.counts["points of subdomains"] += len(rows)
        for name, pair in bounds.ends.items():
            held = _rows(pair, rows)
            if self._below:
                self.compare("subdomain", name, held, true[name])
                continue
            kind = "bounds"
            for what, before in (("known", bounds.known), ("prior", bounds.prior)):
                if name in before and not bool(meets(_rows(before[name], rows), true[name]).all()):
                    kind = f"bounds from {what} ones"
            self.compare(kind, name, held, true[name])
            self.crossed(kind, name, pair)

    def empty(self, bounds: Bounds, found: Tensor) -> None:
        """No problem that holds a point is empty."""
        if not bool(found.any()):
            return
        rows, _, true = self.pairs(bounds)
        own = found[rows]
        if self._below:
            for name, pair in bounds.prior.items():
                lower, upper = _rows(pair, rows)
                least, most = true[name]
                own &= ((lower <= least) & (most <= upper)).flatten(1).all(1)
        if bool(own.any()) or not self._below:
            self.note("empty", "a subdomain" if self._below else "the whole domain", "holds points")

    def least(self, kind: str, bounds: Bounds, start: str, rows: Tensor, value: Tensor) -> None:
        """Lower bounds [problems, rows] of rows [problems, rows, *shape] of a tensor."""
        places, _, true = self.pairs(bounds)
        if not len(places):
            return
        _, high = _product(rows.double().flatten(2)[places], true[start])
        held = value.double()[places]
        self.compare(kind, start, (held, torch.full_like(held, torch.inf)), (high, high))

    # --- subdomains -------------------------------------------------------------------------------

    def search(self, search: BranchAndBound) -> SearchTruth:
        """The roots of a search at all points; kept for the next time."""
        held = self._searches.get(id(search))
        if held is not None:
            return held[1]
        bounds = search.roots.bounds
        rows, points, true = self.pairs(bounds)
        shape = (bounds.problems, len(self.points))
        member = torch.zeros(shape, dtype=torch.bool)
        member[rows, points] = True
        gathered = search.units.ends(true_ends(search, true), len(rows))
        units = tuple(end.new_zeros(*shape, end.shape[1]) for end in gathered)
        value = tuple(torch.zeros(shape, dtype=torch.float64) for _ in range(2))
        product = _product(search.roots.rows.double()[rows], true[search.start])
        for side in (0, 1):
            units[side][rows, points] = gathered[side]
            value[side][rows, points] = product[side][:, 0]
        made = SearchTruth(member, (units[0], units[1]), (value[0], value[1]))
        self._searches[id(search)] = (search, made)
        return made

    def within(self, search: BranchAndBound, parts: Parts, certainly: bool = True) -> Tensor:
        """Which points lie in which parts, certainly or possibly: [parts, points]."""
        true = self.search(search)
        least, most = (end[parts.root] for end in true.units)
        if not certainly:
            least, most = most, least
        lower, upper = parts.lower.unsqueeze(1), parts.upper.unsqueeze(1)
        return true.member[parts.root] & ((lower <= least) & (most <= upper)).all(2)

    def cover(
        self, kind: str, search: BranchAndBound, parts: Parts, after: Parts, of: Tensor
    ) -> None:
        """Every point ``of`` some parts [parts, points] may lie in one that came of them."""
        count = len(search.roots.problems)
        had = torch.zeros(count, len(self.points), dtype=torch.bool)
        has = torch.zeros_like(had)
        had.index_put_((parts.root,), of, accumulate=True)
        has.index_put_((after.root,), self.within(search, after, certainly=False), accumulate=True)
        lost = had & ~has
        self.counts[f"{kind} compared"] += 1
        if bool(lost.any()):
            self.note(kind, "subdomains", f"{int(lost.sum())} points are lost")

    def bounded(
        self, search: BranchAndBound, batch: Parts, relaxed: Any, choice: Any, left: Parts
    ) -> None:
        """What a search made of some parts."""
        own, true = self.within(search, batch), self.search(search)
        places, points = own.nonzero().T
        roots = batch.root[places]
        self.counts["points of subdomains"] += len(places)
        if len(places):
            least, most = (end[roots, points] for end in true.units)
            held = (relaxed.lower[places], relaxed.upper[places])
            self.compare("subdomain", "units", held, (least, most))
            reached = choice.found.value[:, 0].double()[places]
            high = true.value[1][roots, points]
            self.compare(
                "bound of a subdomain",
                "row",
                (reached, torch.full_like(reached, torch.inf)),
                (high, high),
            )
        self.cover("closed subdomain", search, batch, left, own & self.violated(search)[batch.root])

    def violated(self, search: BranchAndBound) -> Tensor:
        """Where the row of a root certainly breaks the claim, [roots, points]."""
        true, offsets = self.search(search), search.roots.offsets.unsqueeze(1)
        slack = SLACK * (1 + true.value[1].abs() + offsets.abs())
        return true.member & (true.value[1] + offsets + slack < 0)

    # --- questions --------------------------------------------------------------------------------

    def encoded(self, query: Query) -> None:
        """A query says what its circuit's plain run says."""
        run = self.truth.run(query.circuit, self.points)
        true = self.merged.nodes(query.graph, query.circuit)
        for node, channels, value in adapter.expected(query, run):
            lower, upper = true[node]
            if channels is not None:
                lower, upper = lower[:, channels], upper[:, channels]
            self.compare("encoding", node, (lower, upper), value)
        for name, value in adapter.zeros(query, run):
            nothing = torch.zeros_like(value[0])
            self.compare("encoding, zeros", name, (nothing, nothing), value)
        index = self.points.index
        self.specified(
            query.circuit,
            self.points,
            query.rows[index],
            query.offsets[index],
            true[query.graph.outputs[0]],
        )

    def specified(
        self, circuit: Circuit, points: Points, rows: Tensor, offsets: Tensor, y: Interval
    ) -> None:
        """The specification is exceeded where the metric is, and only there."""
        low, high = (end.amax(1) for end in _product(rows, y, offsets))
        least, most = self.truth.excess(circuit, points)
        self.counts["specification compared"] += 1
        if bool(((low > 0) & (most <= 0)).any()) or bool(((least > 0) & (high <= 0)).any()):
            self.note(
                "specification", "output", f"rows reach {low.tolist()}, the metric {least.tolist()}"
            )

    def together(self, together: Together) -> None:
        """A query about many circuits says what their plain runs say."""
        count = len(self.truth.claim.inputs)
        for c in {0, len(together.circuits) - 1}:
            problems = c * count + self.points.index
            everyone = torch.arange(len(self.points))
            true = self.merged.of_rows(
                together.graph, together.circuits[c], everyone, together.ranges, problems
            )
            before, self.circuit = self.circuit, together.circuits[c]
            self.specified(
                self.circuit,
                self.points,
                together.rows[problems],
                together.offsets[problems],
                true[together.graph.outputs[0]],
            )
            self.circuit = before

    def inert(self, known: Known, circuit: Circuit, settled: Tensor) -> None:
        """Where a removal is said to change nothing, it changes nothing."""
        own = settled[self.points.index]
        if not bool(own.any()):
            return
        points = self.points[own.nonzero().flatten()]
        before, after = (self.truth.excess(c, points) for c in (known.circuit, circuit))
        self.compare("inert", "excess", before, after)

    def verifier(self, verifier: Verifier) -> None:
        """Compare all that a verifier remembers."""
        memory, encoder = verifier.memory, verifier.encoder
        network = adapter.evaluated(
            encoder.network, {encoder.z: (self.points.z, self.points.z)}, len(self.points)
        )
        for name, value in self.merged.at.items():
            self.compare("lowering", name, network[name], value)
        common = dict(network)
        source = self.points.source
        if source is not None:
            ends = adapter.evaluated(encoder.network, {encoder.z: (source, source)}, len(source))
            common |= {f"patch:{name}": pair for name, pair in ends.items()}
        self.by_input("memory, whole", memory.whole, common)
        started = {name: ends for name, (ends, _) in memory.started.items()}
        self.by_input("memory, started", started, common)
        if verifier.last is not None:
            query = verifier.last.query
            before, self.circuit = self.circuit, query.circuit
            true = self.merged.nodes(query.graph, query.circuit)
            self.by_input("known", verifier.last.ends, {**common, **true})
            self.circuit = before

    def verdict(self, circuit: Circuit, verdict: Verdict, more: Points | None = None) -> None:
        """No verdict contradicts the truth; ``more`` are points of an attack."""
        self.circuit = circuit
        points = self.points if more is None else Points.joined([self.points, more])
        self.counts[f"{verdict.kind} by {verdict.stage}"] += 1
        if isinstance(verdict, Refuted):
            self._witness(circuit, verdict)
            return
        least, _ = self.truth.excess(circuit, points)
        worst = float(least.max())
        if isinstance(verdict, Proved) and worst > 0:
            self.note("proved", verdict.stage, f"and exceeded by {worst:.6g}")
        elif isinstance(verdict, Proved | Undecided) and worst > verdict.bound + SLACK:
            self.note("bound", verdict.stage, f"{verdict.bound:.6g}, and {worst:.6g} is reached")

    def _witness(self, circuit: Circuit, verdict: Refuted) -> None:
        witness, claim = verdict.witness, self.truth.claim
        values = witness.patch_values
        given = Points(
            torch.tensor([witness.index]),
            witness.z.unsqueeze(0),
            None if witness.patch_input is None else witness.patch_input.unsqueeze(0),
            None if values is None else {name: v.unsqueeze(0) for name, v in values.items()},
        )
        if not inside(claim.inputs[witness.index], witness.z):
            self.note("refuted", verdict.stage, "by a point outside of its domain")
        if given.source is not None and not inside(
            self.truth.patch_domain(witness.index), given.source[0]
        ):
            self.note("refuted", verdict.stage, "by patches from outside of their domain")
        boxes = self.truth.boxes[witness.index]
        if boxes is not None and values is not None:
            for name, (lower, upper) in boxes.items():
                gone = ~self.truth.kept(circuit)[name]
                room = SLACK * (1 + lower[0].abs() + upper[0].abs())
                fits = (values[name] >= lower[0] - room) & (values[name] <= upper[0] + room)
                if not bool(fits[gone].all()):
                    self.note("refuted", verdict.stage, f"by patches outside of the box of {name}")
        _, most = self.truth.excess(circuit, given)
        if float(most) <= 0 or float(most) < witness.excess:
            self.note("refuted", verdict.stage, f"and exceeded by {float(most):.6g} at most")

    # --- hooks ------------------------------------------------------------------------------------

    @contextmanager
    def on(self) -> Iterator[None]:
        """Watch whatever any verifier does within."""
        with ExitStack() as stack:
            for owner, name, make in (
                (Encoder, "encode", self._hook_encode),
                (screen_module, "encode_together", self._hook_together),
                (question_module.Question, "answer", self._hook_answer),
                (Bounds, "compute", self._hook_compute),
                (Bounds, "backward", self._hook_backward),
                (Difference, "enclosures", self._hook_difference),
                (Memory, "recall", self._hook_recall),
                (Inert, "settled", self._hook_inert),
                (question_module, "optimise", self._hook_optimise),
                (BranchAndBound, "_refined", self._hook_refined),
                (BranchAndBound, "_bounded", self._hook_bounded),
                (BranchAndBound, "_best_split", self._hook_split),
                (BranchAndBound, "_costliest_split", self._hook_split),
                (BranchAndBound, "_solved", self._hook_solved),
                (BranchAndBound, "_leaf", self._hook_leaf),
                (closer_module, "closer_ends", self._hook_closer),
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

    def _hook_answer(self, plain: Callable[..., Verdict]) -> Callable[..., Verdict]:
        def answer(question: question_module.Question) -> Verdict:
            before, self.circuit = self.circuit, question.query.circuit
            try:
                return plain(question)
            finally:
                self.circuit = before

        return answer

    def _hook_together(self, plain: Callable[..., Together]) -> Callable[..., Together]:
        def encode(encoder: Encoder, circuits: Any) -> Together:
            together = plain(encoder, circuits)
            self.together(together)
            return together

        return encode

    def _hook_compute(self, plain: Callable[..., None]) -> Callable[..., None]:
        def compute(bounds: Bounds, *args: Any, **kwargs: Any) -> None:
            try:
                plain(bounds, *args, **kwargs)
            except InconsistentBoundsError as error:
                self.note("inconsistent", "a subdomain" if self._below else "the root", str(error))
                raise
            finally:
                self.bounds(bounds)
            self.empty(bounds, bounds.empty)

        return compute

    def _hook_backward(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def backward(bounds: Bounds, start: str, rows: Tensor, **kwargs: Any) -> Any:
            passed = plain(bounds, start, rows, **kwargs)
            whole = not self._below and kwargs.get("multipliers") is None
            if whole and kwargs.get("rigorous", True) and start in bounds.structure.graph.outputs:
                self.least("backward", bounds, start, rows, passed.value)
            return passed

        return backward

    def _hook_difference(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def enclosures(difference: Difference, known: Known, query: Query) -> Any:
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
        def settled(inert: Inert, known: Known | None, circuit: Circuit) -> Tensor:
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
        def refined(search: BranchAndBound, parts: Parts) -> Any:
            self._below += 1
            try:
                return plain(search, parts)
            finally:
                self._below -= 1

        return refined

    def _hook_bounded(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def bounded(search: BranchAndBound, batch: Parts, *args: Any) -> Any:
            relaxed, choice, left = plain(search, batch, *args)
            self.bounded(search, batch, relaxed, choice, left)
            return relaxed, choice, left

        return bounded

    def _hook_split(self, plain: Callable[..., Parts]) -> Callable[..., Parts]:
        def split(search: BranchAndBound, parts: Parts) -> Parts:
            children = plain(search, parts)
            self.cover("split", search, parts, children, self.within(search, parts))
            return children

        return split

    def _hook_solved(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def solved(search: BranchAndBound, programs: Any, parts: Parts) -> Any:
            left = plain(search, programs, parts)
            if left is not None:
                broken = self.within(search, parts) & self.violated(search)[parts.root]
                self.cover("solved subdomain", search, parts, left, broken)
            return left

        return solved

    def _hook_leaf(self, plain: Callable[..., str]) -> Callable[..., str]:
        def leaf(search: BranchAndBound, part: Parts) -> str:
            status = plain(search, part)
            broken = self.within(search, part) & self.violated(search)[part.root]
            if status == "proved" and bool(broken.any()):
                self.note("closed subdomain", "leaf", "the claim is broken there")
            return status

        return leaf

    def _hook_closer(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def closer_ends(bounds: Bounds, wanted: Any) -> Iterator[tuple[str, Interval]]:
            for name, ends in plain(bounds, wanted):
                rows, _, true = self.pairs(bounds)
                self.compare("closer", name, _rows(ends, rows), true[name])
                self.crossed("closer", name, ends)
                yield name, ends

        return closer_ends

    def _hook_hulls(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def run(search: HullSearch) -> Tensor | None:
            left: Tensor | None = plain(search)
            if left is None:
                return left
            rows, _, true = self.pairs(search.roots.bounds)
            closed = ~torch.isin(rows, left)
            _, high = _product(search.roots.rows.double()[rows], true[search.start])
            reached = high[:, 0] + search.roots.offsets[rows]
            self.counts["hull compared"] += 1
            if bool((reached[closed] < -SLACK * (1 + high[:, 0].abs()[closed])).any()):
                self.note(
                    "hull", "row", f"proved, and {float(reached[closed].min()):.6g} is reached"
                )
            return left

        return run


def true_ends(search: BranchAndBound, true: Mapping[str, Interval]) -> dict[str, Interval]:
    """What the units of a search read."""
    return {node.inputs[0]: true[node.inputs[0]] for node in search.units.nodes}


def _rows(pair: Interval, rows: Tensor) -> Interval:
    """The ends of some rows; those of constants are the same for all."""
    lower, upper = pair
    if len(lower) == 1:
        return lower.expand(len(rows), *lower.shape[1:]), upper.expand(len(rows), *upper.shape[1:])
    return lower[rows], upper[rows]


def _product(rows: Tensor, value: Interval, offsets: Tensor | None = None) -> Interval:
    """Rows [n, r, m] times values [n, ...], at least and at most, rounding included: [n, r]."""
    low, high = (end.double().flatten(1).unsqueeze(1) for end in value)
    positive, negative = rows.clamp_min(0.0), rows.clamp_max(0.0)
    least = (positive * low + negative * high).sum(2)
    most = (positive * high + negative * low).sum(2)
    size = (rows.abs() * torch.maximum(low.abs(), high.abs())).sum(2)
    if offsets is not None:
        least, most, size = least + offsets, most + offsets, size + offsets.abs()
    return least - SLACK * size, most + SLACK * size


@contextmanager
def _replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """An attribute wrapped for a while."""
    plain = getattr(owner, name)
    setattr(owner, name, make(plain))
    try:
        yield
    finally:
        setattr(owner, name, plain)
