"""The transformers of the data pack, written as PyTorch modules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn


class ModularAttention(nn.Module):
    """The attention of the modular-addition model."""

    def __init__(self, weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.weight = nn.ParameterDict({k: weights[f"blocks.0.attn.W_{k}"] for k in "QKVO"})

    def forward(self, x: Tensor) -> Tensor:
        k, q, v = (torch.einsum("ihd,bpd->biph", self.weight[name], x) for name in "KQV")
        scores = torch.einsum("biph,biqh->biqp", k, q) / 32**0.5
        scores = scores.masked_fill(torch.ones(3, 3).triu(1).bool(), float("-inf"))
        z = torch.einsum("biph,biqp->biqh", v, scores.softmax(-1))
        return torch.einsum("df,bqf->bqd", self.weight["O"], z.transpose(1, 2).flatten(2))


class ModularAddition(nn.Module):
    """(a + b) mod 113 from the tokens a, b and 113."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        weights = load_file(folder / "mod_addition_113" / "model.safetensors")
        self.embed, self.unembed = weights["embed.W_E"].T, weights["unembed.W_U"]
        self.position = weights["pos_embed.W_pos"]
        self.attn = ModularAttention(weights)
        self.mlp = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 128))
        names = ("W_in", "b_in", "W_out", "b_out")
        for parameter, name in zip(self.mlp.parameters(), names, strict=True):
            parameter.data = weights[f"blocks.0.mlp.{name}"]

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed[tokens] + self.position
        x = x + self.attn(x)
        x = x + self.mlp(x)
        answer: Tensor = x[:, -1] @ self.unembed
        return answer


class Compiled(nn.Module):
    """A program compiled to a transformer; outputs for every position but the first."""

    def __init__(self, weights: dict[str, Tensor], scale: float, causal: bool) -> None:
        super().__init__()
        self.scale, self.causal = scale, causal
        self.count = 1 + max(int(k.split(".")[1]) for k in weights if k.startswith("layers."))
        for name, value in weights.items():
            self.register_buffer(name.replace(".", "_"), value.double())

    def forward(self, tokens: Tensor) -> Tensor:
        held = dict(self.named_buffers())
        x = held["W_E"][tokens] + held["W_pos"][: tokens.shape[1]]
        for i in range(self.count):
            own = {k.removeprefix(f"layers_{i}_"): v for k, v in held.items() if f"s_{i}_" in k}
            if "W_Q" in own:
                q, k, v = (torch.einsum("bpd,hde->bhpe", x, own[f"W_{c}"]) for c in "QKV")
                scores = torch.einsum("bhpe,bhse->bhps", q, k) * self.scale
                if self.causal:
                    future = torch.ones(scores.shape[-2:]).triu(1).bool()
                    scores = scores.masked_fill(future, float("-inf"))
                z = torch.einsum("bhps,bhse->bhpe", scores.softmax(-1), v)
                x = x + torch.einsum("bhpe,hed->bpd", z, own["W_O"])
            if "W_in" in own:
                x = x + torch.relu(x @ own["W_in"] + own["b_in"]) @ own["W_out"] + own["b_out"]
        return (x @ held["W_U"])[:, 1:]


def compiled(folder: Path, program: str) -> tuple[Compiled, Tensor, Any, dict[str, Any]]:
    """A program with distractors, its inputs of the greatest length, their targets, the truth."""
    place = folder / "tracr" / program
    about = json.loads((place / "distractor.json").read_text())
    weights = load_file(place / "distractor.safetensors")
    data = np.load(place / "io.npz", allow_pickle=False)
    length = max(int(name.split("_")[1]) for name in data if name.startswith("tokens_"))
    module = Compiled(weights, about["attention_scale"], about["causal"])
    tokens = torch.tensor(data[f"tokens_{length}"].astype(np.int64))
    return module, tokens, data[f"target_{length}"], about["truth"]
