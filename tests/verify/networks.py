"""Networks that several tests of the verifier ask about, and claims about them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import provable_circuits as pc


class Residual(nn.Module):
    """A small residual network with everything that cutting has to get right."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 3, 3, padding=1)
        self.second = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.third = nn.Conv2d(4, 4, 3, padding=1)
        self.project = nn.Conv2d(3, 4, 1)
        self.pool = nn.AvgPool2d(2)
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = self.first(x).relu()
        y = self.third(self.norm(self.second(x)).relu()) + self.project(x)
        logits: Tensor = self.head(self.pool(y.relu()).flatten(1))
        return logits


def dense(seed: int) -> pc.Graph:
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 5), nn.LeakyReLU(0.1), nn.Linear(5, 3)
    )
    return pc.Graph.from_torch(net, torch.zeros(1, 5))


def residual(seed: int) -> pc.Graph:
    torch.manual_seed(seed)
    return pc.Graph.from_torch(Residual(), torch.zeros(1, 1, 4, 4))


PATCHINGS: dict[str, pc.Patching] = {
    "zero": pc.Zero(),
    "constant": pc.Constant(0.2),
    "reachable": pc.Reachable(eps=0.1),
    "hull": pc.IntervalHull(eps=0.1),
}


def claim_for(graph: pc.Graph, patching: str, tolerance: float, point: bool = False) -> pc.Claim:
    centers = torch.rand(2, *graph.input_shape, generator=torch.Generator().manual_seed(1))
    inputs = [pc.Point(x) if point else pc.Ball(x, 0.05) for x in centers]
    return pc.Claim(inputs, PATCHINGS[patching], pc.LogitDifference(tolerance, 1))


def pools(seed: int = 0, pool: type[nn.Module] = nn.MaxPool2d, scale: float = 1.0) -> pc.Graph:
    """A network whose question needs branching over wide domains, all weights times a scale."""
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.ReLU(),
        pool(2),
        nn.Conv2d(4, 6, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(96, 12),
        nn.ReLU(),
        nn.Linear(12, 3),
    )
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(scale)
    return pc.Graph.from_torch(net, torch.zeros(1, 1, 8, 8))


def hard(graph: pc.Graph) -> tuple[pc.Circuit, pc.Claim]:
    components = graph.components("filter")
    x = torch.rand(1, 8, 8, generator=torch.Generator().manual_seed(2))
    claim = pc.Claim([pc.Ball(x, 0.3)], pc.Reachable(eps=0.3), pc.LogitDifference(0.5, 0))
    return components.full().remove(components.names[0]).remove(components.names[5]), claim
