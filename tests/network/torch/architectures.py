"""Modules of every style, and their graphs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from provable_circuits.network.graph import Graph


class Function(nn.Module):
    """A module whose forward is a function of its input and its sub-modules, by name."""

    def __init__(self, forward: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        for name, part in parts.items():
            if isinstance(part, Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)
        self.function = forward

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)


class Normalise(nn.Module):
    """A layer in front of the network, with its statistics in buffers."""

    mean: Tensor
    std: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.4, 0.5, 0.6]).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor([0.2, 0.25, 0.3]).view(3, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std


class Block(nn.Module):
    """A residual block with normalisation, in-place ReLUs and a projection where shapes change."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        found: Tensor = self.relu(out)
        return found


class ResNet(nn.Module):
    """Normalisation, a stem, two blocks and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.normalise = Normalise()
        self.conv1 = nn.Conv2d(3, 4, 3, padding=1)
        self.layer1 = nn.Sequential(Block(4, 4, 1), Block(4, 6, 2))
        self.fc = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv1(self.normalise(x)), inplace=True)
        x = self.layer1(x)
        x = F.adaptive_avg_pool2d(x, 1)
        found: Tensor = self.fc(torch.flatten(x, 1))
        return found


def _functional(m: Any, x: Tensor) -> Any:
    x = x.view(x.size(0), -1)
    x = F.relu_(F.linear(x, m.w1, m.b1))
    x = F.linear(x, m.w2).relu_()
    return x @ m.w3 + m.b3


def _shapes(m: Any, x: Tensor) -> Any:
    x = x.reshape(len(x), 3, -1, 4)
    x = x.permute(0, 2, 3, 1).contiguous().transpose(1, -1)
    x = x.unsqueeze(1).squeeze(1).flatten(2)
    x = torch.unflatten(x, 2, (2, -1))
    x = x.flatten(start_dim=1).view(-1, 24)[:, None].squeeze(dim=1)
    return m.fc(m.unflatten(x).reshape(x.shape[0], -1))


def _arithmetic(m: Any, x: Tensor) -> Any:
    x = 2 * x + 1
    x = 1 - x / 3
    x = m.scale * (x - m.shift)
    x = -x + torch.ones(4)
    x = 3.5 - x
    x = x * 0.1
    x = torch.div(x, torch.tensor([1.0, 2.0, 4.0, 8.0]))
    return m.fc(x + m.shift - x)


def _branches(m: Any, x: Tensor) -> Any:
    left, right = torch.relu(m.left(x)), torch.tanh(m.right(x))
    both = torch.cat([left, right, x], dim=1)
    maps = torch.cat((both, both), 1)
    return m.head(maps.mean((2, 3)))


def _pools(m: Any, x: Tensor) -> Any:
    x = F.max_pool2d(m.conv(x), 3, stride=2, padding=1, ceil_mode=True)
    x = F.avg_pool2d(x, 2, stride=1, padding=1, count_include_pad=False)
    x = m.uneven(m.ceil(x))
    return m.fc(x.flatten(1))


def _activations(m: Any, x: Tensor) -> Any:
    x = m.leaky(m.fc1(x))
    x = torch.sigmoid(m.fc1(x))
    x = m.hard(F.relu6(4 * m.fc1(x)))
    x = torch.clamp(m.fc1(x), -0.5, 0.75).clamp(min=-0.4).clamp_max(0.5)
    x = F.hardtanh(m.fc1(x), -0.3, 0.9)
    x = torch.clamp_min(x, 0.0)
    return F.leaky_relu(x + m.fc1(x), 0.3)


def _means(m: Any, x: Tensor) -> Any:
    x = m.conv(x)
    rows = x.mean(3, keepdim=True).mean(-2)
    return m.fc(rows.flatten(1) + x.mean(dim=[2, 3]) + x.flatten(2).mean(-1))


def _odd_convs(m: Any, x: Tensor) -> Any:
    x = m.same(x)
    x = m.grouped(F.pad(x, (1, 2, 0, 1)))
    x = m.dilated(x)
    x = m.depthwise(m.valid(x))
    return x.flatten(1)


def _parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(shape) / 2)


ARCHITECTURES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "sequential": (
        lambda: nn.Sequential(
            nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)
        ),
        (6,),
    ),
    "sequential convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 5, stride=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4, 3)
        ),
        (1, 9, 9),
    ),
    "functional, in place": (
        lambda: Function(
            _functional,
            w1=_parameter(7, 6),
            b1=_parameter(7),
            w2=_parameter(5, 7),
            w3=_parameter(5, 4),
            b3=_parameter(4),
        ),
        (2, 3),
    ),
    "residual, normalised": (ResNet, (3, 8, 8)),
    "reshaping": (
        lambda: Function(_shapes, fc=nn.Linear(24, 3), unflatten=nn.Unflatten(1, (4, 6))),
        (24,),
    ),
    "dropout and identity": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 3, 3),
            nn.Dropout2d(0.5),
            nn.Identity(),
            nn.ReLU(),
            nn.Flatten(),
            nn.Dropout(0.5),
            nn.Linear(12, 2),
            nn.AlphaDropout(0.2),
        ),
        (2, 4, 4),
    ),
    "concatenation": (
        lambda: Function(
            _branches,
            left=nn.Conv2d(2, 3, 3, padding=1),
            right=nn.Conv2d(2, 1, 1),
            head=nn.Linear(12, 4),
        ),
        (2, 5, 4),
    ),
    "pooling of every kind": (
        lambda: Function(
            _pools,
            conv=nn.Conv2d(1, 3, 2),
            ceil=nn.AvgPool2d((2, 3), stride=(2, 2), ceil_mode=True),
            uneven=nn.AdaptiveAvgPool2d((3, 2)),
            fc=nn.Linear(18, 2),
        ),
        (1, 10, 9),
    ),
    "adaptive pooling that keeps a side": (
        lambda: nn.Sequential(nn.AdaptiveAvgPool2d((None, 2)), nn.Flatten(), nn.Linear(10, 2)),
        (1, 5, 4),
    ),
    "convolutions of every kind": (
        lambda: Function(
            _odd_convs,
            same=nn.Conv2d(2, 4, (2, 4), padding="same", dilation=(1, 2)),
            grouped=nn.Conv2d(4, 6, 3, stride=(1, 2), groups=2),
            dilated=nn.Conv2d(6, 4, 2, dilation=(2, 1), padding=(2, 0)),
            valid=nn.Conv2d(4, 4, 2, padding="valid"),
            depthwise=nn.Conv2d(4, 4, 1, groups=4, bias=False),
        ),
        (2, 6, 7),
    ),
    "activations of every kind": (
        lambda: Function(
            _activations, fc1=nn.Linear(5, 5), leaky=nn.LeakyReLU(0.2), hard=nn.Hardtanh()
        ),
        (5,),
    ),
    "normalised vectors": (
        lambda: nn.Sequential(
            nn.Linear(4, 6),
            nn.BatchNorm1d(6),
            nn.ReLU(),
            nn.Linear(6, 3),
            nn.BatchNorm1d(3, affine=False),
        ),
        (4,),
    ),
    "means": (lambda: Function(_means, conv=nn.Conv2d(1, 3, 2), fc=nn.Linear(3, 2)), (1, 4, 5)),
    "arithmetic with constants": (
        lambda: Function(
            _arithmetic,
            scale=torch.tensor([1.0, -2.0, 0.5, 3.0]),
            shift=torch.rand(1, 4),
            fc=nn.Linear(4, 2),
        ),
        (4,),
    ),
    "matrix parameters": (
        lambda: Function(
            lambda m, x: torch.relu(x @ m.w1) @ m.w2.T,
            w1=_parameter(4, 5),
            w2=_parameter(3, 5),
        ),
        (4,),
    ),
    "one module called twice": (
        lambda: Function(
            lambda m, x: m.fc(torch.relu(m.fc(x))) + m.fc(x) + m.fc(x), fc=nn.Linear(4, 4)
        ),
        (4,),
    ),
    "linear on the last of two dimensions": (
        lambda: Function(
            lambda m, x: m.end(torch.relu(m.fc(x)).permute(0, 2, 1).flatten(1)),
            fc=nn.Linear(3, 2),
            end=nn.Linear(8, 2),
        ),
        (4, 3),
    ),
    "reparametrised weights": (
        lambda: nn.Sequential(
            nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)),
            nn.ReLU(),
            nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2)),
        ),
        (4,),
    ),
    "casts": (
        lambda: Function(
            lambda m, x: m.fc(x.to(m.fc.weight.dtype).contiguous()).clone(), fc=nn.Linear(4, 2)
        ),
        (4,),
    ),
}


def randomise(module: nn.Module) -> nn.Module:
    """Statistics and scales of normalisation that are not those of a fresh module."""
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            for value in [part.running_mean, part.weight, part.bias]:
                if value is not None:
                    nn.init.normal_(value)
            assert part.running_var is not None
            nn.init.uniform_(part.running_var, 0.5, 2.0)
    return module


def build(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    torch.manual_seed(0)
    make, shape = ARCHITECTURES[name]
    return randomise(make()).eval(), shape


@functools.cache
def captured(name: str) -> Graph:
    """The graph of an architecture, captured with another batch size from one to the next."""
    module, shape = build(name)
    example = 1 + list(ARCHITECTURES).index(name) % 3
    return Graph.from_torch(module, torch.randn(example, *shape))
