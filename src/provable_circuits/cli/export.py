"""``provable-circuits export``."""

from __future__ import annotations

import io
import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import provable_circuits as pc
from provable_circuits.cli import options
from provable_circuits.cli.endings import say
from provable_circuits.cli.options import option
from provable_circuits.errors import ArgumentError, DataError, ModelFileError
from provable_circuits.files import write_file
from provable_circuits.network.ops import Conv2d, Linear

if TYPE_CHECKING:
    from provable_circuits.cli.claims import DataOptions
    from provable_circuits.cli.runs import Found

WHAT, PATCH = "What to write", "What removed components output"
EXAMPLES = options.examples(
    "provable-circuits export net.onnx run/ --onnx circuit.onnx --torch circuit.pt2",
    "provable-circuits export net.onnx run/ --graph circuit-graph.json --vnnlib questions/",
    "provable-circuits export net.onnx circuit.json --onnx circuit.onnx --patching mean "
    "--patch-data batch.npz",
)


def export(
    model: options.Model,
    circuit: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="The folder of a run (discover --out), or a circuit.json."
        ),
    ],
    onnx: Annotated[
        Path | None, option(WHAT, "The circuit as an ONNX network: a file, .onnx.")
    ] = None,
    torch: Annotated[
        Path | None,
        option(WHAT, "The circuit as a module for torch.export.load: a file, .pt2."),
    ] = None,
    graph: Annotated[
        Path | None,
        option(WHAT, "Components and edges in the schema of EAP-IG and MIB: a file, .json."),
    ] = None,
    heads: Annotated[
        bool,
        option(WHAT, "In that, name components as heads, so that EAP-IG loads it.", "--heads"),
    ] = False,
    vnnlib: Annotated[
        Path | None,
        option(WHAT, "The run's question as ONNX and VNN-LIB, for other verifiers: a folder."),
    ] = None,
    patching: Annotated[
        Literal["zero", "mean"] | None,
        option(PATCH, "Zero or a mean. By default as in the run; zero for a circuit alone."),
    ] = None,
    patch_value: Annotated[float | None, option(PATCH, "This number, for all.")] = None,
    patch_data: Annotated[
        Path | None, option(PATCH, "Data over which means are taken. By default the run's.")
    ] = None,
    data: Annotated[
        Path | None, option(options.DATA, "The run's data, if it is no longer where it was.")
    ] = None,
    scale: options.ScaleBy = None,
    mean: options.Mean = None,
    std: options.Std = None,
    granularity: options.Granularity = "auto",
    outputs: options.Outputs = True,
    shortcuts: options.Shortcuts = False,
    json: options.Json = False,
    quiet: Annotated[bool, option(options.OUTPUT, "Print nothing but errors.", "--quiet")] = False,
) -> None:
    """Take a circuit elsewhere: as a network, a module, a graph, or a question.

    In the network and the module, removed components are cut out of the weights and what they
    output is folded into biases; that takes one value for each. A run under reachable or interval
    patching has no such value: name one with --patching or --patch-value.

    For a circuit without its run, give the --granularity, --outputs and --shortcuts it was found
    with.
    """
    from provable_circuits.cli.runs import read_found
    from provable_circuits.properties.export import export_query
    from provable_circuits.verify.encoding.encoder import Encoder

    _check_names(onnx, torch, graph, vnnlib)
    if heads and graph is None:
        raise ArgumentError("The '--heads' option belongs to --graph.")
    network = pc.Graph.from_onnx(model)
    found = read_found(circuit)
    kept = _circuit(network, found, granularity, outputs, shortcuts)
    known = found.data_options(data, patch_data, scale, mean, std)
    written: dict[str, Any] = {}
    notes: list[str] = []
    if onnx is not None or torch is not None:
        patch, words = _patch(network, found, known, patching, patch_value, patch_data)
        pruned = kept.to_graph(patch)
        notes.append(f"Removed components output {words}.")
        notes.append(
            f"The circuit's layers have {_weights(pruned):,} of the network's "
            f"{_weights(network):,} weights."
        )
        if onnx is not None:
            pruned.to_onnx(onnx)
            written["onnx"] = str(onnx)
        if torch is not None:
            _write_module(pruned, torch)
            written["torch"] = str(torch)
    if graph is not None:
        _write_text(graph, kept.to_eap_json(heads=heads))
        written["graph"] = str(graph)
    if vnnlib is not None:
        query = Encoder(kept.components, found.claim(network, known)).encode(kept)
        exported = export_query(query, vnnlib)
        written["vnnlib"] = [str(file) for one in exported for file in (one.onnx, one.vnnlib)]
        notes.append("The claim holds of the circuit if every one of these questions is unsat.")
    if json:
        size = {"size": len(kept), "of": len(kept.components)}
        document = {"circuit": size, "written": written, "notes": notes, "version": pc.__version__}
        typer.echo(json_format.dumps(document, indent=2))
    if json or quiet:
        return
    typer.echo(f"Circuit: {len(kept)} of {len(kept.components)} components")
    for paths in written.values():
        for path in [paths] if isinstance(paths, str) else paths:
            typer.echo(f"Written to {path}")
    for note in notes:
        typer.echo(note)


