"""Roles: what nodes stand for, and that names are labels alone."""

from __future__ import annotations

import pytest
import torch

from provable_circuits.network.ops import Affine, ReLU
from provable_circuits.verify.encoding.roles import (
    CircuitStep,
    MergedGraphBuilder,
    Role,
    RoleKind,
    by_name,
    by_role,
)

COMMON = {
    RoleKind.INPUT,
    RoleKind.NETWORK,
    RoleKind.AT_POINT,
    RoleKind.PATCH_INPUT,
    RoleKind.PATCH_SOURCE,
}


@pytest.mark.parametrize("kind", RoleKind)
def test_what_is_common_belongs_to_the_network_or_the_patch_source(kind: RoleKind) -> None:
    role = Role(kind, "fc")
    assert role.common == (kind in COMMON)
    assert role.label


def test_labels_say_what_a_node_is() -> None:
    assert Role(RoleKind.NETWORK, "fc").label == "fc"
    assert Role(RoleKind.AT_POINT, "fc").label == "at:fc"
    assert Role(RoleKind.PATCH_SOURCE, "fc").label == "patch:fc"
    assert Role(RoleKind.CIRCUIT, "fc", CircuitStep.MASKED, 18).label == "fc.masked~12"


def test_a_node_has_the_role_that_made_it_first() -> None:
    builder = MergedGraphBuilder()
    x = builder.given(Role(RoleKind.INPUT, "x"), (2,))
    own = Role(RoleKind.CIRCUIT, "relu", removed=5)
    made = builder.write(own, ReLU(), x)
    assert builder.write(Role(RoleKind.NETWORK, "relu"), ReLU(), x) == made
    assert builder.role(made) == own
    assert builder.role(x) == Role(RoleKind.INPUT, "x")


def test_names_that_are_taken_do_not_change_roles() -> None:
    """A network with a tensor named like the label of another node."""
    builder = MergedGraphBuilder()
    x = builder.given(Role(RoleKind.INPUT, "patch:input"), (2,))
    other = builder.given(Role(RoleKind.PATCH_INPUT, "patch:input"), (2,))
    assert x != other
    assert builder.role(other).kind is RoleKind.PATCH_INPUT
    assert builder.role(x).kind is RoleKind.INPUT


def test_what_is_written_in_no_role_belongs_to_the_specification() -> None:
    builder = MergedGraphBuilder()
    x = builder.given(Role(RoleKind.INPUT, "x"), (2,))
    value = builder.fixed("relu", torch.ones(2))
    y = builder.add("difference", Affine(torch.tensor(2.0)), x)
    roles = builder.roles([x, y])
    assert roles[y] == Role(RoleKind.SPECIFICATION, y)
    assert roles[value] == Role(RoleKind.CONSTANT, "relu")


def test_values_by_role_and_back() -> None:
    roles = {"a": Role(RoleKind.NETWORK, "a"), "b": Role(RoleKind.CIRCUIT, "a", removed=1)}
    held = by_role({"b": 2.0}, roles)
    assert held == {roles["b"]: 2.0}
    assert by_name(held, {**roles, "c": Role(RoleKind.CIRCUIT, "a", removed=3)}) == {"b": 2.0}
