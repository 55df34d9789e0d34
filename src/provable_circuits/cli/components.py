"""``provable-circuits components``."""

from __future__ import annotations

import json as json_format
from typing import Any

import typer

import provable_circuits as pc
from provable_circuits.cli import options

EXAMPLES = options.examples(
    "provable-circuits components net.onnx",
    "provable-circuits components net.onnx --granularity filter --shortcuts --no-outputs",
    "provable-circuits components net.onnx --json",
)


def components(
    model: options.Model,
    granularity: options.Granularity = "auto",
    outputs: options.Outputs = True,
    shortcuts: options.Shortcuts = False,
    json: options.Json = False,
) -> None:
    """List what a circuit of an ONNX network can keep or remove, by layer.

    Nothing is run. Give the same --granularity, --outputs and --shortcuts to discover.
    """
    graph = pc.Graph.from_onnx(model)
    found = graph.components(granularity, outputs=outputs, shortcuts=shortcuts)
    layers = _layers(graph, found)
    if json:
        document = {
            "model": str(model),
            "network": graph.digest,
            "input": list(graph.input_shape),
            "output": list(graph.output_shape),
            "granularity": _kind(granularity, layers),
            "of": len(found),
            "layers": layers,
            "version": pc.__version__,
        }
        typer.echo(json_format.dumps(document, indent=2))
        return
    head = ["layer", "kind", "shape", "components", "names"]
    rows = [head, *(_row(layer) for layer in layers)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    cut = sum(bool(layer["components"]) for layer in layers)
    typer.echo(
        f"{len(found)} components ({_kind(granularity, layers)}s) in {cut} of {len(layers)} layers"
    )
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        typer.echo(f"  {'  '.join(cells)}".rstrip())


def _layers(graph: pc.Graph, found: pc.Components) -> list[dict[str, Any]]:
    """Every layer of the network, with its components if it has any."""
    from provable_circuits.network.layers import layers_of

    sites = {site.layer.name: site for site in found.sites}
    return [
        {
            "name": layer.name,
            "kind": layer.kind,
            "tensor": layer.tensor,
            "shape": list(layer.shape),
            "output": layer.is_output,
            "shortcut": layer.is_shortcut,
            "components": [c.name for c in sites[layer.name].components]
            if layer.name in sites
            else [],
        }
        for layer in layers_of(graph)
    ]


def _kind(granularity: str, layers: list[dict[str, Any]]) -> str:
    """The granularity that ``auto`` stands for in this network."""
    if granularity != "auto":
        return granularity
    return "filter" if any(layer["kind"] == "conv" for layer in layers) else "neuron"


def _row(layer: dict[str, Any]) -> list[str]:
    names = layer["components"]
    remarks = [word for word in ("output", "shortcut") if layer[word]]
    kind = ", ".join([layer["kind"], *remarks])
    shape = " x ".join(str(size) for size in layer["shape"])
    if not names:
        return [layer["name"], kind, shape, "-", "kept whole"]
    between = f"{names[0]} ... {names[-1]}" if len(names) > 2 else ", ".join(names)
    return [layer["name"], kind, shape, str(len(names)), between]
