"""``provable-circuits demo``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console


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
