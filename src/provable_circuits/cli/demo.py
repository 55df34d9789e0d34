"""``provable-circuits demo``."""

from __future__ import annotations

import json as json_format
from typing import Annotated

import typer
from rich.console import Console

import provable_circuits as pc
from provable_circuits.cli import options

EXAMPLES = options.examples(
    "provable-circuits demo", "provable-circuits demo --digit 3 --eps 0.02 --delta 1"
)


def demo(
    digit: Annotated[
        int, typer.Option(min=0, max=9, help="The digit whose circuit is sought.")
    ] = 9,
    eps: Annotated[float, typer.Option(min=0, help="How far each pixel (0 to 1) may move.")] = 0.01,
    delta: Annotated[float, typer.Option(min=0, help="How far the digit's logit may move.")] = 2.0,
    seed: options.Seed = 0,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Find and prove a circuit in a small network on real digits, end to end."""
    from provable_circuits.report.demo import run_demo

    console = Console(highlight=False, quiet=json)
    story = run_demo(console, digit, eps, delta, seed=seed, quiet=quiet)
    if json:
        document = {
            "sampled": story.sampled.document(),
            "sampled_verdict": story.verdict.kind,
            "proved": story.proved.document(),
            "certified": story.proved.certified,
            "settings": {"digit": digit, "eps": eps, "delta": delta, "seed": seed},
            "version": pc.__version__,
        }
        typer.echo(json_format.dumps(document, indent=2))
