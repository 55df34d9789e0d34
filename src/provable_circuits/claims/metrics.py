"""Metrics: how far a circuit's outputs may lie from the network's.

A metric turns three outputs into one number per input, its *excess*: at or below zero the circuit
is close enough, above zero it is not. The three are the anchor ``f_G(x)`` at the unperturbed input,
from which targets and margins are taken once; the reference ``f_G(z)``; and the output ``f_C(z)``.

    >>> import torch
    >>> metric = LogitDifference(tolerance=2.0, target=1)
    >>> network, circuit = torch.tensor([[0.0, 5.0]]), torch.tensor([[9.0, 4.0]])
    >>> metric.excess(network, network, circuit)
    tensor([-1.])
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from provable_circuits.arguments import number, order_of_norm, parameter, refused, whole
from provable_circuits.errors import ArgumentError

Target = int | Sequence[int] | str
"""An output, one output per input, or ``"predicted"``: the network's own choice at the input."""


def _set_tolerance(metric: Any) -> None:
    """Take a metric's tolerance as a plain number of at least 0."""
    checked = number("tolerance", metric.tolerance, type(metric).__name__, least=0)
    object.__setattr__(metric, "tolerance", checked)


class Metric(ABC):
    """How far apart outputs may be."""

    provable: ClassVar[bool] = True
    """Whether the metric can be proved; otherwise it serves sampling alone."""

    strict: ClassVar[bool] = False
    """Whether an excess of exactly zero is a violation."""

    @abstractmethod
    def excess(self, anchor: Tensor, reference: Tensor, output: Tensor) -> Tensor:
        """How far the metric is exceeded; at or below zero it holds.

        Args:
            anchor: f_G at the unperturbed inputs, [inputs, outputs].
            reference: f_G at the inputs evaluated, broadcastable to ``output``.
            output: f_C there, [..., inputs, outputs].

        Returns:
            [..., inputs].
        """

    def check(self, inputs: int, outputs: int) -> None:
        """Refuse a metric that does not fit this many inputs, or outputs of the network."""


def target_outputs(target: Target, anchor: Tensor) -> Tensor:
    """The target output of each input, [inputs]."""
    if isinstance(target, str):
        return anchor.argmax(-1)
    if isinstance(target, int):
        return torch.full(anchor.shape[:1], target, device=anchor.device)
    return torch.as_tensor(list(target), device=anchor.device)


def _indices(target: Any, owner: str = "LogitDifference") -> int | tuple[int, ...]:
    """One index or several, from integers of any kind: Python's, numpy's, or tensors."""
    what = parameter("target", owner)
    if isinstance(target, str | type | Mapping | Set) or not isinstance(target, Iterable):
        return _index(target, what, "an output's index, a sequence of them, or 'predicted'")
    if getattr(target, "shape", None) == ():
        return _index(target, what, "an output's index")
    return tuple(
        _index(item, f"Item {place} of the 'target' parameter of {owner}", "an output's index")
        for place, item in enumerate(target)
    )


def _index(value: Any, what: str, expected: str) -> int:
    try:
        return whole("target", value)
    except ArgumentError:
        raise refused(what, expected, value) from None


def _check_targets(target: Target, inputs: int, outputs: int, owner: str) -> None:
    """Refuse targets that the network does not have, or that are not one for each input."""
    if isinstance(target, str):
        return
    targets = (target,) if isinstance(target, int) else tuple(target)
    if not isinstance(target, int) and len(targets) != inputs:
        raise ArgumentError(
            f"The 'target' parameter of {owner} must have one output for each of the "
            f"{inputs} inputs. Got {len(targets)} instead."
        )
    for each in targets:
        if not 0 <= each < outputs:
            raise ArgumentError(
                f"The 'target' parameter of {owner} must be an output of the network, "
                f"0 to {outputs - 1}. Got {each} instead."
            )


def _at(values: Tensor, indices: Tensor) -> Tensor:
    """``values[..., i, indices[i]]`` for every input i."""
    index = indices.expand(values.shape[:-1]).unsqueeze(-1)
    return values.gather(-1, index).squeeze(-1)


@dataclass(frozen=True)
class LogitDifference(Metric):
    """``|f_C(z)[t] - f_G(z)[t]| <= tolerance`` for the target output t.

    ``target`` is one output for all inputs, a sequence with one for each, or ``"predicted"``.
    """

    tolerance: float
    target: Target = "predicted"

    def __post_init__(self) -> None:
        _set_tolerance(self)
        if isinstance(self.target, str) and self.target == "predicted":
            return
        object.__setattr__(self, "target", _indices(self.target))

    def check(self, inputs: int, outputs: int) -> None:
        _check_targets(self.target, inputs, outputs, "LogitDifference")

    def excess(self, anchor: Tensor, reference: Tensor, output: Tensor) -> Tensor:
        targets = target_outputs(self.target, anchor)
        return (_at(output, targets) - _at(reference, targets)).abs() - self.tolerance


