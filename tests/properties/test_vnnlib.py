from __future__ import annotations

import gzip
import math
import random
import re
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, reject
from hypothesis import strategies as st

from provable_circuits.errors import ArgumentError, PropertyError
from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.ops import Linear
from provable_circuits.properties.vnnlib import (
    Case,
    Property,
    decimal_text,
    parse_property,
    property_text,
    read_property,
    write_property,
)


def declared(inputs: int, outputs: int) -> str:
    names = [f"X_{i}" for i in range(inputs)] + [f"Y_{i}" for i in range(outputs)]
    return "\n".join(f"(declare-const {name} Real)" for name in names) + "\n"


HEAD = declared(1, 2) + "(assert (>= X_0 0))(assert (<= X_0 1))\n"


def tensor(values: list[Any]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def contains(found: Property, x: list[float], y: list[float]) -> bool:
    """Whether a point is a counterexample."""
    point, output = tensor(x), tensor(y)
    return any(
        bool(((case.lower <= point) & (point <= case.upper)).all())
        and bool((case.rows @ output <= case.bounds).all())
        for case in found.cases
    )


# --- what is read -------------------------------------------------------------------------------


def test_a_property_of_vnn_comp(shared_data: Path) -> None:
    path = shared_data / "resnet2b_prop_0_eps_0.008.vnnlib.gz"
    found = read_property(path)
    assert (found.inputs, found.outputs, len(found.cases)) == (3072, 10, 9)
    text = gzip.decompress(path.read_bytes()).decode()
    for operator, ends in ((">=", "lower"), ("<=", "upper")):
        pairs = re.findall(rf"\({operator} X_(\d+) ([^\s)]+)\)", text)
        assert len(pairs) == 3072
        near = torch.tensor([float(value) for _, value in sorted(pairs, key=lambda p: int(p[0]))])
        got = getattr(found.cases[0], ends)
        torch.testing.assert_close(got, near.double(), rtol=0, atol=1e-6)
    others = [i for i in range(10) if i != 2]
    for case, other in zip(found.cases, others, strict=True):
        assert case.lower is found.cases[0].lower, "one box for all cases"
        row = torch.zeros(10, dtype=torch.float64)
        row[2], row[other] = 1.0, -1.0
        assert torch.equal(case.rows, row.unsqueeze(0))
        assert case.bounds.tolist() == [0.0]


def test_comments_spaces_and_numbers_of_every_kind() -> None:
    text = (
        "; (assert (<= Y_0\n(declare-fun X_0 () Real)(set-logic QF_LRA)\r\n"
        "(declare-const\tY_0 Real);x\n"
        "(assert(<= X_0 +1.5E+1))(assert (>= X_0 -.5e-3)) (assert (<= Y_0 2.)) (check-sat)"
    )
    (case,) = parse_property(text).cases
    assert case.upper.tolist() == [15.0]
    assert case.lower.tolist() == [math.nextafter(-0.0005, -1)] or case.lower.tolist() == [-0.0005]
    assert (case.rows.tolist(), case.bounds.tolist()) == ([[1.0]], [2.0])


@pytest.mark.parametrize(
    ("formula", "row", "bound"),
    [
        ("(<= Y_0 Y_1)", [1, -1], 0),
        ("(>= Y_0 Y_1)", [-1, 1], 0),
        ("(<= 3 Y_1)", [0, -1], -3),
        ("(>= 3 Y_1)", [0, 1], 3),
        ("(<= (* 2.0 Y_0) 3)", [2, 0], 3),
        ("(<= (+ Y_0 Y_1 1) 3)", [1, 1], 2),
        ("(<= (- Y_0 Y_1 1) 3)", [1, -1], 4),
        ("(<= (- Y_0) (- 3))", [-1, 0], -3),
        ("(<= (* 2 (- Y_0 (* Y_1 0.5))) (+ Y_0 (* 2 3)))", [1, -1], 6),
        ("(>= (* -1 Y_0) (* 0.5 (+ 1 1)))", [1, 0], -1),
    ],
)
def test_linear_constraints(formula: str, row: list[float], bound: float) -> None:
    (case,) = parse_property(HEAD + f"(assert {formula})").cases
    assert (case.rows.tolist(), case.bounds.tolist()) == ([row], [bound])
    assert case.inner_bounds.tolist() == [bound]


def test_a_coefficient_that_float64_does_not_hold_is_multiplied_out() -> None:
    (case,) = parse_property(HEAD + "(assert (<= (+ (* 0.1 Y_0) (* -0.3 Y_1)) 0.7))").cases
    assert (case.rows.tolist(), case.bounds.tolist()) == ([[1.0, -3.0]], [7.0])


def test_bounds_of_inputs_in_every_form_take_the_tightest() -> None:
    text = declared(2, 1) + (
        "(assert (and (<= (* -2 X_0) 1) (<= 0.25 X_1)))(assert (<= X_0 3))(assert (>= 2.5 X_0))"
        "(assert (<= X_0 (+ 1 1)))(assert (>= X_1 0))(assert (<= X_1 1))(assert (<= X_1 1.5))"
    )
    (case,) = parse_property(text).cases
    assert case.lower.tolist() == [-0.5, 0.25]
    assert case.upper.tolist() == [2.0, 1.0]
    assert case.rows.shape == (0, 1)


def test_an_or_over_inputs_and_outputs_becomes_cases() -> None:
    text = declared(2, 2) + (
        "(assert (>= X_0 0))(assert (<= X_0 1))"
        "(assert (or (and (>= X_1 0) (<= X_1 1) (<= Y_0 Y_1))"
        "            (and (>= X_1 2) (<= X_1 3) (or (<= Y_0 5) (<= Y_1 6)))))"
        "(assert (or (<= X_0 0.25) (and (>= X_0 0.5) (<= Y_1 0))))"
    )
    found = parse_property(text)
    assert len(found.cases) == 6
    assert contains(found, [0.2, 0.5], [1, 2])
    assert not contains(found, [0.3, 0.5], [1, 2]), "X_0 between the two alternatives"
    assert contains(found, [0.6, 2.5], [9, -1])
    assert not contains(found, [0.6, 1.5], [-9, -9])


def test_combinations_of_alternatives_that_contradict_are_left_out() -> None:
    text = HEAD + (
        "(assert (or (<= X_0 0.25) (>= X_0 0.75)))"
        "(assert (or (<= X_0 0.3) (and (>= X_0 0.7) (<= Y_0 0))))"
    )
    assert len(parse_property(text).cases) == 2
    with pytest.raises(PropertyError, match="no input fits"):
        parse_property(HEAD + "(assert (or (<= X_0 -1) (>= X_0 2)))" * 2)


formulas = st.recursive(
    st.tuples(
        st.sampled_from(["<=", ">="]),
        st.sampled_from(["X_0", "X_1", "Y_0", "Y_1"]),
        st.integers(-3, 3),
    ),
    lambda inner: st.tuples(
        st.sampled_from(["and", "or"]), st.lists(inner, min_size=1, max_size=3)
    ),
    max_leaves=8,
)


def written(formula: Any) -> str:
    if formula[0] in ("and", "or"):
        return f"({formula[0]} {' '.join(map(written, formula[1]))})"
    return f"({formula[0]} {formula[1]} {formula[2]})"


def meant(formula: Any, point: dict[str, float]) -> bool:
    operator = formula[0]
    if operator in ("and", "or"):
        subdomains = [meant(part, point) for part in formula[1]]
        return all(subdomains) if operator == "and" else any(subdomains)
    value, end = point[formula[1]], float(formula[2])
    return value <= end if operator == "<=" else value >= end


@given(st.lists(formulas, min_size=1, max_size=3), st.integers(0, 10**6))
def test_cases_mean_what_the_formulas_mean(asserted: list[Any], seed: int) -> None:
    dice = random.Random(seed)
    box = "".join(f"(assert (>= X_{i} -4))(assert (<= X_{i} 4))" for i in (0, 1))
    text = declared(2, 2) + box + "".join(f"(assert {written(f)})" for f in asserted)
    try:
        found = parse_property(text)
    except PropertyError as error:
        if "contradict" in str(error):
            reject()
        raise
    for _ in range(30):
        point = {name: dice.uniform(-4, 4) for name in ("X_0", "X_1", "Y_0", "Y_1")}
        values = list(point.values())
        expected = all(meant(formula, point) for formula in asserted)
        assert contains(found, values[:2], values[2:]) == expected


# --- rounding -----------------------------------------------------------------------------------

decimals = st.builds(
    lambda sign, whole, part, power: f"{sign}{whole}.{part}{power}",
    st.sampled_from(["", "-"]),
    st.integers(0, 10**6),
    st.integers(0, 10**20),
    st.sampled_from(["", "e-7", "E3", "e-300", "e290"]),
)


@given(decimals)
def test_ends_are_rounded_outward_for_proofs_and_inward_for_witnesses(text: str) -> None:
    body = f"(assert (>= X_0 {text}))(assert (<= X_0 {text}))(assert (<= Y_0 {text}))"
    (case,) = parse_property(declared(1, 1) + body).cases
    exact = Fraction(text)
    low, high = Fraction(float(case.lower)), Fraction(float(case.upper))
    assert low <= exact <= high
    assert (Fraction(float(case.inner_lower)), Fraction(float(case.inner_upper))) == (high, low)
    assert (float(case.bounds), float(case.inner_bounds)) == (float(high), float(low))
    neighbour = math.nextafter(float(low), math.inf)
    assert float(high) == float(low) == exact or float(high) == neighbour


numbers = st.floats(allow_nan=False, allow_infinity=False)


@given(numbers)
def test_a_number_is_written_as_the_decimal_it_is(value: float) -> None:
    text = decimal_text(value)
    assert Fraction(text) == Fraction(value)
    assert float(text) == value
    assert "e" not in text.lower()
    assert "." in text


@given(st.lists(st.tuples(numbers, numbers, numbers, numbers), min_size=1, max_size=4))
def test_a_property_is_read_back_as_it_was_written(rows: list[tuple[float, ...]]) -> None:
    lower = torch.tensor([min(a, b) for a, b, _, _ in rows], dtype=torch.float64)
    upper = torch.tensor([max(a, b) for a, b, _, _ in rows], dtype=torch.float64)
    cases = tuple(
        Case.exact(lower, upper, tensor([[c or 1.0, 1.0]]), tensor([d])) for _, _, c, d in rows
    )
    again = parse_property(property_text(Property(len(rows), 2, cases)))
    assert len(again.cases) == len(cases)
    for case, back in zip(cases, again.cases, strict=True):
        assert back.strict == frozenset()
        for name in set(Case.__dataclass_fields__) - {"strict"}:
            assert torch.equal(getattr(case, name), getattr(back, name)), name


@pytest.mark.parametrize(
    ("row", "bound", "text"),
    [
        ([1, -1], 0, "(<= Y_0 Y_1)"),
        ([-1, 1], 0, "(<= Y_1 Y_0)"),
        ([0, 1], 2, "(<= Y_1 2.0)"),
        ([-1, 0], 2, "(>= Y_0 -2.0)"),
        ([2, 1], 2, "(<= (+ (* 2.0 Y_0) (* 1.0 Y_1)) 2.0)"),
        ([0, 3], -1, "(<= (* 3.0 Y_1) -1.0)"),
    ],
)
def test_constraints_are_written_as_tools_read_them(
    row: list[float], bound: float, text: str
) -> None:
    box = torch.zeros(1, dtype=torch.float64)
    case = Case.exact(box, box, tensor([row]), tensor([bound]))
    assert f"(assert {text})" in property_text(Property(1, 2, (case,)))


def test_cases_with_boxes_of_their_own_are_written(tmp_path: Path) -> None:
    ends = [torch.tensor([float(i)]).double() for i in range(4)]
    row, bound = torch.ones(1, 1).double(), torch.ones(1).double()
    cases = tuple(Case.exact(ends[i], ends[i + 1], row, bound) for i in (0, 2))
    for name in ("p.vnnlib", "p.vnnlib.gz"):
        write_property(Property(1, 1, cases), tmp_path / name, ["two boxes"])
        again = read_property(tmp_path / name)
        assert [case.upper.tolist() for case in again.cases] == [[1.0], [3.0]]
    assert (tmp_path / "p.vnnlib").read_text().startswith("; two boxes\n")


def test_only_finite_numbers_are_written() -> None:
    with pytest.raises(ArgumentError, match="finite"):
        decimal_text(math.inf)


# --- size ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("operator", ["and", "or", "+", "-"])
def test_nesting_of_any_depth(operator: str) -> None:
    depth = 20_000
    if operator in ("and", "or"):
        formula = f"({operator} " * depth + "(<= Y_0 1)" + ")" * depth
    else:
        formula = f"(<= {f'({operator} ' * depth}Y_0{')' * depth} 1)"
    (case,) = parse_property(HEAD + f"(assert {formula})").cases
    assert case.rows.tolist() == [[1.0, 0.0]]


def test_a_hundred_thousand_lines() -> None:
    count = 30_000
    lines = [f"(assert (<= X_{i} 1.{i}))\n(assert (>= X_{i} -0.{i}e-1))" for i in range(count)]
    text = declared(count, 1) + "\n".join(lines) + "\n" * 10_000 + "(assert (<= Y_0 0))"
    assert text.count("\n") >= 100_000
    assert parse_property(text).inputs == count


def test_reading_takes_work_in_proportion_to_the_text() -> None:
    """Counted in calls of functions: twice the lines take no more than twice the calls."""

    def calls(count: int) -> int:
        lines = [f"(assert (<= X_{i} 1.{i}))\n(assert (>= X_{i} -0.{i}e-1))" for i in range(count)]
        text = declared(count, 1) + "\n".join(lines) + "(assert (<= Y_0 0))"
        seen = 0

        def profile(index_map: object, event: str, argument: object) -> None:
            nonlocal seen
            seen += event in ("call", "c_call")

        before = sys.getprofile()
        sys.setprofile(profile)
        try:
            parse_property(text)
        finally:
            sys.setprofile(before)
        return seen

    few, many = calls(200), calls(400)
    assert 1600 < few < many < 2.1 * few


def test_a_property_that_multiplies_out_to_too_much_is_refused() -> None:
    either = "(assert (or (<= Y_0 1) (<= Y_1 1)))"
    with pytest.raises(PropertyError, match="too many cases"):
        parse_property(HEAD + either * 40)
    deep = "(and (<= Y_0 1) (or (<= Y_0 2) " * 5000 + "(<= Y_0 1)" + "))" * 5000
    with pytest.raises(PropertyError, match="too many cases"):
        parse_property(HEAD + f"(assert {deep})")


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(assert (<= Y_0 1", r"line 5, column 9: this '\(' is never closed"),
        ("(assert (<= Y_0 1)))", r"column 20: there is a '\)' without its '\('"),
        ("assert", "line 5, column 1: 'assert' stands outside of parentheses"),
        ("()", "a command such as"),
        ("((assert))", "a command such as"),
        ("(push 1)", "'push' is no command"),
        ("(assert)", "'assert' takes one formula. Got 0"),
        ("(assert (<= Y_0 1) (<= Y_1 1))", "'assert' takes one formula. Got 2"),
        ("(assert true)", "a formula such as"),
        ("(assert ())", "a formula such as"),
        ("(assert (or))", "nothing in this 'or'"),
        ("(vnnlib-version <2.0>)", "'vnnlib-version' belongs to VNN-LIB 2.0"),
        ("(declare-network f (declare-input X Real [1]))", "belongs to VNN-LIB 2.0"),
        (f"(assert (<= Y_0 {'1' * 20000}))", "20,000 digits"),
        ("(assert (not (<= Y_0 1)))", "'not' is none of"),
        ("(assert (<= Y_0))", "compares two terms. Got 1"),
        ("(assert (<= Y_0 1 2))", "compares two terms. Got 3"),
        ("(assert (<= Y_7 1))", "column 13: 'Y_7' is not declared"),
        ("(assert (<= Z_0 1))", "'Z_0' is neither"),
        ("(assert (<= X_00 1))", "'X_00' is neither"),
        ("(assert (<= Y_0 nan))", "'nan' is neither"),
        ("(assert (<= Y_0 0x1p3))", "'0x1p3' is neither"),
        ("(assert (<= Y_0 1e999))", "'1e999' is out of the range"),
        ("(assert (<= Y_0 1.79e308))(assert (<= Y_0 1.9e308))", "out of the range"),
        ("(assert (<= Y_0 1e-9999999999999999999999))", "out of the range"),
        (f"(assert (<= Y_0 {'(* 1e300 ' * 2000}1{')' * 2000}))", "out of the range"),
        ("(assert (<= (* Y_0 Y_1) 1))", "product of variables"),
        ("(assert (<= (/ Y_0 2) 1))", "a number, a variable or a sum"),
        ("(assert (<= (+) 1))", "a number, a variable or a sum"),
        ("(assert (<= 1 2))", "does not depend on any variable"),
        ("(assert (<= Y_0 Y_0))", "does not depend on any variable"),
        ("(assert (<= (* 0.30000000000000004 Y_0) (* 0.7000000000000001 Y_1)))", "more digits"),
        ("(assert (<= X_0 -0.5))", r"bounds of X_0 contradict each other: .* 0 and at most -0\.5"),
        ("(assert (or (<= Y_0 0) (and (>= X_0 0.6) (<= X_0 0.5))))", "bounds of X_0 contradict"),
        ("(declare-const X_0 Real)", "X_0 is declared twice"),
        ("(declare-const X_2 Real)", "declares X_2 but not X_1"),
        ("(declare-const X_1 Int)", "a declaration was expected"),
        ("(declare-const x Real)", "a declaration was expected"),
        ("(declare-const X_1)", "a declaration was expected"),
        ("(declare-const X_1 Real)", "gives X_1 no lower bound"),
        ("(declare-const X_1 Real)(assert (>= X_1 0))", "gives X_1 no upper bound"),
        (
            "(declare-const X_1 Real)(assert (or (<= Y_0 0) (and (<= X_1 0) (>= X_1 0))))",
            "gives X_1 no lower bound",
        ),
    ],
)
def test_what_is_wrong_is_said(text: str, message: str) -> None:
    with pytest.raises(PropertyError, match=message) as caught:
        parse_property(HEAD + text)
    assert str(caught.value).count(". ") <= 1
    assert caught.value.exit_code == 2


def test_a_property_without_inputs() -> None:
    with pytest.raises(PropertyError, match="no inputs"):
        parse_property("(declare-const Y_0 Real)(assert (<= Y_0 1))")
    with pytest.raises(PropertyError, match="gives X_0 no lower bound"):
        parse_property(declared(2, 1) + "(assert (<= X_0 X_1))")


def test_files_that_are_no_properties(tmp_path: Path) -> None:
    packed = gzip.compress((HEAD + "(assert (<= Y_0 1))").encode())
    named = {
        "cut.vnnlib.gz": packed[:-12],
        "broken.gz": packed[:20] + b"\xff" * 20 + packed[40:],
        "image.png": b"\x89PNG\xff\xfe\x00",
        "empty.vnnlib": b"",
    }
    for name, data in named.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(PropertyError, match=name):
            read_property(tmp_path / name)
    with pytest.raises(PropertyError, match="There is no file"):
        read_property(tmp_path / "nothing.vnnlib")
    with pytest.raises(PropertyError, match="is a folder"):
        read_property(tmp_path)
    with pytest.raises(ArgumentError, match="'path' parameter"):
        read_property(3)  # type: ignore[arg-type]
    with pytest.raises(PropertyError, match="cannot be written"):
        write_property(parse_property(HEAD), tmp_path / "no" / "p.vnnlib")


def test_gzip_is_told_by_its_content(tmp_path: Path) -> None:
    text = HEAD + "(assert (<= Y_0 1))"
    (tmp_path / "a.vnnlib").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "b.vnnlib.gz").write_text(text)
    for name in ("a.vnnlib", "b.vnnlib.gz"):
        assert read_property(tmp_path / name).cases[0].bounds.tolist() == [1.0]


def linear(inputs: int, outputs: int) -> Graph:
    builder = GraphBuilder()
    x = builder.input("x", (inputs,))
    return builder.build([builder.add("fc", Linear(torch.ones(outputs, inputs)), x)])


def test_a_property_must_fit_its_network() -> None:
    found = parse_property(HEAD)
    found.check(linear(1, 2))
    with pytest.raises(PropertyError, match="about 1 inputs, the network has 3"):
        found.check(linear(3, 2))
    with pytest.raises(PropertyError, match="about 2 outputs, the network has 4"):
        found.check(linear(1, 4))
