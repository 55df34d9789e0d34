"""The command line: ``provable-circuits``, one file for each command."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

import provable_circuits as pc
from provable_circuits.cli import (
    check,
    components,
    demo,
    discover,
    export,
    journal,
    reproduce,
    show,
    verify,
)
from provable_circuits.cli.endings import DEBUG, Commands, run
from provable_circuits.cli.options import examples

app = typer.Typer(
    name="provable-circuits",
    cls=Commands,
    help="Find circuits in neural networks, and prove that they behave like the network.",
    epilog=examples(
        "provable-circuits demo",
        "provable-circuits components net.onnx",
        "provable-circuits discover net.onnx --data images/ --eps 0.01 --delta 2 --out run/",
        "provable-circuits export net.onnx run/ --onnx circuit.onnx",
    ),
    rich_markup_mode="markdown",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        Console().print(f"provable-circuits {pc.__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
    debug: Annotated[
        bool, typer.Option(DEBUG, help="Show where in the program an error came from.")
    ] = False,
) -> None:
    """Find circuits in neural networks, and prove that they behave like the network."""


app.command(epilog=demo.EXAMPLES)(demo.demo)
app.command(epilog=components.EXAMPLES)(components.components)
app.command(epilog=discover.EXAMPLES)(discover.discover)
app.add_typer(journal.app)
app.command(epilog=check.EXAMPLES)(check.check)
app.command(epilog=show.EXAMPLES)(show.show)
app.command(epilog=verify.EXAMPLES)(verify.verify)
app.command(epilog=export.EXAMPLES)(export.export)
app.command(epilog=reproduce.EXAMPLES)(reproduce.reproduce)


def main() -> None:
    """Run the command line; errors are one sentence and an exit code."""
    run(app)
