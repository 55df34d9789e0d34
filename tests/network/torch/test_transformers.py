"""Transformers are captured whichever way they are written, and agree with PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.network.torch.transformers import (
    LENGTH,
    TOKENS,
    ByHead,
    Einsum,
    Encoder,
    Fused,
    Modules,
    Unfused,
    Vision,
)
from torch import Tensor, nn

from provable_circuits.errors import ArgumentError
from provable_circuits.network import ops
from provable_circuits.network.graph import Graph
from provable_circuits.network.intervals import propagate

MODELS: dict[str, Callable[[], nn.Module]] = {
    "einsum": Einsum,
    "weights by head": ByHead,
    "fused": Fused,
    "folded": Unfused,
    "module": lambda: Modules(True),
    "module, batch second": lambda: Modules(False),
    "encoder": lambda: Encoder("relu", False),
    "encoder, norm first": lambda: Encoder("gelu", True),
    "vision": Vision,
}


def made(name: str) -> tuple[nn.Module, Callable[[int], Tensor]]:
    torch.manual_seed(3)
    module = MODELS[name]().eval()
    if name == "vision":
        return module, lambda count: torch.randn(count, 1, 4, 4)
    return module, lambda count: torch.randint(0, TOKENS, (count, LENGTH))


@pytest.mark.parametrize("batch", [1, 2, 3])
@pytest.mark.parametrize("name", MODELS)
def test_captured_models_agree_with_pytorch(name: str, batch: int) -> None:
    module, draw = made(name)
    graph = Graph.from_torch(module, draw(batch))
    x = draw(6)
    with torch.no_grad():
        wanted = module.double()(x if name != "vision" else x.double())
    torch.testing.assert_close(graph.run(x, torch.float64), wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_enclosures_of_points_are_tight_and_right(name: str) -> None:
    module, draw = made(name)
    graph = Graph.from_torch(module, draw(1))
    x = draw(5).double()
    lower, upper = propagate(graph, {graph.inputs[0]: (x, x)})[graph.outputs[0]]
    value = graph.run(x, torch.float64)
    assert bool(((lower <= value) & (value <= upper)).all())
    assert float((upper - lower).max()) < 1e-9


def test_token_inputs_are_integers() -> None:
    module, draw = made("fused")
    graph = Graph.from_torch(module, draw(1))
    assert isinstance(graph[graph.inputs[0]].op, ops.IntegerInput)
    with pytest.raises(ArgumentError, match="integers"):
        graph.run(torch.full((1, LENGTH), 0.5))


def test_a_module_is_read_back_from_its_graph() -> None:
    module, draw = made("encoder")
    graph = Graph.from_torch(module, draw(1))
    x = draw(4)
    again = graph.to_torch(torch.float64)
    torch.testing.assert_close(again(x.double()), graph.run(x, torch.float64))
