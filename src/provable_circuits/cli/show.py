"""``provable-circuits show``."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from provable_circuits.cli import options
from provable_circuits.errors import ArgumentError, CertificateError, DataError
from provable_circuits.files import write_file

if TYPE_CHECKING:
    from provable_circuits.discover.results.run import Run
    from provable_circuits.report.comparison import Comparison

EXAMPLES = options.examples(
    "provable-circuits show run/",
    "provable-circuits show run/ --html --check",
    "provable-circuits show proved/ sampled/ --html --out comparison.html",
)


def show(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A folder that discover --out wrote.")],
    other: Annotated[
        Path | None,
        typer.Argument(metavar="RUN2", help="A second one, about the same network, to compare."),
    ] = None,
    html: Annotated[
        bool,
        typer.Option(
            "--html",
            help="Write a page for a browser: report.html in the folder of the run, or "
            "comparison.html in that of the first of two.",
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Another place for the page."),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Check certificates first; without it they are not checked."),
    ] = False,
    json: options.Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
) -> None:
    """Show a run that was saved: as text, or as one HTML page that opens offline.

    Neither the model nor the data is needed. With two runs, their circuits are compared.
    """
    from provable_circuits.discover.results.run import Run
    from provable_circuits.report.comparison import Comparison, names_of
    from provable_circuits.report.text import print_comparison, print_run

    if out is not None and not html:
        raise ArgumentError("The '--out' option says where the page goes: give --html too.")
    first = _loaded(run, check)
    shown: Run | Comparison = first
    if other is not None:
        shown = Comparison(first, _loaded(other, check), names_of(run, other))
    path = out or run / ("report.html" if other is None else "comparison.html")
    if html:
        _write_page(shown, run.resolve().name, path)
    if quiet:
        return
    if json:
        document = shown.document if isinstance(shown, Run) else shown.document()
        typer.echo(json_format.dumps(document, indent=2))
    elif html:
        typer.echo(f"Written to {path}")
    elif isinstance(shown, Run):
        print_run(Console(highlight=False), shown)
    else:
        print_comparison(Console(highlight=False), shown)


def _loaded(folder: Path, check: bool) -> Run:
    """A run; its certificate checked, if that is wanted and there is one."""
    from provable_circuits.discover.results.checking import check_run
    from provable_circuits.discover.results.run import Run

    run = Run.load(folder)
    if not check or run.certificate is None:
        return run
    found, checked = check_run(run)
    failed = next((finding for finding in found.findings if not finding.holds), None)
    if failed is not None:
        raise CertificateError(
            f"The checker does not accept, of '{folder}', that {failed.statement}: {failed.reason}"
        )
    return checked


def _write_page(shown: Run | Comparison, name: str, path: Path) -> None:
    from provable_circuits.report.page.build import report_page

    page = report_page(shown, name)
    try:
        write_file(path, page.encode())
    except OSError as error:
        raise DataError(f"The page '{path}' cannot be written: {error.strerror}.") from None
