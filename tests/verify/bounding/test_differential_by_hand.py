"""Enclosures derived from those of a larger circuit, against what is computed by hand."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from tests.verify.bounding.known import known_of, single
from tests.verify.encoding.feeding import weights
from torch import Tensor

from provable_circuits.claims.claim import Claim
from provable_circuits.claims.domains import Box, Point
from provable_circuits.claims.metrics import MaxAbs
from provable_circuits.claims.patching import Constant, IntervalHull, Patching, Reachable, Zero
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.graph import GraphBuilder
from provable_circuits.network.ops import Activation, LeakyReLU, Linear, ReLU, Sigmoid
from provable_circuits.rounding import Interval
from provable_circuits.verify.bounding.differential import DifferentialBounds, Known
from provable_circuits.verify.encoding.encoder import Encoder
from provable_circuits.verify.encoding.query import Query


def wide_known(encoder: Encoder, circuit: Circuit, ends: dict[str, Interval]) -> Known:
    """What is known of a circuit: of the network's tensors, by name."""
    by_role = {encoder.network_role(name): pair for name, pair in ends.items()}
    return Known(circuit, encoder.encode(circuit), by_role)


def named(query: Query, derived: Mapping[str, Interval]) -> dict[str, Interval]:
    """What was derived of a query's nodes, by the tensors that they are versions of."""
    return {query.roles[node].tensor: pair for node, pair in derived.items()}


def one(value: float) -> Tensor:
    return torch.tensor([[value]], dtype=torch.float64)


NETWORK = {
    # x in [1, 2]: first = x - 4, second = 2 x, total = 3 x - 4, acted = g(total), again, last
    "x": (one(1.0), one(2.0)),
    "first": (one(-3.0), one(-2.0)),
    "second": (one(2.0), one(4.0)),
    "total": (one(-1.0), one(2.0)),
    "acted": (one(0.0), one(2.0)),
    "again": (one(0.5), one(2.5)),
    "last": (one(0.5), one(2.5)),
}
"""Enclosures of the network that are exact."""


def derived_by_hand(
    op: Activation, gone: str, patching: Patching, ends: dict[str, Interval] | None = None
) -> dict[str, tuple[float, float]]:
    components = single(op, -4.0).components()
    encoder = Encoder(components, Claim(Box([1.0], [2.0]), patching, MaxAbs(1.0)))
    query = encoder.encode(components.full().remove(gone))
    known = wide_known(encoder, components.full(), {**NETWORK, **(ends or {})})
    derived = DifferentialBounds(encoder).enclosures(known, query)
    return {name: (float(a), float(b)) for name, (a, b) in named(query, derived).items()}


def close(found: tuple[float, float], low: float, high: float) -> bool:
    """The interval, rounded outward by a few last digits."""
    return low - 1e-12 < found[0] < low < high < found[1] < high + 1e-12


def test_a_jump_and_what_it_moves_by_hand() -> None:
    """Removing ``first`` moves the total by 2 to 3: from [-1, 2] to [1, 5]."""
    found = derived_by_hand(ReLU(), "first/0", Zero())
    assert set(found) == {"total", "acted", "again", "last"}
    assert close(found["total"], 1.0, 5.0)
    # The activation moves by [0, 3], and by [g(1) - g(2), g(5) - g(-1)] = [-1, 5]; the first wins.
    assert close(found["again"], 0.5, 5.5)


def test_a_jump_down_by_hand() -> None:
    """Removing ``second`` moves the total by -4 to -2: from [-1, 2] to [-5, 0]."""
    found = derived_by_hand(ReLU(), "second/0", Zero())
    assert close(found["total"], -5.0, 0.0)
    # By [-4, 0], and by [g(-5) - g(2), g(0) - g(-1)] = [-2, 0] (up to one rounding).
    assert close(found["again"], -1.5, 2.5)


def test_a_jump_to_a_constant_by_hand() -> None:
    """``second`` becomes 3: from [2, 4] by [-1, 1]."""
    found = derived_by_hand(ReLU(), "second/0", Constant(3.0))
    assert close(found["total"], -2.0, 3.0)
    # By [-1, 1], and [g(-2) - g(2), g(3) - g(-1)] = [-2, 3].
    assert close(found["again"], -0.5, 3.5)


