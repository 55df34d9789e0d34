"""A run, or two compared, as text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from provable_circuits.discover.results.guarantees import HOLDS
from provable_circuits.discover.results.labels import MOST, input_words
from provable_circuits.discover.results.run import Run
from provable_circuits.report.comparison import Comparison


def print_run(console: Console, run: Run) -> None:
    """What was found, what it rests on, and the witness behind each kept component."""
    for line in str(run).splitlines():
        head, colon, rest = line.partition(":")
        heading = colon and not line.startswith(" ")
        text = Text.assemble((head, "bold"), colon, rest) if heading else Text(line)
        console.print(text, soft_wrap=True)
    witnesses = run.document["witnesses"]
    if witnesses:
        console.print(Text("Witnesses:", "bold"))
    width = max(map(len, witnesses), default=0)
    for name, told in witnesses.items():
        where = f"near {input_words(run.document, told['input'])}"
        console.print(Text(f"  {name:<{width}}  {where}, {told['in_words']}"), soft_wrap=True)


def print_comparison(console: Console, comparison: Comparison) -> None:
    """Both runs side by side, and the components that they share or do not."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("")
    for name in comparison.names:
        table.add_column(Text(name))
    facts = [_facts(run.document) for run in (comparison.first, comparison.second)]
    for label in facts[0]:
        table.add_row(Text(label, "bold"), *(Text(column[label]) for column in facts))
    console.print(table)
    for told in comparison.withdrawn:
        console.print(Text.assemble(("Withdrawn", "bold"), f" from {told}"), soft_wrap=True)
    first, second = comparison.names
    for label, names in [
        ("In both", comparison.shared),
        (f"Only in {first}", comparison.first_only),
        (f"Only in {second}", comparison.second_only),
    ]:
        listed = ", ".join(names) or "none"
        text = Text.assemble((f"{label} ({len(names)})", "bold"), f": {listed}")
        console.print(text, soft_wrap=True)


def _facts(document: Mapping[str, Any]) -> dict[str, str]:
    circuit, minimality, queries = (document[name] for name in ("circuit", "minimality", "queries"))
    how = HOLDS[minimality["holds"]]
    necessary = sum(status == "necessary" for status in document["kept"].values())
    lower = minimality["lower"]
    return {
        "components": f"{circuit['size']} of {circuit['of']}",
        "faithful": document["faithful"],
        "necessary": f"{necessary} of {circuit['size']}",
        "minimality": minimality["notion"] + (f", {how}" if how else ""),
        "lower bound": "nothing claimed" if lower is None else f"{lower} components",
        "inputs": document["claim"]["inputs"][0],
        "labels": _labels(document.get("labels")),
        "patching": document["claim"]["patching"],
        "metric": document["claim"]["metric"],
        "search": f"{document['settings'].get('algorithm')}, {document['settings'].get('method')}",
        "questions": f"{queries['total']}, {queries['by_verdict'].get('undecided', 0)} undecided",
        "time": f"{document['seconds']:.2f} s",
    }


def _labels(told: Mapping[str, Any] | None) -> str:
    if told is None:
        return "not known"
    count, wrong = len(told["given"]), [str(place) for place in told["wrong"]]
    which = f"; input {', '.join(wrong[:MOST])}{' ...' if wrong[MOST:] else ''}" if wrong else ""
    return f"{len(wrong)} of {count} inputs wrong{which}"
