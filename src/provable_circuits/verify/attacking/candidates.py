"""Candidates: points of a merged graph's inputs, to and from what a witness is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from provable_circuits.claims.patching import IntervalHull
from provable_circuits.network.circuit import Circuit
from provable_circuits.verify.attacking.replay import Candidate
from provable_circuits.verify.encoding.encoder import Encoder, InputRange, Query
from provable_circuits.verify.verdict import Witness


def middles(
    ranges: Mapping[str, InputRange], problems: Tensor, names: Sequence[str]
) -> dict[str, Tensor]:
    """The middles of some inputs' ranges, for these problems."""
    boxes = {name: ranges[name] for name in names}
    return {name: ((box.lower + box.upper) * 0.5)[problems] for name, box in boxes.items()}


def pool_points(query: Query, pool: Sequence[Witness]) -> dict[str, Tensor]:
    """Witnesses as points of the merged graph's inputs."""
    points: dict[str, Tensor] = {}
    some = next(iter(query.ranges.values())).lower
    problems = torch.tensor([witness.index for witness in pool], device=some.device)
    for name, box in query.ranges.items():
        given: list[Tensor | None]
        if name == "patch:input":
            given = [w.patch_input for w in pool]
        elif name.startswith("patch:"):
            site = name.removeprefix("patch:")
            removed = query.removed_units[site]
            given = [
                None if w.patch_values is None else w.patch_values[site].flatten()[removed]
                for w in pool
            ]
        elif name.startswith("at:"):
            points[name] = ((box.lower + box.upper) * 0.5)[problems]
            continue
        else:
            given = [w.z for w in pool]
        there = [value for value in given if value is not None]
        if len(there) == len(pool):
            points[name] = torch.stack(there).to(box.lower)
    return points


def candidate_at(
    encoder: Encoder, circuit: Circuit, points: Mapping[str, Tensor], i: int, index: int
) -> Candidate:
    """The i-th of some points, by input of the merged graph, as a candidate witness."""
    z = points[encoder.z][i] if encoder.z in points else encoder.claim.inputs[index].center
    patch_input = None
    if "patch:input" in points:
        patch_input = points["patch:input"][i].cpu()
    elif encoder.patch_range is not None:
        box = encoder.patch_range
        patch_input = ((box.lower + box.upper) * 0.5)[index]
    values = None
    if isinstance(encoder.claim.patching, IntervalHull):
        values = _hull_values(encoder, circuit, points, i, index)
    return Candidate(circuit, index, z.cpu(), patch_input, values)


def _hull_values(
    encoder: Encoder, circuit: Circuit, points: Mapping[str, Tensor], i: int, index: int
) -> dict[str, Tensor]:
    """Patch values by site from the removed units' inputs of the merged graph.

    An input may hold the removed units alone, or all units of its site.
    """
    keep = encoder.components.masks([circuit])
    values = {}
    for site in encoder.components.sites:
        given = points.get(f"patch:{site.tensor}")
        if given is None:
            continue
        lower, upper = encoder.hull_at(site.tensor, index)
        value = (lower + (upper - lower) * 0.5).flatten().clone()
        gone = (~site.unit_mask(keep)[0].expand(site.layer.shape)).flatten()
        own = given[i].flatten().cpu()
        value[gone] = own[gone] if own.numel() == gone.numel() else own
        values[site.tensor] = value.reshape(site.layer.shape)
    return values