def test_units_that_stay_active_move_by_what_moves_them() -> None:
    active: dict[str, Interval] = {"total": (one(10.0), one(12.0)), "again": (one(9.0), one(11.0))}
    found = derived_by_hand(ReLU(), "first/0", Zero(), active)
    assert close(found["total"], 12.0, 15.0)
    assert close(found["again"], 11.0, 14.0), "at least by 2, not by 0"
    down = derived_by_hand(ReLU(), "second/0", Zero(), active)
    assert close(down["again"], 5.0, 9.0), "at least by -2"
    # Active before and not after, or the other way round: no more than between zero and all of it.
    falls = derived_by_hand(ReLU(), "second/0", Zero(), {**active, "total": (one(1.0), one(12.0))})
    assert close(falls["again"], 5.0, 11.0)
    rises = derived_by_hand(ReLU(), "first/0", Zero(), {**active, "total": (one(-1.0), one(12.0))})
    assert close(rises["again"], 9.0, 14.0)


@pytest.mark.parametrize("least", [0.0, 0.5])
def test_units_are_active_from_zero_on(least: float) -> None:
    active: dict[str, Interval] = {"total": (one(least), one(12.0)), "again": (one(9.0), one(11.0))}
    found = derived_by_hand(ReLU(), "first/0", Zero(), active)
    assert close(found["again"], 11.0, 14.0)
    active["total"] = (one(4.0 + max(least, 0.25)), one(12.0))
    found = derived_by_hand(ReLU(), "second/0", Zero(), active)
    assert close(found["again"], 5.0, 9.0)


def test_ends_that_are_no_numbers_say_nothing() -> None:
    far = one(math.inf)
    found = derived_by_hand(
        ReLU(), "first/0", Zero(), {"total": (far, far), "first": (one(-3.0), far)}
    )
    assert found["acted"] == found["again"] == (-math.inf, math.inf)


def test_only_the_network_is_known_at_points() -> None:
    """At single points the network's tensors are numbers; a circuit's own are not known by that."""
    components = single(ReLU(), -4.0).components()
    encoder = Encoder(components, Claim(Point([1.5]), Zero(), MaxAbs(1.0)))
    query = encoder.encode(components.full().remove("again/0"))
    difference, known = DifferentialBounds(encoder), wide_known(encoder, query.circuit, {})
    for node in encoder.network.nodes:
        old = difference._old(known, node)
        if node.name in query.tensors:
            assert old is None, node.name
        else:
            assert old is encoder.at_point[node.name]
    assert {"first", "y"} - set(query.tensors) == {"first"}
    ranging = Encoder(components, Claim(Box([1.0], [2.0]), Zero(), MaxAbs(1.0)))
    known = wide_known(ranging, ranging.components.full(), {})
    assert DifferentialBounds(ranging)._old(known, ranging.network["first"]) is None


def three_units() -> tuple[Encoder, DifferentialBounds, Circuit, Circuit]:
    """One unit that stays, one that goes, and one that was gone before."""
    w, builder = weights(0), GraphBuilder()
    x = builder.input("x", (2,))
    hidden = builder.add("hidden", Linear(w(3, 2), w(3)), x)
    graph = builder.build([builder.add("y", Linear(w(1, 3)), builder.add("relu", ReLU(), hidden))])
    components = graph.components()
    claim = Claim(Box([0.0, 0.0], [1.0, 1.0]), Constant(0.3), MaxAbs(1.0))
    encoder = Encoder(components, claim)
    before = components.full().remove("hidden/2")
    return encoder, DifferentialBounds(encoder), before, before.remove("hidden/1")


def at_site(
    change: Interval | None, old: Interval | None, same: bool = False
) -> list[tuple[float, float]] | None:
    """What is behind the patch, unit by unit."""
    encoder, difference, before, after = three_units()
    ((name, site),) = ((n, s) for n, s in encoder.sites.items() if s.layer.name == "hidden")
    known = wide_known(encoder, before, {})
    node, query = encoder.network[name], known.query
    if old is not None:
        held = query.held(name)
        known = Known(before, query, {query.roles[held.node]: held.node_bounds(old)})
    masks = (encoder.components.masks([c]) for c in (before, before if same else after))
    found = difference._at_site(known, node, site, change, *masks)
    if found is None:
        return None
    pairs = zip(*(end.expand(1, 3)[0].tolist() for end in found), strict=True)
    return [(low, high) for low, high in pairs]


