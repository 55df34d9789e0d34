"""What every stage promises: bounds contain what can happen, and no stage contradicts another."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
import torch
from torch import Tensor, nn

import provable_circuits as pc
from provable_circuits.network.execution import evaluate
from provable_circuits.network.ops import LeakyReLU, Op, ReLU, Sigmoid, Square, Tanh
from provable_circuits.verify.bounding.alpha import optimise
from provable_circuits.verify.bounding.bounds import Bounds, Structure
from provable_circuits.verify.bounding.differential import DifferentialBounds, Known
from provable_circuits.verify.bounding.region import Region
from provable_circuits.verify.bounding.relaxation import leak, lines
from provable_circuits.verify.bounding.relaxed import Relaxed
from provable_circuits.verify.bounding.root_problems import RootProblems
from provable_circuits.verify.bounding.unstable import UnstableUnits
from provable_circuits.verify.branching.branch_and_bound import BranchAndBound
from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.encoding.encoder import Encoder
from provable_circuits.verify.encoding.query import Query
from provable_circuits.verify.encoding.roles import by_role

CPU = torch.device("cpu")


# --- networks of every kind -----------------------------------------------------------------------


def dense(activation: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(4, 6), activation(), nn.Linear(6, 5), activation(), nn.Linear(5, 3)
    )


class Pooled(nn.Module):
    """Max pooling, average pooling, normalisation and a residual sum."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first = nn.Conv2d(1, 3, 3, padding=1)
        self.norm = nn.BatchNorm2d(3)
        self.second = nn.Conv2d(3, 3, 3, padding=1)
        self.head = nn.Linear(12, 3)
        with torch.no_grad():
            self.norm.running_mean.uniform_(-0.5, 0.5)  # type: ignore[union-attr]
            self.norm.running_var.uniform_(0.5, 2.0)  # type: ignore[union-attr]

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.max_pool2d(self.norm(self.first(x)).relu(), 2)
        x = (self.second(x) + x).relu()
        return self.head(x.flatten(1))  # type: ignore[no-any-return]


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "relu": (lambda: dense(nn.ReLU), (4,)),
    "leaky": (lambda: dense(lambda: nn.LeakyReLU(0.1)), (4,)),
    "sigmoid": (lambda: dense(nn.Sigmoid), (4,)),
    "tanh": (lambda: dense(nn.Tanh), (4,)),
    "clip": (lambda: dense(lambda: nn.Hardtanh(-0.4, 0.6)), (4,)),
    "pooled": (Pooled, (1, 4, 4)),
}
PATCHINGS: dict[str, pc.Patching] = {
    "zero": pc.Zero(),
    "constant": pc.Constant(0.3),
    "reachable": pc.Reachable(eps=0.2),
    "reachable, p = 1": pc.Reachable(eps=0.5, p=1),
    "hull": pc.IntervalHull(eps=0.1),
}
_GRAPHS: dict[str, pc.Graph] = {}


def graph_of(name: str) -> pc.Graph:
    if name not in _GRAPHS:
        make, shape = NETWORKS[name]
        _GRAPHS[name] = pc.Graph.from_torch(make().eval(), torch.zeros(1, *shape))
    return _GRAPHS[name]


def query_of(name: str, p: float, patching: pc.Patching, metric: pc.Metric) -> Query:
    graph = graph_of(name)
    generator = torch.Generator().manual_seed(7)
    centers = torch.rand(2, *graph.input_shape, generator=generator, dtype=torch.float64)
    clip = (0.0, 1.0) if p == 1 else None
    domains = [pc.Ball(x, 0.3 if p == math.inf else 0.8, p, clip) for x in centers]
    components = graph.components()
    kept = [n for i, n in enumerate(components.names) if i % 3]
    encoder = Encoder(components, pc.Claim(domains, patching, metric))
    return encoder.encode(components.circuit(kept))


def points(query: Query, count: int) -> dict[str, Tensor]:
    """Random inputs of the merged graph, [count, k, *shape], many of them on the edge."""
    generator = torch.Generator().manual_seed(11)
    found = {}
    for name, box in query.ranges.items():
        share = torch.rand((count, *box.lower.shape), generator=generator, dtype=torch.float64)
        share[::2] = share[::2].round()
        value = box.lower + share * (box.upper - box.lower)
        if box.domains is not None:
            value = torch.stack([d.project(value[:, j]) for j, d in enumerate(box.domains)], dim=1)
        found[name] = value
    return found


