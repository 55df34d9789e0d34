"""Small transformers, written in the ways in which people write them."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

TOKENS, LENGTH, WIDTH = 7, 4, 8


class Einsum(nn.Module):
    """Attention by einsum, weights by head, a finite number in place of minus infinity."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Parameter(torch.randn(WIDTH, TOKENS))
        self.position = nn.Parameter(torch.randn(LENGTH, WIDTH))
        self.query, self.key, self.value = (
            nn.Parameter(torch.randn(2, 4, WIDTH)) for _ in range(3)
        )
        self.output = nn.Parameter(torch.randn(WIDTH, WIDTH))
        self.register_buffer("mask", torch.tril(torch.ones(LENGTH, LENGTH)))

    def forward(self, x: Tensor) -> Tensor:
        h = torch.einsum("dbp->bpd", self.embed[:, x]) + self.position[: x.shape[-1]]
        k, q, v = (torch.einsum("ihd,bpd->biph", w, h) for w in (self.key, self.query, self.value))
        scores = torch.tril(torch.einsum("biph,biqh->biqp", k, q)) - 1e10 * (1 - self.mask)  # type: ignore[operator]
        z = torch.einsum("biph,biqp->biqh", v, F.softmax(scores / math.sqrt(4), -1))
        flat = torch.einsum("biqh->bqih", z).reshape(x.shape[0], x.shape[1], WIDTH)
        return h + torch.einsum("df,bqf->bqd", self.output, flat)


class ByHead(nn.Module):
    """Weights by head on the right, a mask of minus infinity that is added, RMS normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(TOKENS, WIDTH)
        self.weight = nn.Parameter(torch.randn(3, 2, WIDTH, 4))
        self.output = nn.Parameter(torch.randn(2, 4, WIDTH))
        self.norm = nn.RMSNorm(WIDTH, eps=1e-5)
        mask = torch.full((LENGTH, LENGTH), -math.inf).triu(1)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.embed(x))
        q, k, v = (torch.einsum("bpd,hde->bphe", h, self.weight[i]) for i in range(3))
        scores = torch.einsum("bqhe,bkhe->bhqk", q, k) / 2 + self.mask  # type: ignore[operator]
        z = torch.einsum("bhqk,bkhe->bqhe", scores.softmax(-1), v)
        return F.silu(torch.einsum("bqhe,hed->bqd", z, self.output)).sum(1)


class Fused(nn.Module):
    """One projection split into queries, keys and values; causal attention by PyTorch."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(TOKENS, WIDTH)
        self.project = nn.Linear(WIDTH, 3 * WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        parts = self.project(self.norm(h)).split(WIDTH, -1)
        q, k, v = (part.view(*x.shape, 2, 4).transpose(1, 2) for part in parts)
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.head((h + z.transpose(1, 2).flatten(2))[:, -1])
        return out


class Unfused(nn.Module):
    """Attention by bmm on a batch that heads are folded into; unbind, stack, masked_fill."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(TOKENS, WIDTH)
        self.project = nn.Linear(WIDTH, 3 * WIDTH)
        self.register_buffer("mask", torch.ones(LENGTH, LENGTH).triu(1).bool())

    def forward(self, x: Tensor) -> Tensor:
        batch = len(x)
        q, k, v = self.project(self.embed(x)).view(batch, LENGTH, 3, 2, 4).permute(2, 0, 3, 1, 4)
        q, k, v = (part.reshape(batch * 2, LENGTH, 4) for part in (q, k, v))
        scores = torch.bmm(q, k.transpose(1, 2)).masked_fill(self.mask, float("-inf"))  # type: ignore[arg-type]
        z = torch.bmm(torch.softmax(scores, -1), v).view(batch, 2, LENGTH, 4)
        return torch.stack([z[:, 0], z[:, 1]], 2).flatten(2).mean(1)


class Modules(nn.Module):
    """``nn.MultiheadAttention``, batch first or second, with a padding mask that is fixed."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.batch_first = batch_first
        self.embed = nn.Embedding(TOKENS, WIDTH)
        self.attend = nn.MultiheadAttention(WIDTH, 2, batch_first=batch_first)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        h = h if self.batch_first else h.transpose(0, 1)
        mask = torch.tensor([False, False, True, False]).expand(len(x), -1)
        out = h + self.attend(h, h, h, key_padding_mask=mask, need_weights=False)[0]
        first: Tensor = out[:, 0] if self.batch_first else out[0]
        return first


class Encoder(nn.Module):
    """``nn.TransformerEncoder`` of two layers."""

    def __init__(self, activation: str, norm_first: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(TOKENS, WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, 2, 12, activation=activation, batch_first=True, norm_first=norm_first
        )
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.layers(self.embed(x)).mean(1))
        return out


class Vision(nn.Module):
    """A vision transformer: patches by a convolution, a class token, tanh-GELU."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(1, WIDTH, 2, 2)
        self.token = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.position = nn.Parameter(torch.randn(1, 5, WIDTH))
        self.attend = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3), nn.GELU("tanh"))

    def forward(self, x: Tensor) -> Tensor:
        patches = self.patch(x).flatten(2).transpose(1, 2)
        h = torch.cat([self.token.expand(len(x), -1, -1), patches], 1) + self.position
        h = h + self.attend(h, h, h)[0]
        out: Tensor = self.head(h[:, 0])
        return out