def row(*values: float) -> Tensor:
    return torch.tensor([values], dtype=torch.float64)


def test_behind_a_patch_by_hand() -> None:
    change = (row(-1.0, -2.0, -3.0), row(4.0, 5.0, 6.0))
    old = (row(10.0, 0.1, 30.0), row(11.0, 0.7, 33.0))
    stays, goes, gone = at_site(change, old) or []
    assert stays == (-1.0, 4.0)
    assert gone == (0.0, 0.0)
    low, high = (Fraction(0.3) - Fraction(end) for end in (0.7, 0.1))
    assert goes == pytest.approx((float(low), float(high)), abs=1e-15)
    assert at_site(None, old) == [(0.0, 0.0), goes, (0.0, 0.0)]
    unknown = at_site(change, None)
    assert unknown == [(-1.0, 4.0), (-math.inf, math.inf), (0.0, 0.0)]
    assert at_site(change, old, same=True) == [(-1.0, 4.0), (-2.0, 5.0), (0.0, 0.0)]
    assert at_site(None, old, same=True) is None


def test_a_jump_is_rounded_outward() -> None:
    for i in range(60):
        old = (row(0.0, i / 7, 0.0), row(1.0, i / 3, 1.0))
        _, (low, high), _ = at_site(None, old) or []
        assert Fraction(low) <= Fraction(0.3) - Fraction(i / 3)
        assert Fraction(high) >= Fraction(0.3) - Fraction(i / 7)


def test_other_activations_move_by_their_ends() -> None:
    leaky = derived_by_hand(LeakyReLU(0.5), "first/0", Zero(), {"total": (one(10.0), one(10.5))})
    # Not exactly by [2, 3], since only ReLUs are known to be the identity: [12 - 10.5, 13.5 - 10].
    assert close(leaky["again"], 0.5 + 1.5, 2.5 + 3.0)
    curved = derived_by_hand(Sigmoid(), "first/0", Zero(), {"total": (one(0.0), one(0.5))})

    def g(x: float) -> float:
        return 1 / (1 + math.exp(-x))

    assert curved["again"][0] == pytest.approx(0.5 + g(2.0) - g(0.5), abs=1e-12)
    assert curved["again"][1] == pytest.approx(2.5 + g(3.5) - g(0.0), abs=1e-12)


@pytest.mark.parametrize("slope", [0.0, 0.5])
@pytest.mark.parametrize("number", [None, 0.3])
def test_no_rounding_is_forgotten(slope: float, number: float | None) -> None:
    """Random ends of very different sizes; fractions say what must be enclosed."""
    op = LeakyReLU(slope) if slope else ReLU()
    components = single(op, -4.0).components()
    patching = Zero() if number is None else Constant(number)
    encoder = Encoder(components, Claim(Box([1.0], [2.0]), patching, MaxAbs(1.0)))
    query = encoder.encode(components.full().remove("first/0"))
    difference, drawn = DifferentialBounds(encoder), random.Random(int(10 * slope) + 1)
    patch = Fraction(float(encoder.fixed["first"]))

    def draw(wide: bool) -> Interval:
        middle = drawn.uniform(-1, 1) * 10.0 ** drawn.randint(-3, 6)
        width = drawn.random() * 10.0 ** drawn.randint(-8, 6 if wide else -2)
        return one(middle), one(middle + width)

    def g(x: Fraction) -> Fraction:
        return x if x >= 0 else x * Fraction(slope)

    for _ in range(400):
        ends = {name: draw(drawn.random() < 0.5) for name in ("first", "total", "again")}
        if drawn.random() < 0.5:  # ends that move by more than they are apart
            ends["first"] = (ends["first"][0], ends["first"][0] + drawn.random() * 1e-3)
            ends["total"] = (ends["total"][0], ends["total"][0] + drawn.random() * 1e-6)
        exact = {n: [Fraction(float(end)) for end in pair] for n, pair in ends.items()}
        low, high = patch - exact["first"][1], patch - exact["first"][0]
        total = exact["total"]
        new = [total[0] + low, total[1] + high]
        least = max(min(low, Fraction(0)), g(new[0]) - g(total[1]))
        most = min(max(high, Fraction(0)), g(new[1]) - g(total[0]))
        if not slope and total[0] >= 0 and new[0] >= 0:
            least, most = low, high
        # What an end moves by is all that is left of it, to the last digit.
        ends["acted"] = (one(-float(least)), one(-float(most)))
        known = wide_known(encoder, components.full(), {**NETWORK, **ends})
        derived = difference.enclosures(known, query)
        found = named(query, derived)
        wanted = {
            "total": new,
            "acted": [least - Fraction(float(least)), most - Fraction(float(most))],
            "again": [exact["again"][0] + least, exact["again"][1] + most],
        }
        for name, (lower, upper) in wanted.items():
            assert Fraction(float(found[name][0])) <= lower, name
            assert Fraction(float(found[name][1])) >= upper, name


