"""Smaller proofs: what a plan does not need is left out, and its hints are made coarse.

A *reduction* is tried on the checker's own bounds and kept if everything still closes:

- a split whose own subdomain closes is replaced by a leaf, with hints of its halves or after a
  short ascent; a split that makes no difference is replaced by one of its halves;
- in a leaf, alpha is dropped where it has no effect and where it is what the checker chooses by
  itself, and rounded to as few levels as close the leaf; beta is dropped, or rounded to half
  precision; bounds are not tightened if that is not needed;
- an objective that closes over the tree of another one loses its own.

All of it takes at most a share of the work that the proof took, counted in backward bounds and not
in seconds, so that equal proofs are reduced equally. Whether the result is a proof is for the
checker to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from provable_circuits.proof.checker.arithmetic import RefusedError
from provable_circuits.proof.checker.rules import Side, Sign, Subdomain
from provable_circuits.proof.prover import LEVELS, Meter, Plan, Prover, Tree, tracing

Array = Any

Hints = dict[int, tuple[Array, Array]]
"""For nodes that are bent, units and values [1, units of the node]: alpha, as leaves have it."""


@dataclass
class Branch:
    """A node of a tree, with its halves if it is split."""

    node: dict[str, Any]
    halves: tuple[Branch, Branch] | None = None
    size: int = field(init=False)
    depth: int = field(init=False)

    def __post_init__(self) -> None:
        below = self.halves or ()
        self.size = 1 + sum(half.size for half in below)
        self.depth = 1 + max((half.depth for half in below), default=0)

    @classmethod
    def read(cls, nodes: Sequence[dict[str, Any]]) -> Branch | None:
        """The tree that is written in preorder; None if it is none."""
        made: list[Branch] = []
        for node in reversed(nodes):
            if "split" in node or "side" in node:
                if len(made) < 2:
                    return None
                low, high = made.pop(), made.pop()
                made.append(cls(node, (low, high)))
            else:
                made.append(cls(node))
        return made[0] if len(made) == 1 else None

    def __iter__(self) -> Iterator[Branch]:
        """Preorder."""
        waiting = [self]
        while waiting:
            branch = waiting.pop()
            yield branch
            waiting += reversed(branch.halves or ())

    def changed(self, change: Any) -> Branch:
        """The same tree with other leaves."""
        if self.halves is None:
            return Branch(change(self.node))
        low, high = self.halves
        return Branch(self.node, (low.changed(change), high.changed(change)))


class Reducer:
    """Reduces the plan that a prover has just made.

    Args:
        prover: the prover, whose bounds and hints are used.
    """

    def __init__(self, prover: Prover) -> None:
        self._root, self._tuning = prover.root, prover.tuning
        self._problem, self._limit = prover.problem, prover.limit
        self._prover = Prover(prover.problem, None, prover.limit, prover.tuning)
        self._meter = self._prover.meter = Meter(None)
        self._most = prover.tuning.reduction * prover.meter.spent

    def reduce(self, plan: Plan) -> Plan:
        """A plan that is no larger, and closes what the plan closes."""
        if self._root is None:
            return plan
        root = copy(self._root)
        root.meter = self._meter
        trees = [self._tree(root, tree) for tree in plan.trees]
        return Plan(plan.tighten, self._joined(root, trees))

    def _tree(self, root: Any, tree: Tree) -> Tree:
        """A smaller tree; the same one if the rules refuse it, which is for the checker to say."""
        branch = Branch.read(tree.nodes)
        if branch is None or len(tree.objectives) != 1:
            return tree
        try:
            smaller = self._smaller(root, branch, tree.objectives[0])
        except RefusedError:
            return tree
        return Tree(tree.objectives, [b.node for b in smaller])

    def _out(self) -> bool:
        """Whether the work is used up, or the time: the proof is there, whatever the limit says."""
        if self._meter.spent >= self._most:
            return True
        try:
            self._limit.check()
        except Exception:  # the limit is free in what it raises
            self._most = 0
        return self._meter.spent >= self._most

    # --- trees --------------------------------------------------------------------------------

    def _smaller(self, subdomain: Any, branch: Branch, row: int) -> Branch:
        """A smaller tree of a subdomain, from the leaves upward."""
        if self._out() or branch.depth > self._tuning.reduced_depth:
            return branch
        within = self._tightened(subdomain, branch.node)
        if branch.halves is None:
            return Branch(self._coarse(subdomain, within, branch.node, row))
        low, high = (
            self._smaller(at, half, row)
            for at, half in zip(self._split(within, branch.node), branch.halves, strict=True)
        )
        if low.halves is None and high.halves is None:
            leaf = self._merged(within, low.node, high.node, row)
            if leaf is not None:
                tightened = {k: v for k, v in branch.node.items() if k == "tighten"}
                return Branch(self._coarse(subdomain, within, leaf | tightened, row))
        column = len(within.signs) if "split" in branch.node else None
        for half in sorted((low, high), key=lambda b: b.size):
            alone = half.changed(lambda node: _without(node, column))
            if self._closes(within, alone, [row]):
                names = [*branch.node.get("tighten", []), *alone.node.get("tighten", [])]
                node = alone.node | ({"tighten": names} if names else {})
                return Branch(node, alone.halves)
        return Branch(branch.node, (low, high))

    def _merged(self, within: Any, low: Any, high: Any, row: int) -> dict[str, Any] | None:
        """A leaf in place of two, if it closes by what is known of them or by a short ascent."""
        start: dict[int, Array] = {}
        for place in sorted(set(low.get("alpha", {})) | set(high.get("alpha", {}))):
            full = [self._full(within, node, place) for node in (low, high)]
            start[place] = (full[0] + full[1]) / 2
        if self._out():
            return None
        found = self._prover.optimise(within, row, start, self._tuning.reduction_steps)
        return found.leaf() if found.reached >= 0 else None

    def _full(self, within: Subdomain, node: dict[str, Any], place: int) -> Array:
        """Alpha of all units, the checker's choice where a leaf has none."""
        low, high = within.bounds[place]
        default = (high > -low).astype(np.float64)[None]
        if place not in node.get("alpha", {}):
            return default
        units, values = node["alpha"][place]
        default[:, units] = values[:, units]
        return default

    def _joined(self, root: Any, trees: list[Tree]) -> list[Tree]:
        """Trees over which objectives of smaller ones close too; plain leaves stay as they are."""
        kept: list[Tree] = []
        for tree in sorted(trees, key=lambda t: -len(t.nodes)):
            for place, other in enumerate(kept if tree.nodes != [{"close": {}}] else []):
                joined = self._both(root, other, tree)
                if joined is not None:
                    kept[place] = joined
                    break
            else:
                kept.append(tree)
        return sorted(kept, key=lambda t: t.objectives)

    def _both(self, root: Any, larger: Tree, tree: Tree) -> Tree | None:
        """The larger tree for the objectives of both, if that closes them."""
        branch = Branch.read(larger.nodes)
        if branch is None or branch.depth > self._tuning.reduced_depth:
            return None
        rows = [*larger.objectives, *tree.objectives]
        joined = branch.changed(lambda node: _widened(node, len(tree.objectives)))
        return Tree(rows, [b.node for b in joined]) if self._closes(root, joined, rows) else None

    # --- leaves -------------------------------------------------------------------------------

    def _coarse(self, before: Any, within: Any, leaf: dict[str, Any], row: int) -> dict[str, Any]:
        """The same leaf with less, as far as it closes."""
        if "close" not in leaf or "exact" in leaf["close"] or self._out():
            return leaf
        tightened = {"tighten": leaf["tighten"]} if "tighten" in leaf else {}
        if tightened and self._closed(before, {"close": {}}, [row]):
            return {"close": {}}
        if self._closed(within, {"close": {}}, [row]):
            return {"close": {}} | tightened
        beta = leaf["close"].get("beta")
        found = {k: v for k, v in leaf.items() if k != "tighten"}
        for levels in self._tuning.levels:
            tried = {"close": leaf["close"]} | self._rounded(within, leaf, row, levels)
            if not self._out() and self._closed(within, tried, [row]):
                found = tried
                break
        for close in [{}, {"beta": np.asarray(beta, np.float16)}] if beta is not None else []:
            tried = found | {"close": close}
            if not self._out() and self._closed(within, tried, [row]):
                found = tried
                break
        if tightened and not self._out() and self._closed(before, found, [row]):
            return found
        return found | tightened

    def _rounded(
        self, within: Any, leaf: dict[str, Any], row: int, levels: int
    ) -> dict[str, Hints]:
        """Alpha in few levels, where it matters and is not the checker's choice by itself."""
        made: Hints = {}
        for place, (units, values) in leaf.get("alpha", {}).items():
            low, high = within.bounds[place]
            coarse = np.rint(values * levels) * (LEVELS // levels) / LEVELS
            matters = (low < 0) & (high > 0) & (coarse[0] != (high > -low))
            kept = units[matters[units]]
            if len(kept):
                made[place] = (kept, np.where(values < 0, -1.0, coarse))
        if not made:
            return {}
        traced, objective = tracing(within), self._problem.objectives[[row]]
        self._meter.backward(1)
        traced.backward(self._problem.target, objective, _alpha(made), leaf["close"].get("beta"))
        for place, (units, values) in list(made.items()):
            rises = traced.trace[place][0, units] > 0 if place in traced.trace else units < 0
            made[place] = (units[rises], values)
        made = {place: pair for place, pair in made.items() if len(pair[0])}
        return {"alpha": made} if made else {}

    # --- bounds -------------------------------------------------------------------------------

    def _closes(self, subdomain: Any, branch: Branch, rows: Sequence[int]) -> bool:
        """Whether each leaf of a tree closes objectives; False if there is no work left to see."""
        waiting = [(subdomain, branch)]
        while waiting:
            if self._out():
                return False
            at, here = waiting.pop()
            try:
                at = self._tightened(at, here.node)
                if here.halves is None:
                    if not self._closed(at, here.node, rows):
                        return False
                    continue
                waiting += zip(self._split(at, here.node), here.halves, strict=True)
            except RefusedError:  # an input split outside of its range, for one
                return False
        return True

    def _closed(self, subdomain: Any, leaf: dict[str, Any], rows: Sequence[int]) -> bool:
        if "close" not in leaf or "exact" in leaf["close"]:
            return False
        beta = leaf["close"].get("beta")
        if beta is not None:
            beta = np.asarray(beta, np.float64)
            if not np.isfinite(beta).all():
                return False
        alpha = _alpha(leaf.get("alpha", {}))
        return bool((self._prover.reached(subdomain, np.array(rows), alpha, beta) >= 0).all())

    def _tightened(self, subdomain: Any, node: dict[str, Any]) -> Any:
        """As the checker tightens, with no alpha from above; the subdomain stays as it is."""
        if not node.get("tighten"):
            return subdomain
        made = copy(subdomain)
        for name in node["tighten"]:
            place = self._problem.place(name)
            lower, upper = made.bounds[place]
            unstable = (lower < 0) & (upper > 0)
            differ = self._problem.nodes[place].differ
            made.tighten(
                place, np.flatnonzero(unstable if differ is None else unstable & differ), {}
            )
        return made

    def _split(self, subdomain: Any, node: dict[str, Any]) -> list[Any]:
        """Both halves."""
        self._meter.backward(1)
        self._meter.backward(1)
        if "side" in node:
            name, unit, value = node["side"]
            place = self._problem.place(name)
            return [subdomain.at_side(Side(place, unit, value, up)) for up in (False, True)]
        place = self._problem.place(node["split"][0])
        unit, at = node["split"][1], self._problem.nodes[place]
        if at.twin is not None and at.differ is not None and not at.differ[unit]:
            place = at.twin
        return [subdomain.at_sign(Sign(place, unit, positive)) for positive in (False, True)]


def _alpha(hints: Hints) -> dict[int, Array]:
    """Alpha as bounds take it: -1 where the checker is to choose."""
    made = {}
    for place, (units, values) in hints.items():
        made[place] = np.full_like(values, -1.0)
        made[place][:, units] = values[:, units]
    return made


def _without(node: dict[str, Any], column: int | None) -> dict[str, Any]:
    """A leaf without the beta of one split."""
    beta = node.get("close", {}).get("beta")
    if column is None or not isinstance(beta, np.ndarray):
        return node
    fewer = np.delete(beta, column, axis=1)
    return node | {"close": {"beta": fewer} if fewer.size else {}}


def _widened(node: dict[str, Any], count: int) -> dict[str, Any]:
    """A leaf with no beta for some more objectives."""
    beta = node.get("close", {}).get("beta")
    if not isinstance(beta, np.ndarray):
        return node
    more = np.zeros((count, beta.shape[1]), beta.dtype)
    return node | {"close": {"beta": np.concatenate([beta, more])}}
