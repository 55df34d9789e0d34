"""``provable-circuits journal``: what searches keep, looked at and looked after."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from provable_circuits.cli import options

if TYPE_CHECKING:
    from provable_circuits.discover.journal.store import VerdictJournal

EXAMPLES = options.examples(
    "provable-circuits journal show run/",
    "provable-circuits journal merge all.sqlite run-1/ run-2/",
    "provable-circuits journal export run/ > verdicts.jsonl",
)

app = typer.Typer(
    name="journal",
    help="Show, check, merge, export and prune journals of verdicts.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    epilog=EXAMPLES,
)
JournalPath = Annotated[
    Path, typer.Argument(metavar="JOURNAL", help="A journal, or the folder of a run.")
]


def opened(path: Path) -> VerdictJournal:
    """A journal that is there, by its name or that of its folder."""
    from provable_circuits.discover.journal.store import NAME, VerdictJournal

    return VerdictJournal(path / NAME if path.is_dir() else path, existing=True)


@app.command()
def show(journal: JournalPath, json: options.Json = False) -> None:
    """Which questions a journal holds the answers of."""
    from provable_circuits.discover.journal.upkeep import contents

    with opened(journal) as kept:
        found = contents(kept)
    if json:
        lines = [
            {
                "network": held.network,
                "claim": held.claim,
                "description": held.description,
                "current": held.current,
                "verdicts": held.verdicts,
            }
            for held in found
        ]
        typer.echo(json_format.dumps(lines, indent=2))
        return
    table = Table("network", "claim", "", "answers", "code")
    for held in found:
        counts = ", ".join(f"{count} {kind}" for kind, count in held.verdicts.items())
        now = "current" if held.current else "older"
        table.add_row(held.network, held.claim, held.description, counts, now)
    Console(highlight=False).print(table, markup=False)


@app.command()
def check(journal: JournalPath) -> None:
    """Whether a journal is whole. Exit codes: 0 it is, 1 it is not.

    Witnesses are replayed whenever an entry is used; here the file itself is looked at.
    """
    from provable_circuits.discover.journal.upkeep import faults

    with opened(journal) as kept:
        count, found = faults(kept)
    for fault in found[:20]:
        typer.echo(fault)
    typer.echo(f"{count} entries, {len(found)} faults.")
    if found:
        raise typer.Exit(1)


@app.command()
def merge(
    into: Annotated[Path, typer.Argument(help="The journal that takes over; made if need be.")],
    journals: Annotated[list[Path], typer.Argument(help="Journals, or folders of runs.")],
) -> None:
    """Take what other journals know over into one."""
    from provable_circuits.discover.journal import upkeep
    from provable_circuits.discover.journal.store import NAME, VerdictJournal

    with VerdictJournal(into / NAME if into.is_dir() else into) as kept:
        for path in journals:
            with opened(path) as other:
                came, refused = upkeep.merge(kept, other)
            told = f", {refused} damaged ones refused" if refused else ""
            typer.echo(f"{path}: {came} entries taken over{told}.")


@app.command()
def export(journal: JournalPath) -> None:
    """Print every entry as a line of JSON."""
    from provable_circuits.discover.journal.upkeep import exported

    with opened(journal) as kept:
        for line in exported(kept):
            typer.echo(json_format.dumps(line))


@app.command()
def prune(
    journal: JournalPath,
    undecided: Annotated[
        bool, typer.Option("--undecided", help="Also remove questions that stayed undecided.")
    ] = False,
) -> None:
    """Remove answers of other versions of the code, which are not used any more."""
    from provable_circuits.discover.journal import upkeep

    with opened(journal) as kept:
        typer.echo(f"{upkeep.prune(kept, undecided)} entries removed.")
