"""Roles: what each node of a merged graph stands for, as data.

A merged graph holds the network, one or several circuits and the source of patches. Its node names
are labels for people, unique within one graph and without meaning; whatever depends on what a node
is reads its role. Two nodes of one role are the same function of the claim's inputs in every
question of an encoder, so bounds are remembered by role.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple, TypeVar

from torch import Tensor

from provable_circuits.network.graph import GraphBuilder
from provable_circuits.network.ops import Op, Shape

Value = TypeVar("Value")


class RoleKind(Enum):
    """What a node stands for."""

    __hash__ = object.__hash__  # a member is one object; roles are looked up often

    INPUT = "the claimed input"
    NETWORK = "a tensor of the network at the claimed input"
    AT_POINT = "the same, given as an enclosure where the claimed input is a single point"
    PATCH_INPUT = "the input that patches are taken at"
    PATCH_SOURCE = "a tensor of the network at that input"
    PATCH_VALUES = "patch values of a site, given as an input"
    CIRCUIT = "a circuit's version of a tensor, or a step on the way to it"
    CIRCUITS = "the same of several circuits, each with a row of its own"
    CONSTANT = "numbers that patches fix"
    SPECIFICATION = "what the claim's constraints are about"


class CircuitStep(Enum):
    """Which step on the way to a circuit's tensor; the value is a suffix of labels."""

    __hash__ = object.__hash__

    VALUE = ""
    WHOLE = ".whole"
    MASKED = ".masked"
    SOURCE = ".source"
    HULL = ".hull"
    PATCHED = ".patched"


_COMMON = frozenset(
    {
        RoleKind.INPUT,
        RoleKind.NETWORK,
        RoleKind.AT_POINT,
        RoleKind.PATCH_INPUT,
        RoleKind.PATCH_SOURCE,
    }
)


class Role(NamedTuple):
    """What one node stands for.

    Attributes:
        kind: the kind of node.
        tensor: the network's tensor that it is about; of the specification, a label.
        step: for a circuit's nodes, the step on the way to its tensor.
        removed: for a circuit's nodes, as bits, the removed components that they depend on.
    """

    kind: RoleKind
    tensor: str
    step: CircuitStep = CircuitStep.VALUE
    removed: int = 0

    @property
    def common(self) -> bool:
        """Whether the node is the same in every question: of the network, or the patch source."""
        return self.kind in _COMMON

    @property
    def label(self) -> str:
        """The node's name, for people."""
        kind, tensor = self.kind, self.tensor
        if kind is RoleKind.CIRCUIT:
            return f"{tensor}{self.step.value}~{self.removed:x}"
        if kind is RoleKind.CIRCUITS:
            return f"{tensor}{self.step.value}~"
        if kind is RoleKind.PATCH_INPUT:
            return "patch:input"
        return f"{_PREFIX.get(kind, '')}{tensor}{'~constant' if kind is RoleKind.CONSTANT else ''}"


_PREFIX = {
    RoleKind.AT_POINT: "at:",
    RoleKind.PATCH_SOURCE: "patch:",
    RoleKind.PATCH_VALUES: "patch:",
}

Roles = Mapping[str, Role]
"""The roles of a merged graph's nodes, by name."""


def by_role(values: Mapping[str, Value], roles: Roles) -> dict[Role, Value]:
    """What is known of nodes by name, by their roles."""
    return {roles[name]: value for name, value in values.items()}


def by_name(values: Mapping[Role, Value], roles: Roles) -> dict[str, Value]:
    """What is known of roles, by the names of the nodes that have them."""
    if not values:
        return {}
    return {name: values[role] for name, role in roles.items() if role in values}


class MergedGraphBuilder(GraphBuilder):
    """Writes a merged graph; each node is written in a role, and the first that made it counts."""

    def __init__(self) -> None:
        super().__init__(check_weights=False)
        self._roles: dict[str, Role] = {}

    def given(self, role: Role, shape: Shape) -> str:
        """Declare an input in a role and return its name."""
        name = self.input(role.label, shape)
        self._roles[name] = role
        return name

    def write(self, role: Role, op: Op, *inputs: str) -> str:
        """Add an operation in a role and return its node's name, or that of its twin."""
        name = self.add(role.label, op, *inputs)
        self._roles.setdefault(name, role)
        return name

    def fixed(self, tensor: str, value: Tensor) -> str:
        """Add numbers that patches fix and return their node's name."""
        name = self.constant(Role(RoleKind.CONSTANT, tensor).label, value)
        self._roles.setdefault(name, Role(RoleKind.CONSTANT, tensor))
        return name

    def role(self, name: str) -> Role:
        """The role of a node; one that was added in none belongs to the specification."""
        return self._roles.get(name) or Role(RoleKind.SPECIFICATION, name)

    def roles(self, names: Iterable[str]) -> dict[str, Role]:
        """The roles of these nodes, and of all that were written in one."""
        return self._roles | {name: self.role(name) for name in names}