def values(query: Query, count: int = 300) -> dict[str, Tensor]:
    """Every tensor at random points: [count, k, *shape]."""
    feeds = {name: value.flatten(0, 1) for name, value in points(query, count).items()}
    names = [node.name for node in query.graph.nodes]
    found = evaluate(query.graph, feeds, names)
    inputs = len(query.rows)
    return {
        name: value.expand(count * inputs, *value.shape[1:]).unflatten(0, (count, inputs))
        for name, value in found.items()
    }


def bounds_of(query: Query) -> Bounds:
    bounds = Bounds(Structure(query.graph, CPU), Region(query.ranges), len(query.rows))
    bounds.compute()
    return bounds


@pytest.mark.parametrize("p", [math.inf, 2, 1])
@pytest.mark.parametrize("patched", PATCHINGS)
@pytest.mark.parametrize("name", NETWORKS)
def test_bounds_contain_whatever_can_happen(name: str, patched: str, p: float) -> None:
    turn = list(NETWORKS).index(name) + list(PATCHINGS).index(patched) + int(min(p, 3))
    metrics = (pc.MaxAbs(1.0), pc.Norm(1.0, 1), pc.Norm(1.0, 2), pc.WinnerMargin(0.5, "all"))
    for metric in (metrics[turn % 4], metrics[(turn + 2) % 4])[: 1 if name == "pooled" else 2]:
        query = query_of(name, p, PATCHINGS[patched], metric)
        bounds, seen = bounds_of(query), values(query)
        for tensor, value in seen.items():
            lower, upper = bounds.ends[tensor]
            slack = 1e-12 * (1 + value.abs())
            assert bool((value >= lower - slack).all()), tensor
            assert bool((value <= upper + slack).all()), tensor
        generator = torch.Generator().manual_seed(3)
        starts = {query.graph.outputs[0], *(n.inputs[0] for n in bounds.structure.activations)}
        for tensor in sorted(starts):
            value = seen[tensor].flatten(2)
            rows = torch.randn(2, 3, value.shape[2], generator=generator, dtype=torch.float64)
            least = torch.einsum("nku,kru->nkr", value, rows).amin(0)
            shaped = rows.unflatten(2, query.graph[tensor].shape)
            found = bounds.backward(tensor, shaped).value
            assert bool((found <= least + 1e-9).all()), tensor
            single = bounds.backward(tensor, shaped.float()).value
            exact = torch.einsum("nku,kru->nkr", value, rows.float().double()).amin(0)
            assert bool((single <= exact + 1e-9).all()), tensor


@pytest.mark.parametrize("p", [math.inf, 2, 1])
@pytest.mark.parametrize("name", ["relu", "leaky", "clip", "pooled", "tanh"])
def test_optimised_slopes_and_splits_stay_below(name: str, p: float) -> None:
    query = query_of(name, p, pc.Reachable(eps=0.2), pc.LogitDifference(0.1, 0))
    bounds, seen = bounds_of(query), values(query, 1000)
    start = query.graph.outputs[0]
    offsets = torch.zeros(len(query.rows), dtype=torch.float64)
    for s in range(query.rows.shape[1]):
        row = query.rows[:, s : s + 1]
        value = torch.einsum("nko,kro->nkr", seen[start], row)[..., 0]
        relaxed = Relaxed.whole(bounds, UnstableUnits(bounds))
        choice = optimise(relaxed, start, row, offsets - 1e9, relaxed.alpha, steps=8)
        assert bool((choice.found.value[:, 0] <= value.amin(0) + 1e-9).all())
        first = bounds.backward(start, row).value[:, 0]
        assert bool((choice.found.value[:, 0] >= first - 1e-6).all())  # ascent starts from there
        piecewise_linear = [n for n in bounds.structure.activations if leak(n.op) is not None]
        for node in piecewise_linear[s::3]:
            _split(query, bounds, node.name, row, value, seen[node.inputs[0]])


