"""What the page shows, as plain data for the template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from markupsafe import Markup

from provable_circuits.discover.results.guarantees import HOLDS
from provable_circuits.discover.results.labels import is_wrong
from provable_circuits.discover.results.pictures import size_chart, verdict_chart
from provable_circuits.discover.results.run import Run
from provable_circuits.drawing.picture import scene_of
from provable_circuits.drawing.svg import svg
from provable_circuits.report.comparison import Comparison
from provable_circuits.report.page.certificate import CertificateView, certificate_view
from provable_circuits.report.page.pictures import Array, Gallery, Moved, PagePicture
from provable_circuits.report.page.words import (
    MEANINGS,
    Statement,
    comparison_words,
    headline,
    lead,
    only_points,
    reason,
    settings_of,
    statements,
    wrong_words,
)
from provable_circuits.verify.stage import described

MOST_OUTPUTS = 12
"""Outputs of a witness that are listed; of more, those that matter and those that differ most."""

WIDE = 720
"""Drawings wider than this, in pixels, have the page's whole width."""

MOST_INPUTS = 60
"""Inputs that are shown."""

Numbers = Sequence[float]


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar from zero to a value, in percent of the width of its cell."""

    start: float
    length: float


@dataclass(frozen=True, slots=True)
class OutputRow:
    """One output of the network and of the circuit, at a witness."""

    number: int
    clean: float
    network: float
    circuit: float
    matters: bool
    network_bar: Bar
    circuit_bar: Bar


@dataclass(frozen=True, slots=True)
class WitnessView:
    """The place that shows a component to be necessary.

    Attributes:
        input: the number of its input, counted from 0 as outputs are.
        words: how it breaks the claim.
        pictures: the clean input, the perturbed input, their difference, and more; may be empty.
        moves: the values that moved most, where inputs are no pictures.
        outputs: what the network and the circuit say there.
        left_out: how many outputs are not listed.
        excess: by how much the claim is broken, at least.
        stage: what found it.
        patched: whether removed components were given values of intervals.
    """

    input: int
    words: str
    pictures: tuple[PagePicture, ...]
    moves: tuple[Moved, ...]
    outputs: tuple[OutputRow, ...]
    left_out: int
    excess: float
    stage: str
    patched: bool


@dataclass(frozen=True, slots=True)
class ReasonView:
    """What one run says of a component."""

    run: str
    status: str
    meaning: str
    witness: WitnessView | None


@dataclass(frozen=True, slots=True)
class ComponentView:
    """A component, and what each run says of it."""

    name: str
    reasons: tuple[ReasonView, ...]

    @property
    def line(self) -> str:
        """Its status in a line."""
        if len(self.reasons) == 1:
            return self.reasons[0].status
        return "; ".join(f"{reason.run}: {reason.status}" for reason in self.reasons)


@dataclass(frozen=True, slots=True)
class InputView:
    """One of the claim's inputs, and whether the network is known to get it wrong."""

    title: str
    picture: PagePicture | None
    numbers: str
    notes: tuple[str, ...]
    wrong: bool = False


@dataclass(frozen=True, slots=True)
class RunView:
    """What the page tells of one run.

    Attributes:
        name: what it is called.
        facts: what was found in a few words, each with a label.
        lead: the claim in a sentence or two.
        statements: the guarantees.
        notions: every notion of minimality, what it says, and how it holds.
        regions: where inputs range, in words; each only once.
        only_points: whether inputs do not range at all.
        inputs: the claim's inputs.
        inputs_left_out: how many inputs are not shown.
        wrong: which inputs the network gets wrong, in a sentence; empty without labels.
        plots: how the search went.
        verdicts: how many questions were answered how.
        stages: what answered them: its name, in words, and how many.
        settings: how the search was asked for.
        version: the version that made the run.
        network: the digest of the network.
        reduced: whether pictures are shown smaller than they are.
        certificate: what the checker said of it; None where there is nothing to be said.
    """

    name: str
    facts: tuple[tuple[str, str], ...]
    lead: str
    statements: tuple[Statement, ...]
    notions: tuple[tuple[str, str, str], ...]
    regions: tuple[str, ...]
    only_points: bool
    inputs: tuple[InputView, ...]
    inputs_left_out: int
    wrong: str
    plots: tuple[Markup, ...]
    verdicts: tuple[tuple[str, int], ...]
    stages: tuple[tuple[str, str, int], ...]
    settings: tuple[tuple[str, str], ...]
    version: str
    network: str
    reduced: bool
    certificate: CertificateView | None