def test_what_is_not_known_is_derived_from_nothing() -> None:
    """Without an enclosure of what an activation reads, it moves between zero and all of it."""
    components = single(ReLU(), -4.0).components()
    encoder = Encoder(components, Claim(Box([1.0], [2.0]), Zero(), MaxAbs(1.0)))
    query = encoder.encode(components.full().remove("first/0"))
    less = {name: ends for name, ends in NETWORK.items() if name != "total"}
    known = wide_known(encoder, components.full(), less)
    found = DifferentialBounds(encoder).enclosures(known, query)
    tensors = named(query, found)
    assert "total" not in tensors
    lower, upper = tensors["again"]
    assert close((float(lower), float(upper)), 0.5, 5.5)
    # And without one of what is removed, by anything.
    less = {name: ends for name, ends in NETWORK.items() if name != "first"}
    found = DifferentialBounds(encoder).enclosures(
        wide_known(encoder, components.full(), less), query
    )
    tensors = named(query, found)
    assert (float(tensors["total"][0]), float(tensors["total"][1])) == (-math.inf, math.inf)
    assert float(tensors["again"][1]) == math.inf


@pytest.mark.parametrize("patching", [Reachable(eps=0.25), IntervalHull(eps=0.25)])
def test_patches_that_range_by_hand(patching: Patching) -> None:
    """The patch of ``second`` has an enclosure of its own: by what was at most, and at least."""
    components = single(ReLU(), -4.0).components()
    encoder = Encoder(components, Claim(Box([1.0], [2.0]), patching, MaxAbs(1.0)))
    query = encoder.encode(components.full().remove("second/0"))
    patch = (one(1.0), one(7.0))
    if isinstance(patching, IntervalHull):
        patch = encoder.hull["second"]
    without = wide_known(encoder, components.full(), NETWORK)
    ends = {**without.ends, encoder.source_role("second"): patch}
    found = DifferentialBounds(encoder).enclosures(replace(without, ends=ends), query)
    lower, upper = (float(end) for end in named(query, found)["total"])
    low, high = (float(end) for end in patch)
    assert close((lower, upper), -1.0 + low - 4.0, 2.0 + high - 2.0)
    if isinstance(patching, Reachable):
        found = DifferentialBounds(encoder).enclosures(without, query)
        total = named(query, found)["total"]
        assert (float(total[0]), float(total[1])) == (-math.inf, math.inf)


def test_what_is_patched_in_both_does_not_move() -> None:
    """A site behind a change, whose own components are gone before and after."""
    components = single(ReLU(), -4.0).components()
    encoder = Encoder(components, Claim(Box([1.0], [2.0]), Zero(), MaxAbs(1.0)))
    larger = components.full().remove("again/0")
    smaller = larger.remove("first/0")
    before, after = encoder.encode(larger), encoder.encode(smaller)
    found = DifferentialBounds(encoder).enclosures(known_of(encoder, before), after)
    (name,) = (name for name in found if after.roles[name].tensor == "y")
    assert tuple(float(end) for end in found[name]) == pytest.approx((0.0, 0.0), abs=1e-12)
    # A smaller circuit that is the same has nothing to derive.
    assert (
        DifferentialBounds(encoder).enclosures(known_of(encoder, before), encoder.encode(larger))
        == {}
    )
