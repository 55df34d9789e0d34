"""``provable-circuits discover``."""

from __future__ import annotations

import contextlib
import json as json_format
from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

import provable_circuits as pc
from provable_circuits.errors import ArgumentError, ClaimFailsError, MissingExtraError

EXIT_CODES = {"proved": 0, "sampled": 3, "undecided": 3}

GranularityName = Literal["auto", "neuron", "filter"]
Norm = Literal["inf", "2", "1"]
EpsScale = Literal["pixel", "input"]
Metric = Literal["logit-difference", "winner-margin", "max-abs", "norm-1", "norm-2"]
Patching = Literal["zero", "mean", "reachable", "interval"]
Algorithm = Literal["greedy", "exhaustive", "binary-search", "blocking-sets", "hitting-set"]
Method = Literal["proof", "sampling"]
Order = Literal["paper", "attribution", "random"]

CLAIM, SEARCH, OUTPUT, DATA = "The claim", "The search", "Output", "The data"


def discover(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file.")],
    data: Annotated[
        Path,
        typer.Option(
            help="An .npz file with inputs 'x' and, if there are any, labels 'y'.",
            rich_help_panel=DATA,
        ),
    ],
    index: Annotated[
        str | None,
        typer.Option(help="Which inputs, such as 0,1,2. All by default.", rich_help_panel=DATA),
    ] = None,
    scale: Annotated[
        float,
        typer.Option(help="Divide the data by this first, such as 255.", rich_help_panel=DATA),
    ] = 1.0,
    mean: Annotated[
        str | None,
        typer.Option(
            help="The network takes (pixel - mean) / std: one mean, or one for each channel.",
            rich_help_panel=DATA,
        ),
    ] = None,
    std: Annotated[
        str | None, typer.Option(help="The standard deviation of that.", rich_help_panel=DATA)
    ] = None,
    eps: Annotated[
        float, typer.Option(min=0, help="How far inputs may move.", rich_help_panel=CLAIM)
    ] = 0.01,
    norm: Annotated[Norm, typer.Option(help="By which norm.", rich_help_panel=CLAIM)] = "inf",
    clip: Annotated[
        str | None,
        typer.Option(
            help="Ends of the pixels, in their own scale, such as 0,1.", rich_help_panel=CLAIM
        ),
    ] = None,
    eps_scale: Annotated[
        EpsScale,
        typer.Option(
            help="Whether eps is meant before or after --mean and --std.", rich_help_panel=CLAIM
        ),
    ] = "pixel",
    metric: Annotated[
        Metric, typer.Option(help="How outputs are compared.", rich_help_panel=CLAIM)
    ] = "logit-difference",
    delta: Annotated[
        float,
        typer.Option(min=0, help="How far apart outputs may be.", rich_help_panel=CLAIM),
    ] = 2.0,
    target: Annotated[
        str,
        typer.Option(
            help="Of which output: a number, 'label' or 'predicted'.", rich_help_panel=CLAIM
        ),
    ] = "predicted",
    margin_fraction: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="The share of its lead the winner keeps.", rich_help_panel=CLAIM
        ),
    ] = 0.5,
    patching: Annotated[
        Patching,
        typer.Option(
            help="What removed components output. Only with interval do bounds need no assumption.",
            rich_help_panel=CLAIM,
        ),
    ] = "zero",
    patch_eps: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="The radius that patches come from (reachable, interval). As eps by default.",
            rich_help_panel=CLAIM,
        ),
    ] = None,
    patch_data: Annotated[
        Path | None,
        typer.Option(
            help="An .npz file over which means are taken (mean). The data by default.",
            rich_help_panel=CLAIM,
        ),
    ] = None,
    granularity: Annotated[
        GranularityName, typer.Option(help="What a component is.", rich_help_panel=SEARCH)
    ] = "auto",
    outputs: Annotated[
        bool,
        typer.Option(help="Whether output units are components.", rich_help_panel=SEARCH),
    ] = True,
    algorithm: Annotated[
        Algorithm, typer.Option(help="The search.", rich_help_panel=SEARCH)
    ] = "greedy",
    method: Annotated[
        Method,
        typer.Option(help="Prove, or only try at the inputs themselves.", rich_help_panel=SEARCH),
    ] = "proof",
    points: Annotated[
        int,
        typer.Option(
            min=0, help="Random points tried besides each input (sampling).", rich_help_panel=SEARCH
        ),
    ] = 0,
    order: Annotated[
        Order, typer.Option(help="Which component is tried first.", rich_help_panel=SEARCH)
    ] = "paper",
    t_max: Annotated[
        int,
        typer.Option(min=1, help="Size of blocking sets listed.", rich_help_panel=SEARCH),
    ] = 3,
    local_check: Annotated[
        bool,
        typer.Option(
            "--local-check",
            help="Ask in the end about each component not shown necessary.",
            rich_help_panel=SEARCH,
        ),
    ] = False,
    assume_monotone: Annotated[
        bool,
        typer.Option(
            "--assume-monotone",
            help="Draw conclusions as if larger circuits never broke; they say so.",
            rich_help_panel=SEARCH,
        ),
    ] = False,
    blocking_set: Annotated[
        bool,
        typer.Option(
            "--blocking-set",
            help="Also find a smallest set whose removal breaks the network.",
            rich_help_panel=SEARCH,
        ),
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=0.001, help="Seconds for a question.", rich_help_panel=SEARCH)
    ] = 45.0,
    budget: Annotated[
        float | None,
        typer.Option(min=0.001, help="Seconds for the whole search.", rich_help_panel=SEARCH),
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, help="Processes that answer questions.", rich_help_panel=SEARCH)
    ] = 1,
    dask: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Use the workers of a Dask cluster, such as tcp://host:8786.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="The seed of whatever is random.", rich_help_panel=SEARCH)
    ] = 0,
    out: Annotated[
        Path | None,
        typer.Option(help="A folder for the result, made if need be.", rich_help_panel=OUTPUT),
    ] = None,
    json: Annotated[
        bool,
        typer.Option("--json", help="Print one machine-readable document.", rich_help_panel=OUTPUT),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Show no progress.", rich_help_panel=OUTPUT)
    ] = False,
) -> None:
    """Find a small circuit of an ONNX network, and prove that it behaves like the network.

    The exit code is 0 if the circuit is proved faithful, 1 if the network itself violates the
    claim, 2 if the call is wrong, 3 if nothing was proved. Ctrl-C ends the search with the best
    circuit so far.

    Example: provable-circuits discover net.onnx --data batch.npz --index 0,1,2 --eps 0.01 --delta 2
    """
    from provable_circuits.cli.claims import ClaimOptions
    from provable_circuits.cli.inputs import Scale, chosen, read_inputs
    from provable_circuits.cli.threads import use_threads_for
    from provable_circuits.discover.run import prepare_folder
    from provable_circuits.network.graph import Graph
    from provable_circuits.report.live import LiveLine

    if dask is not None and workers != 1:
        raise ArgumentError("Give either --workers or --dask, not both.")
    if not scale > 0:
        raise ArgumentError(f"The '--scale' option must be positive. Got {scale:g} instead.")
    for option, given, needed in [
        ("--patch-eps", patch_eps is not None, patching in ("reachable", "interval")),
        ("--patch-data", patch_data is not None, patching == "mean"),
        ("--target", target != "predicted", metric == "logit-difference"),
        ("--points", points != 0, method == "sampling"),
    ]:
        if given and not needed:
            raise ArgumentError(
                f"The '{option}' option has no meaning in this claim: leave it out."
            )
    if out is not None:
        prepare_folder(out)
    graph = Graph.from_onnx(model)
    use_threads_for(graph)
    pixels, labels = read_inputs(data, graph, scale)
    samples = pixels if patch_data is None else read_inputs(patch_data, graph, scale)[0]
    places = chosen(index, len(pixels))
    normal = Scale.of(mean, std)
    options = ClaimOptions(
        eps=eps,
        norm=norm,
        clip=clip,
        eps_scale=eps_scale,
        delta=delta,
        metric=metric,
        margin_fraction=margin_fraction,
        target=target,
        patching=patching,
        patch_eps=patch_eps,
    )
    own = None if labels is None else labels[places]
    claim = options.claim(pixels[places], own, samples, normal)
    asked = {
        "model": str(model),
        "data": str(data),
        "index": places,
        "eps": eps,
        "norm": norm,
        "clip": clip,
        "eps_scale": eps_scale if normal.std is not None else "input",
        "mean": mean,
        "std": std,
        "scale": scale,
        "delta": delta,
        "metric": metric,
        "margin_fraction": margin_fraction,
        "target": target,
        "patching": patching,
        "patch_eps": patch_eps,
    }
    console = Console(stderr=True, highlight=False)
    with _crew(workers, dask) as crew, LiveLine(console, quiet or json) as live:
        shared: dict[str, Any] = {
            "outputs": outputs,
            "assume_monotone": assume_monotone,
            "timeout": timeout,
            "budget": budget,
            "workers": crew,
            "seed": seed,
            "listener": live,
        }
        try:
            result = pc.discover(
                graph,
                claim,
                granularity,
                algorithm,
                method=method,
                points=points,
                order=order,
                t_max=t_max,
                local_check=local_check,
                **shared,
            )
        except ClaimFailsError as error:
            if not json:
                raise
            typer.echo(json_format.dumps(_failure(error, asked), indent=2))
            raise typer.Exit(error.exit_code) from None
        blocking = None
        if blocking_set and result.stopped is None:
            blocking = pc.blocking_set(graph, claim, granularity, **shared)
    record = result.record(
        asked, labels=own, mean=normal.mean, std=normal.std, blocking_set=blocking
    )
    if out is not None:
        record.save(out)
    if json:
        typer.echo(json_format.dumps(record.document, indent=2))
    else:
        typer.echo(str(result))
        typer.echo(f"Scale: {options.scale_line(normal)}")
        if own is not None and len(graph.output_shape) == 1 and graph.output_shape[0] > 1:
            right = int((graph.run(normal.inputs(pixels[places])).argmax(1) == own).sum())
            typer.echo(f"Labels: the network gets {right} of {len(places)} inputs right")
        if blocking is not None:
            typer.echo(str(blocking))
        if out is not None:
            typer.echo(f"Written to {out}")
    raise typer.Exit(EXIT_CODES[result.faithful])


def _failure(error: ClaimFailsError, asked: dict[str, Any]) -> dict[str, Any]:
    """What is printed of a network that violates the claim itself."""
    from provable_circuits.discover.result import witness_document

    return {
        "circuit": None,
        "faithful": "refuted",
        "error": str(error),
        "witness": witness_document(error.verdict),
        "settings": asked,
        "version": pc.__version__,
    }


@contextlib.contextmanager
def _crew(workers: int, dask: str | None) -> Iterator[int | Executor]:
    """The workers asked for: how many processes, or those of a cluster."""
    if dask is None:
        yield workers
        return
    try:
        from distributed import Client
    except ImportError:
        raise MissingExtraError("distributed", "dask", "--dask") from None
    try:
        client = Client(dask, timeout=10, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise ArgumentError(f"There is no Dask scheduler at {dask!r}: {error}.") from None
    try:
        yield client.get_executor()
    finally:
        client.close()
