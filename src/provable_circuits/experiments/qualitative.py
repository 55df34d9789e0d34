"""What a sampled circuit loses: images, Grad-CAM and activation maps, clean and at a witness.

Grad-CAM at the last convolution, for the target output t and its maps A_c:

    cam = ReLU( sum over c of  mean over positions (d output_t / d A_c) * A_c )

scaled to a largest value of one. It is taken for the network, the proved and the sampled circuit,
on the clean input and on the witness that breaks the sampled circuit. Activation maps are those of
the first convolution before any ReLU, signed, of filters that both circuits keep and of filters
that only the proved one does.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from provable_circuits.claims.claim import Claim
from provable_circuits.claims.patching import Zero
from provable_circuits.drawing.pixels import difference_pixels, image_pixels
from provable_circuits.experiments.rows import Bench, Job, circuit_cell
from provable_circuits.files import write_file
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.execution import circuit_activations
from provable_circuits.network.layers import Layer, layers_of
from provable_circuits.verify.verdict import Refuted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAPS = 3
"""Filters shown of each kind."""

WIDE = (8, 16)
"""Height and width of the flat images of tinytaxinet."""

DIGITS = 4
"""Decimals that are kept of pictures."""


def qualitative_row(bench: Bench, job: Job) -> dict[str, Any]:
    """The pictures of one batch, as numbers; without a witness only the circuits."""
    batch = bench.batches[job.batch]
    claim = Claim(bench.balls(batch, job.eps), Zero(), bench.metric(job, batch))
    sampled, proved = bench.search(claim, method="sampling"), bench.search(claim)
    row: dict[str, Any] = {"sampling": circuit_cell(sampled), "provable": circuit_cell(proved)}
    verdict = bench.decided(sampled, claim)
    row["sampling"]["robust"] = verdict.kind
    if not isinstance(verdict, Refuted):
        return row
    witness = verdict.witness
    target = 0 if bench.benchmark.regression else batch.label
    clean, moved = batch.inputs[witness.index], witness.z
    circuits = {
        "network": bench.components.full(),
        "provable": proved.circuit,
        "sampling": sampled.circuit,
    }
    row["witness"] = {
        "input": witness.index,
        "excess": witness.excess,
        "clean": _numbers(clean),
        "moved": _numbers(moved),
        "outputs": {
            name: [float(circuit.run(z, Zero())[0, target]) for z in (clean, moved)]
            for name, circuit in circuits.items()
        },
    }
    convolutions = [layer for layer in layers_of(bench.benchmark.graph) if layer.kind == "conv"]
    if convolutions:
        row["witness"]["cam"] = {
            name: [_numbers(grad_cam(circuit, convolutions[-1], z, target)) for z in (clean, moved)]
            for name, circuit in circuits.items()
        }
        row["witness"]["maps"] = _maps(
            convolutions[0], proved.circuit, sampled.circuit, clean, moved
        )
    return row


def grad_cam(circuit: Circuit, layer: Layer, x: Tensor, target: int) -> Tensor:
    """Where a convolution supports an output of a circuit, [height, width], at most one."""
    graph = circuit.components.graph
    with torch.enable_grad():
        run = circuit_activations(circuit, x.double(), [layer.tensor, graph.outputs[0]], Zero())
        maps = run[layer.tensor]
        (gradient,) = torch.autograd.grad(run[graph.outputs[0]][0, target], maps)
    cam = (gradient.mean((2, 3), keepdim=True) * maps).sum(1)[0].clamp_min(0).detach()
    most = float(cam.max())
    return cam / most if most > 0 else cam


def _maps(
    layer: Layer, proved: Circuit, sampled: Circuit, clean: Tensor, moved: Tensor
) -> dict[str, Any]:
    """Maps of the first convolution before its ReLU: of shared filters, and of the proved alone."""
    graph = proved.components.graph
    runs = [graph.activations(z.unsqueeze(0))[layer.source][0] for z in (clean, moved)]
    own = [c for c in proved.components if c.layer == layer.name]
    shared = [c for c in own if c in proved and c in sampled][:MAPS]
    alone = [c for c in own if c in proved and c not in sampled][:MAPS]
    return {
        kind: {c.name: [_numbers(run[c.index]) for run in runs] for c in chosen}
        for kind, chosen in (("shared", shared), ("provable only", alone))
    }


def _numbers(values: Tensor) -> Any:
    return np.round(values.numpy(), DIGITS).tolist()


def draw_qualitative(rows: Sequence[Mapping[str, Any]], out: Path) -> list[Path]:
    """One picture for each batch that has a witness."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    written = []
    for row in rows:
        witness = row.get("witness")
        if witness is None:
            continue
        panels = _panels(witness)
        columns = max(len(line) for line in panels)
        figure = Figure(figsize=(2.1 * columns, 2.3 * len(panels)), layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.subplots(len(panels), columns, squeeze=False)
        for axes in grid.flat:
            axes.axis("off")
        for line, places in zip(panels, grid, strict=True):
            for (title, values, style), axes in zip(line, places, strict=False):
                _show(axes, title, np.array(values), style)
        for kind in ("png", "svg"):
            written.append(out / f"batch_{row['batch']}.{kind}")
            save_figure(figure, written[-1], dpi=120)
    return written


def save_figure(figure: Figure, path: Path, dpi: int) -> None:
    """Write a figure, as SVG or PNG."""
    kind = path.suffix[1:]
    data = io.BytesIO()
    metadata = {"Date": None} if kind == "svg" else None
    figure.savefig(data, format=kind, dpi=dpi, metadata=metadata)
    write_file(path, data.getvalue())


Panel = tuple[str, Any, str]


def _panels(witness: Mapping[str, Any]) -> list[list[Panel]]:
    """Lines of pictures: the inputs, Grad-CAM, activation maps."""
    clean, moved = np.array(witness["clean"]), np.array(witness["moved"])
    lines: list[list[Panel]] = [
        [
            ("clean", clean, "image"),
            ("moved", moved, "image"),
            ("difference", moved - clean, "signed"),
        ]
    ]
    for place, when in enumerate(("clean", "moved")):
        if "cam" in witness:
            lines.append(
                [(f"{name}, {when}", cams[place], "heat") for name, cams in witness["cam"].items()]
            )
    for kind, maps in witness.get("maps", {}).items():
        line = [
            (f"{name}, {when}\n({kind})", pair[place], "signed")
            for name, pair in maps.items()
            for place, when in enumerate(("clean", "moved"))
        ]
        lines += [line] if line else []
    return lines


def _show(axes: Axes, title: str, values: np.ndarray[Any, Any], style: str) -> None:
    if values.ndim == 1 and len(values) == WIDE[0] * WIDE[1]:
        values = values.reshape(WIDE)
    axes.set_title(title, fontsize=7)
    if style == "heat":
        axes.imshow(values, cmap="inferno")
        return
    pixels = difference_pixels(values) if style == "signed" else image_pixels(values)
    if pixels is not None:
        axes.imshow(pixels, cmap="grey", vmin=0, vmax=255)
