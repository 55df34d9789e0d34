"""Outputs that reach their bound to the last bit, and counterexamples that no float64 holds."""

from __future__ import annotations

import itertools
import json
import math
import re
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

import provable_circuits as pc
from provable_circuits.cli import app
from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.ops import Linear, ReLU
from provable_circuits.properties.verify import PropertyVerdict, decide
from provable_circuits.properties.vnnlib import Property, decimal_text, parse_property

NODES = 3000
PEAK = 1.0


def f64(values: object) -> Tensor:
    return torch.tensor(np.asarray(values), dtype=torch.float64)


def built(inputs: int, *operations: Linear | ReLU) -> Graph:
    builder = GraphBuilder()
    value = builder.input("x", (inputs,))
    for i, op in enumerate(operations):
        value = builder.add(f"n{i}", op, value)
    return builder.build([value])


def peaked(seed: int, inputs: int, terms: int, parts: int) -> tuple[Graph, list[Fraction]]:
    """1 - sum_i s_i |a_i . x - a_i . p|: its maximum is 1, at p alone, a point of fractions."""
    dice = np.random.default_rng(seed)
    rows = np.concatenate([np.eye(inputs), dice.integers(-5, 6, (terms, inputs))])
    top = dice.integers(1 - parts, parts, inputs)
    both = np.concatenate([rows * parts, -rows * parts])
    shift = np.concatenate([-rows @ top, rows @ top])
    scale = dice.integers(1, 4, len(rows))
    graph = built(
        inputs,
        Linear(f64(both), f64(shift)),
        ReLU(),
        Linear(-f64(np.concatenate([scale, scale])).unsqueeze(0), f64([PEAK])),
    )
    return graph, [Fraction(int(t), parts) for t in top]


def asked(inputs: int, *constraints: str, box: tuple[str, str] = ("-1", "1")) -> Property:
    lines = ["(declare-const Y_0 Real)", *(f"(assert {text})" for text in constraints)]
    for i in range(inputs):
        lines.append(f"(declare-const X_{i} Real)")
        lines.append(f"(assert (>= X_{i} {box[0]}))(assert (<= X_{i} {box[1]}))")
    return parse_property("\n".join(lines))


def number(text: str) -> Fraction:
    """A decimal, or a quotient as SMT-LIB writes it."""
    sign = -1 if text.startswith("(-") else 1
    found = re.fullmatch(r"(?:\(- )?\(/ ([\d.]+) ([\d.]+)\)\)?", text)
    if found:
        return sign * Fraction(found[1]) / Fraction(found[2])
    return Fraction(Decimal(text))


def point(verdict: PropertyVerdict) -> list[Fraction]:
    assert verdict.decimals is not None
    return [number(text) for text in verdict.decimals]


@pytest.mark.parametrize(("inputs", "terms"), [(1, 1), (2, 2), (3, 3), (5, 4), (4, 8)])
@pytest.mark.parametrize("parts", [8, 3])
def test_a_maximum_that_is_reached(inputs: int, terms: int, parts: int) -> None:
    graph, top = peaked(inputs * terms + parts, inputs, terms, parts)
    touched = decide(graph, asked(inputs, "(>= Y_0 1.0)"), max_nodes=NODES)
    assert touched.status == "violated"
    assert point(touched) == top
    assert bool(touched.note) == any(Fraction(float(t)) != t for t in top)
    beyond = asked(inputs, f"(>= Y_0 {decimal_text(math.nextafter(PEAK, 2))})")
    assert decide(graph, beyond, max_nodes=NODES).status == "holds"


def test_several_constraints_that_one_point_meets() -> None:
    graph, top = peaked(3, 2, 2, 4)
    both = asked(2, "(>= Y_0 1.0)", "(<= Y_0 1.0)")
    found = decide(graph, both, max_nodes=NODES)
    assert found.status == "violated"
    assert point(found) == top


