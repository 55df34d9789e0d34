"""A small transformer whose inputs can all be tried."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn

import provable_circuits as pc

TOKENS, LENGTH = 3, 3


class Attention(nn.Module):
    """Two heads."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.project = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(x).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        pattern = torch.softmax(q @ k.transpose(-1, -2), -1)
        out: Tensor = self.output((pattern @ v).transpose(1, 2).flatten(2))
        return out


class Block(nn.Module):
    """Attention, and an MLP of six neurons."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attn = Attention(width)
        self.mlp = nn.Sequential(nn.Linear(width, 6), nn.ReLU(), nn.Linear(6, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(x)
        out: Tensor = x + self.mlp(x)
        return out


class Transformer(nn.Module):
    """One or two blocks; outputs at the last position, or at all of them."""

    def __init__(self, last: bool = True, blocks: int = 1) -> None:
        super().__init__()
        self.last = last
        self.embed = nn.Embedding(TOKENS, 4)
        self.position = nn.Parameter(torch.randn(LENGTH, 4))
        self.blocks = nn.ModuleList(Block(4) for _ in range(blocks))
        self.unembed = nn.Linear(4, 3, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens) + self.position
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.unembed(x[:, -1] if self.last else x)
        return out


DOMAIN = pc.Tokens([range(TOKENS)] * LENGTH)


@cache
def captured(seed: int = 0, last: bool = True, blocks: int = 1) -> pc.Graph:
    """A network with weights drawn from a seed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = Transformer(last, blocks)
        for parameter in module.parameters():
            parameter.data *= 2
    return pc.Graph.from_torch(module, torch.zeros(2, LENGTH, dtype=torch.long))
