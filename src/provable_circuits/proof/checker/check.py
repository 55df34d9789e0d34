"""Checking: each statement of a certificate, by the rules or by replaying its witness."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .arithmetic import Arithmetic, Array, Refused, check_products
from .certificate import Certificate, Data, read
from .problem import Problem, Region
from .rules import Sign, Subdomain

EXACT_UNITS = 4096
"""Rational arithmetic is for networks of at most so many units, all copies together."""


@dataclass(frozen=True)
class Finding:
    """A statement, whether it holds, and on what that rests or why it does not."""

    statement: str
    holds: bool
    reason: str


def check_folder(folder: str | Path, exact: bool = False) -> list[Finding]:
    """Check every statement of a certificate.

    Args:
        folder: where the certificate is.
        exact: compute in rational numbers; for small networks without balls, sigmoid and tanh.

    Raises:
        Refused: the certificate as a whole cannot be read.
    """
    check_products()
    certificate = read(Path(folder))
    found = []
    for statement in certificate.manifest["statements"].items():
        text = _describe(certificate, statement)
        try:
            found.append(Finding(text, True, _check(certificate, statement, exact)))
        except Refused as refused:
            found.append(Finding(text, False, str(refused)))
        except (ArithmeticError, ValueError, IndexError, TypeError, MemoryError) as error:
            found.append(Finding(text, False, f"It cannot be checked: {type(error).__name__}."))
    return found


def _describe(certificate: Certificate, statement: Data) -> str:
    kind = statement["kind"].text("faithful", "necessary", "unfaithful")
    size = len(certificate.circuit)
    if kind == "necessary":
        return f"{statement['component'].text()} is necessary"
    return f"the circuit of {size} components is {'not ' * (kind != 'faithful')}faithful"


def _check(certificate: Certificate, statement: Data, exact: bool) -> str:
    kind = statement["kind"].value
    if kind == "faithful":
        return _faithful(certificate, statement.only("kind"), exact)
    circuit = certificate.circuit
    if kind == "necessary":
        component = statement.only("kind", "component", "witness")["component"].text()
        if component not in circuit:
            raise statement.wrong("about a component of the circuit")
        circuit = circuit - {component}
    return _refuted(certificate, circuit, statement["witness"])


def _faithful(certificate: Certificate, statement: Data, exact: bool) -> str:
    proofs = certificate.manifest["proof"].items()
    if len(proofs) != len(certificate.inputs) or not proofs:
        raise Refused("There is not one proof for each input.")
    removed = certificate.removed(certificate.circuit)
    leaves = 0
    for place, proof in enumerate(proofs):
        certificate.check_boxes(place)
        region = certificate.domain(certificate.inputs[place]).region()
        patch, metric = certificate.patch(place), certificate.metric(place)
        problems = [
            certificate.problem(Arithmetic(kind), region, removed, patch, metric)
            for kind in (False, True)[: 1 + exact]
        ]
        for problem in problems[-1:]:
            leaves += _Proof(certificate, problem, proof).check()
    way = "rational arithmetic" if exact else "bounds with every rounding error enclosed"
    return f"{leaves} leaves over {len(proofs)} inputs, closed by {way}"


class _Proof:
    """The proof for one input: steps that all objectives share, then a tree for some of them."""

    def __init__(self, certificate: Certificate, problem: Problem, data: Data) -> None:
        self._certificate, self._problem = certificate, problem
        self._data = data.only("tighten", "trees")

    def check(self) -> int:
        """Refuse what does not prove all objectives; the number of leaves."""
        root = Subdomain.whole(self._problem)
        self._tighten(root, self._data, {})
        left, leaves = set(range(len(self._problem.objectives))), 0
        for tree in self._data["trees"].items():
            tree.only("objectives", "nodes")
            rows = [row.integer(len(self._problem.objectives)) for row in tree["objectives"].items()]
            leaves += self._tree(root, rows, tree["nodes"].items())
            left -= set(rows)
        if left:
            raise Refused(f"Objective {min(left)} is not proved.")
        return leaves

    def _tree(self, root: Subdomain, rows: list[int], nodes: list[Data]) -> int:
        """Nodes in preorder: each split is followed by its lower and its upper half."""
        waiting: list[tuple[Subdomain, dict[int, Array]]] = [(root, {})]
        leaves = 0
        for node in nodes:
            if not waiting:
                raise Refused("A tree has more nodes than its splits make.")
            subdomain, alpha = waiting.pop()
            node.only("tighten", "alpha", "split", "side", "close", "empty")
            if sum(key in node for key in ("split", "side", "close", "empty")) != 1:
                raise node.wrong("one split or one leaf")
            if "alpha" in node:
                alpha = self._alpha(node["alpha"])
            self._tighten(subdomain, node, alpha)
            if "split" in node or "side" in node:
                lower, upper = self._halves(subdomain, node)
                waiting += [(upper, alpha), (lower, alpha)]
                continue
            leaves += 1
            self._leaf(subdomain, rows, alpha, node)
        if waiting:
            raise Refused("A tree has a split without both halves.")
        return leaves

    def _halves(self, subdomain: Subdomain, node: Data) -> tuple[Subdomain, Subdomain]:
        if "split" in node:
            place, unit = self._unit(node["split"].items()[:2], node)
            return subdomain.at_sign(Sign(place, unit, False)), subdomain.at_sign(Sign(place, unit, True))
        parts = node["side"].items()
        place, unit = self._unit(parts[:2], node)
        if place not in self._problem.regions or len(parts) != 3:
            raise node.wrong("a split of an input at a value")
        value = parts[2].number()
        return (
            subdomain.at_side(place, unit, value, False),
            subdomain.at_side(place, unit, value, True),
        )

    def _unit(self, parts: list[Data], node: Data) -> tuple[int, int]:
        if len(parts) != 2:
            raise node.wrong("a split of a unit")
        place = self._problem.place(parts[0].text())
        unit = parts[1].integer(self._problem.nodes[place].units)
        differ, twin = self._problem.nodes[place].differ, self._problem.nodes[place].twin
        return (twin, unit) if differ is not None and twin is not None and not differ[unit] else (place, unit)

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

    def _alpha(self, data: Data) -> dict[int, Array]:
        """The choice of lines, in 255ths, for some units of some nodes."""
        found = {}
        for name, pair in data.pairs():
            place = self._problem.place(name)
            count = self._problem.nodes[place].units
            arrays = pair.items()
            if len(arrays) != 2:
                raise pair.wrong("units and values")
            units = self._certificate.array(1, arrays[0], None, "i")
            values = self._certificate.array(1, arrays[1], None, "u")
            if units.ndim != 1 or values.ndim != 2 or values.shape[1] != len(units):
                raise pair.wrong("units and values that fit")
            if len(units) and not (0 <= units.min() and units.max() < count):
                raise pair.wrong("about units of its tensor")
            chosen = np.full((len(values), count), -1.0)
            chosen[:, units] = values / 255
            found[place] = self._problem.arithmetic.array(chosen)
        return found

    def _leaf(self, subdomain: Subdomain, rows: list[int], alpha: dict[int, Array], node: Data) -> None:
        problem, kind = self._problem, "close" if "close" in node else "empty"
        leaf = node[kind].only("beta")
        objectives = problem.objectives[rows]
        offsets = problem.offsets[rows]
        if kind == "empty":
            objectives, offsets = 0 * objectives[:1], 0 * offsets[:1]
        beta = None
        if "beta" in leaf:
            shape = (len(objectives), len(subdomain.signs))
            beta = problem.arithmetic.array(self._certificate.array(1, leaf["beta"], shape))
        alpha = {place: values for place, values in alpha.items() if len(values) in (1, len(objectives))}
        bound = subdomain.lower_bound(problem.target, objectives, alpha, beta)
        reached = problem.arithmetic.down(bound + offsets)
        if not ((reached > 0) if kind == "empty" else (reached >= 0)).all():
            raise Refused(f"A leaf is not closed: an objective reaches {float(reached.min()):.3g}.")


# --- witnesses ----------------------------------------------------------------------------------


def _refuted(certificate: Certificate, circuit: frozenset[str], witness: Data) -> str:
    """Replay a witness by intervals: the circuit leaves the claim there, beyond rounding."""
    witness.only("input", "z", "source", "patches")
    place = witness["input"].integer(len(certificate.inputs))
    z = _point(certificate, witness["z"], certificate.inputs[place])
    patch = certificate.patch(place)
    if isinstance(patch, Region):
        domains = certificate.manifest["claim"]["patching"]["domains"].items()
        source = _point(certificate, witness["source"], domains[place])
        patch = Region(source, source)
    elif any(isinstance(value, Region) for value in patch.values()):
        certificate.check_boxes(place)
        patch = dict(_patches(certificate, witness["patches"], patch))
    metric = certificate.metric(place)
    problem = certificate.problem(
        Arithmetic(), Region(z, z), certificate.removed(circuit), patch, metric
    )
    whole = Subdomain.whole(problem)
    lower, upper = whole.bounds[problem.target]
    arithmetic, excess = problem.arithmetic, -np.inf
    for row, offset in zip(problem.objectives, problem.offsets, strict=True):
        ends = np.maximum(row * lower, row * upper)
        most = arithmetic.up(ends.sum() + arithmetic.gamma(len(row) + 1) * np.abs(ends).sum())
        excess = max(excess, -float(arithmetic.up(most + offset)))
    if not excess > 0:
        raise Refused("The witness does not certainly break the claim.")
    return f"a witness at input {place} that exceeds the metric by {excess:.3g}"


def _point(certificate: Certificate, data: Data, domain_data: Data) -> Array:
    """A point of a domain: numbers, or bits that choose a corner of its box."""
    domain = certificate.domain(domain_data)
    shape = certificate.network.shapes[certificate.network.input]
    if "corner" in data:
        bits = certificate.array(2, data.only("corner")["corner"], None, "u").reshape(-1)
        if len(bits) != -(-len(domain.centre) // 8):
            raise data.wrong("one bit for each unit")
        high = np.unpackbits(bits.astype(np.uint8))[: len(domain.centre)] != 0
        lower, upper = _inner(domain)
        point = np.where(high, upper, lower)
    else:
        point = certificate.array(2, data.only("values")["values"], shape).reshape(-1)
    if not domain.contains(point):
        raise Refused("The witness lies outside of the claim's inputs.")
    return point


def _inner(domain: Any) -> tuple[Array, Array]:
    """The corners of a domain's box, rounded inward."""
    if domain.eps is None:
        return domain.lower, domain.upper
    low = np.minimum(np.nextafter(domain.centre - domain.eps, np.inf), domain.centre)
    high = np.maximum(np.nextafter(domain.centre + domain.eps, -np.inf), domain.centre)
    return np.maximum(low, domain.lower), np.minimum(high, domain.upper)


def _patches(
    certificate: Certificate, data: Data, boxes: Any
) -> Iterator[tuple[str, Array]]:
    """Patch values within their boxes; the middle of the box where none are given."""
    given = dict(data.pairs())
    for tensor, box in boxes.items():
        if tensor not in given:
            yield tensor, np.clip(box.lower * 0.5 + box.upper * 0.5, box.lower, box.upper)
            continue
        value = certificate.array(2, given[tensor], certificate.network.shapes[tensor]).reshape(-1)
        if not ((box.lower <= value) & (value <= box.upper)).all():
            raise Refused("The witness patches with a value outside of its box.")
        yield tensor, value
