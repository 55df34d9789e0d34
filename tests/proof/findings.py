"""Networks and false claims that an earlier verifier called proved.

Part of a layer removed and then all of it, on a plain and on a residual network; and a depthwise
convolution before average pooling and tanh. Each difference is reached at a point of the ball.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from tests.proof.judge import Judge
from torch import Tensor, nn

import provable_circuits as pc
from provable_circuits.proof.writing import Writer


@dataclass(frozen=True)
class Finding:
    """A false claim about the last of some circuits."""

    claim: pc.Claim
    circuits: tuple[pc.Circuit, ...]


def sequence() -> Finding:
    """Convolution, ReLU, flatten, two linear layers."""
    side = 16
    net = nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(3 * side * side, 2),
        nn.ReLU(),
        nn.Linear(2, 2),
    ).double()
    shares = torch.tensor([0.6, 0.2, 0.2], dtype=torch.float64).repeat_interleave(side**2)
    with torch.no_grad():
        first, second, last = (layer for layer in net if isinstance(layer, nn.Conv2d | nn.Linear))
        first.weight.fill_(0.001)
        _bias(first).fill_(1.0)
        second.weight.copy_(torch.stack([6 * shares, 3.6 * shares]) / side**2)
        _bias(second).fill_(-1.0)
        last.weight.copy_(torch.tensor([[1.8, -3.0], [0.0, 0.0]]))
        _bias(last).zero_()
    x = torch.full((1, 1, side, side), 0.5, dtype=torch.float64)
    return _finding(net, x, 0.1, 0.25, [("0/0",), ("0/0", "0/1", "0/2")])


class Residual(nn.Module):
    """A convolution, average pooling and a ReLU beside a skip."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.a = nn.Conv2d(1, 3, 3, padding=1)
        self.b = nn.Conv2d(3, 4, 3, padding=1)
        self.skip = nn.Conv2d(1, 4, 3, padding=1)
        self.fc = nn.Linear(4 * (side // 2) ** 2, 2)
        with torch.no_grad():
            _bias(self.a).fill_(3.0)
            self.a.weight.mul_(0.1)
            self.b.weight.copy_(0.1 + 0.02 * torch.rand_like(self.b.weight))
            _bias(self.b).fill_(0.1)
            self.fc.weight.sub_(self.fc.weight.mean(1, keepdim=True))

    def forward(self, x: Tensor) -> Tensor:
        inner = F.relu(F.avg_pool2d(self.a(x), 2))
        out: Tensor = self.fc(F.relu(self.b(inner) + F.avg_pool2d(self.skip(x), 2)).flatten(1))
        return out


def residual() -> Finding:
    """A network with a skip."""
    torch.manual_seed(0)
    x = torch.rand(1, 1, 16, 16, dtype=torch.float64)
    return _finding(Residual(16).double(), x, 0.3, 0.95, [("a/0",), ("a/0", "a/1", "a/2")])


class Depthwise(nn.Module):
    """A depthwise convolution, average pooling and tanh."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.dw = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.fc = nn.Linear(8 * 36, 3)
        with torch.no_grad():
            self.conv1.weight.mul_(8)
            self.dw.weight.mul_(3)
            _bias(self.dw).fill_(1.5)
            self.dw.weight[1] *= 0.02
            self.fc.weight.mul_(3)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.dw(torch.tanh(self.conv1(x)))
        out: Tensor = self.fc(torch.tanh(F.avg_pool2d(inner, 2)).flatten(1))
        return out


def grouped() -> Finding:
    """A network with a depthwise convolution."""
    torch.manual_seed(0)
    x = torch.rand(1, 1, 12, 12, dtype=torch.float64)
    return _finding(Depthwise().double(), x, 0.5, 0.97, [("conv1/0", "dw/1")])


FINDINGS: tuple[Callable[[], Finding], ...] = (sequence, residual, grouped)


def _bias(layer: nn.Conv2d | nn.Linear) -> Tensor:
    if layer.bias is None:
        raise ValueError("the layer has no bias")
    return layer.bias.data


def _finding(
    net: nn.Module, x: Tensor, eps: float, share: float, removed: list[tuple[str, ...]]
) -> Finding:
    """A tolerance that is exceeded in the ball, by the judge."""
    graph = pc.Graph.from_torch(net.eval(), x)
    parts = graph.components("filter")
    circuits = tuple(parts.full().remove(*names) for names in removed)

    def claim(tolerance: float) -> pc.Claim:
        metric = pc.LogitDifference(tolerance=tolerance, target=0)
        return pc.Claim([pc.Ball(x[0], eps=eps)], pc.Zero(), metric)

    judge = Judge(Writer(claim(0.0), circuits[-1]).files())
    most = judge.attack(0, set(circuits[-1].names))
    return Finding(claim(share * most), circuits)
