"""``provable-circuits check``."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

import provable_circuits as pc
from provable_circuits.cli import options
from provable_circuits.errors import DataError

EXAMPLES = options.examples(
    "provable-circuits check run/",
    "provable-circuits check run/ --page certificate.html",
    "provable-circuits check certificate/ --exact",
    "provable-circuits check certificate/ --json",
)


def check(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder of a certificate, or of a run.")
    ],
    exact: Annotated[
        bool,
        typer.Option("--exact", help="Compute in rational numbers; for small networks."),
    ] = False,
    page: Annotated[
        Path | None,
        typer.Option(
            "--page",
            metavar="FILE",
            help="Write a page to print and sign: claim, picture, digests and commands. Of a run.",
        ),
    ] = None,
    json: options.Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
) -> None:
    """Check every proof and witness of a certificate, by a program that shares nothing with ours.

    Exit codes: 0 every statement holds, 1 one does not, or the certificate is refused.
    """
    if not folder.is_dir():
        raise DataError(f"There is no folder '{folder}'.")
    checked = pc.check(folder, exact=exact) if page is None else _sheet(folder, exact, page)
    if json:
        document = {
            "holds": checked.holds,
            "exact": exact,
            "statements": [
                {"statement": f.statement, "holds": f.holds, "reason": f.reason}
                for f in checked.findings
            ],
            "version": pc.__version__,
        }
        typer.echo(json_format.dumps(document, indent=2))
    elif not quiet:
        table = Table("statement", "", "rests on")
        for finding in checked.findings:
            table.add_row(finding.statement, "holds" if finding.holds else "NO", finding.reason)
        Console(highlight=False).print(table, markup=False)
    if not checked.holds:
        raise typer.Exit(1)


def _sheet(folder: Path, exact: bool, page: Path) -> pc.Check:
    """Check a run, and write the page of its certificate if every statement holds."""
    from provable_circuits.discover.results.checking import check_run
    from provable_circuits.discover.results.run import Run
    from provable_circuits.report.page.build import certificate_page

    if not (folder / "result.json").exists():
        raise DataError(f"A page is about a run, and '{folder}' is none: leave --page out.")
    found, run = check_run(Run.load(folder), exact)
    if found.holds:
        try:
            page.write_text(certificate_page(run, folder.resolve().name), encoding="utf-8")
        except OSError as error:
            raise DataError(f"The page '{page}' cannot be written: {error.strerror}.") from None
    return found
