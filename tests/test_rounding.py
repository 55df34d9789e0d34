"""Attacks on the enclosures of floating-point error; exact fractions judge them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from provable_circuits import rounding
from provable_circuits.rounding import (
    TINY,
    UNIT_ROUNDOFF,
    InconsistentBoundsError,
    Interval,
    _sums_products,
    down,
    enclose_linear,
    enclose_monotone,
    exact_products,
    gamma,
    met,
    midpoint,
    settle,
    unit_roundoff,
    up,
)

LARGEST = 1.7976931348623157e308
SMALLEST = 5e-324
NORMAL = 2.2250738585072014e-308

numbers = st.floats(allow_nan=False, allow_infinity=False, width=64)


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def point(*values: float) -> Interval:
    value = tensor(*values).unsqueeze(0)
    return value, value


@dataclass
class Dot:
    """``w . x + b``, added up in an order of one's choice, as a BLAS may."""

    weight: list[float]
    bias: float = 0.0
    order: str = "forward"

    @property
    def terms(self) -> int:
        return len(self.weight) + 1

    def offset(self) -> Tensor:
        return tensor(self.bias)

    def forward(self, *inputs: Tensor) -> Tensor:
        return tensor(self._add([self.bias, *self._products(inputs[0], self.weight)])).unsqueeze(0)

    def spread(self, *inputs: Tensor) -> Tensor:
        sizes = [abs(w) for w in self.weight]
        return tensor(self._add(self._products(inputs[0], sizes))).unsqueeze(0)

    def exact(self, x: list[float]) -> Fraction:
        pairs = zip(self.weight, x, strict=True)
        return Fraction(self.bias) + sum(Fraction(w) * Fraction(v) for w, v in pairs)

    @staticmethod
    def _products(x: Tensor, weight: list[float]) -> list[float]:
        return [w * v for w, v in zip(weight, x.flatten().tolist(), strict=True)]

    def _add(self, values: list[float]) -> float:
        if self.order == "pairs":
            while len(values) > 1:
                values = [sum(values[i : i + 2]) for i in range(0, len(values), 2)]
            return values[0]
        total = 0.0
        for value in reversed(values) if self.order == "backward" else values:
            total += value
        return total


@dataclass
class Adversary(Dot):
    """Errs by as much as the theorem allows: the value to one side, the spread downward."""

    side: int = 1

    @property
    def unit(self) -> Fraction:
        return self.terms * Fraction(1, 2**53)

    def forward(self, *inputs: Tensor) -> Tensor:
        x = inputs[0].flatten().tolist()
        sizes = Dot([abs(w) for w in self.weight], abs(self.bias)).exact([abs(v) for v in x])
        return tensor(float(self.exact(x) + self.side * self.unit * sizes)).unsqueeze(0)

    def spread(self, *inputs: Tensor) -> Tensor:
        sizes = Dot([abs(w) for w in self.weight])
        value = sizes.exact(inputs[0].flatten().tolist()) * (1 - self.unit)
        return tensor(float(value)).unsqueeze(0)


def within(ends: Interval, value: Fraction) -> bool:
    lower, upper = (float(end.flatten()[0]) for end in ends)
    return lower <= value <= upper


@pytest.mark.parametrize(("step", "towards"), [(down, -math.inf), (up, math.inf)])
def test_steps_are_those_of_the_standard(step: Callable[[Tensor], Tensor], towards: float) -> None:
    values = [0.0, -0.0, 1.0, -1.0, 2.0, 0.5, SMALLEST, -SMALLEST, NORMAL, -NORMAL, 1e-310]
    values += [LARGEST, -LARGEST, math.inf, -math.inf, 1 + 2**-52, 4 - 2**-51] * 3
    wanted = [math.nextafter(value, towards) for value in values]
    assert step(tensor(*values)).tolist() == wanted
    # Vectorised code has another path for the last few elements.
    for value, next_value in zip(values, wanted, strict=True):
        assert step(tensor(value)).tolist() == [next_value]


@given(numbers, numbers)
def test_one_step_encloses_one_operation(a: float, b: float) -> None:
    x, y = tensor(a), tensor(b)
    results = [
        (x + y, Fraction(a) + Fraction(b)),
        (x - y, Fraction(a) - Fraction(b)),
        (x * y, Fraction(a) * Fraction(b)),
    ]
    if b:
        results.append((x / y, Fraction(a) / Fraction(b)))
    for computed, exact in results:
        assert within((down(computed), up(computed)), exact)