@pytest.mark.parametrize("seed", range(4))
def test_claims_at_the_last_bit(seed: int) -> None:
    """Without its first layer's neurons the circuit is off by a convex function of x."""
    graph, _ = peaked(seed, 2, 2, 8)
    components = graph.components("neuron")
    circuit = components.circuit([n for n in components.names if n.startswith("n2")])
    corners = [f64(corner) for corner in itertools.product((-1.0, 1.0), repeat=2)]
    most = max(PEAK - float(graph.run(x, torch.float64)) for x in corners)
    box = pc.Box(f64([-1.0, -1.0]), f64([1.0, 1.0]))
    for tolerance, kind in ((most, "proved"), (math.nextafter(most, 0), "refuted")):
        claim = pc.Claim([box], pc.Zero(), pc.MaxAbs(tolerance))
        assert pc.verify(graph, circuit, claim, max_nodes=NODES, certify=False).kind == kind


# --- decimals -------------------------------------------------------------------------------------

IDENTITY = built(1, Linear(f64([[1.0], [-1.0]])), ReLU(), Linear(f64([[1.0, -1.0]])))
"""x = relu(x) - relu(-x)."""

DECIMALS = ("0.1", "-0.3", "1e-5", "0.1000000000000000000001", "123456789.123456789123456789")


@pytest.mark.parametrize("text", DECIMALS)
def test_a_fixed_input_is_printed_as_the_file_has_it(text: str) -> None:
    value = Fraction(Decimal(text))
    for bound in (value, value - Fraction(1, 1000)):
        constraint = (
            f"(>= Y_0 {decimal_text(float(bound))})" if bound != value else f"(>= Y_0 {text})"
        )
        verdict = decide(IDENTITY, asked(1, constraint, box=(text, text)), max_nodes=NODES)
        assert verdict.status == "violated"
        assert point(verdict) == [value]
        assert "X_0" in verdict.note
    above = asked(1, f"(>= Y_0 {text}1)", box=(text, text)) if "e" not in text else None
    if above is not None and value > 0:
        assert decide(IDENTITY, above, max_nodes=NODES).status == "holds"


@pytest.mark.parametrize("low", ["0.300000000000000041", "0.30000000000000004", "0.1", "-0.7"])
def test_what_is_printed_satisfies_the_bounds_of_the_file(low: str) -> None:
    high = str(Decimal(low) + Decimal("1e-15"))
    value = Fraction(Decimal(low))
    verdict = decide(IDENTITY, asked(1, "(>= Y_0 -1)", box=(low, high)), max_nodes=NODES)
    (found,) = point(verdict)
    assert value <= found <= Fraction(Decimal(high))
    assert not verdict.note
    assert verdict.counterexample is not None
    assert float(verdict.decimals[0] if verdict.decimals else "nan") == float(
        verdict.counterexample[0]
    )


def test_a_bound_between_a_float_and_its_shortest_decimal() -> None:
    """0.1 as float64 is a little more than 0.1: only its long form satisfies the constraint."""
    least = "0.1000000000000000055"
    verdict = decide(
        IDENTITY, asked(1, f"(>= Y_0 {least})", box=("0", decimal_text(0.1))), max_nodes=NODES
    )
    assert verdict.status == "violated"
    (found,) = point(verdict)
    assert Fraction(Decimal(least)) <= found <= Fraction(0.1)


def test_the_command_line_says_so(tmp_path: Path) -> None:
    IDENTITY.to_onnx(tmp_path / "net.onnx")
    text = (
        "(declare-const X_0 Real)(declare-const Y_0 Real)(assert (>= X_0 0.1))(assert (<= X_0 0.1))"
    )
    (tmp_path / "p.vnnlib").write_text(f"{text}(assert (>= Y_0 0.1))")
    files = [
        "verify",
        str(tmp_path / "net.onnx"),
        str(tmp_path / "p.vnnlib"),
        "--max-nodes",
        "1000",
    ]
    told = CliRunner().invoke(app, files)
    assert told.exit_code == 1
    assert told.stdout.splitlines()[:2] == ["sat", "((X_0 0.1)"]
    assert "float64 holds no number between the bounds of X_0" in told.stderr
    assert CliRunner().invoke(app, [*files, "--quiet"]).stderr == ""
    document = json.loads(CliRunner().invoke(app, [*files, "--json"]).stdout)
    assert document["decimals"] == ["0.1"]
    assert "X_0" in document["note"]