def _split(
    query: Query, bounds: Bounds, activation: str, row: Tensor, value: Tensor, seen: Tensor
) -> None:
    """Fix the signs of two units; the bound must hold wherever they have these signs."""
    source = query.graph[activation].inputs[0]
    lower, upper = (end.expand(len(row), *end.shape[1:]).clone() for end in bounds.ends[source])
    open_ = ((lower < 0) & (upper > 0)).flatten(1).all(0).nonzero().flatten()[:2]
    if not len(open_):
        return
    for signs in ([1.0, 1.0], [1.0, -1.0]):
        fixed = torch.zeros_like(lower)
        there = torch.ones(value.shape, dtype=torch.bool)
        low, high = lower.clone(), upper.clone()
        for unit, sign in zip(open_.tolist(), signs, strict=False):
            fixed.flatten(1)[:, unit] = sign
            there &= seen.flatten(2)[:, :, unit] * sign >= 0
            (low if sign > 0 else high).flatten(1)[:, unit] = 0.0
        prior = {**bounds.ends, source: (low, high)}
        splits = {source: torch.ones(len(row), dtype=torch.bool)}
        part = Bounds(bounds.structure, bounds.region, len(row), prior=prior, splits=splits)
        part.compute()
        offsets = torch.full((len(row),), -1e9, dtype=torch.float64)
        start, units = query.graph.outputs[0], UnstableUnits(bounds)
        signed = units.gather({activation: fixed}, len(row))
        met = torch.where(there, value, torch.inf).amin(0)
        whole = Relaxed.whole(bounds, units)
        inherited = Relaxed(
            bounds,
            units,
            torch.arange(len(row)),
            bounds.region,
            torch.where(signed > 0, 0.0, whole.lower),
            torch.where(signed < 0, 0.0, whole.upper),
        )
        for relaxed in (Relaxed.whole(part, units), inherited):
            choice = optimise(relaxed, start, row, offsets, relaxed.alpha, signed, None, 6)
            assert bool(((choice.found.value[:, 0] <= met + 1e-9) | part.empty).all())
        assert not bool((part.empty & there.any(0)).any())


