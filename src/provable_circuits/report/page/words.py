"""What a run shows, in plain words: its headline, its guarantees, and why a component is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from provable_circuits.claims.words import POINT
from provable_circuits.discover.results.guarantees import HOLDS
from provable_circuits.discover.results.labels import input_words
from provable_circuits.discover.results.run import Run
from provable_circuits.report.comparison import Comparison

SHOWN, PARTLY, OPEN = "shown", "partly", "open"
"""How firm a statement is: without condition, under a condition, or not at all."""

MEANINGS = {
    "quasi": "some component cannot be removed",
    "local": "no single component can be removed",
    "subset": "no set of components can be removed",
    "cardinal": "no faithful circuit is smaller",
}

SHORT = {
    "necessary": "kept, and necessary",
    "refuted-when-tried": "kept, since removing it failed when it was tried",
    "undecided": "kept, not shown necessary",
    "removable": "kept, though it could be removed",
}

CONDITIONS = {
    "assumed": ", if monotone",
    "undecided": ", but for undecided",
    "assumed-undecided": ", if monotone, but for undecided",
}
"""What is added to a notion of minimality that holds under a condition."""

ARITHMETIC = (
    "rigorous bounds over each whole region, with every rounding error of their computation "
    "enclosed. They hold for the network in real arithmetic, with its weights exactly as stored."
)


@dataclass(frozen=True, slots=True)
class Statement:
    """Something that a run says of its circuit.

    Attributes:
        title: what it is about.
        answer: the answer in a word or two.
        firmness: ``SHOWN``, ``PARTLY`` or ``OPEN``.
        words: the statement.
        basis: what it rests on; empty if there is nothing to add.
    """

    title: str
    answer: str
    firmness: str
    words: str
    basis: str = ""


def headline(run: Run) -> str:
    """What was found, in a line."""
    circuit = run.document["circuit"]
    many = f"{circuit['size']} of {counted(circuit['of'], 'component')}"
    verb = "is" if circuit["size"] == 1 else "are"
    return {
        "proved": f"{many} {verb} provably enough",
        "sampled": f"{many} {verb} enough at the points tried",
        "undecided": f"{many}, and nothing was proved",
    }[run.document["faithful"]]


def lead(run: Run) -> str:
    """The claim in a sentence or two."""
    document = run.document
    claim = document["claim"]["in_words"]
    removed = document["circuit"]["of"] - document["circuit"]["size"]
    if only_points(run):
        inputs = counted(len(run.inputs), "input")
        where = f"at {'this one input' if len(run.inputs) == 1 else f'each of these {inputs}'}"
    else:
        where = f"for every input in {counted(len(run.inputs), 'region')}"
        if document["faithful"] == "sampled":
            where = f"at the points tried in {counted(len(run.inputs), 'region')}"
    asked = f"{where}, {claim['metric']}."
    if document["faithful"] == "undecided":
        asked = f"it stayed undecided whether, {asked}"
    others = {
        0: "No component was removed.",
        1: f"The one removed component outputs {claim['patching']}.",
    }
    each = f"Each of the {removed} removed components outputs {claim['patching']}."
    return f"{_sentence(asked)} {others.get(removed, each)}"


def only_points(run: Run) -> bool:
    """Whether the claim is about its inputs alone, and not about regions around them."""
    return set(run.document["claim"]["in_words"]["inputs"]) == {POINT}


def wrong_words(run: Run) -> str:
    """Which inputs the network gets wrong, in a sentence; nothing if labels are not known."""
    told = run.document.get("labels")
    if told is None:
        return ""
    wrong = [str(place) for place in told["wrong"]]
    if not wrong:
        return "The network gets every input right."
    many = counted(len(told["given"]), "input")
    number = "number" if len(wrong) == 1 else "numbers"
    return f"The network gets {len(wrong)} of {many} wrong: {number} {', '.join(wrong)}."


def comparison_words(comparison: Comparison) -> tuple[str, str]:
    """The headline and the first sentence about two runs."""
    first, second = comparison.names
    sizes = [len(run.kept) for run in (comparison.first, comparison.second)]
    return (
        f"{first} and {second}, compared",
        f"Two circuits of one network: {sizes[0]} and {sizes[1]} of "
        f"{counted(len(comparison.first.components), 'component')}. "
        f"They share {len(comparison.shared)}."
        + "".join(f" Withdrawn from {told}." for told in comparison.withdrawn),
    )


def statements(run: Run) -> list[Statement]:
    """The guarantees, and what each rests on."""
    return [
        _faithful(run),
        _necessity(run),
        _minimality(run),
        *_lower_bound(run),
        _undecided(run),
        *_blocking_set(run),
    ]


def _faithful(run: Run) -> Statement:
    document = run.document
    if document["faithful"] == "undecided" and document.get("confirmation") is not None:
        return Statement(
            "Faithful",
            "not confirmed",
            OPEN,
            "The search came to a proof, but a verifier that reuses nothing did not confirm it, so "
            "that the circuit does not count as proved.",
            _confirmed(document["confirmation"]),
        )
    if document["faithful"] == "undecided":
        return Statement(
            "Faithful",
            "not decided",
            OPEN,
            "No circuit was shown to behave like the network; all components that were not shown "
            "to be removable are kept.",
        )
    if document["faithful"] == "sampled":
        return Statement(
            "Faithful",
            "at points only",
            PARTLY,
            "The claim held at every point that was tried. Between those points it may fail.",
            "evaluation at points, in floating-point arithmetic. Nothing is proved.",
        )
    certified = bool(document.get("certified"))
    spare = ""
    if document["bound"]:
        spare = f" By the bound, {-document['bound']:.3g} is left before the claim would break."
    return Statement(
        "Faithful",
        ("certified" if run.checked else "proved, not checked") if certified else "proved",
        SHOWN,
        "The claim holds for every input that it is about, not only for those that were tried."
        + spare,
        ARITHMETIC + _certified(document) + _confirmed(document.get("confirmation")),
    )


def _certified(document: Mapping[str, Any]) -> str:
    """What the checker said of the proof, or why there is no certificate."""
    told = document.get("certification")
    if told is None:
        return ""
    if not document["certified"]:
        return f" Not certified: {told['reason']}"
    return (
        f" Certified: written down in {told['prove_seconds']:.2f} s and accepted in "
        f"{told['check_seconds']:.2f} s by a checker that shares nothing with the search."
    )


def _confirmed(confirmation: Mapping[str, Any] | None) -> str:
    """What a verifier that reuses nothing said of the circuit that was found."""
    if confirmation is None:
        return ""
    seconds = f"{confirmation['seconds']:.2f} s"
    if confirmation["verdict"] == "proved":
        return f" Confirmed in {seconds} by a verifier that reuses nothing."
    if confirmation["verdict"] == "refuted":
        return (
            f" That verifier refutes the circuit, after {seconds}: an internal inconsistency, "
            "please report it."
        )
    return f" That verifier stayed undecided after {seconds} ({confirmation['reason']})."


def _necessity(run: Run) -> Statement:
    counts = Counter(run.document["kept"].values())
    total = sum(counts.values())
    if not total:
        return Statement(
            "Each component",
            "none is kept",
            SHOWN,
            "The empty circuit satisfies the claim. Is the tolerance too large?",
        )
    parts = []
    if counts["necessary"]:
        parts.append(f"{counts['necessary']} of {total} kept components cannot be removed")
    if counts["refuted-when-tried"]:
        parts.append(
            f"{counts['refuted-when-tried']} could not be removed from a larger circuit, "
            "and were not asked about again"
        )
    if counts["removable"]:
        parts.append(f"{counts['removable']} could be removed from this circuit, one at a time")
    if counts["undecided"]:
        parts.append(f"{counts['undecided']} were not shown to be necessary")
    firmness = SHOWN if counts["necessary"] == total else PARTLY if counts["necessary"] else OPEN
    answer = "all necessary" if firmness == SHOWN else f"{counts['necessary']} necessary"
    basis = ""
    if counts["necessary"]:
        basis = (
            "witnesses: for each necessary component an input of a region at which the circuit "
            "without it breaks the claim, replayed through the network itself."
        )
    return Statement("Each component", answer, firmness, f"{_sentence('; '.join(parts))}.", basis)


def _minimality(run: Run) -> Statement:
    minimality = run.document["minimality"]
    notion, how = minimality["notion"], HOLDS[minimality["holds"]]
    if notion == "none":
        return Statement(
            "Minimal",
            "not shown",
            OPEN,
            f"No notion of minimality was shown: {minimality['basis']}.",
        )
    certain = minimality["holds"] == "unconditional" and run.document["faithful"] == "proved"
    firmness = SHOWN if certain else PARTLY
    condition = f", {how}" if how else ""
    meaning = MEANINGS.get(notion, notion)
    name = {"local": "locally minimal", "cardinal": "smallest"}.get(notion, f"{notion}-minimal")
    return Statement(
        "Minimal",
        f"{name}{CONDITIONS.get(minimality['holds'], '')}",
        firmness,
        f"{_sentence(meaning)}{condition}.",
        f"{minimality['basis']}.",
    )


def _lower_bound(run: Run) -> list[Statement]:
    minimality = run.document["minimality"]
    lower = minimality["lower"]
    if not lower or minimality["notion"] == "cardinal":
        return []
    assumed = minimality["lower_holds"] == "assumed"
    condition = ", if the predicate is monotone" if assumed else ""
    return [
        Statement(
            "Smallest size",
            f"at least {lower}",
            PARTLY if assumed else SHOWN,
            f"No faithful circuit has fewer than {counted(lower, 'component')}{condition}.",
            f"{minimality['monotone']}.",
        )
    ]


def _undecided(run: Run) -> Statement:
    document = run.document
    total = document["queries"]["total"]
    left = document["queries"]["by_verdict"].get("undecided", 0)
    cut = {
        "interrupted": " The search was interrupted; this is its best circuit so far.",
        "budget": " The search's time was over; this is its best circuit so far.",
        None: "",
    }[document["stopped"]]
    if not left:
        words = f"None of the {counted(total, 'question')} stayed undecided.{cut}"
        return Statement("Left open", "nothing" if not cut else "the rest", SHOWN, words)
    return Statement(
        "Left open",
        counted(left, "question"),
        PARTLY,
        f"{left} of {counted(total, 'question')} stayed undecided. Whatever depended on one is "
        f"kept, and nothing is concluded from it.{cut}",
    )


def _blocking_set(run: Run) -> list[Statement]:
    found = run.document.get("blocking_set")
    if not isinstance(found, dict) or not isinstance(found.get("in_words"), list):
        return []
    names = found.get("components")
    head, *others = (_sentence(str(sentence)) for sentence in found["in_words"])
    answer = "none exists" if found.get("none") is True else "not found"
    settled = found.get("none") is True or found.get("smallest") is True
    if isinstance(names, list):
        answer = counted(len(names), "component")
        head = f"Without {', '.join(map(str, names))} the network itself breaks the claim"
    firmness = SHOWN if settled and found.get("holds") == "unconditional" else PARTLY
    if answer == "not found":
        firmness = OPEN
    basis = f"{found.get('monotone', 'its witness')}."
    words = " ".join(f"{sentence}." for sentence in (head, *others))
    return [Statement("Blocking set", answer, firmness, words, basis)]


def reason(run: Run, component: str) -> tuple[str, str]:
    """A component's status in a few words, and what that means."""
    document = run.document
    patched = document["claim"]["in_words"]["patching"]
    status = document["kept"].get(component)
    proved = document["faithful"] == "proved"
    if status is None:
        how = (
            "Removed by proof: the circuit, which does without it, was proved to satisfy the claim "
            "for every input of every region."
            if proved
            else "Removed because the claim held without it at the points tried. Nothing is proved."
        )
        return ("removed, by proof" if proved else "removed"), f"{how} In its place: {patched}."
    witness = document["witnesses"].get(component)
    where = "" if witness is None else f" near {input_words(document, witness['input'])}"
    because = "" if witness is None else f": {witness['in_words']}"
    meaning = {
        "necessary": f"Without it this very circuit breaks the claim{where}{because}.",
        "refuted-when-tried": (
            f"When its removal was tried, the circuit was still larger, and broke the claim{where}"
            f"{because}. Of the final circuit without it nothing is known."
        ),
        "undecided": (
            "It is kept because its removal stayed undecided, or was never asked about. "
            "It may be superfluous."
        ),
        "removable": (
            f"{'The' if proved else 'At the points tried, the'} circuit without it satisfies the "
            "claim too. It is kept because its removal failed when it was tried, or was never "
            "tried."
        ),
    }[status]
    return SHORT[status], meaning


def settings_of(run: Run) -> list[tuple[str, str]]:
    """The settings of a run as pairs of texts, those that are not set left out."""
    claim = run.document["claim"]
    pairs: dict[str, Any] = {
        **run.document["settings"],
        "claimed patching": claim["patching"],
        "claimed metric": claim["metric"],
    }
    return [(name.replace("_", " "), _value(v)) for name, v in pairs.items() if v is not None]


def counted(count: int, noun: str) -> str:
    """A number with its noun: ``1 region``, ``3 regions``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(_value(item) for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_value(item)}" for name, item in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
