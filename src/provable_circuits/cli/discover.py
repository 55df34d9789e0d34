"""``provable-circuits discover``."""

from __future__ import annotations

import json as json_format
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

import provable_circuits as pc
from provable_circuits.cli import options
from provable_circuits.errors import ArgumentError, ClaimFailsError, DataError

if TYPE_CHECKING:
    from provable_circuits.cli.claims import Inputs
    from provable_circuits.discover.results.run import Run

EXIT_CODES = {"proved": 0, "sampled": 3, "undecided": 3}
EXAMPLES = options.examples(
    "provable-circuits discover net.onnx --data batch.npz --index 0,1,2 --eps 0.01 --delta 2",
    "provable-circuits discover net.onnx --data photos/ --mean 0.5 --std 0.25 --clip 0,1 --out run",
    "provable-circuits discover net.onnx --data seven.png --patching interval "
    "--algorithm hitting-set",
)


def discover(
    context: typer.Context,
    model: options.Model,
    data: options.Data,
    index: options.Index = None,
    scale: options.ScaleBy = None,
    mean: options.Mean = None,
    std: options.Std = None,
    eps: options.Eps = 0.01,
    norm: options.Norm = "inf",
    clip: options.Clip = None,
    eps_scale: options.EpsScale = "pixel",
    metric: options.Metric = "logit-difference",
    delta: options.Delta = 2.0,
    target: options.Target = "predicted",
    margin_fraction: options.MarginFraction = 0.5,
    patching: options.Patching = "zero",
    patch_eps: options.PatchEps = None,
    patch_data: options.PatchData = None,
    granularity: options.Granularity = "auto",
    outputs: options.Outputs = True,
    shortcuts: options.Shortcuts = False,
    algorithm: options.Algorithm = "greedy",
    method: options.Method = "proof",
    points: options.Points = 0,
    order: options.Order = "paper",
    t_max: options.TMax = 3,
    local_check: options.LocalCheck = False,
    assume_monotone: options.AssumeMonotone = False,
    blocking_set: options.BlockingSet = False,
    timeout: options.Timeout = None,
    max_nodes: options.MaxNodes = None,
    budget: options.Budget = None,
    certify: options.Certify = True,
    certify_timeout: options.CertifyTimeout = None,
    workers: options.Workers = 1,
    dask: options.Dask = None,
    journal: options.Journal = None,
    seed: options.Seed = 0,
    out: options.Out = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Find a small circuit of an ONNX network, and prove that it behaves like the network.

    What is found is certified in the end, unless --no-certify: proved once more as data, which a
    checker that shares nothing with the search accepts.

    The exit code is 0 if the circuit is proved faithful, 1 if the network itself violates the
    claim, 2 if the call is wrong or the result could not be saved, 3 if nothing was proved. Ctrl-C
    and SIGTERM end the search with the best circuit so far.
    """
    from provable_circuits.cli.claims import ClaimOptions, DataOptions
    from provable_circuits.cli.cluster import check_address, crew_of
    from provable_circuits.cli.endings import say
    from provable_circuits.cli.threads import use_threads_for
    from provable_circuits.discover.results.labels import is_wrong, label_lines
    from provable_circuits.files import locked, prepare_folder
    from provable_circuits.network.graph import Graph
    from provable_circuits.report.live import LiveLine

    if dask is not None and workers != 1:
        raise ArgumentError("Give either --workers or --dask, not both.")
    if dask is not None:
        check_address(dask)
    for option, given, needed in [
        ("--patch-eps", patch_eps is not None, patching in ("reachable", "interval")),
        ("--patch-data", patch_data is not None, patching == "mean"),
        ("--target", target != "predicted", metric == "logit-difference"),
        ("--points", points != 0, method == "sampling"),
        ("--certify-timeout", certify_timeout is not None, certify and method == "proof"),
    ]:
        if given and not needed:
            raise ArgumentError(
                f"The '{option}' option has no meaning in this claim: leave it out."
            )
    if out is not None:
        prepare_folder(out)
        context.with_resource(locked(out))
    kept = _journal(journal, out) if method == "proof" else None
    graph = Graph.from_onnx(model)
    use_threads_for(graph)
    inputs = DataOptions(data, patch_data, index, scale, mean, std).read(graph, patching == "mean")
    asked = ClaimOptions(
        eps=eps,
        norm=norm,
        clip=clip,
        eps_scale=eps_scale if inputs.scale.std is not None else "input",
        delta=delta,
        metric=metric,
        margin_fraction=margin_fraction,
        target=target,
        patching=patching,
        patch_eps=patch_eps,
    )
    claim = asked.claim(inputs)
    warning = asked.warning(inputs)
    if warning is not None:
        say(warning)
    settings: dict[str, Any] = {
        "model": str(model),
        "data": str(data),
        "patch_data": None if patch_data is None else str(patch_data),
        "data_digest": inputs.digest,
        "index": inputs.places,
        "files": inputs.files,
        "scale": inputs.divide,
        "mean": mean,
        "std": std,
        **asdict(asked),
    }
    console = Console(stderr=True, highlight=False)
    with crew_of(workers, dask) as crew, LiveLine(console, quiet or json) as live:
        shared: dict[str, Any] = {
            "outputs": outputs,
            "shortcuts": shortcuts,
            "assume_monotone": assume_monotone,
            "timeout": timeout,
            "max_nodes": max_nodes,
            "budget": budget,
            "workers": crew,
            "seed": seed,
            "journal": kept,
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
                certify=certify,
                certify_timeout=certify_timeout,
                **shared,
            )
        except ClaimFailsError as error:
            error = _located(error, inputs, claim)
            labels = _labels(inputs, graph)
            if not json:
                if is_wrong({"labels": labels}, error.verdict.witness.index):
                    typer.echo("\n".join(label_lines(labels)), err=True)
                raise error from None
            document = {**_failure(error, settings), "labels": labels}
            typer.echo(json_format.dumps(document, indent=2))
            raise typer.Exit(error.exit_code) from None
        blocking = None
        if blocking_set and result.stopped is None:
            blocking = pc.blocking_set(graph, claim, granularity, **shared)
    record = result.record(
        settings,
        labels=inputs.labels,
        mean=inputs.scale.mean,
        std=inputs.scale.std,
        blocking_set=blocking,
    )
    unsaved = None if out is None else _save(record, out)
    if json:
        typer.echo(json_format.dumps(record.document, indent=2))
    else:
        typer.echo(str(record))
        typer.echo(f"Scale: {asked.scale_line(inputs)}")
        typer.echo("".join(f"{line}\n" for line in inputs.notes), nl=False)
        if blocking is not None:
            typer.echo(str(blocking))
        if out is not None and unsaved is None:
            typer.echo(f"Written to {out}")
    if unsaved is not None:
        raise unsaved
    raise typer.Exit(EXIT_CODES[result.faithful])


def _journal(named: Path | None, out: Path | None) -> Path | None:
    """Where verdicts are kept: where it is said, or with the run if that is safe."""
    from provable_circuits.cli.endings import say
    from provable_circuits.discover.journal.store import NAME
    from provable_circuits.discover.journal.surroundings import unsafe

    if named is not None or out is None:
        return named
    kind = unsafe(out)
    if kind is None:
        return out / NAME
    say(
        f"Note: the folder '{out}' is on a network file system ({kind}), where no journal can be "
        "kept safely: name a file on a disk of this machine with --journal to have one."
    )
    return None


def _save(record: Run, out: Path) -> DataError | None:
    """Save a run; the error if that fails, which must not keep the result from being printed."""
    try:
        record.save(out)
    except DataError as error:
        return DataError(f"The result above could not be saved. {error}")
    return None


def _labels(inputs: Inputs, graph: pc.Graph) -> dict[str, list[int]] | None:
    """Which inputs the network gets wrong, if their labels are known."""
    import torch

    from provable_circuits.discover.results.labels import label_document

    if inputs.labels is None:
        return None
    outputs = graph.run(inputs.scale.inputs(inputs.pixels), torch.float64)
    return label_document(outputs.numpy(), inputs.labels.numpy())


def _located(error: ClaimFailsError, inputs: Inputs, claim: pc.Claim) -> ClaimFailsError:
    """The same error in the scale of pixels, and with the input's place among the data."""
    from provable_circuits.claims.normalisation import Normalisation, domain_text

    index = error.verdict.witness.index
    domain, place = claim.inputs[index], inputs.places[index]
    scale = Normalisation.of(inputs.scale.mean, inputs.scale.std)
    text = str(error).replace(repr(domain), domain_text(domain, scale), 1)
    if inputs.files is not None:
        text += f" Input {index} is the image '{inputs.files[index]}'."
    elif place != index:
        text += f" Input {index} is number {place} of the data."
    return ClaimFailsError(text, error.verdict)


def _failure(error: ClaimFailsError, asked: dict[str, Any]) -> dict[str, Any]:
    """What is printed of a network that violates the claim itself."""
    from provable_circuits.discover.results.result import witness_document

    return {
        "circuit": None,
        "faithful": "refuted",
        "error": str(error),
        "witness": witness_document(error.verdict),
        "settings": asked,
        "version": pc.__version__,
    }
