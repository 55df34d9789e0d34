"""A theorem about a trained transformer: a circuit of heads and neurons, proved for every input.

A small attention model learns to say which of two tokens is larger, and by how much. Its input
space is finite, so a claim can be about every input there is: the circuit gives the network's
answer on each of them. Run with ``python examples/transformer.py``; it takes some seconds.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import provable_circuits as pc

TOKENS = 6


class Model(nn.Module):
    """Two tokens and a query position; one block of attention and an MLP."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.embed = nn.Embedding(TOKENS + 1, width)
        self.position = nn.Parameter(torch.randn(3, width) * 0.3)
        self.attn = nn.MultiheadAttention(width, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 24), nn.ReLU(), nn.Linear(24, width))
        self.unembed = nn.Linear(width, TOKENS)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens) + self.position
        x = x + self.attn(x, x, x, need_weights=False)[0]
        x = x + self.mlp(x)
        answer: Tensor = self.unembed(x[:, -1])
        return answer


torch.manual_seed(0)
domain = pc.Tokens([range(TOKENS), range(TOKENS), [TOKENS]])
tokens = domain.inputs.long()
labels = (tokens[:, 0] - tokens[:, 1]).abs()
model = Model()
optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(400):
    optimiser.zero_grad()
    nn.functional.cross_entropy(model(tokens), labels).backward()
    optimiser.step()

graph = pc.Graph.from_torch(model, tokens[:2])
claim = pc.Claim(domain, pc.Mean(domain), pc.SameAnswer(target=labels.tolist()))
result = pc.discover(graph, claim, ["head", "neuron"], "repeated-greedy")
print(result)  # result.draw("circuit.svg") makes a picture of it
