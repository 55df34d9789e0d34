"""Trees: proofs as data, followed rule by rule.

The proof of one input is a list of nodes to tighten, which all objectives share, and trees, each
for some objectives. A tree is written in preorder: a split, its lower half, its upper half. So both
halves are always there, and the leaves cover everything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from .arithmetic import Array, RefusedError
from .data import Data
from .problem import Problem
from .rules import Side, Sign, Subdomain, cut

MOST_NUMBERS = 2**26
"""Bounds of so many units may be kept at a time, and so many coefficients carried."""

DEEPEST = 2**10
"""So many halves of splits may wait in a tree."""


class Proof:
    """The proof for one input: steps that all objectives share, then a tree for some of them."""

    def __init__(
        self,
        problem: Problem,
        rational: Callable[[], Problem],
        array: Callable[[Data, Sequence[int] | None, str], Array],
        data: Data,
    ) -> None:
        self._problem, self._rational, self._array = problem, rational, array
        self._data = data.only("tighten", "trees")

    def check(self) -> int:
        """Refuse what does not prove all objectives; the number of leaves."""
        root = Subdomain.whole(self._problem)
        self._tighten(root, self._data, {})
        left, leaves = set(range(len(self._problem.objectives))), 0
        for tree in self._data["trees"].items():
            tree.only("objectives", "nodes")
            rows = [
                row.integer(len(self._problem.objectives)) for row in tree["objectives"].items()
            ]
            if len(set(rows)) != len(rows):
                raise tree.wrong("about objectives that are each named once")
            leaves += self._tree(root, rows, tree["nodes"].items())
            left -= set(rows)
        if left:
            raise RefusedError(f"Objective {min(left)} is not proved.")
        return leaves

    def _tree(self, root: Subdomain, rows: list[int], nodes: list[Data]) -> int:
        """Nodes in preorder: each split is followed by its lower and its upper half."""
        waiting: list[tuple[Subdomain, dict[int, Array]]] = [(root, {})]
        leaves = 0
        units = sum(node.units for node in self._problem.nodes)
        most = min(DEEPEST, 2 + MOST_NUMBERS // units)
        for node in nodes:
            if not waiting:
                raise RefusedError("A tree has more nodes than its splits make.")
            subdomain, alpha = waiting.pop()
            node.only("tighten", "alpha", "split", "side", "close", "empty")
            if sum(key in node for key in ("split", "side", "close", "empty")) != 1:
                raise node.wrong("one split or one leaf")
            self._tighten(subdomain, node, alpha)
            if "alpha" in node:
                alpha = self._alpha(node["alpha"], len(rows))
            if "split" in node or "side" in node:
                lower, upper = self._halves(subdomain, node)
                waiting += [(upper, alpha), (lower, alpha)]
                if len(waiting) > most:
                    raise RefusedError("A tree is deeper than the checker has room for.")
                continue
            leaves += 1
            self._leaf(subdomain, rows, alpha, node)
        if waiting:
            raise RefusedError("A tree has a split without both halves.")
        return leaves

    def _halves(self, subdomain: Subdomain, node: Data) -> tuple[Subdomain, Subdomain]:
        if "split" in node:
            place, unit = self._unit(node["split"].items(), node)
            signs = Sign(place, unit, False), Sign(place, unit, True)
            return subdomain.at_sign(signs[0]), subdomain.at_sign(signs[1])
        parts = node["side"].items()
        place, unit = self._unit(parts[:2], node)
        if place not in self._problem.regions or len(parts) != 3:
            raise node.wrong("a split of an input at a value")
        sides = [Side(place, unit, parts[2].number(), above) for above in (False, True)]
        return subdomain.at_side(sides[0]), subdomain.at_side(sides[1])

    def _unit(self, parts: list[Data], node: Data) -> tuple[int, int]:
        if len(parts) != 2:
            raise node.wrong("a split of a unit")
        place = self._problem.place(parts[0].text())
        unit = parts[1].integer(self._problem.nodes[place].units)
        node_of = self._problem.nodes[place]
        if node_of.twin is not None and not node_of.differ[unit]:
            place = node_of.twin
        return place, unit

    def _tighten(self, subdomain: Subdomain, data: Data, alpha: dict[int, Array]) -> None:
        """Backward bounds of the unstable units of some nodes, in the order given."""
        for name in data["tighten"].items() if "tighten" in data else []:
            place = self._problem.place(name.text())
            lower, upper = subdomain.bounds[place]
            unstable = (lower < 0) & (upper > 0)
            differ = self._problem.nodes[place].differ
            if differ is not None:
                unstable = unstable & differ
            subdomain.tighten(place, np.flatnonzero(unstable), alpha)

    def _alpha(self, data: Data, rows: int) -> dict[int, Array]:
        """The choice of lines, in 255ths, for some units of some nodes."""
        found = {}
        for name, pair in data.pairs():
            place = self._problem.place(name)
            count = self._problem.nodes[place].units
            arrays = pair.items()
            if len(arrays) != 2:
                raise pair.wrong("units and values")
            units = self._array(arrays[0], None, "i")
            values = self._array(arrays[1], None, "u")
            if units.ndim != 1 or values.ndim != 2 or values.shape[1] != len(units):
                raise pair.wrong("units and values that fit")
            if len(values) not in (1, rows):
                raise pair.wrong("one choice for all objectives, or one for each")
            if len(units) and not (units.min() >= 0 and units.max() < count):
                raise pair.wrong("about units of its tensor")
            chosen = np.full((len(values), count), -1.0)
            chosen[:, units] = values / 255
            found[place] = self._problem.arithmetic.array(chosen)
        return found

    def _leaf(
        self, subdomain: Subdomain, rows: list[int], alpha: dict[int, Array], node: Data
    ) -> None:
        """Close: all objectives are at least 0, or the zero objective is above 0: no point."""
        empty = "empty" in node
        leaf = node["empty" if empty else "close"].only("beta", "exact")
        problem = self._problem
        if "exact" in leaf and not problem.arithmetic.exact:
            problem = self._rational()
            subdomain = exactly(subdomain, problem)
            alpha = {place: problem.arithmetic.array(values) for place, values in alpha.items()}
        objectives, offsets = problem.objectives[rows], problem.offsets[rows]
        if empty:
            objectives, offsets = 0 * objectives[:1], 0
        beta = None
        if "beta" in leaf:
            beta = self._beta(problem, leaf["beta"], (len(objectives), len(subdomain.signs)))
        bound = subdomain.lower_bound(problem.target, objectives, alpha, beta)
        reached = bound + offsets  # rounding leaves a sum the sign that it has
        if not ((reached > 0) if empty else (reached >= 0)).all():
            raise RefusedError(f"A leaf is not closed: its bound is {float(reached.min()):.3g}.")

    def _beta(self, problem: Problem, data: Data, shape: tuple[int, int]) -> Array:
        """Multipliers, one for each objective and split: an array, or fractions as texts."""
        if isinstance(data.value, str):
            return problem.arithmetic.array(self._array(data, shape, "f"))
        rows = [[item.fraction() for item in row.items()] for row in data.items()]
        if not problem.arithmetic.exact or [len(row) for row in rows] != [shape[1]] * shape[0]:
            raise data.wrong("fractions for each objective and split of an exact leaf")
        return np.array(rows, dtype=object).reshape(shape)


def exactly(subdomain: Subdomain, problem: Problem) -> Subdomain:
    """The same points of the same problem in rational arithmetic; bounds are true there too."""
    array = problem.arithmetic.array
    bounds = [(array(lower), array(upper)) for lower, upper in subdomain.bounds]
    regions = dict(problem.regions)
    for side in subdomain.sides:
        regions[side.node] = cut(problem, regions[side.node], side)
    return replace(subdomain, problem=problem, bounds=bounds, regions=regions)
