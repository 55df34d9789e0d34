"""Plain execution, judged by the slow and obvious way: one circuit, sample and unit at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from tests.network.networks import GRAPHS, conv_graph, dense_graph, random_circuits, weights
from torch import Tensor

from provable_circuits.errors import ArgumentError
from provable_circuits.network import execution
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.components import Components
from provable_circuits.network.execution import evaluate, operations, run_circuits
from provable_circuits.network.graph import GraphBuilder
from provable_circuits.network.ops import (
    Add,
    Input,
    Linear,
)

CPU = torch.device("cpu")


def slow_run(
    components: Components,
    circuit: Circuit,
    sample: Tensor,
    patch: Mapping[str, Tensor],
    which: int,
) -> Tensor:
    """One circuit on one sample, unit by unit; ``which`` sample of the batch it is."""
    graph = components.graph
    held: dict[str, Tensor] = {}
    ops = operations(graph, sample.dtype, CPU)
    sites = {site.tensor: site for site in components.sites}
    for node in graph.nodes:
        if isinstance(node.op, Input):
            value = sample.unsqueeze(0)
        else:
            value = ops[node.name].forward(*(held[name] for name in node.inputs))
        if node.name in sites:
            site = sites[node.name]
            labels, value = site.labels.expand(node.shape), value.clone()
            values = patch[node.name].to(sample)
            values = values[which if len(values) > 1 else 0].expand(node.shape)
            for place in np.ndindex(node.shape):
                label = int(labels[place])
                if label >= 0 and site.components[label].name not in circuit:
                    value[0][place] = values[place]
        held[node.name] = value
    return held[graph.outputs[0]][0]


def zeros(components: Components, batch: int) -> Mapping[str, Tensor]:
    return {site.tensor: torch.zeros(1, *site.layer.shape) for site in components.sites}


def one_value_each(components: Components, batch: int) -> Mapping[str, Tensor]:
    w = weights(7)
    return {site.tensor: w(1, *site.layer.shape).double() for site in components.sites}


def one_value_per_sample(components: Components, batch: int) -> Mapping[str, Tensor]:
    w = weights(8)
    return {site.tensor: w(batch, *site.layer.shape).double() for site in components.sites}


@pytest.mark.parametrize("make", GRAPHS.values(), ids=GRAPHS)
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("patching", [zeros, one_value_each, one_value_per_sample])
@pytest.mark.parametrize("chunk", [1, 700, 2**23])
def test_many_circuits_compute_what_each_computes_alone(
    make: Callable[[], Components],
    batch: int,
    patching: Callable[[Components, int], Mapping[str, Tensor]],
    chunk: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(execution, "CHUNK_ELEMENTS", chunk)
    components = make()
    circuits = random_circuits(components, 9, seed=batch)
    x = weights(3)(batch, *components.graph.input_shape).double()
    patch = patching(components, batch)
    found = components.run(circuits, x, None if patching is zeros else patch)
    assert found.shape == (9, batch, *components.graph.output_shape)
    for circuit, outputs in zip(circuits, found, strict=True):
        for which in range(batch):
            wanted = slow_run(components, circuit, x[which], patch, which)
            torch.testing.assert_close(outputs[which], wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("make", GRAPHS.values(), ids=GRAPHS)
def test_the_full_circuit_is_the_network(make: Callable[[], Components]) -> None:
    components = make()
    x = weights(4)(5, *components.graph.input_shape)
    wanted = components.graph.run(x)
    assert torch.equal(components.full().run(x), wanted)
    assert torch.equal(components.run([components.full()] * 3, x), wanted.expand(3, *wanted.shape))


@pytest.mark.parametrize("make", GRAPHS.values(), ids=GRAPHS)
def test_one_circuit_alone_and_among_others(make: Callable[[], Components]) -> None:
    components = make()
    x = weights(5)(2, *components.graph.input_shape).double()
    circuits = random_circuits(components, 8, seed=5)
    together = components.run(circuits, x)
    for circuit, outputs in zip(circuits, together, strict=True):
        torch.testing.assert_close(circuit.run(x), outputs, rtol=1e-12, atol=1e-12)


def test_no_circuits_give_no_outputs() -> None:
    components = dense_graph().components()
    assert run_circuits(components, [], torch.zeros(4, 4)).shape == (0, 4, 3)
    with pytest.raises(ArgumentError, match="inputs of shape"):
        run_circuits(components, [], torch.zeros(4, 5))


def test_an_empty_batch_gives_an_empty_result() -> None:
    components = dense_graph().components()
    assert components.graph.run(torch.zeros(0, 4)).shape == (0, 3)
    assert components.run([components.full(), components.empty()], torch.zeros(0, 4)).shape == (
        2,
        0,
        3,
    )


def test_what_no_removal_touches_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Circuits that differ only in the last layer share the whole way to it."""
    components = dense_graph().components()
    seen: dict[tuple[int, ...], int] = {}
    forward = Linear.forward

    def counted(self: Linear, *inputs: Tensor) -> Tensor:
        seen[tuple(self.weight.shape)] = inputs[0].shape[0]
        return forward(self, *inputs)

    monkeypatch.setattr(Linear, "forward", counted)
    last = [c.name for c in components if c.layer == "fc3"]
    components.run([components.full().remove(name) for name in last], torch.ones(2, 4))
    assert seen == {(5, 4): 2, (5, 5): 2, (3, 11): 2, (3, 3): 6}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_arithmetic_is_that_of_the_input_unless_asked(dtype: torch.dtype) -> None:
    graph = dense_graph()
    x = weights(6)(2, 4)
    assert graph.run(x.to(dtype)).dtype == dtype
    assert graph.run(x, dtype).dtype == dtype
    assert torch.equal(graph.run(x, dtype), graph.run(x.to(dtype)))
    circuit = graph.components().empty()
    assert circuit.run(x, dtype=dtype).dtype == dtype


