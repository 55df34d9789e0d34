"""The command line: ``provable-circuits``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import provable_circuits as pc
from provable_circuits.errors import ProvableCircuitsError

EXIT_CODES = {"holds": 0, "violated": 1, "unknown": 3, "timeout": 3}

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


@app.command()
def verify(
    network: Annotated[Path, typer.Argument(metavar="NETWORK", help="An ONNX file.")],
    question: Annotated[
        Path,
        typer.Argument(metavar="PROPERTY", help="What must not happen: VNN-LIB, gzipped or not."),
    ],
    timeout: Annotated[
        float, typer.Option(min=0.001, help="Seconds after which the answer is 'timeout'.")
    ] = 60.0,
    seed: Annotated[int, typer.Option(help="The seed of the attack's random starts.")] = 0,
    json: Annotated[
        bool, typer.Option("--json", help="Print one machine-readable document.")
    ] = False,
) -> None:
    """Decide whether an ONNX network keeps clear of what a VNN-LIB property describes.

    The first line is 'unsat' (the property holds, proved), 'sat', 'unknown' or 'timeout'; after
    'sat' follows a counterexample. The exit code is 0, 1, 3 and 3.

    Example: provable-circuits verify net.onnx property.vnnlib --timeout 60
    """
    from provable_circuits.network.graph import Graph
    from provable_circuits.report.answer import property_document, property_lines
    from provable_circuits.verify.property import decide
    from provable_circuits.verify.vnnlib import read_property

    verdict = decide(Graph.from_onnx(network), read_property(question), timeout, seed)
    if json:
        settings = {"timeout": timeout, "seed": seed}
        files = {"network": str(network), "property": str(question)}
        typer.echo(property_document(verdict, {**files, **settings}, pc.__version__))
    else:
        typer.echo("\n".join(property_lines(verdict)))
        if verdict.status == "unknown":
            typer.echo(f"unknown: {verdict.reason}", err=True)
    raise typer.Exit(EXIT_CODES[verdict.status])


def main() -> None:
    """Run the command line; errors are one sentence and an exit code."""
    try:
        app()
    except ProvableCircuitsError as error:
        Console(stderr=True, highlight=False).print(f"Error: {error}", markup=False, soft_wrap=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
