"""``provable-circuits reproduce``."""

from __future__ import annotations

import json as json_format
import os
from pathlib import Path
from typing import Annotated, Literal

import torch
import typer
from rich.console import Console

import provable_circuits as pc
from provable_circuits.cli import options

EXAMPLES = options.examples(
    "provable-circuits reproduce input-robustness --benchmark mnist --batches 100 --out run/",
    "provable-circuits reproduce minimality --out run/ --workers 4",
)
Experiment = Literal[
    "input-robustness", "patching-robustness", "minimality", "coverage", "runtime", "qualitative"
]


def reproduce(
    experiment: Annotated[
        Experiment, typer.Argument(metavar="NAME", help="Which experiment of the paper.")
    ],
    out: Annotated[Path, typer.Option(help="A folder for rows, tables and figures.")],
    benchmark: Annotated[
        Literal["mnist", "cifar10", "gtsrb", "taxinet", "tinytaxinet"],
        typer.Option(help="Which network and inputs."),
    ] = "mnist",
    batches: Annotated[
        int | None, typer.Option(min=1, help="How many batches. All there are by default.")
    ] = None,
    metric: Annotated[
        Literal["logit-difference", "winner-margin", "max-abs"],
        typer.Option(help="How outputs are compared."),
    ] = "logit-difference",
    sweep: Annotated[
        Literal["eps", "delta"] | None,
        typer.Option(help="The paper's ablation over radii or tolerances."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="The folder with the benchmarks' files.", envvar="PROVABLE_CIRCUITS_DATA"
        ),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Batches that run side by side.")] = 1,
    timeout: options.Timeout = None,
    max_nodes: options.MaxNodes = None,
    check_timeout: Annotated[
        float | None,
        typer.Option(
            min=0.001, help="Seconds for the check of a circuit found. As --timeout by default."
        ),
    ] = None,
    seed: options.Seed = 0,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Run an experiment of the paper, and print our figures beside the published ones.

    One line for each batch is written as it finishes; run the same command again to go on after an
    interrupt.
    """
    from provable_circuits.experiments.reproduce import Request
    from provable_circuits.experiments.reproduce import reproduce as carry_out
    from provable_circuits.report.live import LiveLine

    request = Request(
        experiment=experiment,
        benchmark=benchmark,
        batches=batches,
        metric=metric,
        sweep=sweep,
        folder=None if data is None else os.fspath(data),
        timeout=45.0 if timeout is None else timeout,
        check_timeout=check_timeout,
        max_nodes=max_nodes,
        seed=seed,
    )
    if benchmark in ("mnist", "taxinet", "tinytaxinet"):
        torch.set_num_threads(1)  # their tensors are small: threads cost more than they bring
    with LiveLine(Console(stderr=True, highlight=False), quiet or json) as live:
        page = carry_out(request, out, workers, live)
    if json:
        rows = [json_format.loads(line) for line in (out / "rows.jsonl").read_text().splitlines()]
        document = {"request": rows[0], "rows": rows[1:], "version": pc.__version__}
        typer.echo(json_format.dumps(document, indent=2))
    else:
        typer.echo(page)
