"""Modules of every style become graphs that agree with PyTorch."""

from __future__ import annotations

import copy

import pytest
import torch
from tests.network.torch.architectures import ARCHITECTURES, Function, build, captured
from torch import nn

from provable_circuits.network import ops
from provable_circuits.network.graph import Graph


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_graphs_agree_with_pytorch(name: str) -> None:
    (module, shape), graph = build(name), captured(name)
    assert graph.input_shape == shape
    precise = copy.deepcopy(module).double()
    # Folding a reparametrised weight rounds it to float32 once.
    close = 1e-5 if name == "reparametrised weights" else 1e-9
    torch.manual_seed(1)
    for batch in (1, 2, 5):
        x = torch.randn(batch, *shape) * 2
        with torch.no_grad():
            single, double = module(x), precise(x.double())
        torch.testing.assert_close(graph.run(x), single, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(graph.run(x.double()), double, rtol=close, atol=close)


@pytest.mark.parametrize("name", ["residual, normalised", "dropout and identity"])
def test_the_module_is_left_as_it_was(name: str) -> None:
    module, shape = build(name)
    module.train()
    first = next(part for part in module.modules() if part is not module)
    first.eval()
    before = copy.deepcopy(module.state_dict())
    modes = [part.training for part in module.modules()]
    trained = Graph.from_torch(module, torch.randn(2, *shape))
    assert [part.training for part in module.modules()] == modes
    for key, value in module.state_dict().items():
        assert torch.equal(value, before[key])
    assert trained.digest == Graph.from_torch(module.eval(), torch.randn(1, *shape)).digest


def test_the_graph_is_its_own() -> None:
    """Training the module further, or changing its weights in place, does not reach the graph."""
    module = nn.Linear(3, 2)
    graph = Graph.from_torch(module, torch.zeros(1, 3))
    before = graph.run(torch.ones(1, 3))
    with torch.no_grad():
        module.weight.fill_(9.0)
    assert torch.equal(graph.run(torch.ones(1, 3)), before)


def test_weights_are_kept_exactly() -> None:
    module = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 2).double().float())
    graph = Graph.from_torch(module, torch.zeros(1, 3))
    weights = [n.op.weight for n in graph.nodes if isinstance(n.op, ops.Linear)]
    assert torch.equal(weights[0], module.state_dict()["0.weight"])
    assert weights[0].dtype == torch.float32
    double = Graph.from_torch(nn.Linear(3, 2).double(), torch.zeros(1, 3).double())
    assert double.nodes[1].op.parameters()["weight"].dtype == torch.float64


def layer_names(graph: Graph) -> list[str]:
    return [node.layer for node in graph.nodes if node.layer is not None]


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("sequential", ["0", "2", "4"]),
        ("functional, in place", ["w1", "w2", "w3"]),
        (
            "residual, normalised",
            [
                "conv1",
                "layer1.0.conv1",
                "layer1.0.conv2",
                "layer1.1.conv1",
                "layer1.1.conv2",
                "layer1.1.shortcut.0",
                "fc",
            ],
        ),
        ("matrix parameters", ["w1", "w2"]),
        ("reparametrised weights", ["0", "2"]),
        ("one module called twice", ["fc", "fc"]),
        ("concatenation", ["left", "right", "head"]),
    ],
)
def test_layers_are_named_as_the_model_names_them(name: str, layers: list[str]) -> None:
    assert layer_names(captured(name)) == layers


def test_components_are_named_and_cut_as_promised() -> None:
    components = captured("residual, normalised").components()
    assert "layer1.0.conv2/3" in components.names
    assert repr(components) == (
        "Components(24: conv1 4, layer1.0.conv1 4, layer1.0.conv2 4, layer1.1.conv1 6, "
        "layer1.1.conv2 6)"
    )
    kinds = [type(components.graph[site.tensor].op) for site in components.sites]
    assert kinds == [ops.ReLU, ops.ReLU, ops.BatchNorm, ops.ReLU, ops.BatchNorm]
    assert captured("sequential").components().names[0] == "0/0"


def test_a_module_called_twice_is_two_layers_and_shared_where_equal() -> None:
    assert repr(captured("one module called twice").components()) == "Components(8: fc 4, fc:2 4)"


def test_a_clamp_at_zero_is_a_relu() -> None:
    module = Function(lambda m, x: torch.clamp(x, min=0))
    graph = Graph.from_torch(module, torch.zeros(1, 2))
    assert isinstance(graph.nodes[-1].op, ops.ReLU)


def test_identity_is_a_graph_of_its_input() -> None:
    graph = Graph.from_torch(nn.Identity(), torch.zeros(1, 2))
    assert len(graph) == 1
    assert graph.run(torch.tensor([[1.0, 2.0]])).tolist() == [[1.0, 2.0]]