@pytest.mark.parametrize("p", [math.inf, 2, 1])
@pytest.mark.parametrize("name", ["relu", "leaky", "clip", "pooled"])
def test_ends_that_no_split_can_bring_closer_are_kept(name: str, p: float) -> None:
    """Each unstable unit is split: bounding all of the network anew settles no unit more."""
    query = query_of(name, p, pc.Reachable(eps=0.2), pc.LogitDifference(0.1, 0))
    bounds, row = bounds_of(query), query.rows[:, :1]
    offsets = torch.zeros(len(row), dtype=torch.float64)
    roots = RootProblems(bounds, torch.arange(len(row)), row, offsets)
    search = BranchAndBound(roots, lambda *_: False, Deadline())
    whole, kept, all_ = search._root_parts(), 0, 0
    units = range(len(search.units))
    for unit in units[:: -1 - len(units) // 12]:
        split = whole[search.whole.open[:, unit]]
        subdomains = split.split(torch.full((len(split),), unit))
        tightened, empty = search._closer(subdomains)
        anew, bounds = search._refined(subdomains)
        open_ = tightened.open & ~bounds.empty.unsqueeze(1)
        assert torch.allclose(tightened.lower[open_], anew.lower[open_], rtol=0, atol=1e-9)
        assert torch.allclose(tightened.upper[open_], anew.upper[open_], rtol=0, atol=1e-9)
        assert not bool((empty & ~bounds.empty).any())
        kept += int(
            ((tightened.lower == subdomains.lower) & (tightened.upper == subdomains.upper))
            .all(1)
            .sum()
        )
        all_ += len(subdomains)
    assert 0 < kept < all_


@pytest.mark.parametrize("p", [math.inf, 2, 1])
@pytest.mark.parametrize("name", ["relu", "leaky", "pooled"])
def test_a_shallow_search_closes_rows_that_hold_and_no_others(name: str, p: float) -> None:
    query = query_of(name, p, pc.Zero(), pc.LogitDifference(0.1, 0))
    bounds, seen = bounds_of(query), values(query, 2000)
    start = query.graph.outputs[0]
    row = query.rows[:, :1]
    least = torch.einsum("nko,kro->nkr", seen[start], row)[..., 0].amin(0)
    linear = bounds.backward(start, row).value[:, 0]

    def closed(offsets: Tensor) -> Tensor:
        roots = RootProblems(bounds, torch.arange(len(row)), row, offsets)
        search = BranchAndBound(roots, lambda *_: False, Deadline())
        whole = search.whole
        choice = optimise(whole, start, row, offsets, whole.alpha, steps=0)
        return ~search.shallow(choice, rounds=3, most=64)

    assert not bool(closed(-least - 1e-9).any())
    assert bool(closed(-linear - 0.05 * (least - linear)).any())


@pytest.mark.parametrize("p", [math.inf, 1])
@pytest.mark.parametrize("patched", PATCHINGS)
@pytest.mark.parametrize("name", NETWORKS)
def test_enclosures_derived_from_a_larger_circuit_hold(name: str, patched: str, p: float) -> None:
    """Removing components one after another: what is derived contains whatever can happen."""
    graph = graph_of(name)
    components = graph.components()
    generator = torch.Generator().manual_seed(13)
    centers = torch.rand(2, *graph.input_shape, generator=generator, dtype=torch.float64)
    domains: list[pc.Domain] = [pc.Ball(x, 0.2, p) for x in centers]
    if patched == "constant":
        domains = [pc.Point(x) for x in centers]
    encoder = Encoder(components, pc.Claim(domains, PATCHINGS[patched], pc.MaxAbs(1.0)))
    difference = DifferentialBounds(encoder)
    order = torch.randperm(len(components), generator=generator).tolist()
    circuit = components.full()
    query = encoder.encode(circuit)
    known = Known(circuit, query, by_role(bounds_of(query).ends, query.roles))
    derived_any = False
    for step, index in enumerate(order[:6]):
        circuit = circuit.remove(components.names[index])
        if step == 3:  # two at once
            circuit = circuit.remove(components.names[order[-1]])
        query = encoder.encode(circuit)
        seen = values(query, 100)
        for tensor, (lower, upper) in difference.enclosures(known, query).items():
            derived_any = True
            slack = 1e-12 * (1 + seen[tensor].abs())
            assert bool((seen[tensor] >= lower - slack).all()), tensor
            assert bool((seen[tensor] <= upper + slack).all()), tensor
        if step % 2:
            known = Known(circuit, query, by_role(bounds_of(query).ends, query.roles))
    assert derived_any


# --- relaxations ----------------------------------------------------------------------------------


def intervals() -> list[tuple[float, float]]:
    """Ordinary, huge, tiny, lopsided and degenerate ones."""
    found = [
        (-1.0, 1.0),
        (-3.0, 0.5),
        (-0.1, 7.0),
        (0.5, 2.0),
        (-2.0, -0.5),
        (0.0, 0.0),
        (0.0, 3.0),
    ]
    found += [(-2.0, 0.0), (1.0, 1.0), (-1.5, -1.5), (-1e-300, 1e-300), (-5e-324, 5e-324)]
    found += [(-1e300, 1e300), (-1e200, 1e-200), (-1e-200, 1e200), (-1e-16, 1e10), (-1e10, 1e-16)]
    found += [(-800.0, 800.0), (-40.0, 36.0), (36.0, 37.0), (-37.5, -36.9), (-1.0, 37.0)]
    found += [
        (-1e5, 1.0),
        (-20.0, 20.0),
        (18.0, 700.0),
        (-745.0, -700.0),
        (0.0, 1e10),
        (-1e10, -3.0),
    ]
    found += [
        (-1e-9, 1e-9),
        (1.0, 1.0 + 2**-52),
        (-1.0 - 2**-52, -1.0),
        (-1e-7, 3e-7),
        (2.0, 2.000001),
    ]
    generator = torch.Generator().manual_seed(2)
    for scale in (1e-3, 1.0, 10.0, 1e6):
        ends = torch.randn(12, 2, generator=generator, dtype=torch.float64) * scale
        found += [(float(e.min()), float(e.max())) for e in ends]
    return found


def grid(lower: float, upper: float) -> list[float]:
    """The bounds, zero, places between them on a linear and on a logarithmic scale."""
    low, high = Fraction(lower), Fraction(upper)
    shares = [Fraction(i, 24) for i in range(25)]
    shares += [Fraction(1, 10**k) for k in (2, 4, 8, 12)]
    shares += [1 - share for share in shares[-4:]]
    found = {float(low + (high - low) * share) for share in shares}
    found |= {s * 10.0**k for k in (-2, -1, 0, 1, 1.3, 1.56) for s in (-1, 1)} | {0.0}
    return sorted(x for x in found if lower <= x <= upper)


def value_at(op: Op, x: float) -> Decimal:
    """The function itself, to fifty digits."""
    point = Decimal(x)
    if isinstance(op, ReLU):
        return max(point, Decimal(0))
    if isinstance(op, LeakyReLU):
        return point if x > 0 else point * Decimal(op.slope)
    if isinstance(op, Square):
        return point * point
    if isinstance(op, Sigmoid):
        return 1 / (1 + (-point).exp()) if x > -2000 else Decimal(0)
    twice = (-2 * abs(point)).exp() if abs(x) < 2000 else Decimal(0)
    size = (1 - twice) / (1 + twice)
    return size if x > 0 else -size


OPERATIONS: list[Op] = [ReLU(), LeakyReLU(0.1), LeakyReLU(0.01), Sigmoid(), Tanh(), Square()]


@pytest.mark.parametrize(
    ("op", "chosen"),
    [
        (op, c)
        for op in OPERATIONS
        for c in (None, 0.0, 0.37, 1.0)
        if c is None or leak(op) is not None
    ],
    ids=lambda value: str(value).lower(),
)
def test_lines_lie_on_their_sides(op: Op, chosen: float | None) -> None:
    slope = leak(op)
    ends = torch.tensor(intervals(), dtype=torch.float64).T
    lower, upper = ends[0].unsqueeze(0), ends[1].unsqueeze(0)
    free = None
    if chosen is not None and slope is not None:
        free = torch.full_like(lower, max(chosen, slope)).float().double().clamp_min(slope)
    found = lines(op, (lower, upper), free)
    arithmetics = [found] if isinstance(op, LeakyReLU) else [found, found.single()]
    with localcontext() as context:
        for line in arithmetics:
            offsets = [
                torch.zeros_like(lower) if offset is None else offset.expand_as(lower)
                for offset in (line.below_offset, line.above_offset)
            ]
            alpha = [line.below_slope.expand_as(lower), line.above_slope.expand_as(lower)]
            for i, (low, high) in enumerate(intervals()):
                numbers = [float(part[0, i]) for part in (*alpha, *offsets)]
                if not all(math.isfinite(number) for number in numbers):
                    continue  # no line: sound, and no proof
                below, above, under, over = map(Decimal, numbers)
                for x in grid(low, high):
                    # Products of any two numbers here, exactly; the others are no numbers.
                    context.prec = 60 if isinstance(op, Sigmoid | Tanh) else 2500
                    value, point = value_at(op, x), Decimal(x)
                    assert below * point + under <= value, (low, high, x)
                    assert value <= above * point + over, (low, high, x)


def test_lines_of_ordinary_intervals_are_finite() -> None:
    ends = torch.tensor([e for e in intervals() if max(map(abs, e)) < 1e30], dtype=torch.float64).T
    for op in OPERATIONS:
        line = lines(op, (ends[0].unsqueeze(0), ends[1].unsqueeze(0)))
        assert bool(line.below_slope.isfinite().all())
        assert bool(line.above_offset.isfinite().all())


# --- stages against each other -------------------------------------------------------------------


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("p", [math.inf, 2, 1])
def test_no_setting_contradicts_another(name: str, p: float) -> None:
    """With and without an attack, with other seeds, with a used verifier: no two answers clash."""
    graph = graph_of(name)
    components = graph.components()
    generator = torch.Generator().manual_seed(9)
    centers = torch.rand(2, *graph.input_shape, generator=generator, dtype=torch.float64)
    domains = [pc.Ball(x, 0.1, p) for x in centers]
    circuits = [components.circuit(components.names[i::2]) for i in (0, 1)]
    circuits += [components.full().remove(components.names[1])]
    for patching in (pc.Zero(), pc.Reachable(eps=0.1)):
        for metric in (pc.LogitDifference(0.3), pc.Norm(1.0, 1), pc.WinnerMargin(0.1))[
            :: 2 if name == "pooled" else 1
        ]:
            claim = pc.Claim(domains, patching, metric)
            used = pc.Verifier(components, claim)
            quiet = pc.Verifier(components, claim, attack_steps=0, attack_starts=1)
            other = pc.Verifier(components, claim, seed=5)
            for circuit in circuits:
                kinds = {
                    verifier.ask(circuit, max_nodes=200).kind for verifier in (used, quiet, other)
                }
                assert not {"proved", "refuted"} <= kinds


def test_a_root_that_was_too_close_to_call_may_still_be_proved_elsewhere() -> None:
    """Where a leaf stays open, hulls are asked about its root; what they prove counts."""
    query = query_of("relu", math.inf, pc.Zero(), pc.LogitDifference(0.1, 0))
    offsets = torch.zeros(len(query.rows), dtype=torch.float64)
    roots = RootProblems(bounds_of(query), torch.arange(len(offsets)), query.rows[:, :1], offsets)
    search = BranchAndBound(roots, lambda *_: False, Deadline())
    search._queue = search._queue[:0]
    search._close = {1}
    assert search.open.tolist() == [1]
    assert search.resume() == "close"
    search.settle(torch.tensor([1]), 0.0)
    assert search.resume() == "close"
    search.settle(torch.tensor([], dtype=torch.long), 0.0)
    assert search.resume() == "proved"
