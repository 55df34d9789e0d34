"""Candidates: points of a merged graph's inputs, to and from what a witness is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from provable_circuits.network.circuit import Circuit
from provable_circuits.verify.attacking.replay import Candidate
from provable_circuits.verify.encoding.encoder import Encoder
from provable_circuits.verify.encoding.problem import InputRange
from provable_circuits.verify.encoding.query import Query
from provable_circuits.verify.encoding.roles import RoleKind, Roles
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
        role = query.roles[name]
        if role.kind is RoleKind.PATCH_INPUT:
            given = [w.patch_input for w in pool]
        elif role.kind is RoleKind.PATCH_VALUES:
            removed = query.removed_units[role.tensor]
            given = [
                None if w.patch_values is None else w.patch_values[role.tensor].flatten()[removed]
                for w in pool
            ]
        elif role.kind is RoleKind.AT_POINT:
            points[name] = ((box.lower + box.upper) * 0.5)[problems]
            continue
        else:
            given = [w.z for w in pool]
        there = [value for value in given if value is not None]
        if len(there) == len(pool):
            points[name] = torch.stack(there).to(box.lower)
    return points


def candidate_at(
    encoder: Encoder,
    circuit: Circuit,
    roles: Roles,
    points: Mapping[str, Tensor],
    i: int,
    index: int,
) -> Candidate:
    """The i-th of some points, by input of the merged graph, as a candidate witness.

    Args:
        encoder: the encoder that wrote the graph.
        circuit: the circuit that the point is about.
        roles: the roles of the graph's inputs.
        points: values of its inputs, by name, [n, *shape].
        i: which of them.
        index: which of the claim's inputs.
    """
    kinds = {roles[name].kind: value[i] for name, value in points.items()}
    z = kinds.get(RoleKind.INPUT, encoder.claim.inputs[index].center)
    patch_input = kinds.get(RoleKind.PATCH_INPUT)
    if patch_input is not None:
        patch_input = patch_input.cpu()
    elif encoder.patch_range is not None:
        box = encoder.patch_range
        patch_input = ((box.lower + box.upper) * 0.5)[index]
    values = None
    if encoder.claim.patching.has_boxes:
        given = {
            roles[name].tensor: value[i]
            for name, value in points.items()
            if roles[name].kind is RoleKind.PATCH_VALUES
        }
        values = hull_values(encoder, circuit, given, index)
    return Candidate(circuit, index, z.cpu(), patch_input, values)


def hull_values(
    encoder: Encoder, circuit: Circuit, given: Mapping[str, Tensor], index: int
) -> dict[str, Tensor]:
    """Patch values by site, in which units that are not patched take the middle of their box.

    What is given for a site may be its removed units alone, or all of its units.
    """
    keep = encoder.components.masks([circuit])
    values = {}
    for site in encoder.components.sites:
        if site.tensor not in given:
            continue
        lower, upper = encoder.hull_at(site.tensor, index)
        value = (lower + (upper - lower) * 0.5).flatten().clone()
        gone = (~site.unit_mask(keep)[0].expand(site.layer.shape)).flatten()
        own = given[site.tensor].flatten().cpu()
        value[gone] = own[gone] if own.numel() == gone.numel() else own
        values[site.tensor] = value.reshape(site.layer.shape)
    return values
