"""The claim: domains, patching and metric, read into the problem of one input and one circuit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from .arithmetic import Arithmetic, Array, RefusedError, magnitude
from .data import Data
from .network import Network
from .problem import Patch, Problem, Region, build
from .rules import Subdomain

NOTHING = {"kind": "max-abs", "tolerance": 0.0}
"""A metric for problems that are built for their bounds alone."""


@dataclass
class Domain:
    """A set of inputs: a box around a centre, cut with a ball of the 1- or 2-norm if ``p``."""

    centre: Array
    lower: Array
    upper: Array
    eps: Array | None = None
    p: int = 0

    def region(self, arithmetic: Arithmetic | None = None) -> Region:
        """The domain: exactly in rational arithmetic, and rounded outward otherwise."""
        if self.p and self.eps is not None:
            if arithmetic is not None and arithmetic.exact:
                raise RefusedError("Rational arithmetic knows no balls of the 1- and 2-norm.")
            return Region(self.lower, self.upper, self.p, float(self.eps[0]), self.centre)
        if arithmetic is None or not arithmetic.exact:
            return Region(self.lower, self.upper)
        ends = [arithmetic.array(end) for end in (self.lower, self.upper)]
        if self.eps is not None:
            centre, eps = arithmetic.array(self.centre), arithmetic.array(self.eps)
            ends = [np.maximum(ends[0], centre - eps), np.minimum(ends[1], centre + eps)]
        return Region(*ends)

    def contains(self, x: Array) -> bool:
        """Whether a point is in the domain, exactly."""
        if not ((self.lower <= x) & (x <= self.upper)).all():
            return False
        if self.eps is None:
            return True
        if not self.p:
            return bool(_within(x, self.centre, self.eps).all())
        moved = [
            abs(Fraction(a) - Fraction(b))
            for a, b in zip(x.tolist(), self.centre.tolist(), strict=True)
        ]
        eps = Fraction(float(self.eps[0]))
        return bool(sum(m**self.p for m in moved) <= eps**self.p)

    def corners(self) -> tuple[Array, Array]:
        """The ends of the domain's box, rounded inward."""
        if self.eps is None:
            return self.lower, self.upper
        low = np.minimum(np.nextafter(self.centre - self.eps, np.inf), self.centre)
        high = np.maximum(np.nextafter(self.centre + self.eps, -np.inf), self.centre)
        return np.maximum(low, self.lower), np.minimum(high, self.upper)


def _within(x: Array, centre: Array, eps: Array) -> Array:
    """Whether |x - centre| <= eps, exactly, unit by unit.

    x - centre is the sum of the float ``moved`` and of its rounding error ``rest``, both exact
    (Knuth's TwoSum). eps is a float: rounding keeps the order, so ``rest`` matters in a tie alone.
    """
    moved = x - centre
    part = moved - x
    rest = (x - (moved - part)) - (centre + part)
    tie = ((moved == eps) & (rest <= 0)) | ((moved == -eps) & (rest >= 0))
    return np.asarray((np.abs(moved) < eps) | tie)


def intervals(network: Network, region: Region) -> Callable[[str], tuple[Array, Array]]:
    """Bounds of a network's tensors over a region."""
    problem = build(Arithmetic(), network.steps, network.output, region, {}, {}, NOTHING)
    whole = Subdomain.whole(problem)
    return lambda tensor: whole.bounds[problem.place(f"N:{tensor}")]


