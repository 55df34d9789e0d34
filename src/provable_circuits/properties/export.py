"""Any question as ONNX and VNN-LIB, for any tool of VNN-COMP to answer.

A query about a circuit is one merged graph with several inputs (the claimed input, a patch input,
patch values), k claimed inputs, and constraints ``rows[j] . y + offsets[j] <= 0`` for each of them.
For each j this writes

    an ONNX file       of one flat input x, from which the inputs of the merged graph are cut, and
                       of outputs Y = rows[j] . y, one for each constraint;
    a VNN-LIB file     that asks for an x in the box of the ranges with some Y_s >= -offsets[j, s].

So ``unsat`` for every j means that the claim holds of the circuit. A ``sat`` is a candidate: the
claim is broken where some Y_s *exceeds* -offsets[j, s], and VNN-LIB's inequalities include their
ends, so that a network that just touches its tolerance is ``sat`` there and yet keeps the claim.

Numbers are written exactly. The box is that of the query, which contains the claimed domain; balls
of the 1- and 2-norm are no boxes and are refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import torch
from torch import Tensor

from provable_circuits.errors import ArgumentError, PropertyError
from provable_circuits.network.dense import dense as dense_form
from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.ops import Add, Gather, Input, Linear, Shape
from provable_circuits.properties.vnnlib import Case, Property, write_property
from provable_circuits.verify.encoding.query import Query


@dataclass(frozen=True, slots=True, eq=False)
class Exported:
    """One claimed input of a query, written down.

    Attributes:
        onnx, vnnlib: the two files.
        index: which of the claim's inputs it is.
        places: for each input of the merged graph, where in the flat x it starts, and its shape.
    """

    onnx: Path
    vnnlib: Path
    index: int
    places: Mapping[str, tuple[int, Shape]]

    def points(self, x: Tensor) -> dict[str, Tensor]:
        """A flat x as values of the merged graph's inputs, per sample."""
        return {
            name: x.flatten()[start : start + math.prod(shape)].reshape(shape)
            for name, (start, shape) in self.places.items()
        }


def export_query(
    query: Query,
    folder: str | PathLike[str],
    stem: str = "query",
    *,
    dtype: torch.dtype | None = None,
    dense: bool = False,
) -> tuple[Exported, ...]:
    """Write a query as ``stem-j.onnx`` and ``stem-j.vnnlib`` for each claimed input j.

    Args:
        query: the query.
        folder: where to write; it is made if it is not there.
        stem: what the names of the files begin with.
        dtype: of the ONNX weights; by default float32 where it holds all of them exactly, else
            float64. With float32 given, weights are rounded, and it is another network that the
            tools see.
        dense: whether to write linear layers over flat vectors, additions and activations only, for
            tools that read no more.

    Raises:
        ArgumentError: the claim ranges over balls of the 1- or 2-norm.
        ModelFileError, PropertyError: a file cannot be written.
    """
    for name, box in query.ranges.items():
        if box.domains is not None:
            raise ArgumentError(
                f"The input {name!r} of the query ranges over balls of the 1- or 2-norm, and "
                "VNN-LIB knows boxes only: export a claim over balls with p = inf, or boxes."
            )
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PropertyError(f"The folder '{place}' cannot be made: {error}.") from error
    return tuple(
        _export_one(query, j, place / f"{stem}-{j}", dtype, dense)
        for j in range(query.rows.shape[0])
    )


def query_graph(query: Query, index: int) -> Graph:
    """The graph of one claimed input: flat x to the left-hand side of each constraint."""
    builder = GraphBuilder(check_weights=False)
    count = sum(math.prod(query.graph[name].shape) for name in query.graph.inputs)
    flat = builder.input("x", (max(count, 1),))
    names: dict[str, str] = {}
    places = _places(query)
    for node in query.graph.nodes:
        if isinstance(node.op, Input):
            start, shape = places[node.name]
            span = torch.arange(start, start + math.prod(shape)).reshape(shape)
            names[node.name] = builder.add(node.name, Gather(span), flat)
        else:
            sources = [names[name] for name in node.inputs]
            names[node.name] = builder.add(node.name, node.op, *sources)
    output = builder.add("sides", Linear(query.rows[index]), names[query.graph.outputs[0]])
    if count == 0:
        # Nothing varies. Tools expect an input all the same, and an output that reads it.
        nothing = Linear(torch.zeros(query.rows.shape[1], 1, dtype=torch.float64))
        output = builder.add("total", Add(), output, builder.add("nothing", nothing, flat))
    return builder.build([output])


def query_property(query: Query, index: int) -> Property:
    """What breaks the claim at one claimed input: that some constraint reaches its limit."""
    subdomains = [query.ranges[name] for name in query.graph.inputs]
    none = [torch.zeros(0 if subdomains else 1, dtype=torch.float64)]
    lower = torch.cat([*(part.lower[index].flatten() for part in subdomains), *none])
    upper = torch.cat([*(part.upper[index].flatten() for part in subdomains), *none])
    rows = -torch.eye(query.rows.shape[1], dtype=torch.float64)
    cases = [
        Case.exact(lower, upper, row.unsqueeze(0), offset.unsqueeze(0))
        for row, offset in zip(rows, query.offsets[index], strict=True)
    ]
    return Property(len(lower), len(rows), tuple(cases))


def _places(query: Query) -> dict[str, tuple[int, Shape]]:
    places: dict[str, tuple[int, Shape]] = {}
    start = 0
    for name in query.graph.inputs:
        shape = query.graph[name].shape
        places[name] = (start, shape)
        start += math.prod(shape)
    return places


def _export_one(
    query: Query, index: int, stem: Path, dtype: torch.dtype | None, dense: bool
) -> Exported:
    onnx, vnnlib = (stem.with_name(f"{stem.name}.{kind}") for kind in ("onnx", "vnnlib"))
    graph = query_graph(query, index)
    graph = dense_form(graph) if dense else graph
    graph.to_onnx(onnx, exact_dtype(graph) if dtype is None else dtype)
    places = _places(query)
    comment = [
        f"A circuit of {len(query.circuit)} of {len(query.circuit.components)} components, at "
        f"input {index} of its claim. unsat: the claim holds there.",
        *(
            f"X_{start} to X_{start + math.prod(shape) - 1}: {name}"
            for name, (start, shape) in places.items()
        ),
    ]
    write_property(query_property(query, index), vnnlib, comment)
    return Exported(onnx, vnnlib, index, places)


def exact_dtype(graph: Graph) -> torch.dtype:
    """float32 if it holds every weight of the graph exactly, else float64."""
    for node in graph.nodes:
        for value in node.op.parameters().values():
            if value.is_floating_point() and not torch.equal(
                value.float().double(), value.double()
            ):
                return torch.float64
    return torch.float32
