"""Marabou, through its package on the index (``pip install 'provable-circuits[marabou]'``).

The network is read here and handed over as what Marabou works on: variables, linear equations and
ReLUs. Marabou's own readers are passed by: they know few operations, and add a constant to a tensor
by changing the equation that makes it, also where others read that tensor. Nor is a graph handed
over layer by layer: given linear layers that follow each other, some of whose units are zero,
Marabou 2.0.0 was seen to return values that break its own equations, and ``unsat`` for problems
that have a solution. So what stands between activations is joined here, into equations of the form

    what an activation reads  =  a linear function of inputs and of what activations give.

Each case of the property is one such problem. It runs in a process of its own, which can be
stopped. Marabou computes in floating point with tolerances of its own: its answers are its own.
"""

from __future__ import annotations

import importlib.util
import json
import math
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from provable_circuits.errors import MissingExtraError, PropertyError, UnsupportedOperationError
from provable_circuits.network.dense import dense
from provable_circuits.network.graph import Graph, Node
from provable_circuits.network.ops import Add, Constant, Input, LeakyReLU, Linear, ReLU
from provable_circuits.properties.outside.base import OutsideAnswer, OutsideVerifier
from provable_circuits.properties.outside.process import run_limited
from provable_circuits.properties.status import PropertyStatus
from provable_circuits.properties.vnnlib import Case, Property, read_property

_PROCESS = Path(__file__).with_name("marabou_process.py")


class Marabou(OutsideVerifier):
    """The Marabou verifier, for networks of linear layers, (leaky) ReLUs and max pooling.

    Raises:
        MissingExtraError: ``maraboupy`` is not installed.
    """

    name = "Marabou"

    def __init__(self) -> None:
        if importlib.util.find_spec("maraboupy") is None:
            raise MissingExtraError("maraboupy", "marabou", "The Marabou adapter")

    def ask(self, onnx: Path, vnnlib: Path, timeout: float) -> OutsideAnswer:
        started = time.monotonic()
        question = read_property(vnnlib)
        problem = _problem(Graph.from_onnx(onnx), question)
        left = timeout - (time.monotonic() - started)
        if left <= 0:
            return OutsideAnswer(
                PropertyStatus.TIMEOUT, None, self.name, time.monotonic() - started
            )
        with tempfile.TemporaryDirectory(prefix="provable-circuits-") as folder:
            given, result = Path(folder) / "problem.json", Path(folder) / "result.json"
            given.write_text(json.dumps(problem))
            words = [sys.executable, "-P", str(_PROCESS), str(given), str(result), str(left)]
            done = run_limited(words, left)
            if done.code is None:
                return OutsideAnswer(
                    PropertyStatus.TIMEOUT, None, self.name, time.monotonic() - started
                )
            if done.code != 0 or not result.is_file():
                reason = f"Marabou gave no answer: {done.complaint}"
                return OutsideAnswer(PropertyStatus.UNKNOWN, None, self.name, done.seconds, reason)
            told = json.loads(result.read_text())
        return self._answer(told)

    def _answer(self, told: dict[str, Any]) -> OutsideAnswer:
        """What the process wrote: how each case ended, up to the first that is satisfied."""
        seconds, ends = float(told["seconds"]), told["ends"]
        if told["x"] is not None:
            x = torch.tensor(told["x"], dtype=torch.float64)
            return OutsideAnswer(PropertyStatus.VIOLATED, x, self.name, seconds)
        if all(end == "unsat" for end in ends):
            return OutsideAnswer(PropertyStatus.HOLDS, None, self.name, seconds)
        if "timeout" in ends:
            return OutsideAnswer(PropertyStatus.TIMEOUT, None, self.name, seconds)
        word = next(end for end in ends if end != "unsat")
        return OutsideAnswer(
            PropertyStatus.UNKNOWN, None, self.name, seconds, f"Marabou says {word!r}"
        )


def _problem(graph: Graph, question: Property) -> dict[str, Any]:
    """A network and a property as variables, equations, ReLUs and bounds."""
    question.check(graph)
    if question.related:
        raise PropertyError(
            "The property relates inputs or bounds them strictly, and Marabou is not asked about "
            "that; decide it with 'provable-circuits verify'."
        )
    return {**_Equations(dense(graph)).written(), "cases": [_case(c) for c in question.cases]}


