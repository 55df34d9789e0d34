"""Grad-CAM against its definition: gradients by finite differences, from a forward of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

import provable_circuits as pc
from provable_circuits.experiments.qualitative import grad_cam
from provable_circuits.network.layers import layers_of

STEP = 1e-6


@dataclass
class Case:
    """A network as what comes before the last convolution's maps, and what comes behind."""

    before: nn.Sequential
    behind: nn.Sequential

    def __post_init__(self) -> None:
        for weight in [*self.before.parameters(), *self.behind.parameters()]:
            nn.init.normal_(weight, std=0.5)

    @property
    def graph(self) -> pc.Graph:
        whole = nn.Sequential(*self.before, *self.behind).eval()
        return pc.Graph.from_torch(whole, torch.zeros(1, 2, 6, 6))

    def cam(self, x: Tensor, target: int, keep: Tensor) -> Tensor:
        """The definition, each derivative by a difference of two outputs."""
        maps = self.before.double().eval()(x.double().unsqueeze(0)).detach()
        maps = maps * keep.reshape(1, -1, 1, 1)
        behind = self.behind.double().eval()
        total = torch.zeros(maps.shape[2:], dtype=torch.float64)
        for channel in range(maps.shape[1]):
            slopes = []
            for place in range(maps[0, channel].numel()):
                ends = []
                for sign in (1, -1):
                    moved = maps.clone()
                    moved[0, channel].view(-1)[place] += sign * STEP
                    ends.append(float(behind(moved)[0, target].detach()))
                slopes.append((ends[0] - ends[1]) / (2 * STEP))
            total += sum(slopes) / len(slopes) * maps[0, channel]
        return total.clamp_min(0)


def plain() -> Case:
    return Case(
        nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU()), nn.Sequential(nn.Flatten(), nn.Linear(48, 3))
    )


def deep() -> Case:
    """Behind the maps there are pooling, a hidden layer and a curved activation."""
    normal = nn.BatchNorm2d(4)
    normal.running_mean, normal.running_var = torch.rand(4), torch.rand(4) + 0.5
    before = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.Conv2d(3, 4, 3), normal)
    behind = [nn.AvgPool2d(2), nn.Flatten(), nn.Linear(16, 5), nn.Tanh(), nn.Linear(5, 3)]
    return Case(nn.Sequential(*before, nn.ReLU()), nn.Sequential(*behind))


@pytest.mark.parametrize("make", [plain, deep])
@pytest.mark.parametrize("seed", range(3))
def test_grad_cam_against_its_definition(make: Callable[[], Case], seed: int) -> None:
    torch.manual_seed(seed)
    case = make()
    graph = case.graph
    components = graph.components("filter")
    layer = [found for found in layers_of(graph) if found.kind == "conv"][-1]
    own = [c.name for c in components if c.layer == layer.name]
    x = torch.rand(2, 6, 6)
    largest = {}
    for removed in ([], *([name] for name in own)):
        circuit = components.full().remove(*removed)
        keep = torch.tensor([float(name in circuit) for name in own])
        for target in range(3):
            expected = case.cam(x, target, keep)
            most = largest[*removed, target] = float(expected.max())
            found = grad_cam(circuit, layer, x, target)
            assert torch.allclose(found, expected / most if most > 0 else expected, atol=1e-5)
    assert max(most for (*removed, _), most in largest.items() if not removed) > 0.01
    assert sum(most > 0.01 for (*removed, _), most in largest.items() if removed) > 2


def test_removing_every_filter_leaves_no_map() -> None:
    torch.manual_seed(0)
    graph = plain().graph
    components = graph.components("filter")
    (layer,) = (found for found in layers_of(graph) if found.kind == "conv")
    none = components.full().remove(*(c.name for c in components if c.layer == layer.name))
    assert not grad_cam(none, layer, torch.rand(2, 6, 6), 0).any()
