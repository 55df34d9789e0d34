"""Questions, what is remembered between them, and verdicts, compared with the truth."""

from __future__ import annotations

import torch
from tests.enclosures import adapter
from tests.enclosures.comparison import Comparison, product_of
from tests.enclosures.truth import SLACK, Points, inside
from torch import Tensor

from provable_circuits.network.circuit import Circuit
from provable_circuits.rounding import Interval
from provable_circuits.verify.bounding.differential import Known
from provable_circuits.verify.encoding.batched import BatchedProblem
from provable_circuits.verify.encoding.query import Query
from provable_circuits.verify.verdict import Proved, Refuted, Undecided, Verdict
from provable_circuits.verify.verifier import Verifier


class Questions(Comparison):
    """Compares what a verifier is asked, what it remembers and what it answers."""

    def encoded(self, query: Query) -> None:
        """A query says what its circuit's plain run says."""
        self.roles.update(query.roles)
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
        low, high = (end.amax(1) for end in product_of(rows, y, offsets))
        least, most = self.truth.excess(circuit, points)
        self.counts["specification compared"] += 1
        if bool(((low > 0) & (most <= 0)).any()) or bool(((least > 0) & (high <= 0)).any()):
            self.note(
                "specification", "output", f"rows reach {low.tolist()}, the metric {least.tolist()}"
            )

    def batched(self, batched: BatchedProblem) -> None:
        """A query about many circuits says what their plain runs say."""
        self.roles.update(batched.roles)
        count = len(self.truth.claim.inputs)
        for c in {0, len(batched.circuits) - 1}:
            problems = c * count + self.points.index
            everyone = torch.arange(len(self.points))
            true = self.merged.of_rows(
                batched.graph, batched.circuits[c], everyone, batched.ranges, problems
            )
            before, self.circuit = self.circuit, batched.circuits[c]
            self.specified(
                self.circuit,
                self.points,
                batched.rows[problems],
                batched.offsets[problems],
                true[batched.graph.outputs[0]],
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
        memory, encoder = verifier.knowledge.memory, verifier.encoder
        network = adapter.evaluated(
            encoder.network, {encoder.z: (self.points.z, self.points.z)}, len(self.points)
        )
        for name, value in self.merged.at.items():
            self.compare("lowering", name, network[name], value)
        common = {encoder.network_role(name): pair for name, pair in network.items()}
        source = self.points.source
        if source is not None:
            ends = adapter.evaluated(encoder.network, {encoder.z: (source, source)}, len(source))
            common |= {encoder.source_role(name): pair for name, pair in ends.items()}
        self.by_input("memory, whole", memory.whole, common)
        started = {name: ends for name, (ends, _) in memory.started.items()}
        self.by_input("memory, started", started, common)
        if verifier.knowledge.last is not None:
            query = verifier.knowledge.last.query
            before, self.circuit = self.circuit, query.circuit
            true = self.merged.nodes(query.graph, query.circuit)
            own = {query.roles[name]: value for name, value in true.items()}
            self.by_input("known", verifier.knowledge.last.ends, {**common, **own})
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
