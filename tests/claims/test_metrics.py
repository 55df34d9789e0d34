"""Metrics against their definitions, written out in plain Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from provable_circuits.claims.metrics import (
    KLDivergence,
    LogitDifference,
    MaxAbs,
    MeanSquaredError,
    Metric,
    Norm,
    WinnerMargin,
)
from provable_circuits.errors import ArgumentError

Vector = list[float]
Definition = Callable[[int, Vector, Vector, Vector], float]
"""The excess for one input: its number, f_G(x), f_G(z), f_C(z)."""


def outputs(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, 4, generator=generator, dtype=torch.float64)


def _winner_and_runner_up(values: Vector) -> tuple[int, int]:
    winner = values.index(max(values))
    rest = [(value, i) for i, value in enumerate(values) if i != winner]
    return winner, max(rest)[1]


def _margin(fraction: float, every: bool) -> Definition:
    def excess(_: int, anchor: Vector, __: Vector, output: Vector) -> float:
        winner, runner_up = _winner_and_runner_up(anchor)
        gap = fraction * (anchor[winner] - anchor[runner_up])
        rivals = [i for i in range(len(output)) if i != winner] if every else [runner_up]
        return max(gap - (output[winner] - output[rival]) for rival in rivals)

    return excess


def _kl(reference: Vector, output: Vector) -> float:
    def softmax(values: Vector) -> Vector:
        total = sum(math.exp(value) for value in values)
        return [math.exp(value) / total for value in values]

    pairs = zip(softmax(reference), softmax(output), strict=True)
    return sum(p * math.log(p / q) for p, q in pairs)


def _gaps(reference: Vector, output: Vector) -> Vector:
    return [abs(a - b) for a, b in zip(output, reference, strict=True)]


DEFINITIONS: dict[str, tuple[Metric, Definition]] = {
    "logit difference": (
        LogitDifference(0.5, target=2),
        lambda i, a, r, o: abs(o[2] - r[2]) - 0.5,
    ),
    "logit difference, predicted": (
        LogitDifference(0.5),
        lambda i, a, r, o: abs(o[a.index(max(a))] - r[a.index(max(a))]) - 0.5,
    ),
    "logit difference, one target each": (
        LogitDifference(0.5, target=[3, 0, 1]),
        lambda i, a, r, o: abs(o[(3, 0, 1)[i]] - r[(3, 0, 1)[i]]) - 0.5,
    ),
    "winner margin": (WinnerMargin(), _margin(0.5, every=False)),
    "winner margin, whole gap": (WinnerMargin(1.0), _margin(1.0, every=False)),
    "winner margin, against all": (WinnerMargin(0.25, "all"), _margin(0.25, every=True)),
    "largest": (MaxAbs(1.0), lambda i, a, r, o: max(_gaps(r, o)) - 1.0),
    "1-norm": (Norm(1.0, 1), lambda i, a, r, o: sum(_gaps(r, o)) - 1.0),
    "2-norm": (Norm(1.0), lambda i, a, r, o: math.hypot(*_gaps(r, o)) - 1.0),
    "inf-norm": (Norm(1.0, math.inf), lambda i, a, r, o: max(_gaps(r, o)) - 1.0),
    "squares": (
        MeanSquaredError(0.1),
        lambda i, a, r, o: sum(gap * gap for gap in _gaps(r, o)) / len(o) - 0.1,
    ),
    "divergence": (KLDivergence(0.1), lambda i, a, r, o: _kl(r, o) - 0.1),
}


@pytest.mark.parametrize("name", DEFINITIONS)
def test_metrics_are_their_definitions(name: str) -> None:
    metric, definition = DEFINITIONS[name]
    anchor, reference, output = (outputs(3, seed=seed) for seed in (0, 1, 2))
    found = metric.excess(anchor, reference, output)
    wanted = [
        definition(i, anchor[i].tolist(), reference[i].tolist(), output[i].tolist())
        for i in range(3)
    ]
    assert found.tolist() == pytest.approx(wanted)


@pytest.mark.parametrize("name", DEFINITIONS)
def test_many_circuits_and_points_at_once(name: str) -> None:
    """Leading dimensions of the output, and of the reference, are independent of each other."""
    metric, _ = DEFINITIONS[name]
    anchor, reference, output = outputs(3, seed=0), outputs(2, 3, seed=1), outputs(5, 2, 3, seed=2)
    found = metric.excess(anchor, reference, output)
    assert found.shape == (5, 2, 3)
    for circuit in range(5):
        for point in range(2):
            alone = metric.excess(anchor, reference[point], output[circuit, point])
            torch.testing.assert_close(found[circuit, point], alone)
    torch.testing.assert_close(metric.excess(anchor, reference[0], output[:, 0]), found[:, 0])


@pytest.mark.parametrize("name", [name for name in DEFINITIONS if "margin" not in name])
def test_the_network_itself_is_within_any_tolerance(name: str) -> None:
    metric, _ = DEFINITIONS[name]
    anchor, reference = outputs(3, seed=0), outputs(3, seed=1)
    assert (metric.excess(anchor, reference, reference) <= 0).all()


def test_the_network_itself_may_lose_its_margin() -> None:
    anchor, elsewhere = torch.tensor([[3.0, 1.0, 0.0]]), torch.tensor([[1.0, 3.0, 0.0]])
    assert float(WinnerMargin().excess(anchor, elsewhere, elsewhere)) == 3.0
    assert float(WinnerMargin().excess(anchor, anchor, anchor)) == -1.0


def test_against_all_is_stricter() -> None:
    anchor, output = torch.tensor([[3.0, 1.0, 0.0]]), torch.tensor([[3.0, 1.0, 5.0]])
    assert float(WinnerMargin(0.5).excess(anchor, anchor, output)) == -1.0
    assert float(WinnerMargin(0.5, "all").excess(anchor, anchor, output)) == 3.0


def test_not_a_number_is_never_within_tolerance() -> None:
    anchor, reference, output = (outputs(3, seed=seed) for seed in (0, 1, 2))
    output[:] = math.nan
    for metric, _ in DEFINITIONS.values():
        assert not (metric.excess(anchor, reference, output) <= 0).any()


@pytest.mark.parametrize(
    "target",
    [
        np.int64(2),
        torch.tensor(2),
        np.array([2, 2, 2]),
        torch.tensor([2, 2, 2]),
        (2, 2, 2),
        True + 1,
    ],
)
def test_targets_may_be_integers_of_any_kind(target: Any) -> None:
    metric = LogitDifference(0.5, target=target)
    metric.check(inputs=3, outputs=4)
    anchor, reference, output = (outputs(3, seed=seed) for seed in (0, 1, 2))
    wanted = LogitDifference(0.5, target=2).excess(anchor, reference, output)
    assert torch.equal(metric.excess(anchor, reference, output), wanted)
    assert hash(metric) == hash(LogitDifference(0.5, target=target))


def test_tolerances_may_be_numbers_of_any_kind() -> None:
    numbers: list[Any] = [np.float32(0.5), np.float64(0.5), 1, np.int64(1)]
    for number in numbers:
        assert MaxAbs(number).tolerance == number
    assert MaxAbs(0).tolerance == 0


def test_which_metrics_can_be_proved() -> None:
    provable = {type(metric).__name__ for metric, _ in DEFINITIONS.values() if metric.provable}
    assert provable == {"LogitDifference", "WinnerMargin", "MaxAbs", "Norm"}


@pytest.mark.parametrize(
    ("metric", "outputs"),
    [
        (LogitDifference(1.0), 1),
        (LogitDifference(1.0, [0, 1]), 2),
        (MaxAbs(1.0), 1),
        (Norm(1.0), 1),
    ],
)
def test_metrics_that_fit(metric: Metric, outputs: int) -> None:
    metric.check(inputs=2, outputs=outputs)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: LogitDifference(-1.0),
            "'tolerance' parameter of LogitDifference must be a number",
        ),
        (lambda: MaxAbs(math.nan), "of at least 0. Got nan"),
        (lambda: MaxAbs(math.inf), "Got inf"),
        (lambda: Norm("2"), "'tolerance' parameter of Norm.* Got '2'"),  # type: ignore[arg-type]
        (lambda: MeanSquaredError(-0.1), "of MeanSquaredError"),
        (lambda: KLDivergence(None), "of KLDivergence"),  # type: ignore[arg-type]
        (lambda: Norm(1.0, 3), "'p' parameter of Norm must be 1, 2 or inf. Got 3"),
        (lambda: LogitDifference(1.0, "label"), "or 'predicted'. Got 'label'"),
        (lambda: LogitDifference(1.0, 0.5), "an output's index.* Got 0.5"),  # type: ignore[arg-type]
        (lambda: LogitDifference(1.0, [0.5]), "an output's index"),  # type: ignore[list-item]
        (lambda: LogitDifference(1.0, None), "Got None"),  # type: ignore[arg-type]
        (
            lambda: WinnerMargin(1.5),
            "'fraction' parameter of WinnerMargin must be a number from 0 to 1",
        ),
        (lambda: WinnerMargin(math.nan), "Got nan"),
        (lambda: WinnerMargin(0.5, "some"), "'against' .* 'runner-up' or 'all'. Got 'some'"),
        (lambda: LogitDifference(1.0, 4).check(1, 4), "an output of the network, 0 to 3. Got 4"),
        (lambda: LogitDifference(1.0, -1).check(1, 4), "0 to 3. Got -1"),
        (lambda: LogitDifference(1.0, [0, 5]).check(2, 4), "Got 5"),
        (lambda: LogitDifference(1.0, [0, 1]).check(3, 4), "for each of the 3 inputs. Got 2"),
        (lambda: LogitDifference(1.0, []).check(3, 4), "for each of the 3 inputs. Got 0"),
        (
            lambda: WinnerMargin().check(1, 1),
            "WinnerMargin needs a network of at least two outputs",
        ),
        (lambda: KLDivergence(1.0).check(1, 1), "KLDivergence needs"),
    ],
)
def test_wrong_calls(make: Any, says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        make()