def test_float64_is_computed_with_the_weights_as_given() -> None:
    graph, x = dense_graph(), weights(6)(2, 4)
    single, double = graph.run(x), graph.run(x.double())
    assert not torch.equal(single.double(), double)
    torch.testing.assert_close(single.double(), double, rtol=1e-5, atol=1e-5)


def test_activations_are_every_tensor_for_the_whole_batch() -> None:
    graph, x = dense_graph(), weights(6)(3, 4)
    found = graph.activations(x)
    assert list(found) == [node.name for node in graph.nodes]
    for node in graph.nodes:
        assert found[node.name].shape == (3, *node.shape)
    assert torch.equal(found["x"], x)
    assert torch.equal(found["relu1"], found["fc1"].relu())
    assert torch.equal(found["fc4"], graph.run(x))


def test_several_inputs_are_fed_by_name() -> None:
    builder = GraphBuilder()
    a, b = builder.input("a", (2,)), builder.input("b", (2,))
    graph = builder.build([builder.add("sum", Add(), a, b)])
    found = evaluate(graph, {"a": torch.ones(3, 2), "b": torch.ones(1, 2)})
    assert torch.equal(found["sum"], torch.full((3, 2), 2.0))
    with pytest.raises(ArgumentError, match="input 'b' was not given"):
        evaluate(graph, {"a": torch.ones(3, 2)})
    with pytest.raises(ArgumentError, match="graph of one input"):
        graph.run(torch.ones(3, 2))


@pytest.mark.parametrize(
    "x",
    [
        [1.0, 2.0, 3.0, 4.0],
        [[1.0, 2.0, 3.0, 4.0]],
        (1, 2, 3, 4),
        np.array([1, 2, 3, 4]),
        np.array([[1, 2, 3, 4]], dtype=np.uint8),
        np.array([1, 2, 3, 4], dtype=">f4"),
        np.array([4.0, 3.0, 2.0, 1.0])[::-1],
        np.broadcast_to(np.array([1.0, 2.0, 3.0, 4.0]), (1, 4)),
        torch.tensor([1, 2, 3, 4]),
        torch.tensor([[1.0, 2.0, 3.0, 4.0]], requires_grad=True),
        torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float16),
    ],
)
def test_inputs_may_be_anything_that_holds_numbers(x: Any) -> None:
    graph = dense_graph()
    found = graph.run(x)
    assert not found.requires_grad
    torch.testing.assert_close(
        found.double(),
        graph.run(torch.tensor([[1.0, 2.0, 3.0, 4.0]]).double()),
        rtol=1e-5,
        atol=1e-5,
    )


@pytest.mark.parametrize(
    ("x", "says"),
    [
        (torch.zeros(2, 5), r"inputs of shape \[4\] behind a batch dimension. Got \[2, 5\]"),
        (torch.zeros(5), r"Got \[5\]"),
        (torch.zeros(1, 2, 4), r"Got \[1, 2, 4\]"),
        (3.0, r"Got \[\]"),
        ("digits", "tensor or an array of numbers. Got 'digits'"),
        (None, "Got None"),
        ([[1.0, 2.0], [1.0]], "Got list"),
        (np.array([1j, 0, 0, 0]), "Got ndarray"),
    ],
)
def test_inputs_that_do_not_fit_are_errors(x: Any, says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        dense_graph().run(x)


def test_patches_that_do_not_fit_are_errors() -> None:
    components = dense_graph().components()
    x, circuit, good = torch.zeros(2, 4), components.empty(), zeros(components, 2)
    with pytest.raises(ArgumentError, match="names 'fc9', which is no tensor of the network"):
        circuit.run(x, {**good, "fc9": torch.zeros(1)})
    with pytest.raises(ArgumentError, match="no value for 'relu1'"):
        circuit.run(x, {name: value for name, value in good.items() if name != "relu1"})
    with pytest.raises(ArgumentError, match=r"'relu1' must broadcast to \[2, 5\]. Got \[3, 5\]"):
        circuit.run(x, {**good, "relu1": torch.zeros(3, 5)})
    with pytest.raises(ArgumentError, match=r"must give each removed unit one value.*Got 0\.0"):
        circuit.run(x, 0.0)  # type: ignore[arg-type]


def test_circuits_of_another_network_are_errors() -> None:
    components, other = dense_graph().components(), conv_graph().components()
    with pytest.raises(ArgumentError, match="same network's components"):
        components.run([other.full()], torch.zeros(1, 4))
    equal = dense_graph().components()
    assert components.run([equal.full()], torch.zeros(1, 4)).shape == (1, 1, 3)


def test_operations_are_converted_once() -> None:
    graph = dense_graph()
    first = operations(graph, torch.float64, CPU)
    assert operations(graph, torch.float64, CPU) is first
    weight = graph["fc1"].op.parameters()["weight"]
    assert weight.dtype == torch.float32
    assert torch.equal(first["fc1"].parameters()["weight"], weight.double())
