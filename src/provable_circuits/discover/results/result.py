"""What a search found, and what it rests on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from os import PathLike
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from provable_circuits.arguments import instance
from provable_circuits.claims.claim import Claim
from provable_circuits.claims.normalisation import Normalisation, domain_text, patching_text
from provable_circuits.claims.words import domain_words, metric_words, patching_words
from provable_circuits.discover.algorithms.dual import SmallestBlockingSet
from provable_circuits.discover.confirmation import Confirmation
from provable_circuits.discover.predicates.transport import claim_digest
from provable_circuits.discover.results.certification_document import certification_document
from provable_circuits.discover.results.explanation import broken_by
from provable_circuits.discover.results.guarantees import Kept, Minimality
from provable_circuits.discover.results.labels import check_labels, label_document
from provable_circuits.discover.results.pictures import size_chart
from provable_circuits.discover.results.run import Run
from provable_circuits.discover.results.summary import summary
from provable_circuits.discover.results.withdrawal import NOTHING, Shown, settled_documents
from provable_circuits.discover.search import Moment
from provable_circuits.drawing.files import save
from provable_circuits.drawing.svg import svg
from provable_circuits.errors import ArgumentError
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.diagram import diagram_of
from provable_circuits.proof.certify import Certificate
from provable_circuits.verify.certification import Certification
from provable_circuits.verify.verdict import Refuted, Verdict


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """The outcome of a search over circuits.

    Attributes:
        circuit: the circuit found.
        claim: the claim it was asked about.
        faithful: ``"proved"`` everywhere in the claim's domains, by the search and once more by the
            checker (``certified``) or by a verifier that reuses nothing; ``"sampled"`` at points
            only; or ``"undecided"``.
        verdict: the search's verdict on the circuit found; None if nothing was shown of it.
        certification: the certificate that the checker has accepted, or why there is none; None
            where none was asked for, or nothing was proved.
        confirmation: what a verifier that reuses nothing says of a circuit that the search proved,
            where there is no certificate.
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
        shown: circuits that were decided on the way.
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
    confirmation: Confirmation | None = None
    certification: Certification | None = None
    shown: Shown = NOTHING

    @property
    def certificate(self) -> Certificate | None:
        """What the checker has accepted of this result, if it has."""
        return None if self.certification is None else self.certification.certificate

    @property
    def certified(self) -> bool:
        """Whether the checker has accepted a certificate of the circuit's faithfulness."""
        return self.certificate is not None

    @property
    def algorithm(self) -> str:
        """The search."""
        return str(self.settings["algorithm"])

    @property
    def stages(self) -> dict[str, int]:
        """How many questions each stage answered."""
        return {stage: sum(kinds.values()) for stage, kinds in self.answers.items()}

    def draw(self, path: str | PathLike[str] | None = None, other: Circuit | None = None) -> str:
        """A drawing of the circuit, filled by why each component is kept; see ``Circuit.draw``."""
        if other is not None:
            return self.circuit.draw(path, other)
        reasons = {name: reason.status for name, reason in self.kept.items()}
        diagram = diagram_of(self.circuit).explained(reasons)
        if path is not None:
            save(diagram, path)
        return svg(diagram)

    def document(self) -> dict[str, Any]:
        """The result as plain data, ready for JSON."""
        circuit, claim, minimality = self.circuit, self.claim, self.minimality
        graph = circuit.components.graph
        anchor = None if claim.finite else graph.run(claim.centers, torch.float64)
        return {
            "circuit": {
                "components": list(circuit.names),
                "size": len(circuit),
                "of": len(circuit.components),
                "network": graph.digest,
                "layers": [
                    {"name": site.layer.name, "components": [c.name for c in site.components]}
                    for site in circuit.components.sites
                ],
            },
            "faithful": self.faithful,
            "certified": self.certified,
            "certification": certification_document(self.certification),
            "confirmation": None if self.confirmation is None else self.confirmation.document(),
            "bound": self._bound(),
            "claim": {
                "inputs": [repr(domain) for domain in claim.inputs],
                "patching": repr(claim.patching),
                "metric": repr(claim.metric),
                "in_words": {
                    "inputs": [domain_words(domain) for domain in claim.inputs],
                    "patching": patching_words(claim.patching),
                    "metric": metric_words(claim.metric),
                },
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
            "shown": {
                "proved": [f"{bits:x}" for bits in self.shown.proved],
                "refuted": [f"{bits:x}" for bits in self.shown.refuted],
            },
            "kept": {name: reason.status for name, reason in self.kept.items()},
            "witnesses": {
                name: _explained(reason.verdict, claim, anchor)
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

    def _bound(self) -> float | None:
        """How far below zero the excess was bounded, or above; JSON has no infinity."""
        verdict = self.verdict if self.confirmation is None else self.confirmation.verdict
        bound = getattr(verdict, "bound", math.inf)
        return bound if math.isfinite(bound) else None

    def record(
        self,
        settings: Mapping[str, Any] | None = None,
        *,
        labels: Any = None,
        mean: Any = None,
        std: Any = None,
        blocking_set: BlockingSet | None = None,
    ) -> Run:
        """All that is worth keeping, as plain data: what ``save`` writes and pages show.

        Args:
            settings: more settings to tell of, such as the names of files.
            labels: what the claim's inputs show, one whole number for each: the number of the
                output that should be largest. Inputs that the network gets wrong are marked.
            mean: if inputs are ``(pixel - mean) / std``, the mean: one number, or one for each
                channel. Then domains are told in pixel scale first.
            std: the standard deviation of that.
            blocking_set: a blocking set that was found beside the circuit.
        """
        from provable_circuits import __version__

        if len(self.circuit.components.graph.output_shape) > 1:
            raise ArgumentError(
                "Runs of networks whose outputs have positions cannot be saved yet; "
                "result.document() has all of it but the arrays."
            )
        circuit, inputs = self.circuit, self.claim.centers
        if blocking_set is not None:
            instance("blocking_set", blocking_set, BlockingSet, "a BlockingSet", "Result.record")
        if settings is not None:
            instance("settings", settings, Mapping, "a mapping from names", "Result.record")
        scale = Normalisation.of(mean, std)
        document = self.document()
        document["settings"] = {**(settings or {}), **document["settings"]}
        document["version"] = __version__
        if scale is not None:
            told = document["claim"]
            told["inputs"] = [domain_text(domain, scale) for domain in self.claim.inputs]
            told["patching"] = patching_text(self.claim.patching, scale)
            told["in_words"]["patching"] = patching_words(self.claim.patching, scale)
            told["in_words"]["inputs"] = [domain_words(d, scale) for d in self.claim.inputs]
        document["claim"]["digest"] = claim_digest(circuit.components, self.claim)
        known = None if labels is None else check_labels(labels, len(inputs))
        outputs = circuit.components.graph.run(inputs, torch.float64).numpy()
        document["labels"] = label_document(outputs, known)
        if blocking_set is not None:
            document["blocking_set"] = blocking_set.document()
            (document,) = settled_documents([document], [f"the {self.algorithm} search"])
        return Run(
            document=document,
            circuit=circuit.to_json(),
            diagram=diagram_of(circuit),
            inputs=inputs.numpy(),
            outputs=outputs,
            witnesses=self._witness_arrays(),
            labels=known,
            mean=None if scale is None else scale.mean.numpy(),
            std=None if scale is None else scale.std.numpy(),
            certificate=None if self.certificate is None else self.certificate.files,
            checked="" if self.certificate is None else self.certificate.checked_at,
        )

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the result into a folder, for ``Run.load`` and ``provable-circuits show``."""
        self.record().save(folder)

    def _witness_arrays(self) -> dict[str, NDArray[Any]]:
        """The inputs of all witnesses, and what was patched with, by component."""
        arrays = {}
        for name, kept in self.kept.items():
            if not isinstance(kept.verdict, Refuted):
                continue
            witness = kept.verdict.witness
            arrays[f"{name}:z"] = witness.z.numpy()
            if witness.patch_input is not None:
                arrays[f"{name}:patch_input"] = witness.patch_input.numpy()
            for tensor, value in (witness.patch_values or {}).items():
                arrays[f"{name}:patch:{tensor}"] = value.numpy()
        return arrays

    def __str__(self) -> str:
        return summary(self.document())

    def _repr_html_(self) -> str:
        return _html(self.draw(), str(self), svg(size_chart(self.document())))


@dataclass(frozen=True, slots=True, eq=False)
class BlockingSet:
    """A smallest set of components without which the network breaks the claim.

    Attributes:
        removed: the smallest set found; None if none was found, or there is none.
        verdict: the refutation of the network without it.
        lower: no set of fewer components is blocking; None where nothing is claimed.
        none: there is no blocking set at all.
        holds: how ``lower`` and ``none`` hold: ``"unconditional"``, or ``"assumed"`` if they need
            a monotone predicate; None where nothing is claimed.
        shown: every set of fewer components was proved not to be blocking, one by one: that part
            of ``lower`` which rests on no assumption. 0 where nothing was shown.
        monotone: what is known of the predicate, in a sentence.
        queries: how many questions were answered how.
        stopped: ``"interrupted"`` or ``"budget"`` if the search was cut short, else None.
        seconds: how long it took.
        of: how many components there are.
    """

    removed: Circuit | None
    verdict: Refuted | None
    lower: int | None
    none: bool
    holds: str | None
    shown: int
    monotone: str
    queries: Mapping[str, int]
    stopped: str | None
    seconds: float
    of: int

    @classmethod
    def of_search(cls, dual: SmallestBlockingSet) -> BlockingSet:
        """What a search has found, after its assumption was dropped if answers contradict it."""
        search, monotone = dual.search, dual.search.monotone
        found = dual.found
        removed, verdict = (None, None) if found is None else found
        claimed = search.lower if monotone.usable else 0
        none = found is None and (dual.complete or (dual.empty_is_faithful and monotone.usable))
        if none:
            assumed = not (dual.complete or monotone.known)
            lower = dual.shown
        else:
            assumed = claimed > dual.shown and not monotone.known
            lower = max(claimed, dual.shown)
        return cls(
            removed=removed,
            verdict=verdict,
            lower=None if none else lower or None,
            none=none,
            holds=("assumed" if assumed else "unconditional") if none or lower else None,
            shown=dual.shown,
            monotone=monotone.reason,
            queries=dict(search.queries),
            stopped=search.stopped,
            seconds=search.seconds,
            of=len(search.components),
        )

    @property
    def smallest(self) -> bool:
        """Whether no blocking set is smaller, as far as ``holds`` says."""
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
            "shown": self.shown,
            "none": self.none,
            "monotone": self.monotone,
            "in_words": list(self._sentences),
            "witness": None if self.verdict is None else witness_document(self.verdict),
            "queries": {"total": sum(self.queries.values()), "by_verdict": dict(self.queries)},
            "stopped": self.stopped,
            "seconds": self.seconds,
        }

    @property
    def _sentences(self) -> tuple[str, ...]:
        """What was found, and what was shown of its size."""
        everything = self.shown > self.of
        if self.none and everything:
            return ("there is none: without any set of components the network satisfies the claim",)
        if self.none:
            condition = "if so, " if self.holds == "assumed" else ""
            empty = (
                f"{self.monotone}; {condition}there is none, since the empty circuit is faithful"
            )
            return (empty, *self._without_assumption())
        if self.removed is None:
            return ("none was found", *self._bound())
        found = "without it the network breaks the claim, at a replayed witness"
        if not self.smallest:
            return (found, "that no smaller set does so was not shown", *self._bound())
        if self.holds == "assumed":
            assumed = f"{self.monotone}; if so, no smaller set does so"
            return (found, assumed, *self._without_assumption())
        why = "each was asked about" if self.shown == self.lower else self.monotone
        return (found, f"no smaller set does so: {why}")

    def _bound(self) -> tuple[str, ...]:
        """The lower bound of a set that is not known to be smallest."""
        if not self.lower or self.lower == 1:
            return ()
        few = f"no set of fewer than {self.lower} components does so"
        if self.holds != "assumed":
            return (few,)
        return (f"{self.monotone}; if so, {few}", *self._without_assumption())

    def _without_assumption(self) -> tuple[str, ...]:
        """What was shown beside what an assumption says."""
        if self.holds != "assumed":
            return ()
        if self.shown <= 1:
            return ("without that assumption, no size was excluded",)
        return (f"without that assumption, no set of fewer than {self.shown} components does so",)

    def __str__(self) -> str:
        sentences = self._sentences
        if self.removed is None:
            head = f"Blocking set: {sentences[0]}"
            return "\n".join([head, *(f"  {sentence}" for sentence in sentences[1:])])
        head = f"Blocking set: {', '.join(self.removed.names)}"
        return "\n".join([head, *(f"  {sentence}" for sentence in sentences)])

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


def _explained(refuted: Refuted, claim: Claim, anchor: Tensor | None) -> dict[str, Any]:
    """A witness in numbers, with those that matter in words."""
    how = broken_by(claim, refuted.witness, anchor)
    return {**witness_document(refuted), "matters": list(how.outputs), "in_words": how.words}


def _html(picture: str, text: str, *charts: str) -> str:
    """What a notebook shows: pictures around a text."""
    words = f'<pre style="white-space: pre-wrap">{escape(text)}</pre>'
    return f"<div>{picture}{words}{''.join(charts)}</div>"
