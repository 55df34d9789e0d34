"""Small random networks, and the exact optimum of their outputs by ``tests/oracle``."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tests.oracle.milp import Question, solve
from tests.oracle.network import Network
from tests.oracle.random_networks import convolutional, fully_connected, residual
from tests.oracle.regions import Region

from provable_circuits.properties.vnnlib import Case, Property

MARGIN = 1e-3


def drawn(seed: int) -> tuple[Network, Region, np.random.Generator]:
    dice = np.random.default_rng([20261118, seed])
    kind = seed % 5
    inputs = int(dice.integers(3, 9))
    if kind == 0:
        net = fully_connected(dice, [inputs, int(dice.integers(10, 24)), 2])
    elif kind == 1:
        net = fully_connected(dice, [inputs, 8, 8, 2])
    elif kind == 2:
        net = fully_connected(dice, [inputs, 6, 6, 6, 1], slope=0.1)
    elif kind == 3:
        net = residual(dice, inputs, 6, 2, projection=False)
    else:
        net = convolutional(dice, filters=True)
    center = dice.uniform(-1, 1, net.inputs)
    return net, Region(center, center - 0.6, center + 0.6), dice


def f64(values: Any) -> torch.Tensor:
    return torch.tensor(np.asarray(values), dtype=torch.float64)


def at_least(net: Network, region: Region, row: np.ndarray, threshold: float) -> Property:
    case = Case.exact(f64(region.low), f64(region.high), -f64(row).unsqueeze(0), f64([-threshold]))
    return Property(net.inputs, net.outputs, (case,))


def largest(net: Network, region: Region, row: np.ndarray) -> float:
    found = solve(Question(net, {}, region, {}, ("circuit", row[None])))
    assert found is not None
    return found.attained


def row_of(net: Network) -> np.ndarray:
    row = np.zeros(net.outputs)
    row[0], row[1:2] = 1.0, -1.0
    return row
