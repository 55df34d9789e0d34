"""What a search found, and what it rests on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from os import PathLike
from typing import Any

from provable_circuits.claims.claim import Claim
from provable_circuits.discover.guarantees import HOLDS, NECESSITY, Kept, Minimality
from provable_circuits.discover.pictures import size_chart
from provable_circuits.discover.search import Moment
from provable_circuits.drawing.svg import svg
from provable_circuits.network.circuit import Circuit
from provable_circuits.verify.verdict import Refuted, Verdict


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """The outcome of a search over circuits.

    Attributes:
        circuit: the circuit found.
        claim: the claim it was asked about.
        faithful: ``"proved"`` everywhere in the claim's domains, ``"sampled"`` at points only, or
            ``"undecided"``.
        verdict: the verdict on the circuit found; None if nothing was shown of it.
        kept: why each component of the circuit is kept.
        minimality: how minimal the circuit is.
        lower: no faithful circuit is smaller; None where nothing is claimed.
        lower_holds: ``"unconditional"``, or ``"assumed"`` if the bound needs a monotone predicate.
        monotone: what is known of the predicate, in a sentence.
        queries: how many questions were answered how.
        answers: how many questions each stage answered how.
        timeline: size of the best circuit and lower bound, over time.
        stopped: ``"interrupted"`` or ``"budget"`` if the search was cut short, else None.
        settings: how the search was asked for.
        seconds: how long it took.
        lost: how much of that went into single questions that stayed undecided.
    """

    circuit: Circuit
    claim: Claim
    faithful: str
    verdict: Verdict | None
    kept: Mapping[str, Kept]
    minimality: Minimality
    lower: int | None
    lower_holds: str
    monotone: str
    queries: Mapping[str, int]
    answers: Mapping[str, Mapping[str, int]]
    timeline: tuple[Moment, ...]
    stopped: str | None
    settings: Mapping[str, Any]
    seconds: float
    lost: float = 0.0

    @property
    def algorithm(self) -> str:
        """The search."""
        return str(self.settings["algorithm"])

    @property
    def stages(self) -> dict[str, int]:
        """How many questions each stage answered."""
        return {stage: sum(kinds.values()) for stage, kinds in self.answers.items()}

    def draw(self, path: str | PathLike[str] | None = None, other: Circuit | None = None) -> str:
        """A drawing of the circuit; see ``Circuit.draw``."""
        return self.circuit.draw(path, other)

    def document(self) -> dict[str, Any]:
        """The result as plain data, ready for JSON."""
        circuit, minimality = self.circuit, self.minimality
        return {
            "circuit": {
                "components": list(circuit.names),
                "size": len(circuit),
                "of": len(circuit.components),
                "network": circuit.components.graph.digest,
            },
            "faithful": self.faithful,
            "bound": getattr(self.verdict, "bound", None),
            "claim": {
                "inputs": [repr(domain) for domain in self.claim.inputs],
                "patching": repr(self.claim.patching),
                "metric": repr(self.claim.metric),
            },
            "minimality": {
                "notion": minimality.notion,
                "holds": minimality.holds,
                "basis": minimality.basis,
                "notions": dict(minimality.notions),
                "lower": self.lower,
                "lower_holds": None if self.lower is None else self.lower_holds,
                "upper": len(circuit) if self.faithful != "undecided" else None,
                "monotone": self.monotone,
            },
            "kept": {name: reason.status for name, reason in self.kept.items()},
            "witnesses": {
                name: witness_document(reason.verdict)
                for name, reason in self.kept.items()
                if isinstance(reason.verdict, Refuted)
            },
            "queries": {
                "total": sum(self.queries.values()),
                "by_verdict": dict(self.queries),
                "by_stage": self.stages,
                "by_stage_and_verdict": {name: dict(kinds) for name, kinds in self.answers.items()},
            },
            "timeline": [
                {"seconds": m.seconds, "size": m.size, "lower": m.lower, "queries": m.queries}
                for m in self.timeline
            ],
            "stopped": self.stopped,
            "seconds": self.seconds,
            "seconds_undecided": self.lost,
            "settings": dict(self.settings),
        }

    def __str__(self) -> str:
        circuit, claim = self.circuit, self.claim
        share = f"{len(circuit)} of {len(circuit.components)} components"
        how = {
            "proved": f"proved for every input in {len(claim.inputs)} domain(s)",
            "sampled": "held at the sampled points; nothing is proved",
            "undecided": "not decided",
        }[self.faithful]
        lines = [f"Circuit: {share}", *_by_layer(circuit)]
        if self.stopped is not None:
            why = {"interrupted": "interrupted", "budget": "its time was over"}[self.stopped]
            lines.append(f"Stopped early: {why}; this is the best circuit so far")
        lines.append(f"Faithful: {how}")
        lines.append(f"  inputs    {claim.inputs[0]!r}" + (" ..." if len(claim.inputs) > 1 else ""))
        lines.append(f"  patching  {claim.patching!r}")
        lines.append(f"  metric    {claim.metric!r}")
        lines += self._minimality_lines()
        counts = Counter(reason.status for reason in self.kept.values())
        lines.append("Kept components:")
        lines.extend(f"  {count:>3} {NECESSITY[reason]}" for reason, count in counts.items())
        if not counts:
            lines.append("    0 (the empty circuit is faithful: is the tolerance too large?)")
        answers = ", ".join(f"{count} {kind}" for kind, count in sorted(self.queries.items()))
        lines.append(f"Questions: {sum(self.queries.values())} ({answers}) in {self.seconds:.2f} s")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return _html(self.draw(), str(self), svg(size_chart(self.document())))

    def _minimality_lines(self) -> list[str]:
        minimality = self.minimality
        if minimality.notion == "none":
            lines = [f"Minimal: not shown ({minimality.basis})"]
        else:
            how = HOLDS[minimality.holds]
            lines = [f"Minimal: {minimality.notion}{f', {how}' if how else ''}"]
            lines.append(f"  because {minimality.basis}")
        if self.lower and minimality.notion != "cardinal":
            condition = "if the predicate is monotone, " if self.lower_holds == "assumed" else ""
            bound = f"no faithful circuit has fewer than {self.lower} components"
            lines.append(f"  {condition}{bound}")
        return lines


@dataclass(frozen=True, slots=True, eq=False)
class BlockingSet:
    """A smallest set of components without which the network breaks the claim.

    Attributes:
        removed: the set; None if it was not found, or there is none.
        verdict: the refutation of the network without it.
        lower: no smaller set is blocking; None where nothing is claimed.
        none: there is no blocking set at all, since the empty circuit was shown to be faithful.
        holds: ``"unconditional"``, or ``"assumed"`` if the bound needs a monotone predicate.
        monotone: what is known of the predicate, in a sentence.
        queries: how many questions were answered how.
        stopped: ``"interrupted"`` or ``"budget"`` if the search was cut short, else None.
        seconds: how long it took.
    """

    removed: Circuit | None
    verdict: Refuted | None
    lower: int | None
    none: bool
    holds: str
    monotone: str
    queries: Mapping[str, int]
    stopped: str | None
    seconds: float

    @property
    def smallest(self) -> bool:
        """Whether no blocking set is smaller; if the predicate is monotone (see ``monotone``)."""
        return self.removed is not None and self.lower == len(self.removed)

    def document(self) -> dict[str, Any]:
        """The blocking set as plain data, ready for JSON."""
        removed = self.removed
        return {
            "components": None if removed is None else list(removed.names),
            "size": None if removed is None else len(removed),
            "smallest": self.smallest,
            "lower": self.lower,
            "holds": self.holds,
            "none": self.none,
            "monotone": self.monotone,
            "witness": None if self.verdict is None else witness_document(self.verdict),
            "queries": {"total": sum(self.queries.values()), "by_verdict": dict(self.queries)},
            "stopped": self.stopped,
            "seconds": self.seconds,
        }

    def __str__(self) -> str:
        if self.none:
            return "Blocking set: there is none, since the empty circuit is faithful"
        if self.removed is None:
            return "Blocking set: none was found"
        lines = [f"Blocking set: {', '.join(self.removed.names)}"]
        lines.append("  without it the network breaks the claim, at a replayed witness")
        if self.smallest:
            condition = "if so, " if self.holds == "assumed" else ""
            lines.append(f"  {self.monotone}; {condition}no smaller set does so")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return _html("" if self.removed is None else (~self.removed).draw(), str(self))


def witness_document(refuted: Refuted) -> dict[str, Any]:
    """A witness in numbers, without its tensors."""
    witness = refuted.witness
    return {
        "input": witness.index,
        "excess": witness.excess,
        "constraint": witness.constraint,
        "reference": witness.reference.tolist(),
        "output": witness.output.tolist(),
        "stage": refuted.stage,
    }


def _html(picture: str, text: str, *charts: str) -> str:
    """What a notebook shows: pictures around a text."""
    words = f'<pre style="white-space: pre-wrap">{escape(text)}</pre>'
    return f"<div>{picture}{words}{''.join(charts)}</div>"


def _by_layer(circuit: Circuit) -> list[str]:
    """One line for each layer: what is kept, of how many."""
    lines = []
    width = max(len(site.layer.name) for site in circuit.components.sites)
    for site in circuit.components.sites:
        kept = [c.name.rpartition("/")[2] for c in site.components if c in circuit]
        names = ", ".join(kept) if kept else "nothing"
        lines.append(
            f"  {site.layer.name:<{width}}  {len(kept):>3} of {len(site.components):<4} {names}"
        )
    return lines
