"""Small networks exactly as given, and the exact stage asked about their circuits."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import torch
from tests.oracle.network import INPUT, Network, Writer
from tests.oracle.random_networks import graph_of
from torch import nn

import provable_circuits as pc
from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.exact.claims import decide_exactly


def decide(circuit: pc.Circuit, claim: pc.Claim) -> pc.Verdict:
    verdict = decide_exactly(circuit.components, claim, circuit, Deadline())
    assert verdict is not None
    assert verdict.stage == "exact"
    return verdict


def at_or_above(number: Fraction) -> float:
    """The least float64 number that is not below."""
    found = float(number)
    return found if Fraction(found) >= number else math.nextafter(found, math.inf)


def net_of(*layers: tuple[object, object]) -> Network:
    """Linear layers exactly as given, in float64, ReLUs between them."""
    arrays = [(np.array(w, dtype=float), np.array(b, dtype=float)) for w, b in layers]
    writer, value = Writer((arrays[0][0].shape[1],)), INPUT
    for i, (weight, bias) in enumerate(arrays):
        layer = nn.Linear(weight.shape[1], weight.shape[0]).double()
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(weight))
            layer.bias.copy_(torch.from_numpy(bias))
        value = writer.layer(f"fc{i}", layer, value, keep_double=True)
        if i < len(arrays) - 1:
            value = writer.relu(value)
    return writer.net


def circuit_of(net: Network, kept: list[str]) -> pc.Circuit:
    return graph_of(net).components("neuron").circuit(kept)
