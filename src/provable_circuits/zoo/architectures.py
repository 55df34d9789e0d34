"""The networks of the paper's appendix as PyTorch modules."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class _Block(nn.Module):
    """Two convolutions beside a shortcut, which is a projection where shapes differ."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1)
        same = stride == 1 and before == after
        self.shortcut = nn.Identity() if same else nn.Conv2d(before, after, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        return F.relu(self.conv2(F.relu(self.conv1(x))) + self.shortcut(x))


class ResNet2b(nn.Module):
    """CIFAR-10: normalised images [batch, 3, 32, 32] to logits [batch, 10]; 72 filters."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, 2, 1)
        self.layer1 = nn.Sequential(_Block(8, 16, 2), _Block(16, 16, 1))
        self.linear1 = nn.Linear(1024, 100)
        self.linear2 = nn.Linear(100, 10)

    def forward(self, x: Tensor) -> Tensor:
        """The logits of a batch of images."""
        logits: Tensor = self.linear2(
            F.relu(self.linear1(self.layer1(F.relu(self.conv1(x))).flatten(1)))
        )
        return logits


class GtsrbCnn(nn.Module):
    """GTSRB: images [batch, 3, 32, 32] in [0, 1] to logits [batch, 43]; 48 filters."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc1 = nn.Linear(2048, 128)
        self.fc2 = nn.Linear(128, 43)

    def forward(self, x: Tensor) -> Tensor:
        """The logits of a batch of images."""
        x = F.avg_pool2d(F.relu(self.conv1(x)), 2)
        x = F.avg_pool2d(F.relu(self.conv2(x)), 2)
        logits: Tensor = self.fc2(F.relu(self.fc1(x.flatten(1))))
        return logits


class TaxiNetCnn(nn.Module):
    """TaxiNet: grey images [batch, 1, 27, 54] in [0, 1] to a distance [batch, 1]; 8 filters."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, padding=1)
        self.conv2 = nn.Conv2d(4, 4, 3, padding=1)
        self.fc1 = nn.Linear(5832, 20)
        self.fc2 = nn.Linear(20, 10)
        self.fc3 = nn.Linear(10, 1)

    def forward(self, x: Tensor) -> Tensor:
        """The distances of a batch of images."""
        x = F.relu(self.conv2(F.relu(self.conv1(x)))).flatten(1)
        distance: Tensor = self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))
        return distance