@dataclass(frozen=True, slots=True)
class Drawing:
    """The drawing of the circuit, and how wide it is in pixels at its natural size."""

    picture: Markup
    width: int

    @property
    def wide(self) -> bool:
        """Whether nothing else fits beside it."""
        return self.width > WIDE


@dataclass(frozen=True, slots=True)
class PageView:
    """The whole page."""

    title: str
    lead: str
    drawing: Drawing
    runs: tuple[RunView, ...]
    components: tuple[ComponentView, ...]
    shares: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def certified(self) -> bool:
        """Whether there is something to be said of a certificate."""
        return any(run.certificate is not None for run in self.runs)

    @property
    def compares(self) -> bool:
        """Whether there are two runs."""
        return len(self.runs) == 2


def view_of(shown: Run | Comparison, name: str) -> PageView:
    """The page of a run, or of two compared.

    Args:
        shown: the run, or the comparison.
        name: what the run is called.
    """
    if isinstance(shown, Run):
        runs, names = [shown], [name]
        title, words = headline(shown), lead(shown)
        shares: tuple[tuple[str, tuple[str, ...]], ...] = ()
        diagram = shown.diagram.explained(shown.document["kept"])
    else:
        runs, names = [shown.first, shown.second], list(shown.names)
        title, words = comparison_words(shown)
        diagram = shown.diagram
        shares = (
            ("In both", shown.shared),
            (f"Only in {names[0]}", shown.first_only),
            (f"Only in {names[1]}", shown.second_only),
        )
    galleries = [Gallery(run, 1 / len(runs)) for run in runs]
    scene = scene_of(diagram)
    return PageView(
        title=title,
        lead=words,
        drawing=Drawing(Markup(svg(scene, interactive=True)), round(scene.width)),
        runs=tuple(map(_run_view, runs, names, galleries)),
        components=tuple(
            ComponentView(
                component, tuple(map(partial(_reason, component), runs, names, galleries))
            )
            for component in runs[0].components
        ),
        shares=shares,
    )


def _reason(component: str, run: Run, name: str, gallery: Gallery) -> ReasonView:
    return ReasonView(name, *reason(run, component), _witness(run, component, gallery))


def _witness(run: Run, component: str, gallery: Gallery) -> WitnessView | None:
    told = run.document["witnesses"].get(component)
    perturbed = run.witness(component)
    if told is None or perturbed is None:
        return None
    number = told["input"]
    clean = run.inputs[told["input"]]
    pictures = _pictures(gallery, number, clean, perturbed, run.witness(component, "patch_input"))
    rows = _outputs(told, run.outputs[told["input"]].tolist())
    return WitnessView(
        input=number,
        words=told["in_words"],
        pictures=pictures,
        moves=() if pictures else tuple(gallery.moves(clean, perturbed)),
        outputs=rows,
        left_out=len(told["output"]) - len(rows),
        excess=told["excess"],
        stage=described(told["stage"]),
        patched=any(name.startswith(f"{component}:patch:") for name in run.witnesses),
    )


def _pictures(
    gallery: Gallery, number: int, clean: Array, perturbed: Array, patch: Array | None
) -> tuple[PagePicture, ...]:
    """The clean input, the perturbed one if it moved, the patch input if there is one."""
    if not gallery.pictures:
        return ()
    pictures = [gallery.image(clean, f"Input {number}", "Clean input")]
    for other, words, caption in [
        (perturbed, f"Input {number}, perturbed", "Perturbed input"),
        (patch, "Removed components output what they compute at this input", "Patch input"),
    ]:
        if other is not None and gallery.furthest(clean, other) > 0:
            pictures += [gallery.image(other, words, caption), gallery.difference(clean, other)]
    return tuple(pictures)