class Claim:
    """A claim about a network.

    Args:
        data: the section of the manifest.
        network: returns the network in an arithmetic.
        array: returns an array of the certificate by name, of a shape.
        sites: for each tensor with components, the component of each unit, -1 for none; and names.
    """

    def __init__(
        self,
        data: Data,
        network: Callable[[Arithmetic], Network],
        array: Callable[[Data, tuple[int, ...]], Array],
        sites: list[tuple[str, Array, list[str]]],
    ) -> None:
        self.data = data.only("inputs", "patching", "metric")
        self._network, self._array, self._sites = network, array, sites
        self.shapes, self._input = network(Arithmetic()).shapes, network(Arithmetic()).input
        self._outputs = self.shapes[network(Arithmetic()).output][0]
        self.count = len(data["inputs"].items())

    def problem(self, place: int, circuit: frozenset[str], arithmetic: Arithmetic) -> Problem:
        """What is to be shown of a circuit at one input."""
        region = self.input(place).region(arithmetic)
        return self.problem_at(arithmetic, region, circuit, self.patch(place, arithmetic), place)

    def problem_at(
        self,
        arithmetic: Arithmetic,
        region: Region,
        circuit: frozenset[str],
        patch: Patch,
        place: int,
    ) -> Problem:
        """The same over another region, and with other patches."""
        network, metric = self._network(arithmetic), self.metric(place)
        removed = self._removed(circuit)
        return build(arithmetic, network.steps, network.output, region, removed, patch, metric)

    def _removed(self, circuit: frozenset[str]) -> dict[str, Array]:
        """The units of each tensor whose components a circuit does not keep."""
        masks: dict[str, Array] = {}
        for tensor, labels, names in self._sites:
            kept = np.array([name in circuit for name in names] + [True])
            masks[tensor] = masks.get(tensor, False) | ~kept[labels]
        return masks

    # --- domains ------------------------------------------------------------------------------

    def input(self, place: int) -> Domain:
        """The domain of an input."""
        return self._domain(self.data["inputs"].nth(place))

    def source(self, place: int) -> Domain:
        """The domain that the patches of an input come from."""
        return self._domain(self.data["patching"]["domains"].nth(place))

    def _flat(self, name: Data, tensor: str) -> Array:
        shape = self.shapes.get(tensor)
        if shape is None:
            raise name.wrong("about a tensor of the network")
        return self._array(name, shape).reshape(-1)

    def _spread(self, data: Data) -> Array:
        """A number for each unit of the input: one for all, or an array."""
        if isinstance(data.value, str):
            return self._flat(data, self._input)
        return np.full(int(np.prod(self.shapes[self._input])), data.number())

    def _domain(self, data: Data) -> Domain:
        kind = data["kind"].text("point", "box", "ball")
        if kind == "point":
            x = self._flat(data.only("kind", "x")["x"], self._input)
            return Domain(x, x, x)
        if kind == "box":
            data.only("kind", "lower", "upper", "centre")
            names = ("lower", "upper", "centre")
            lower, upper, centre = (self._flat(data[name], self._input) for name in names)
            if not ((lower <= centre) & (centre <= upper)).all():
                raise data.wrong("a box around its centre")
            return Domain(centre, lower, upper)
        x = self._flat(data.only("kind", "x", "eps", "p", "clip", "mask")["x"], self._input)
        eps, norm = self._spread(data["eps"]), data["p"].value
        p = norm if type(norm) is int and norm in (1, 2) else 0
        if (eps < 0).any() or (not p and norm != "inf") or (p and eps.min() != eps.max()):
            raise data.wrong("a ball of the 1-, 2- or maximum norm")
        lower, upper = np.nextafter(x - eps, -np.inf), np.nextafter(x + eps, np.inf)
        if "clip" in data:
            low, high = (self._spread(data["clip"].nth(i)) for i in (0, 1))
            if not ((low <= x) & (x <= high)).all():
                raise data.wrong("a ball whose clip encloses the centre")
            lower, upper = np.maximum(lower, low), np.minimum(upper, high)
        still = eps == 0
        if "mask" in data:
            still = still | (self._flat(data["mask"], self._input) == 0)
        return Domain(x, np.where(still, x, lower), np.where(still, x, upper), eps, p)

    # --- patching -----------------------------------------------------------------------------

    def patch(self, place: int, arithmetic: Arithmetic) -> Patch:
        """What removed components output at an input."""
        data = self.data["patching"]
        kind = data["kind"].text("zero", "constant", "reachable", "hull")
        if kind in ("zero", "reachable"):
            data.only("kind", *(["domains"] if kind == "reachable" else []))
        if kind == "reachable":
            return self.source(place).region(arithmetic)
        values: dict[str, Any] = {}
        if kind == "constant":
            for tensor, name in data.only("kind", "values")["values"].pairs():
                values[tensor] = self._flat(name, tensor)
        elif kind == "hull":
            data.only("kind", "domains", "boxes")
            for tensor, pair in data["boxes"].nth(place).pairs():
                lower, upper = (self._flat(pair.nth(i), tensor) for i in (0, 1))
                if not (lower <= upper).all():
                    raise pair.wrong("a lower and an upper end")
                values[tensor] = Region(arithmetic.array(lower), arithmetic.array(upper))
        for tensor, labels, _ in self._sites:
            if kind == "zero":
                values[tensor] = np.zeros(len(labels))
            if tensor not in values:
                raise data.wrong(f"complete: {tensor[:80]!r} is missing")
        return values

    def check_boxes(self, place: int) -> None:
        """Refuse boxes of an interval hull that the network can leave."""
        if self.data["patching"]["kind"].value != "hull":
            return
        bounds = self._intervals(self.source(place).region())
        boxes: Any = self.patch(place, Arithmetic())
        for tensor, box in boxes.items():
            lower, upper = bounds(tensor)
            if not ((box.lower <= lower) & (upper <= box.upper)).all():
                raise self.data["patching"].wrong(f"inductive: {tensor[:80]!r} can leave its box")

    def check_monotone(self) -> None:
        """Refuse unless a circuit around a faithful one is certain to be faithful.

        Boxes of an interval hull are *closed* if a unit that reads inputs of the claim and, of
        components, any values of their boxes lies in its own box. Then whatever a larger circuit
        computes in a component is a value that the smaller one was allowed to patch it with.
        """
        if self.data["patching"]["kind"].value != "hull":
            raise RefusedError("Only interval-hull patching is certain to be monotone.")
        network = self._network(Arithmetic())
        for place in range(self.count):
            region, boxes = self.input(place).region(), self.patch(place, Arithmetic())
            for tensor in {site[0] for site in self._sites}:
                removed = {t: m for t, m in self._removed(frozenset()).items() if t != tensor}
                problem = build(
                    Arithmetic(), network.steps, network.output, region, removed, boxes, NOTHING
                )
                lower, upper = Subdomain.whole(problem).bounds[problem.place(f"C:{tensor}")]
                own, box = self._removed(frozenset())[tensor], boxes[tensor]  # type: ignore[index]
                if not ((box.lower <= lower) & (upper <= box.upper))[own].all():
                    raise RefusedError(f"The boxes are not closed: {tensor[:80]!r} leaves its box.")

    def _intervals(self, region: Region) -> Callable[[str], tuple[Array, Array]]:
        return intervals(self._network(Arithmetic()), region)

    # --- metrics ------------------------------------------------------------------------------

    def metric(self, place: int) -> Mapping[str, Any]:
        """The metric at an input, with its numbers."""
        data = self.data["metric"]
        kind = data["kind"].text("logit-difference", "max-abs", "norm", "winner-margin")
        if kind == "winner-margin":
            data.only("kind", "fraction", "against", "margins")
            return {"kind": kind, **self._winner(place, data)}
        tolerance = data["tolerance"].number()
        if tolerance < 0:
            raise data.wrong("a metric of a tolerance of at least 0")
        found: dict[str, Any] = {"kind": kind, "tolerance": tolerance}
        if kind == "logit-difference":
            targets = data.only("kind", "tolerance", "targets")["targets"]
            found["target"] = targets.nth(place).integer(self._outputs)
        elif kind == "norm":
            found["p"] = data.only("kind", "tolerance", "p")["p"].integer(3)
        else:
            data.only("kind", "tolerance")
        return found

    def _winner(self, place: int, data: Data) -> dict[str, Any]:
        """Winner and runner-up at the centre, by intervals; the margin must be that of the gap."""
        centre = self.input(place).centre
        output = self._network(Arithmetic()).output
        lower, upper = self._intervals(Region(centre, centre))(output)
        winner = int(np.argmax(lower))
        others = [i for i in range(self._outputs) if i != winner]
        fraction, margin = data["fraction"].number(), data["margins"].nth(place).number()
        if not others or not 0 <= fraction <= 1 or max(upper[others]) > lower[winner]:
            raise data.wrong("one with a certain winner")
        gap = lower[winner] - max(upper[others]), upper[winner] - max(lower[others])
        slack = 1e-9 * float(magnitude(*gap)) + 1e-300
        if not fraction * gap[0] - slack <= margin <= fraction * gap[1] + slack:
            raise data.wrong("one whose margins are the network's")
        if data["against"].text("runner-up", "all") == "runner-up":
            runner = max(others, key=lambda i: float(lower[i]))
            if any(upper[i] > lower[runner] for i in others if i != runner):
                raise data.wrong("one with a certain runner-up")
            others = [runner]
        return {"winner": winner, "others": others, "margin": margin}
