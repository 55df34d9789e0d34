"""Finite domains: sets of inputs, all of which count.

>>> pairs = Tokens([range(3), range(3), [3]], condition=lambda x: x[:, 0] != x[:, 1])
>>> pairs
Tokens(6 inputs of shape [3])
>>> pairs.points(0, 2).tolist()
[[0.0, 1.0, 3.0], [0.0, 2.0, 3.0]]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from provable_circuits.arguments import parameter, refused
from provable_circuits.claims.domains import Domain
from provable_circuits.errors import ArgumentError
from provable_circuits.network.arrays import as_tensor, real_tensor

MOST = 50_000_000
"""Combinations of tokens that are enumerated at most."""


@dataclass(frozen=True, eq=False, repr=False)
class Finite(Domain):
    """A set of inputs, all of which count, as one domain.

    ``inputs`` is [inputs, *shape]: real numbers, or integers such as tokens. They are kept in the
    type they come in, and turned into float64 part by part.
    """

    inputs: Tensor

    def __init__(self, inputs: Any) -> None:
        what = parameter("inputs", "Finite")
        held = real_tensor(inputs, what).cpu().clone()
        if held.ndim < 2 or len(held) == 0:
            raise ArgumentError(
                f"{what} must be at least one input behind a leading dimension. "
                f"Got shape {list(held.shape)} instead."
            )
        object.__setattr__(self, "inputs", held)

    def __len__(self) -> int:
        return len(self.inputs)

    def points(self, start: int, stop: int) -> Tensor:
        """Some of the inputs, float64 [n, *shape]."""
        return self.inputs[start:stop].to(torch.float64)

    @property
    def center(self) -> Tensor:
        return self.points(0, 1)[0]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.inputs.shape[1:])

    @property
    def is_point(self) -> bool:
        return len(self) == 1

    def bounds(self) -> tuple[Tensor, Tensor]:
        return self.inputs.amin(0).double(), self.inputs.amax(0).double()

    def contains(self, points: Tensor) -> Tensor:
        return torch.stack([(self.inputs == point).flatten(1).all(1).any() for point in points])

    def project(self, points: Tensor) -> Tensor:
        every = self.inputs.double().flatten(1)
        places = [(every - point.flatten()).abs().sum(1).argmin() for point in points]
        return self.inputs[torch.stack(places)].double()

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        return self.inputs[torch.randint(len(self), (count,), generator=generator)].double()

    def __repr__(self) -> str:
        word = "input" if len(self) == 1 else "inputs"
        return f"{type(self).__name__}({len(self)} {word} of shape {list(self.shape)})"


@dataclass(frozen=True, eq=False, repr=False)
class Tokens(Finite):
    """Every sequence with one token of each set, or those that a condition allows.

    Args:
        sets: for each position the tokens that it may hold.
        condition: a function from sequences [n, positions] to which of them are in the domain.
    """

    def __init__(
        self,
        sets: Sequence[Iterable[int]],
        condition: Callable[[Tensor], Any] | None = None,
    ) -> None:
        what = parameter("sets", "Tokens")
        if isinstance(sets, str) or not isinstance(sets, Sequence) or not sets:
            raise refused(what, "a list with a set of tokens for each position", sets)
        columns = []
        for place, tokens in enumerate(sets):
            try:
                column = torch.tensor([int(token) for token in tokens])
            except (TypeError, ValueError):
                column = torch.tensor([])
            if not len(column) or bool((column < 0).any()):
                raise refused(f"Item {place} of the 'sets' parameter of Tokens", "tokens", tokens)
            columns.append(column)
        count = math.prod(len(column) for column in columns)
        if count > MOST:
            raise ArgumentError(
                f"{what} has {count:,} combinations; at most {MOST:,} are enumerated."
            )
        most = max(int(column.max()) for column in columns)
        kind = torch.int16 if most < 2**15 else torch.int32
        grid = torch.cartesian_prod(*(column.to(kind) for column in columns))
        every = grid.reshape(count, len(columns))
        if condition is not None:
            allowed = as_tensor(condition(every.long())).bool()
            if allowed.shape != (count,):
                raise ArgumentError(
                    "The 'condition' parameter of Tokens must give one truth value for each "
                    f"sequence. Got shape {list(allowed.shape)} instead."
                )
            every = every[allowed]
        super().__init__(every)
