"""Circuits as networks of their own: the same outputs, from fewer weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from tests.network.networks import GRAPHS, conv_graph, dense_graph, random_circuits, weights
from torch import Tensor, nn

import provable_circuits as pc
from provable_circuits.errors import ArgumentError
from provable_circuits.network.components import Components
from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.ops import Add, Conv2d, Linear, Mean, ReLU, Reshape


def values(components: Components) -> Mapping[str, Tensor]:
    """Some patch value for each unit."""
    drawn = weights(7)
    return {site.tensor: drawn(1, *site.layer.shape).double() for site in components.sites}


@pytest.mark.parametrize("make", GRAPHS.values(), ids=GRAPHS)
@pytest.mark.parametrize("patched", [False, True], ids=["zero", "values"])
def test_the_network_of_a_circuit_computes_what_the_circuit_does(
    make: Callable[[], Components], patched: bool
) -> None:
    components = make()
    patch = values(components) if patched else None
    x = weights(3)(4, *components.graph.input_shape).double()
    for circuit in random_circuits(components, 14, seed=1):
        graph, wanted = circuit.to_graph(patch), circuit.run(x, patch)
        torch.testing.assert_close(graph.run(x), wanted, rtol=1e-11, atol=1e-11)
        assert (graph.inputs, graph.outputs) == (components.graph.inputs, components.graph.outputs)
        module = graph.to_torch(torch.float64)
        torch.testing.assert_close(module(x), wanted, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("make", GRAPHS.values(), ids=GRAPHS)
def test_onnxruntime_agrees(make: Callable[[], Components], tmp_path: Path) -> None:
    components = make()
    patch = values(components)
    x = weights(3)(3, *components.graph.input_shape)
    for number, circuit in enumerate(random_circuits(components, 8, seed=2)):
        file = tmp_path / f"{number}.onnx"
        graph = circuit.to_graph(patch)
        graph.to_onnx(file)
        session = onnxruntime.InferenceSession(file)
        found = session.run(None, {graph.inputs[0]: x.numpy()})[0]
        np.testing.assert_allclose(found, circuit.run(x, patch).numpy(), rtol=1e-4, atol=1e-4)
        again = pc.Graph.from_onnx(file)
        torch.testing.assert_close(again.run(x), circuit.run(x, patch), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("patch", [pc.Zero(), pc.Constant(0.5)], ids=repr)
def test_removed_neurons_are_cut_out_of_both_sides(patch: pc.Constant | pc.Zero) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3))
    components = pc.Graph.from_torch(net, torch.zeros(1, 4)).components()
    circuit = components.circuit(["0/1", "0/5", "2/0", "2/2", "2/3", "4/0", "4/1", "4/2"])
    shapes = [tuple(p.shape) for p in circuit.to_graph(patch).to_torch().parameters()]
    assert shapes == [(2, 4), (2,), (3, 2), (3,), (3, 3), (3,)]


def test_a_mean_over_data_goes_into_the_biases() -> None:
    torch.manual_seed(0)
    first, last = nn.Linear(4, 8).double(), nn.Linear(8, 3).double()
    net = nn.Sequential(first, nn.ReLU(), last)
    data, x = torch.rand(9, 4).double(), torch.rand(5, 4).double()
    circuit = pc.Graph.from_torch(net, x).components().full().remove("0/0", "0/7", "2/1")
    patch = pc.Mean(data)
    module = circuit.to_graph(patch).to_torch(torch.float64)
    kept = [1, 2, 3, 4, 5, 6]
    hidden = torch.relu(first(x))
    mean = torch.relu(first(data)).mean(0)
    hidden[:, [0, 7]] = mean[[0, 7]]
    wanted = last(hidden)
    wanted[:, 1] = net(data).mean(0)[1]
    torch.testing.assert_close(module(x), wanted)
    torch.testing.assert_close(module.get_parameter("0.weight"), first.weight[kept])


def test_a_border_of_zeros_makes_the_constant_differ_along_the_edge() -> None:
    """A removed filter that is patched with 1 is read as 1 inside, and as 0 in the padding."""
    drawn, builder = weights(4), GraphBuilder()
    x = builder.input("x", (1, 5, 5))
    one = builder.add("conv1", Conv2d(drawn(2, 1, 3, 3), drawn(2)), x, layer="conv1")
    two = builder.add("conv2", Conv2d(drawn(2, 2, 3, 3), padding=(1, 1)), one, layer="conv2")
    flat = builder.add("flat", Reshape((18,)), two)
    graph = builder.build([builder.add("fc", Linear(drawn(2, 18)), flat, layer="fc")])
    circuit = graph.components("filter").full().remove("conv1/0")
    pruned = circuit.to_graph(pc.Constant(1.0))
    assert pruned["conv2.layer"].op.parameters()["weight"].shape == (2, 1, 3, 3)
    assert pruned["conv2"].op.parameters()["shift"].shape == (2, 3, 3)
    batch = drawn(3, 1, 5, 5).double()
    wanted = circuit.run(batch, pc.Constant(1.0))
    torch.testing.assert_close(pruned.run(batch), wanted, rtol=1e-12, atol=1e-12)


def test_tensors_without_dimensions() -> None:
    """A network may end in one number, made from whole tensors and from constants."""
    drawn, builder = weights(8), GraphBuilder()
    x = builder.input("x", (3,))
    hidden = builder.add("fc", Linear(drawn(4, 3), drawn(4)), x, layer="fc")
    mean = builder.add("mean", Mean((0,), 4), hidden)
    graph = builder.build([builder.add("sum", Add(), mean, builder.constant("c", drawn()))])
    components = graph.components()
    batch = drawn(5, 3).double()
    for circuit in (components.full(), components.full().remove("fc/1"), components.empty()):
        pruned, wanted = circuit.to_graph(pc.Constant(0.5)), circuit.run(batch, pc.Constant(0.5))
        torch.testing.assert_close(pruned.run(batch), wanted)
        torch.testing.assert_close(pruned.to_torch(torch.float64)(batch), wanted)


def test_components_of_grouped_convolutions_are_taken_out_behind_them() -> None:
    drawn, builder = weights(5), GraphBuilder()
    x = builder.input("x", (4, 3, 3))
    deep = builder.add("deep", Conv2d(drawn(4, 1, 2, 2), groups=4), x, layer="deep")
    active = builder.add("relu", ReLU(), deep)
    flat = builder.add("flat", Reshape((16,)), active)
    graph = builder.build([builder.add("fc", Linear(drawn(2, 16)), flat, layer="fc")])
    circuit = graph.components("filter").full().remove("deep/1", "deep/3")
    pruned = circuit.to_graph(pc.Constant(0.3))
    batch = drawn(3, 4, 3, 3).double()
    torch.testing.assert_close(pruned.run(batch), circuit.run(batch, pc.Constant(0.3)))
    assert pruned["fc"].op.parameters()["weight"].shape == (2, 8)


def test_the_empty_circuit_is_a_constant_of_as_many_rows_as_inputs() -> None:
    components = dense_graph().components()
    graph = components.empty().to_graph(pc.Constant(2.0))
    assert graph.run(torch.zeros(5, 4)).tolist() == [[2.0, 2.0, 2.0]] * 5
    assert graph.to_torch()(torch.zeros(5, 4)).tolist() == [[2.0, 2.0, 2.0]] * 5


def test_patches_that_range_are_refused() -> None:
    circuit = dense_graph().components().full()
    for patch in (pc.Reachable(eps=0.1), pc.IntervalHull(eps=0.1)):
        with pytest.raises(ArgumentError, match="no single function"):
            circuit.to_graph(patch)


def test_patches_that_differ_between_samples_are_refused() -> None:
    components = dense_graph().components()
    patch = {site.tensor: torch.zeros(2, *site.layer.shape) for site in components.sites}
    with pytest.raises(ArgumentError, match="must broadcast to"):
        components.full().to_graph(patch)


def named(*names: str, of: str = "x") -> Graph:
    """Linear layers of the given names, one after another, behind an input."""
    drawn, builder = weights(6), GraphBuilder()
    value = builder.input(of, (2,))
    for name in names:
        value = builder.add(name, Linear(drawn(2, 2), drawn(2)), value, layer=name)
    return builder.build([value])


def test_modules_are_named_as_the_model_names_its_layers() -> None:
    graph = named("body.0.conv", "body.0.bn", "head")
    keys = graph.to_torch().state_dict().keys()
    assert list(keys) == [
        f"{layer}.{kind}"
        for layer in ("body.0.conv", "body.0.bn", "head")
        for kind in ("weight", "bias")
    ]


def test_any_names_will_do() -> None:
    graph = named("forward", "graph", "a", "a.weight", "a..b", ".", "training", "/x/<é>'\"&", "x.y")
    x = weights(2)(3, 2)
    module = graph.to_torch()
    torch.testing.assert_close(module(x), graph.run(x))
    assert len(module.state_dict()) == 18
    assert module.training is False


def test_names_in_a_file_are_never_run_as_code(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    run = f"open({str(mark)!r}, 'w')"
    graph = named(f'a")({run})', f"b;{run}", f"c\n{run}\n", of=f"x={run}")
    x = weights(2)(3, 2)
    torch.testing.assert_close(graph.to_torch()(x), graph.run(x))
    assert not mark.exists()


def test_the_module_is_an_ordinary_one(tmp_path: Path) -> None:
    components = conv_graph().components("filter")
    circuit = components.full().remove("conv1/1", "conv2/0")
    patch = values(components)
    x = weights(3)(4, *components.graph.input_shape)
    module = circuit.to_graph(patch).to_torch()
    torch.save(module.state_dict(), tmp_path / "weights.pt")
    other = circuit.to_graph(patch).to_torch()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    other.load_state_dict(torch.load(tmp_path / "weights.pt", weights_only=True))
    assert torch.equal(other(x), module(x))
    batch = {0: torch.export.Dim.DYNAMIC}
    program = torch.export.export(module, (x,), dynamic_shapes=(batch,))
    torch.testing.assert_close(program.module()(x[:3]), module(x[:3]))
    before = [parameter.clone() for parameter in module.parameters()]
    module(x).square().sum().backward()
    torch.optim.SGD(module.parameters(), 0.01).step()
    assert all(not torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))


def test_a_dtype_that_is_no_float_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"such as torch\.float32"):
        dense_graph().to_torch(torch.int32)
