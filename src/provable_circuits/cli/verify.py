"""``provable-circuits verify``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import provable_circuits as pc
from provable_circuits.cli import options

EXIT_CODES = {"holds": 0, "violated": 1, "unknown": 3, "timeout": 3}
EXAMPLES = options.examples(
    "provable-circuits verify net.onnx property.vnnlib --timeout 60",
    "provable-circuits verify net.onnx property.vnnlib.gz --json",
)


def verify(
    model: options.Model,
    question: Annotated[
        Path,
        typer.Argument(metavar="PROPERTY", help="What must not happen: VNN-LIB, gzipped or not."),
    ],
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            help="Seconds after which the answer is 'timeout', reading included. 60 by default, "
            "and no limit with --max-nodes.",
        ),
    ] = None,
    max_nodes: options.MaxNodes = None,
    seed: options.Seed = 0,
    json: options.Json = False,
    quiet: Annotated[
        bool,
        options.option(
            options.OUTPUT,
            "Do not say why an answer is unknown, or more than the counterexample.",
            "--quiet",
        ),
    ] = False,
) -> None:
    """Decide whether an ONNX network keeps clear of what a VNN-LIB property describes.

    The first line is 'unsat' (the property holds, proved), 'sat', 'unknown' or 'timeout'; after
    'sat' follows a counterexample. The exit code is 0, 1, 3 and 3.
    """
    from provable_circuits.properties.status import PropertyStatus
    from provable_circuits.properties.verify import decide_files
    from provable_circuits.report.answer import property_document, property_lines
    from provable_circuits.verify.configuration import DEFAULT

    verdict = decide_files(model, question, timeout, seed, max_nodes=max_nodes)
    if json:
        if timeout is None and max_nodes is None:
            timeout = DEFAULT.limits.property_seconds
        settings = {"timeout": timeout, "max_nodes": max_nodes, "seed": seed}
        files = {"network": str(model), "property": str(question)}
        typer.echo(property_document(verdict, {**files, **settings}, pc.__version__))
    else:
        typer.echo("\n".join(property_lines(verdict)))
        if verdict.status == PropertyStatus.UNKNOWN and not quiet:
            typer.echo(f"unknown: {verdict.reason}", err=True)
        if verdict.note and not quiet:
            typer.echo(verdict.note, err=True)
    raise typer.Exit(EXIT_CODES[verdict.status])