@pytest.mark.parametrize("terms", [1, 2, 3, 784, 10**6, 10**9, 10**13])
def test_gamma_is_an_upper_bound(terms: int) -> None:
    unit = Fraction(1, 2**53)
    assert Fraction(gamma(terms)) >= terms * unit / (1 - terms * unit)
    assert gamma(terms) <= 1.1 * terms * UNIT_ROUNDOFF


@pytest.mark.parametrize("terms", [1, 100, 10**5])
def test_gamma_of_single_precision(terms: int) -> None:
    unit = unit_roundoff(torch.float32)
    assert unit == 2.0**-24
    exact = Fraction(unit)
    assert Fraction(gamma(terms, unit)) >= terms * exact / (1 - terms * exact)
    assert unit_roundoff(torch.float64) == UNIT_ROUNDOFF


def test_sums_too_long_to_enclose_have_no_bound() -> None:
    assert gamma(10**14) == math.inf
    assert gamma(10**6, 2.0**-24) == math.inf

    class Long(Dot):
        @property
        def terms(self) -> int:
            return 10**14

    for x in (0.0, 1.0):
        lower, upper = enclose_linear(Long([1.0]), [point(x)])
        assert lower.tolist() == [[-math.inf]]
        assert upper.tolist() == [[math.inf]]


def test_gamma_ends_where_its_bound_does() -> None:
    assert gamma(1, 0.01) == math.inf
    assert gamma(1, 0.0099) == pytest.approx(0.0099 * 1.02)


