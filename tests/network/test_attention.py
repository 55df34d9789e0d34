"""Heads and MLPs are found whichever way attention was written, and named by their modules."""

from __future__ import annotations

import pytest
import torch
from tests.network.torch.transformers import ByHead, Einsum, Encoder, Fused, Unfused
from torch import nn

import provable_circuits as pc
from provable_circuits.errors import ArgumentError

TOKENS = torch.zeros(2, 4, dtype=torch.long)


@pytest.mark.parametrize("module", [Einsum, ByHead, Fused, Unfused])
def test_heads_are_found(module: type[nn.Module]) -> None:
    graph = pc.Graph.from_torch(module(), TOKENS)
    components = graph.components("head")
    assert components.names == ("attn0/h0", "attn0/h1")
    (site,) = components.sites
    assert site.layer.shape[0] == 2


def test_a_head_is_cut_before_the_output_projection() -> None:
    """Removing both heads of an attention without bias leaves the residual stream alone."""
    torch.manual_seed(0)
    module = Einsum()
    graph = pc.Graph.from_torch(module, TOKENS)
    x = torch.randint(0, 7, (5, 4))
    components = graph.components("head")
    residual = module.embed.T[x] + module.position
    left = components.empty().run(x, dtype=torch.float64)
    torch.testing.assert_close(left, residual.double().detach())
    with torch.no_grad():
        module.output[:, :4] = 0  # the first head writes nothing any more
    without = components.circuit(["attn0/h1"]).run(x, dtype=torch.float64)
    torch.testing.assert_close(without, module(x).double().detach(), rtol=1e-4, atol=1e-4)


def test_blocks_are_named_by_their_modules() -> None:
    graph = pc.Graph.from_torch(Encoder("gelu", True), TOKENS)
    names = graph.components(["head", "neuron"]).names
    assert names[:3] == (
        "layers.layers.0.self_attn/h0",
        "layers.layers.0.self_attn/h1",
        "layers.layers.0.linear1/0",
    )
    assert len(names) == 2 * (2 + 12)
    assert graph.components().names == names
    assert graph.components("mlp").names == ("layers.layers.0/mlp", "layers.layers.1/mlp")
    both = graph.components(["mlp", "head"])
    assert [site.layer.kind for site in both.sites] == ["head", "mlp", "head", "mlp"]


def test_any_tensor_is_cut_along_a_dimension() -> None:
    graph = pc.Graph.from_torch(Fused(), TOKENS)
    tensor = graph.components("head").sites[0].tensor
    along = graph.components(pc.Along(tensor, 1))
    assert along.names == tuple(f"{tensor}/{i}" for i in range(4))
    with pytest.raises(ArgumentError, match="whose shape is"):
        graph.components(pc.Along(tensor, 3))
    with pytest.raises(ArgumentError, match="no tensor named 'nothing'"):
        graph.components(pc.Along("nothing", 0))
    with pytest.raises(ArgumentError, match="cut twice"):
        graph.components(["head", pc.Along(tensor, 0)])


def test_networks_without_attention_say_what_to_do() -> None:
    graph = pc.Graph.from_torch(nn.Linear(2, 2), torch.zeros(1, 2))
    with pytest.raises(ArgumentError, match=r"pc\.Along\(tensor, dim\)"):
        graph.components("head")


def test_filters_and_neurons_together() -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))
    graph = pc.Graph.from_torch(net, torch.zeros(1, 1, 3, 3))
    assert graph.components(["filter", "neuron"]).names == ("0/0", "0/1", "3/0", "3/1", "3/2")
    assert graph.components(["filter", "neuron"], outputs=False).names == ("0/0", "0/1")