def _outputs(told: Mapping[str, Any], clean: Numbers) -> tuple[OutputRow, ...]:
    """The outputs of a witness: all, or those that matter and differ most."""
    network, circuit, matters = told["reference"], told["output"], set(told["matters"])
    places = list(range(len(network)))
    if len(places) > MOST_OUTPUTS:
        matters &= set(sorted(matters)[:MOST_OUTPUTS])
        by_change = sorted(places, key=lambda i: -abs(circuit[i] - network[i]))
        others = [i for i in by_change if i not in matters][: MOST_OUTPUTS - len(matters)]
        places = sorted([*matters, *others])
    ends = [0.0, *(values[i] for i in places for values in (network, circuit))]
    low, high = min(ends), max(ends)
    everything = len(matters) == len(network)
    return tuple(
        OutputRow(
            number=i,
            clean=clean[i],
            network=network[i],
            circuit=circuit[i],
            matters=i in matters and not everything,
            network_bar=_bar(network[i], low, high),
            circuit_bar=_bar(circuit[i], low, high),
        )
        for i in places
    )


def _bar(value: float, low: float, high: float) -> Bar:
    width = (high - low) or 1.0
    start = (min(value, 0.0) - low) / width * 100
    return Bar(round(start, 1), round(abs(value) / width * 100, 1))


def _run_view(run: Run, name: str, gallery: Gallery) -> RunView:
    document = run.document
    minimality, queries = document["minimality"], document["queries"]
    said = statements(run)
    answers = {statement.title: statement.answer for statement in said}
    regions = tuple(dict.fromkeys(document["claim"]["in_words"]["inputs"]))
    return RunView(
        name=name,
        facts=(
            ("Kept", f"{document['circuit']['size']} of {document['circuit']['of']}"),
            ("Faithful", answers["Faithful"]),
            ("Minimal", answers["Minimal"]),
            ("Questions", f"{queries['total']:,}"),
            ("Time", _seconds(document["seconds"])),
        ),
        lead=lead(run),
        statements=tuple(said),
        notions=tuple(
            (notion, MEANINGS.get(notion, ""), HOLDS[holds] or "shown")
            for notion, holds in minimality["notions"].items()
        ),
        regions=regions,
        only_points=only_points(run),
        inputs=_inputs(run, gallery, len(regions) > 1),
        inputs_left_out=max(len(run.inputs) - MOST_INPUTS, 0),
        wrong=wrong_words(run),
        plots=(Markup(svg(size_chart(document))), Markup(svg(verdict_chart(document)))),
        verdicts=tuple(sorted(queries["by_verdict"].items())),
        stages=tuple(
            (stage, described(stage), count)
            for stage, count in sorted(queries["by_stage"].items(), key=lambda item: -item[1])
        ),
        settings=tuple(settings_of(run)),
        version=document["version"],
        network=document["circuit"]["network"],
        reduced=gallery.pictures and gallery.step > 1,
        certificate=certificate_view(run, name),
    )


def _inputs(run: Run, gallery: Gallery, regions_differ: bool) -> tuple[InputView, ...]:
    words = run.document["claim"]["in_words"]["inputs"]
    views = []
    for i, (values, outputs) in enumerate(zip(run.inputs, run.outputs, strict=True)):
        if i == MOST_INPUTS:
            break
        notes = []
        if len(outputs) > 1:
            notes.append(f"Largest output: {int(outputs.argmax())} ({outputs.max():.3g})")
        else:
            notes.append(f"Output: {outputs[0]:.4g}")
        if run.labels is not None:
            notes.append(f"Label: {int(run.labels[i])}")
        if regions_differ:
            notes.append(words[i])
        title = f"Input {i}"
        picture = gallery.image(values, title, title) if gallery.pictures else None
        numbers = "" if gallery.pictures else gallery.numbers(values)
        views.append(InputView(title, picture, numbers, tuple(notes), is_wrong(run.document, i)))
    return tuple(views)


def _seconds(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"