@dataclass(frozen=True)
class WinnerMargin(Metric):
    """The winner stays ahead: ``f_C(z)[t] - f_C(z)[r] >= fraction * gap``.

    t and r are the winner and the runner-up of f_G at the unperturbed input, and gap is how far
    they lie apart there. With ``against="all"`` the same is asked against every other output.
    The network itself may fail this.
    """

    fraction: float = 0.5
    against: str = "runner-up"

    def __post_init__(self) -> None:
        fraction = number("fraction", self.fraction, "WinnerMargin", least=0, most=1)
        object.__setattr__(self, "fraction", fraction)
        if not isinstance(self.against, str) or self.against not in ("runner-up", "all"):
            expected = "'runner-up' or 'all'"
            raise refused(parameter("against", "WinnerMargin"), expected, self.against)

    def check(self, inputs: int, outputs: int) -> None:
        if outputs < 2:
            raise ArgumentError("WinnerMargin needs a network of at least two outputs.")

    def excess(self, anchor: Tensor, reference: Tensor, output: Tensor) -> Tensor:
        top = anchor.topk(2, dim=-1)
        gap = self.fraction * (top.values[..., 0] - top.values[..., 1])
        winner, runner = top.indices[..., 0], top.indices[..., 1]
        if self.against == "runner-up":
            return gap - (_at(output, winner) - _at(output, runner))
        others = output.scatter(-1, winner.expand(output.shape[:-1]).unsqueeze(-1), -math.inf)
        return gap - (_at(output, winner) - others.amax(-1))


@dataclass(frozen=True)
class MaxAbs(Metric):
    """``max_i |f_C(z)[i] - f_G(z)[i]| <= tolerance``."""

    tolerance: float

    def __post_init__(self) -> None:
        _set_tolerance(self)

    def excess(self, anchor: Tensor, reference: Tensor, output: Tensor) -> Tensor:
        return (output - reference).abs().amax(-1) - self.tolerance


@dataclass(frozen=True)
class Norm(Metric):
    """``||f_C(z) - f_G(z)||_p <= tolerance`` for p = 1, 2 or inf."""

    tolerance: float
    p: float = 2

    def __post_init__(self) -> None:
        _set_tolerance(self)
        object.__setattr__(self, "p", order_of_norm(self.p, "Norm"))

    def excess(self, anchor: Tensor, reference: Tensor, output: Tensor) -> Tensor:
        distance: Tensor = torch.linalg.vector_norm(output - reference, self.p, dim=-1)
        return distance - self.tolerance


@dataclass(frozen=True)
class MeanSquaredError(Metric):
    """The mean over outputs of ``(f_C(z) - f_G(z))^2`` is at most the tolerance. Sampling only."""

    tolerance: float
    provable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _set_tolerance(self)

    def excess(self, anchor: Tensor, reference: Tensor, output: Tensor) -> Tensor:
        return (output - reference).square().mean(-1) - self.tolerance


@dataclass(frozen=True)
class KLDivergence(Metric):
    """``KL(softmax f_G(z) || softmax f_C(z))`` is at most the tolerance. Sampling only."""

    tolerance: float
    provable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _set_tolerance(self)

    def check(self, inputs: int, outputs: int) -> None:
        if outputs < 2:
            raise ArgumentError("KLDivergence needs a network of at least two outputs.")

    def excess(self, anchor: Tensor, reference: Tensor, output: Tensor) -> Tensor:
        wanted, got = F.log_softmax(reference, -1), F.log_softmax(output, -1)
        return (wanted.exp() * (wanted - got)).sum(-1) - self.tolerance


@dataclass(frozen=True, repr=False)
class SameAnswer(Metric):
    """The circuit's largest output is the network's, by more than ``margin``.

    At every input (and position) that counts, ``f_C(z)[t] - f_C(z)[j] > margin`` for the output t
    that is largest in the network, or that ``target`` names, and every other output j. A tie is a
    violation: a circuit whose outputs are all zero never passes.

    Attributes:
        margin: by how much it must be larger.
        target: ``"predicted"``, or one output, or one for each input.
    """

    margin: float = 0.0
    target: Target = "predicted"
    strict: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "margin", number("margin", self.margin, "SameAnswer", least=0))
        if not (isinstance(self.target, str) and self.target == "predicted"):
            object.__setattr__(self, "target", _indices(self.target, "SameAnswer"))

    def check(self, inputs: int, outputs: int) -> None:
        if outputs < 2:
            raise ArgumentError(
                "SameAnswer needs a network of at least two outputs: of a single output there is "
                "no largest one. Use MaxAbs or LogitDifference with a tolerance."
            )
        _check_targets(self.target, inputs, outputs, "SameAnswer")

    def excess(self, anchor: Tensor, reference: Tensor, output: Tensor) -> Tensor:
        targets = target_outputs(self.target, anchor)
        others = output.scatter(-1, targets.expand(output.shape[:-1]).unsqueeze(-1), -math.inf)
        return others.amax(-1) - _at(output, targets) + self.margin

    def __repr__(self) -> str:
        target = "one for each input" if isinstance(self.target, tuple) else repr(self.target)
        return f"SameAnswer(margin={self.margin:g}, target={target})"
