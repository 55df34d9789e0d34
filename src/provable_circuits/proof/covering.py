"""Lower bounds of hitting sets, with a proof that the checker can follow.

A linear program finds the best packing (``checker.covering``); where it does not add up to the
bound, the tree branches on the component that the dual solution is least sure of. Weights are made
fractions, and scaled until they fit exactly: a solver's rounding makes a bound weaker, never false.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.optimize import linprog

MOST_NODES = 2000
"""Nodes of a tree after which no proof is found."""

DENOMINATORS = (1, 60, 2520, 10**6)
"""Denominators of weights, tried in turn."""


@dataclass(frozen=True, slots=True)
class LowerBound:
    """A bound of the size of faithful circuits, and what it rests on.

    Attributes:
        size: no circuit of fewer components is faithful.
        blocking: sets of components without which the network breaks the claim, with witnesses;
            best without sets that contain others.
        monotone: ``"shown"`` if the claim is monotone by its closed boxes, else ``"assumed"``.
    """

    size: int
    blocking: Mapping[frozenset[str], Any]
    monotone: str


@dataclass(frozen=True, slots=True)
class Covering:
    """A proof that no set of fewer elements hits a family.

    Attributes:
        used: the places of the sets that it needs.
        nodes: the tree, see ``checker.covering``; places are those in ``used``.
    """

    used: tuple[int, ...]
    nodes: tuple[str | dict[int, Fraction], ...]


def covering(family: Sequence[frozenset[str]], size: int) -> Covering | None:
    """A proof that no set of fewer than ``size`` elements hits a family; None if none is found."""
    nodes: list[str | dict[int, Fraction]] = []
    waiting: list[tuple[frozenset[str], frozenset[str]]] = [(frozenset(), frozenset())]
    while waiting:
        if len(nodes) >= MOST_NODES:
            return None
        taken, dropped = waiting.pop()
        open_sets = [place for place in range(len(family)) if taken.isdisjoint(family[place])]
        sets = [family[place] - dropped for place in open_sets]
        empty = next((place for place, left in zip(open_sets, sets, strict=True) if not left), None)
        wanted = size - len(taken)
        if wanted <= 0:
            nodes.append({})
        elif empty is not None:
            nodes.append({empty: Fraction(wanted)})
        else:
            packing, branch = _packing(sets, wanted)
            if packing is not None:
                nodes.append({open_sets[i]: weight for i, weight in packing.items()})
            elif branch is None:
                return None
            else:
                nodes.append(branch)
                waiting += [(taken, dropped | {branch}), (taken | {branch}, dropped)]
    used = sorted({place for node in nodes if isinstance(node, dict) for place in node})
    renamed = {place: i for i, place in enumerate(used)}
    return Covering(
        tuple(used),
        tuple(
            node if isinstance(node, str) else {renamed[p]: w for p, w in node.items()}
            for node in nodes
        ),
    )


def _packing(
    sets: Sequence[frozenset[str]], wanted: int
) -> tuple[dict[int, Fraction] | None, str | None]:
    """Weights that add up to more than ``wanted`` - 1; or an element to branch on, if any."""
    elements = sorted(frozenset().union(*sets)) if sets else []
    if not elements:
        return None, None
    contains = np.array([[element in one for one in sets] for element in elements], dtype=float)
    solved = linprog(-np.ones(len(sets)), A_ub=contains, b_ub=np.ones(len(elements)))
    if solved.status != 0:
        return None, elements[0]
    for denominator in DENOMINATORS:
        packing = _fractions(solved.x, contains, denominator)
        if sum(packing.values()) > wanted - 1:
            return packing, None
    sure = np.abs(-solved.ineqlin.marginals - 0.5)
    return None, elements[int(sure.argmin())]


def _fractions(weights: np.ndarray, contains: np.ndarray, denominator: int) -> dict[int, Fraction]:
    """Weights as fractions of a denominator, scaled down where an element's exceed 1."""
    found = {
        place: Fraction(round(weight * denominator), denominator)
        for place, weight in enumerate(weights.tolist())
        if round(weight * denominator) > 0
    }
    loads = [sum((w for p, w in found.items() if row[p]), Fraction(0)) for row in contains]
    heaviest = max([*loads, Fraction(1)])
    return {place: weight / heaviest for place, weight in found.items()}