def test_what_is_trusted_depends_on_type_settings_and_trials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cpu, single, double = torch.device("cpu"), torch.float32, torch.float64
    for passed in (True, False):
        monkeypatch.setattr(rounding, "_sums_products", lambda *_, passed=passed: passed)
        for setting in ("highest", "high", "medium"):
            monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda s=setting: s)
            assert exact_products(single, cpu) == (passed and setting == "highest")
            assert exact_products(double, cpu) == passed


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_trials_are_of_products_that_the_type_holds(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three to a sum, of both signs, each sum below the first integer that is not held."""
    plain, plain_back, seen = functional.conv2d, functional.conv_transpose2d, []

    def convolve(image: Tensor, weight: Tensor, stride: int = 1) -> Tensor:
        seen.append((image, weight.flatten(1), weight.shape[-1], stride))
        return plain(image, weight, stride=stride)

    def back(image: Tensor, weight: Tensor, stride: int = 1) -> Tensor:
        seen.append((image, weight.transpose(0, 1).flatten(1), weight.shape[-1], stride))
        return plain_back(image, weight, stride=stride)

    monkeypatch.setattr(functional, "conv2d", convolve)
    monkeypatch.setattr(functional, "conv_transpose2d", back)
    _sums_products.cache_clear()
    assert exact_products(dtype, torch.device("cpu"))
    _sums_products.cache_clear()
    held = 2.0**24 if dtype == torch.float32 else 2.0**53
    for image, weight, _, _ in seen:
        assert image.dtype == weight.dtype == dtype
        counts = (weight != 0).sum(1)
        assert 2 < int(counts.max()) <= 3
        assert 3 * float(image.abs().max()) * float(weight.abs().max()) < held
        for values in (image, weight):
            assert float(values.max()) > 0.4 * math.sqrt(held / 3)
            assert float(values.min()) < -0.4 * math.sqrt(held / 3)
    assert sorted((size, stride) for *_, size, stride in seen) == sorted(
        2 * [(size, stride) for size in (1, 3, 5) for stride in (1, 2)]
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("which", ["matmul", "conv_transpose2d"])
def test_each_trial_gives_narrower_types_away(
    which: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrower = {torch.float32: torch.bfloat16, torch.float64: torch.float32}[dtype]
    place, name = (Tensor, "__matmul__") if which == "matmul" else (functional, which)
    plain: Callable[..., Tensor] = getattr(place, name)

    def narrow(first: Tensor, second: Tensor, **options: int) -> Tensor:
        if not first.is_floating_point():
            return plain(first, second, **options)
        return plain(first.to(narrower), second.to(narrower), **options).to(dtype)

    _sums_products.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(place, name, narrow)
        assert not exact_products(dtype, torch.device("cpu"))
    _sums_products.cache_clear()


def test_single_precision_is_trusted_only_as_torch_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    assert exact_products(torch.float64, cpu)
    trusted = exact_products(torch.float32, cpu)
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "medium")
    assert not exact_products(torch.float32, cpu)
    monkeypatch.undo()
    assert exact_products(torch.float32, cpu) == trusted


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_other_products_and_narrower_types_give_themselves_away(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = functional.conv2d
    narrower = {torch.float32: torch.bfloat16, torch.float64: torch.float32}[dtype]

    def narrow(image: Tensor, weight: Tensor, stride: int = 1) -> Tensor:
        return plain(image.to(narrower), weight.to(narrower), stride=stride).to(dtype)

    def transformed(image: Tensor, weight: Tensor, stride: int = 1) -> Tensor:
        """By the identity ab + cd = (a + d)(b + c) - ac - db + ..., as fast algorithms use it."""
        shifted = plain(image + 2 * image.abs().max(), weight, stride=stride)
        constant = plain(torch.full_like(image, 2) * image.abs().max(), weight, stride=stride)
        return shifted - constant

    for other in (narrow, transformed):
        _sums_products.cache_clear()
        monkeypatch.setattr(functional, "conv2d", other)
        assert not exact_products(dtype, torch.device("cpu")), other
    _sums_products.cache_clear()


def test_settle_turns_nan_into_no_bound_and_keeps_the_rest() -> None:
    nan, inf = math.nan, math.inf
    lower, upper = settle(tensor(nan, 1.0, -inf, inf, -inf), tensor(nan, 2.0, inf, nan, -inf))
    assert lower.tolist() == [-inf, 1.0, -inf, inf, -inf]
    assert upper.tolist() == [inf, 2.0, inf, inf, -inf]


def test_what_meets_in_a_point_meets() -> None:
    wide, narrow = (tensor(0.0), tensor(4.0)), (tensor(1.0), tensor(2.0))
    for pair in ((wide, narrow), (narrow, wide)):
        lower, upper = met(*pair)
        assert (float(lower), float(upper)) == (1.0, 2.0)
    lower, upper = met(narrow, (tensor(2.0), tensor(3.0)))
    assert (float(lower), float(upper)) == (2.0, 2.0)
    with pytest.raises(InconsistentBoundsError):
        met((tensor(0.0, 0.0), tensor(1.0, 1.0)), (tensor(0.5, 1.5), tensor(2.0, 2.0)))


@given(numbers, numbers)
def test_midpoint_and_radius_cover_the_interval(a: float, b: float) -> None:
    low, high = min(a, b), max(a, b)
    middle, radius = (float(value) for value in midpoint(tensor(low), tensor(high)))
    if math.isfinite(middle):
        assert Fraction(middle) - Fraction(low) <= radius
        assert Fraction(high) - Fraction(middle) <= radius
    else:
        assert high - low == math.inf


@pytest.mark.parametrize("order", ["forward", "backward", "pairs"])
@pytest.mark.parametrize(
    ("weight", "bias", "x"),
    [
        ([1e16, -1e16, 1.0], 0.0, [1.0, 1.0, 1.0]),
        ([1.0, 1e16, -1e16], 1.0, [1.0, 1.0, 1.0]),
        ([1.0] * 7, -7e16, [1e16] * 7),
        ([0.1] * 10, -1.0, [1.0] * 10),
        ([1e308, 1e308, -1e308], 0.0, [1.0, 1.0, 1.0]),
        ([1e308, 1e308, -1e308, -1e308], 3.0, [1.0, 1.0, 1.0, 1.0]),
        ([1e200, -1e200], 0.0, [1e200, 1e200]),
        ([1e300, -1e300], 5e-9, [4e-309, 3.9999e-309]),
        ([SMALLEST] * 5, 0.0, [0.5] * 5),
        ([1e-200, 1e-200], -1e-310, [1e-200, -1e-120]),
        ([NORMAL, -NORMAL], 0.0, [1 - 2**-53, 1.0]),
        ([0.0, 0.0], 0.0, [LARGEST, -LARGEST]),
    ],
)
def test_points_are_enclosed(order: str, weight: list[float], bias: float, x: list[float]) -> None:
    op = Dot(weight, bias, order)
    assert within(enclose_linear(op, [point(*x)]), op.exact(x))


@given(st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=6), numbers)
def test_any_linear_function_of_any_box_is_enclosed(
    triples: list[tuple[float, float, float]], bias: float
) -> None:
    weight = [w for w, _, _ in triples]
    low = [min(a, b) for _, a, b in triples]
    high = [max(a, b) for _, a, b in triples]
    op = Dot(weight, bias)
    ends = enclose_linear(op, [(tensor(*low).unsqueeze(0), tensor(*high).unsqueeze(0))])
    least = [a if w > 0 else b for w, a, b in zip(weight, low, high, strict=True)]
    most = [b if w > 0 else a for w, a, b in zip(weight, low, high, strict=True)]
    assert within(ends, op.exact(least))
    assert within(ends, op.exact(most))


@pytest.mark.parametrize("side", [-1, 1])
@pytest.mark.parametrize("count", [1, 2, 10, 1000])
@pytest.mark.parametrize(
    ("scale", "bias", "width"),
    [(1.0, 0.0, 0.0), (1.0, 0.0, 3.0), (1e-3, 1e6, 0.0), (1e-3, -1e6, 1e-9), (1.0, 1.0, 1e12)],
)
def test_the_worst_errors_that_the_theorem_allows_are_enclosed(
    side: int, count: int, scale: float, bias: float, width: float
) -> None:
    source = random.Random(count)
    weight = [scale * source.uniform(-1, 1) for _ in range(count)]
    low = [source.uniform(-1, 1) for _ in range(count)]
    high = [value + width * source.random() for value in low]
    op = Adversary(weight, bias, side=side)
    ends = enclose_linear(op, [(tensor(*low).unsqueeze(0), tensor(*high).unsqueeze(0))])
    for sign in (-1, 1):
        corner = [b if w * sign > 0 else a for w, a, b in zip(weight, low, high, strict=True)]
        assert within(ends, op.exact(corner))


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=5))
def test_denormal_inputs_against_huge_weights(pairs: list[tuple[float, float]]) -> None:
    """Errors of errors underflow here, and the weights blow up what is lost."""
    x = [math.ldexp(math.frexp(a)[0], -1030) for a, _ in pairs]
    weight = [math.ldexp(math.frexp(b)[0], 1020) for _, b in pairs]
    op = Dot(weight, 0.0)
    assert within(enclose_linear(op, [point(*x)]), op.exact(x))


def test_an_ordinary_sum_is_enclosed_tightly() -> None:
    op = Dot([0.1, 0.2, 0.3], 0.4)
    lower, upper = enclose_linear(op, [point(1.0, 2.0, 3.0)])
    assert float(upper - lower) < 1e-14


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_ends_that_are_not_finite_prove_nothing(bad: float) -> None:
    lower, upper = enclose_linear(
        Dot([1.0, 0.0]), [(tensor(bad, 0.0)[None], tensor(bad, 1.0)[None])]
    )
    assert lower.tolist() == [[-math.inf]]
    assert upper.tolist() == [[math.inf]]


def test_overflow_on_the_way_is_no_bound() -> None:
    """A partial sum overflows, and its error alone would be a small number."""
    op = Dot([1e308, 1e308, -1.5e308])
    lower, upper = enclose_linear(op, [point(1.0, 1.0, 1.0)])
    assert lower.tolist() == [[-math.inf]]
    assert upper.tolist() == [[math.inf]]


@given(numbers, numbers, st.integers(1, 16))
def test_a_function_that_errs_by_so_many_units_is_enclosed(a: float, b: float, ulps: int) -> None:
    low, high = min(a, b), max(a, b)
    computed_low, computed_high = low, high
    for _ in range(ulps):
        computed_low = math.nextafter(computed_low, math.inf)
        computed_high = math.nextafter(computed_high, -math.inf)
    lower, upper = enclose_monotone(tensor(computed_low), tensor(computed_high), ulps)
    assert float(lower) <= low
    assert float(upper) >= high


def test_nothing_underflows_beyond_tiny() -> None:
    assert TINY >= 2 * NORMAL
    lower, upper = enclose_monotone(tensor(0.0), tensor(0.0), 8)
    assert float(lower) <= -NORMAL
    assert float(upper) >= NORMAL
