"""The command line: ``provable-circuits``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console

import provable_circuits as pc
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


@app.command()
def demo(
    digit: Annotated[
        int, typer.Option(min=0, max=9, help="The digit whose circuit is sought.")
    ] = 9,
    eps: Annotated[float, typer.Option(min=0, help="How far each pixel (0 to 1) may move.")] = 0.01,
    delta: Annotated[float, typer.Option(min=0, help="How far the digit's logit may move.")] = 2.0,
) -> None:
    """Find and prove a circuit in a small network on real digits, end to end.

    Example: provable-circuits demo --digit 3 --eps 0.02
    """
    from provable_circuits.report.demo import run_demo

    run_demo(Console(highlight=False), digit, eps, delta)


def main() -> None:
    """Run the command line; errors are one sentence and an exit code."""
    try:
        app()
    except ProvableCircuitsError as error:
        Console(stderr=True, highlight=False).print(f"Error: {error}", markup=False, soft_wrap=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