def _case(case: Case) -> dict[str, Any]:
    rows = [
        {
            "outputs": row.nonzero().flatten().tolist(),
            "factors": row[row != 0].tolist(),
            "bound": bound,
        }
        for row, bound in zip(case.rows, case.bounds.tolist(), strict=True)
    ]
    return {"lower": case.lower.tolist(), "upper": case.upper.tolist(), "rows": rows}


class _Equations:
    """A dense graph as equations between numbered variables.

    Every tensor is held as a linear function ``matrix @ v + offset`` of the variables v that can be
    chosen or that an activation gives. A unit that no variable reaches is a number.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.count = 0
        self.free: list[int] = []
        self.forms: dict[str, tuple[Tensor, Tensor]] = {}
        self.equations: list[dict[str, Any]] = []
        self.relus: list[list[int]] = []
        self.leaky: list[list[float]] = []
        self.fixed: list[list[float]] = []
        for node in graph.nodes:
            self.forms[node.name] = self._form(node)

    def written(self) -> dict[str, Any]:
        """All of it, as JSON takes it."""
        outputs = self._named(*self.forms[self.graph.outputs[0]])
        return {
            "inputs": list(range(math.prod(self.graph.input_shape))),
            "outputs": outputs,
            "equations": self.equations,
            "relus": self.relus,
            "leaky": self.leaky,
            "fixed": self.fixed,
            "variables": self.count,
        }

    def _form(self, node: Node) -> tuple[Tensor, Tensor]:
        op = node.op
        forms = [self._wide(self.forms[name]) for name in node.inputs]
        if isinstance(op, Input):
            size = math.prod(node.shape)
            self.free += self._fresh(size)
            matrix = torch.eye(size, dtype=torch.float64)
            return matrix, torch.zeros(size, dtype=torch.float64)
        if isinstance(op, Constant):
            offset = op.value.double()
            return offset.new_zeros(len(offset), 0), offset
        if isinstance(op, Linear):
            ((matrix, offset),) = forms
            weight = op.weight.double()
            moved = weight @ offset
            return weight @ matrix, moved if op.bias is None else moved + op.bias.double()
        if isinstance(op, Add):
            return forms[0][0] + forms[1][0], forms[0][1] + forms[1][1]
        if isinstance(op, ReLU | LeakyReLU):
            return self._activation(op, *forms[0])
        raise UnsupportedOperationError(
            "The Marabou adapter knows linear operations, ReLU, leaky ReLU and max pooling. "
            f"Got {op.name} '{node.name}' instead."
        )

    def _activation(
        self, op: ReLU | LeakyReLU, matrix: Tensor, offset: Tensor
    ) -> tuple[Tensor, Tensor]:
        """New variables for what the activation gives, where it depends on anything."""
        slope = op.slope if isinstance(op, LeakyReLU) else 0.0
        if slope == 1.0:
            return matrix, offset
        varies = (matrix != 0).any(1)
        sources = self._named(matrix[varies], offset[varies])
        targets = self._fresh(len(sources))
        pairs = zip(sources, targets, strict=True)
        if slope:
            self.leaky += [[source, target, slope] for source, target in pairs]
        else:
            self.relus += [[source, target] for source, target in pairs]
        before = len(self.free)
        self.free += targets
        given = offset.new_zeros(len(offset), len(self.free))
        given[varies, torch.arange(before, len(self.free))] = 1.0
        return given, torch.where(varies, 0.0, op.forward(offset))

    def _named(self, matrix: Tensor, offset: Tensor) -> list[int]:
        """Variables that are equal to linear functions."""
        names = self._fresh(len(offset))
        for name, row, number in zip(names, matrix, offset.tolist(), strict=True):
            used = row.nonzero().flatten().tolist()
            if not used:
                self.fixed.append([name, number])
                continue
            variables = [self.free[i] for i in used]
            factors = row[used].tolist()
            self.equations.append(
                {"variables": [*variables, name], "factors": [*factors, -1.0], "value": -number}
            )
        return names

    def _wide(self, form: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """A form with a column for each free variable there is by now."""
        matrix, offset = form
        return F.pad(matrix, (0, len(self.free) - matrix.shape[1])), offset

    def _fresh(self, count: int) -> list[int]:
        first, self.count = self.count, self.count + count
        return list(range(first, self.count))
