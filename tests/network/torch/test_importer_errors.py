"""Modules that have no graph: one clear error, which says where."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.network.torch.architectures import Function
from torch import Tensor, nn

from provable_circuits.errors import (
    ArgumentError,
    ModelError,
    UnsupportedOperationError,
    WeightsError,
)
from provable_circuits.network.graph import Graph


def fails(module: Any, example: Any) -> str:
    """The text of the one error that comes."""
    with pytest.raises((ModelError, ArgumentError)) as error:
        Graph.from_torch(module, example)
    return str(error.value)


UNSUPPORTED: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], str]] = {
    "mish": (
        lambda: nn.Sequential(nn.Linear(3, 3), nn.Mish()),
        (3,),
        "The operation mish in module '1' is not supported. Supported are linear, conv2d",
    ),
    "log softmax": (lambda: nn.LogSoftmax(1), (3,), "study the logits"),
    "lstm": (
        lambda: Function(lambda m, x: m.rnn(x)[0][:, 0], rnn=nn.LSTM(3, 2, batch_first=True)),
        (2, 3),
        "in module 'rnn' is not supported",
    ),
    "transposed": (
        lambda: nn.Sequential(nn.ConvTranspose2d(1, 1, 2)),
        (1, 3, 3),
        "in module '0' is not supported",
    ),
    "steep leaky relu": (lambda: nn.LeakyReLU(2.0), (3,), "LeakyReLU takes a slope from 0 to 1"),
    "reflecting padding": (
        lambda: nn.Conv2d(1, 1, 3, padding=1, padding_mode="reflect"),
        (1, 4, 4),
        "only padding with zeros is",
    ),
    "statistics of the batch": (
        lambda: nn.Sequential(nn.BatchNorm1d(3, track_running_stats=False)),
        (3,),
        "uses the statistics of the batch; track running statistics instead",
    ),
    "ends per unit": (
        lambda: Function(lambda m, x: torch.clamp(x, max=m.top), top=torch.ones(3)),
        (3,),
        "The operation clamp in the model's own forward ('clamp') is not supported in this form",
    ),
    "scaled sum": (
        lambda: Function(lambda m, x: torch.add(x, torch.relu(x), alpha=2)),
        (3,),
        "alpha must be 1",
    ),
    "weights from the input": (
        lambda: Function(lambda m, x: F.linear(m.w, x), w=torch.ones(2, 3)),
        (3,),
        "argument 0 must be a tensor of the network",
    ),
    "integers": (
        lambda: Function(lambda m, x: x.long() + 1),
        (3,),
        "changes the number type from torch.float32 to torch.int64",
    ),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_is_not_supported_is_named_with_its_place(name: str) -> None:
    make, shape, says = UNSUPPORTED[name]
    with pytest.raises(UnsupportedOperationError) as error:
        Graph.from_torch(make(), torch.ones(2, *shape))
    assert says in str(error.value)


BATCH_MIXING: dict[str, Callable[[Tensor], Tensor]] = {
    "mean over the batch": lambda x: x - x.mean(0, keepdim=True),
    "mean over everything": lambda x: x - x.mean(),
    "transposed batch": lambda x: x.transpose(0, 1).reshape(2, 3),
    "joined along the batch": lambda x: torch.cat([x, x])[:2],
    "constant that differs by sample": lambda x: x + torch.tensor([[1.0], [2.0]]),
}


@pytest.mark.parametrize("name", BATCH_MIXING)
def test_samples_must_be_kept_apart(name: str) -> None:
    text = fails(Function(lambda m, x: BATCH_MIXING[name](x)), torch.ones(2, 3))
    assert "batch" in text
    assert "in the model's own forward" in text


@pytest.mark.parametrize(
    ("module", "example", "says"),
    [
        (lambda x: x, torch.zeros(1, 3), "must be a torch.nn.Module. Got function instead"),
        (nn.Linear, torch.zeros(1, 3), "must be a torch.nn.Module. Got the class Linear instead"),
        (nn.Linear(3, 2), torch.zeros(3), "leading batch dimension.* Got a tensor of shape [3]"),
        (nn.Linear(3, 2), [[0.0, 0.0, 0.0]], "Got list instead"),
        (
            nn.Linear(3, 2),
            torch.zeros(1, 3, dtype=torch.int64),
            "does not take the example input",
        ),
        (nn.Linear(3, 2).half(), torch.zeros(1, 3).half(), "float32 or float64"),
        (nn.Linear(3, 2), torch.zeros(0, 3), "at least one input"),
        (nn.Linear(3, 2), torch.full((1, 3), math.nan), "must be finite"),
        (
            nn.Linear(3, 2),
            torch.zeros(2, 4),
            "does not take the example input of shape [2, 4] and torch.float32: mat1 and mat2",
        ),
        (nn.Linear(3, 2), torch.zeros(2, 3).double(), "and torch.float64"),
    ],
)
def test_wrong_calls(module: Any, example: Any, says: str) -> None:
    text = fails(module, example)
    for part in says.split(".*"):
        assert part in text


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda m, x: (x, x), "must return one tensor. Got tuple instead; wrap it"),
        (lambda m, x: {"logits": x}, "Got dict instead"),
        (lambda m, x: x.sum(), "must keep the batch dimension first"),
        (lambda m, x: x[:1], "for a batch of 2 it returned shape [1, 3]"),
        (lambda m, x: x if x.sum() > 0 else -x, "depends on the values of tensors"),
        (lambda m, x: torch.ones(2, 3), "does not depend on its input"),
    ],
)
def test_modules_that_are_no_fixed_function_of_one_tensor(function: Any, says: str) -> None:
    assert says in fails(Function(function), torch.ones(2, 3))


def test_pytorch_prints_nothing_beside_the_error(capfd: pytest.CaptureFixture[str]) -> None:
    fails(Function(lambda m, x: x if x.sum() > 0 else -x), torch.ones(2, 3))
    assert capfd.readouterr() == ("", "")


def test_a_module_that_changes_itself_is_refused_and_left_as_it_was() -> None:
    class Counting(nn.Module):
        calls: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return x + self.calls

    module = Counting()
    assert "changes its buffer 'calls' when it runs" in fails(module, torch.ones(1, 2))
    assert float(module.calls) == 0


def test_a_random_module_is_refused() -> None:
    module = Function(lambda m, x: x + torch.randn(3))
    assert "disagrees with the module on the example input" in fails(module, torch.ones(1, 3))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("0.weight", "The model's '0.weight' has NaN or infinite values"),
        ("1.running_var", "The model's '1.running_var' has NaN or infinite values"),
    ],
)
def test_weights_that_are_not_finite_are_named(bad: float, place: str, says: str) -> None:
    module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    with torch.no_grad():
        module.state_dict()[place][0] = bad
    with pytest.raises(WeightsError) as error:
        Graph.from_torch(module, torch.ones(1, 3))
    assert says in str(error.value)
