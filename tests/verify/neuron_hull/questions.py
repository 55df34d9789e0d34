"""Questions about networks of images, with their outputs presolved."""

from __future__ import annotations

import torch
from tests.verify.networks import pools
from torch import Tensor, nn

import provable_circuits as pc
from provable_circuits.verify.bounding.bounds import Bounds, Structure
from provable_circuits.verify.bounding.region import Region
from provable_circuits.verify.configuration import DEFAULT, Configuration
from provable_circuits.verify.encoding.query import Query
from provable_circuits.verify.neuron_hull.presolve import Presolver


def images(seed: int, scale: float = 1.0) -> pc.Graph:
    return pools(seed, nn.AvgPool2d, scale)


def question(
    dice: torch.Generator,
    graph: pc.Graph,
    radius: float | Tensor = 0.1,
    configuration: Configuration = DEFAULT,
) -> tuple[Query, Presolver]:
    """A question about it, and its outputs presolved."""
    components = graph.components("filter")
    x = torch.rand(1, 8, 8, generator=dice)
    source = pc.Ball(x, 1.2 * torch.as_tensor(radius))
    patching, metric = pc.Reachable(domains=[source]), pc.LogitDifference(0.5, 0)
    claim = pc.Claim([pc.Ball(x, radius)], patching, metric)
    circuit = components.full().remove(components.names[0]).remove(components.names[5])
    query = pc.Verifier(components, claim).encoder.encode(circuit)
    structure = Structure(query.graph, torch.device("cpu"), configuration)
    bounds = Bounds(structure, Region(query.ranges), 1)
    bounds.compute()
    eye = torch.eye(3, dtype=torch.float64).unsqueeze(0)
    return query, Presolver(bounds, query.graph.outputs[0], eye, eye.new_zeros(3))
