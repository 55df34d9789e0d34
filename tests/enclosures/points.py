"""Points of a claim: drawn at random, at corners, and by a gradient attack of the tests' own."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from tests.enclosures.truth import Points, Truth
from torch import Tensor

import provable_circuits as pc
from provable_circuits.claims.domains import Domain
from provable_circuits.network.circuit import Circuit
from provable_circuits.rounding import Interval

ROUNDING = 1e-12
"""More than the last bits of a box's ends, relative to them."""


def placed(domain: Domain, points: Tensor) -> Tensor:
    """Points moved into a domain; those that are not certainly inside become its centre."""
    found = domain.project(points)
    there = domain.contains(found)
    return torch.where(there.reshape(-1, *([1] * (found.ndim - 1))), found, domain.center)


def drawn(domain: Domain, count: int, generator: torch.Generator) -> Tensor:
    """The centre, corners of the box and random points of a domain."""
    lower, upper = domain.bounds()
    corners = torch.rand((count, *domain.shape), generator=generator) < 0.5
    points = torch.where(corners, lower, upper)
    inner = domain.sample(count - count // 2, generator)
    points = torch.cat([domain.center.unsqueeze(0), points[: count // 2], inner])[:count]
    return placed(domain, points)


def inner_boxes(truth: Truth, index: int) -> dict[str, Interval] | None:
    """The boxes of interval patching, a little smaller.

    How sums are ordered decides about the last bits of a box's ends, and batches of another size
    may order them in another way.
    """
    boxes = truth.boxes[index]
    if boxes is None:
        return None
    found = {}
    for name, (lower, upper) in boxes.items():
        middle = lower * 0.5 + upper * 0.5
        inset = torch.minimum((upper - lower) * 0.5, ROUNDING * (1 + lower.abs() + upper.abs()))
        found[name] = (torch.minimum(lower + inset, middle), torch.maximum(upper - inset, middle))
    return found


def random_points(truth: Truth, count: int, generator: torch.Generator) -> Points:
    """So many points for each of the claim's inputs."""
    several = []
    for j, domain in enumerate(truth.claim.inputs):
        source: Tensor | None = None
        values: dict[str, Tensor] | None = None
        if isinstance(truth.claim.patching, pc.Reachable):
            source = drawn(truth.patch_domain(j), count, generator)
        boxes = inner_boxes(truth, j)
        if boxes is not None:
            values = {}
            for name, (lower, upper) in boxes.items():
                share = torch.rand((count, *lower.shape[1:]), generator=generator).double()
                share[: count // 2] = share[: count // 2].round()
                values[name] = lower * (1 - share) + upper * share
        z = drawn(domain, count, generator)
        several.append(Points(torch.full((count,), j), z, source, values))
    return Points.joined(several)


def attacked(truth: Truth, circuit: Circuit, points: Points, steps: int) -> Points:
    """Points moved uphill in what the claim's metric measures, by signed steps that shrink."""
    claim = truth.claim
    index, z, source, values = points.index, points.z, points.source, points.values
    anchor = truth.anchor[index]
    for step in range(steps):
        rate = 0.7**step
        with torch.enable_grad():
            z = z.detach().clone().requires_grad_()
            moving: list[Tensor] = [z]
            patches: Mapping[str, Tensor]
            if truth.fixed is not None:
                patches = truth.fixed
            elif values is not None:
                values = {n: v.detach().clone().requires_grad_() for n, v in values.items()}
                moving += list(values.values())
                patches = values
            elif source is not None:
                source = source.detach().clone().requires_grad_()
                moving.append(source)
                patches = truth.tensors(source)
            output = truth.forward(circuit, z, patches)
            reference = truth.forward(None, z, {})
            # Metrics take targets by input: each point is an input of its own here.
            metric = claim.metric
            if isinstance(metric, pc.LogitDifference) and isinstance(metric.target, tuple):
                chosen = tuple(metric.target[j] for j in index.tolist())
                metric = pc.LogitDifference(metric.tolerance, chosen)
            total = metric.excess(anchor, reference, output).sum()
            if not total.requires_grad:
                break
            alpha = torch.autograd.grad(total, moving, allow_unused=True)
        with torch.no_grad():
            given = dict(zip(map(id, moving), alpha, strict=True))
            z = _moved(z, given[id(z)], list(claim.inputs), index, rate)
            if source is not None:
                domains = [truth.patch_domain(j) for j in range(len(claim.inputs))]
                source = _moved(source, given[id(source)], domains, index, rate)
            if values is not None:
                values = {
                    name: _in_boxes(truth, name, value, given[id(value)], index, rate)
                    for name, value in values.items()
                }
    fresh = None if values is None else {name: value.detach() for name, value in values.items()}
    return Points(index, z.detach(), None if source is None else source.detach(), fresh)


def _moved(
    points: Tensor, slope: Tensor | None, domains: list[Domain], index: Tensor, rate: float
) -> Tensor:
    if slope is None:
        return points.detach()
    found = points.detach().clone()
    for j, domain in enumerate(domains):
        own = index == j
        if bool(own.any()):
            lower, upper = domain.bounds()
            step = rate * (upper - lower) * slope[own].sign()
            found[own] = placed(domain, found[own] + step)
    return found


def _in_boxes(
    truth: Truth, name: str, value: Tensor, slope: Tensor | None, index: Tensor, rate: float
) -> Tensor:
    found = value.detach().clone()
    for j in range(len(truth.claim.inputs)):
        boxes, own = inner_boxes(truth, j), index == j
        if boxes is None or slope is None or not bool(own.any()):
            continue
        lower, upper = boxes[name]
        step = rate * (upper - lower) * slope[own].sign()
        found[own] = torch.minimum(torch.maximum(found[own] + step, lower), upper)
    return found
