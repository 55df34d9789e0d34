"""Marabou, through its package on the index (``pip install 'provable-circuits[marabou]'``).

Marabou's own reader of ONNX knows few operations, and adds a constant to a tensor by changing the
equation that makes it, also where others read that tensor. So the network is read here, brought into
dense form, and handed over as what Marabou works on: variables, linear equations, ReLUs. Each case
of the property is one such problem. It runs in a process of its own, which can be stopped.

Marabou computes in floating point with tolerances of its own, so its answers are its own.
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
from torch import Tensor

from provable_circuits.errors import MissingExtraError, UnsupportedOperationError
from provable_circuits.network.dense import dense
from provable_circuits.network.graph import Graph, Node
from provable_circuits.network.ops import Add, Constant, Input, LeakyReLU, Linear, ReLU
from provable_circuits.verify.outside.base import OutsideAnswer, OutsideVerifier
from provable_circuits.verify.outside.process import run_limited
from provable_circuits.verify.vnnlib import Case, Property, read_property

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
            return OutsideAnswer("timeout", None, self.name, time.monotonic() - started)
        with tempfile.TemporaryDirectory(prefix="provable-circuits-") as folder:
            given, result = Path(folder) / "problem.json", Path(folder) / "result.json"
            given.write_text(json.dumps(problem))
            words = [sys.executable, "-P", str(_PROCESS), str(given), str(result), str(left)]
            done = run_limited(words, left)
            if done.code is None:
                return OutsideAnswer("timeout", None, self.name, time.monotonic() - started)
            if done.code != 0 or not result.is_file():
                reason = f"Marabou gave no answer: {done.complaint}"
                return OutsideAnswer("unknown", None, self.name, done.seconds, reason)
            told = json.loads(result.read_text())
        return self._answer(told)

    def _answer(self, told: dict[str, Any]) -> OutsideAnswer:
        """What the process wrote: how each case ended, up to the first that is satisfied."""
        seconds, ends = float(told["seconds"]), told["ends"]
        if told["x"] is not None:
            x = torch.tensor(told["x"], dtype=torch.float64)
            return OutsideAnswer("violated", x, self.name, seconds)
        if all(end == "unsat" for end in ends):
            return OutsideAnswer("holds", None, self.name, seconds)
        if "timeout" in ends:
            return OutsideAnswer("timeout", None, self.name, seconds)
        word = next(end for end in ends if end != "unsat")
        return OutsideAnswer("unknown", None, self.name, seconds, f"Marabou says {word!r}")


def _problem(graph: Graph, question: Property) -> dict[str, Any]:
    """A network and a property as variables, equations, ReLUs and bounds."""
    question.check(graph)
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
    """A dense graph as equations between numbered variables."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.count = 0
        self.variables: dict[str, range] = {}
        self.equations: list[dict[str, Any]] = []
        self.relus: list[list[int]] = []
        self.leaky: list[list[float]] = []
        self.fixed: list[list[float]] = []
        for node in graph.nodes:
            self.variables[node.name] = range(self.count, self.count + math.prod(node.shape))
            self.count += math.prod(node.shape)
            self._write(node)

    def written(self) -> dict[str, Any]:
        """All of it, as JSON takes it."""
        return {
            "variables": self.count,
            "inputs": list(self.variables[self.graph.inputs[0]]),
            "outputs": list(self.variables[self.graph.outputs[0]]),
            "equations": self.equations,
            "relus": self.relus,
            "leaky": self.leaky,
            "fixed": self.fixed,
        }

    def _write(self, node: Node) -> None:
        op = node.op
        own = self.variables[node.name]
        sources = [self.variables[name] for name in node.inputs]
        if isinstance(op, Input):
            return
        if isinstance(op, Constant):
            self.fixed += [[i, v] for i, v in zip(own, op.value.double().tolist(), strict=True)]
        elif isinstance(op, Linear):
            self._linear(op.weight.double(), op.bias, sources[0], own)
        elif isinstance(op, Add):
            for a, b, y in zip(*sources, own, strict=True):
                variables = [a, b] if a != b else [a]
                factors = [1.0, 1.0] if a != b else [2.0]
                self._equation([*variables, y], [*factors, -1.0], 0.0)
        elif isinstance(op, ReLU) or (isinstance(op, LeakyReLU) and op.slope == 0):
            self.relus += [list(pair) for pair in zip(sources[0], own, strict=True)]
        elif isinstance(op, LeakyReLU) and op.slope < 1:
            self.leaky += [[x, y, op.slope] for x, y in zip(sources[0], own, strict=True)]
        else:
            raise UnsupportedOperationError(
                f"The Marabou adapter knows linear operations, ReLU, leaky ReLU and max pooling. "
                f"Got {op.name} '{node.name}' instead."
            )

    def _linear(self, weight: Tensor, bias: Tensor | None, source: range, own: range) -> None:
        for i, row in enumerate(weight):
            used = row.nonzero().flatten()
            variables = [source[j] for j in used.tolist()]
            constant = 0.0 if bias is None else float(bias[i])
            self._equation([*variables, own[i]], [*row[used].tolist(), -1.0], -constant)

    def _equation(self, variables: list[int], factors: list[float], value: float) -> None:
        """The sum of factors times variables is a value."""
        self.equations.append({"variables": variables, "factors": factors, "value": value})