def _check_names(
    onnx: Path | None, torch: Path | None, graph: Path | None, vnnlib: Path | None
) -> None:
    """Refuse a call that names nothing to write, or a file of another kind."""
    files = [("--onnx", onnx, ".onnx"), ("--torch", torch, ".pt2"), ("--graph", graph, ".json")]
    if vnnlib is None and all(path is None for _, path, _ in files):
        raise ArgumentError("Say what to write: --onnx, --torch, --graph or --vnnlib.")
    for name, path, suffix in files:
        if path is not None and path.suffix != suffix:
            raise ArgumentError(
                f"The '{name}' option must be a file that ends in {suffix}. Got '{path}' instead."
            )


def _circuit(
    network: pc.Graph, found: Found, granularity: str, outputs: bool, shortcuts: bool
) -> pc.Circuit:
    """The circuit, among the components that its run had."""
    settings = found.settings or {}
    granularity = settings.get("granularity", granularity)
    if granularity not in ("auto", "neuron", "filter"):
        raise ArgumentError(
            f"The run's components ({granularity}) were made in Python: export it there, with "
            "circuit.to_graph()."
        )
    components = network.components(
        granularity,
        outputs=bool(settings.get("outputs", outputs)),
        shortcuts=bool(settings.get("shortcuts", shortcuts)),
    )
    return pc.Circuit.from_json(found.circuit, components)


def _patch(
    network: pc.Graph,
    found: Found,
    data: DataOptions | None,
    named: str | None,
    value: float | None,
    over: Path | None,
) -> tuple[pc.Patching, str]:
    """A fixed patching, and in words what removed components output."""
    if value is not None and named is not None:
        raise ArgumentError("Give either --patching or --patch-value, not both.")
    if value is not None:
        return pc.Constant(value), f"{value:g}"
    asked = found.asked()
    if named is None and asked is None and found.patching not in (None, repr(pc.Zero())):
        raise ArgumentError(
            f"The run was made in Python, with the patching {found.patching}: export it there, "
            "with circuit.to_graph(), or choose a value with --patching or --patch-value."
        )
    kind = named or ("zero" if asked is None else asked.patching)
    if kind == "zero":
        return pc.Zero(), "zero"
    if kind != "mean":
        raise ArgumentError(
            f"The run's patching is {kind}: removed components may take any value of a range, so "
            "the circuit is no single function. Choose one value for each with --patching or "
            "--patch-value, or export the question with --vnnlib."
        )
    if data is None:
        raise ArgumentError("Say over which data means are taken: --patch-data.")
    if asked is not None and asked.patching == "mean" and over is None:
        return found.claim(network, data).patching, "their means, as in the run"
    warning = data.warning(network)
    if warning is not None:
        say(warning)
    return pc.Mean(data.network_inputs(network)), f"their means over {data.patch_data or data.data}"


def _weights(graph: pc.Graph) -> int:
    """How many numbers the layers of a network hold."""
    return sum(
        value.numel()
        for node in graph.nodes
        if isinstance(node.op, Linear | Conv2d)
        for value in node.op.parameters().values()
    )


def _write_module(graph: pc.Graph, path: Path) -> None:
    """A program of ``torch.export``: a file that needs none of our code to be loaded and run."""
    import torch

    module = graph.to_torch()
    example = torch.zeros(2, *graph.input_shape)
    batch = {0: torch.export.Dim.DYNAMIC}
    program = torch.export.export(module, (example,), dynamic_shapes=(batch,))
    try:
        data = io.BytesIO()
        torch.export.save(program, data)
        write_file(path, data.getvalue())
    except (OSError, RuntimeError) as error:
        reason = str(error).rstrip(".")
        raise ModelFileError(f"The file '{path}' cannot be written: {reason}.") from None


def _write_text(path: Path, text: str) -> None:
    try:
        write_file(path, f"{text}\n".encode())
    except OSError as error:
        raise DataError(f"The file '{path}' cannot be written: {error.strerror}.") from None
