"""The command line: ``provable-circuits``, one file for each command."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console

import provable_circuits as pc
from provable_circuits.cli.demo import demo
from provable_circuits.cli.discover import discover
from provable_circuits.cli.reproduce import reproduce
from provable_circuits.cli.show import show
from provable_circuits.cli.verify import verify
from provable_circuits.errors import ProvableCircuitsError

app = typer.Typer(
    name="provable-circuits",
    help="Find circuits in neural networks, and prove that they behave like the network.",
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
) -> None:
    """Find circuits in neural networks, and prove that they behave like the network."""


app.command()(demo)
app.command()(discover)
app.command()(reproduce)
app.command()(show)
app.command()(verify)


def main() -> None:
    """Run the command line; errors are one sentence and an exit code."""
    try:
        app()
    except ProvableCircuitsError as error:
        Console(stderr=True, highlight=False).print(f"Error: {error}", markup=False, soft_wrap=True)
        sys.exit(error.exit_code)
