"""Proof reuse: what earlier questions leave to a search, and what it leaves to later ones."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from provable_circuits.verify.configuration import DEFAULT
from provable_circuits.verify.encoding.problem import Problem
from provable_circuits.verify.encoding.roles import Role, RoleKind
from provable_circuits.verify.neuron_hull.saved_tree import SavedTree

POSITIONS = 2**40
"""More than any tensor has."""

Row = tuple[int, tuple[float, ...]]
"""Which of the claim's inputs, and the row over the outputs."""


@dataclass(slots=True, eq=False)
class SavedTrees:
    """The latest saved trees of rows, oldest first.

    Attributes:
        rows: the saved trees.
        most: numbers that they hold together, of two bytes each, at most.
        tensors: the numbers of tensors that were met.
    """

    most: int = DEFAULT.reuse.saved_numbers
    rows: dict[Row, SavedTree] = field(default_factory=dict)
    tensors: dict[Role, int] = field(default_factory=dict)

    def keep(self, found: dict[Row, SavedTree]) -> None:
        """Keep newer saved trees; the oldest are forgotten where all take too much room."""
        for row, saved_tree in found.items():
            self.rows.pop(row, None)
            self.rows[row] = saved_tree
        _forget(self.rows, self.most)


class ProofReuse:
    """Saved trees of earlier proofs for one question, and those of its own.

    Args:
        saved_trees: those of earlier proofs.
        problem: the question as a problem.
    """

    def __init__(self, saved_trees: SavedTrees, problem: Problem) -> None:
        self.saved_trees = saved_trees
        self.problem = problem
        self.own = {held.node: name for name, held in problem.tensors.items()}
        self.found: dict[Row, SavedTree] = {}
        """The saved trees of rows that were proved for this question."""

    def numbers(self, name: str, positions: Tensor) -> Tensor:
        """Numbers of a node's flat positions, the same whatever circuit the node belongs to.

        A circuit's tensor has others than the network's that it stands for. Its positions are those
        of the network's, of which it may lack channels.
        """
        role = self.problem.roles[name]
        if name in self.own:
            role = Role(RoleKind.CIRCUIT, self.own[name])
            held = self.problem.tensors[self.own[name]]
            positions = held.positions(positions, self.problem.graph[name].shape)
        known = self.saved_trees.tensors
        return known.setdefault(role, len(known)) * POSITIONS + positions

    def add(self, row: Row, saved_tree: SavedTree | None) -> None:
        """A row of this question was proved; its saved tree, if it is not too large."""
        if saved_tree is not None:
            self.found[row] = saved_tree
            _forget(self.found, self.saved_trees.most)

    def keep(self) -> None:
        """The question was proved: later ones start from here."""
        self.saved_trees.keep(self.found)


def _forget(rows: dict[Row, SavedTree], most: int) -> None:
    """Forget the oldest saved trees where all take too much room."""
    held = sum(saved_tree.numbers for saved_tree in rows.values())
    while held > most:
        held -= rows.pop(next(iter(rows))).numbers
