"""Trees: what closes a proof, and what does not."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from provable_circuits.proof.checker import tree
from provable_circuits.proof.checker.arithmetic import Arithmetic, RefusedError
from provable_circuits.proof.checker.data import Data
from provable_circuits.proof.checker.operations import Bend, Matrix
from provable_circuits.proof.checker.problem import Problem, Region, Step, build
from provable_circuits.proof.checker.rules import Side, Subdomain
from provable_circuits.proof.checker.tree import Proof

FLOAT, EXACT = Arithmetic(), Arithmetic(exact=True)
ARRAYS: dict[str, Any] = {
    "units": np.array([0, 1], dtype=np.int32),
    "second": np.array([1], dtype=np.int32),
    "one": np.array([[255]], dtype=np.uint8),
    "far": np.array([0, 2], dtype=np.int32),
    "before": np.array([-1, 0], dtype=np.int32),
    "pair": np.array([[0, 1]], dtype=np.int32),
    "column": np.array([[0], [1]], dtype=np.int32),
    "none": np.array([], dtype=np.int32),
    "half": np.array([[128, 0]], dtype=np.uint8),
    "ones": np.array([[255, 255]], dtype=np.uint8),
    "no rows": np.zeros((0, 2), dtype=np.uint8),
    "two rows": np.zeros((2, 2), dtype=np.uint8),
    "three rows": np.zeros((3, 2), dtype=np.uint8),
    "no columns": np.zeros((1, 0), dtype=np.uint8),
    "flat": np.array([255, 255], dtype=np.uint8),
    "beta": np.array([[0.5]]),
    "beta of two": np.array([[0.5, 0.0]]),
    "minus": np.array([[-0.5]]),
}


def problem(tolerance: float, arithmetic: Arithmetic = FLOAT, kept: bool = False) -> Problem:
    """Without its first unit, y = relu(z0 + z1) - relu(z0 - z1) misses up to 2 on [-1, 1]^2."""
    steps = [
        Step("z", None, (), 2),
        Step("h", Matrix(arithmetic.array([[1.0, 1], [1, -1]])), ("z",), 2),
        Step("r", Bend(0.0), ("h",), 2),
        Step("y", Matrix(arithmetic.array([[1.0], [-1]])), ("r",), 1),
    ]
    box = Region(arithmetic.array([-1.0, -1]), arithmetic.array([1.0, 1]))
    removed = {} if kept else {"r": np.array([True, False])}
    metric = {"kind": "max-abs", "tolerance": tolerance}
    return build(arithmetic, steps, "y", box, removed, {"r": np.zeros(2)}, metric)


def array(name: Data, shape: Any, kinds: str) -> Any:
    found = ARRAYS[name.text()]
    if found.dtype.kind not in kinds or (shape is not None and found.shape != tuple(shape)):
        raise name.wrong("of its kind and shape")
    return found


def check(tolerance: float, *nodes: Any, exact: bool = False, **other: Any) -> int:
    data = {"tighten": other.get("tighten", [])}
    data["trees"] = [{"objectives": other.get("objectives", [0, 1]), "nodes": list(nodes)}]
    data["trees"] += other.get("more", [])
    asked = problem(tolerance, EXACT if exact else FLOAT)
    rational = lambda: problem(tolerance, EXACT)  # noqa: E731
    return Proof(asked, rational, array, Data(data, "proof")).check()


CLOSE: dict[str, Any] = {"close": {}}


def test_a_leaf_is_closed_by_its_bound() -> None:
    """The difference is -relu(h0), at least -2 and, by the line below, at most 0."""
    assert check(2.01, CLOSE) == 1
    assert check(2.0, CLOSE, exact=True) == 1
    with pytest.raises(RefusedError, match="not closed: its bound is"):
        check(2.0, CLOSE)  # rounding is between
    with pytest.raises(RefusedError, match=r"its bound is -0\.01"):
        check(1.99, CLOSE)
    with pytest.raises(RefusedError, match="not closed"):
        check(1.99, CLOSE, exact=True)
    exact = {"close": {"exact": True}}
    assert check(2.0, {"split": ["N:h", 0]}, exact, exact) == 2
    with pytest.raises(RefusedError, match="not closed"):
        check(1.999999, {"split": ["N:h", 0]}, exact, exact)
    assert check(2.01, {**CLOSE, "tighten": ["N:h", "C:r", "D:difference"]}, tighten=["N:h"]) == 1


def test_all_objectives_must_be_proved() -> None:
    more = [{"objectives": [1], "nodes": [CLOSE]}]
    assert check(2.01, CLOSE, objectives=[0], more=more) == 2
    with pytest.raises(RefusedError, match="Objective 1 is not proved"):
        check(2.01, CLOSE, objectives=[0])
    with pytest.raises(RefusedError, match="Objective 0 is not proved"):
        check(2.01, CLOSE, objectives=[1])
    with pytest.raises(RefusedError, match="each named once"):
        check(2.01, CLOSE, objectives=[1, 1])
    with pytest.raises(RefusedError, match="an integer from 0 to 1"):
        check(2.01, CLOSE, objectives=[0, 2])
    with pytest.raises(RefusedError):
        check(1.0, objectives=[0, 1])  # a tree of no nodes


def test_splits_have_both_halves() -> None:
    split = {"split": ["N:h", 0]}
    assert check(2.01, split, CLOSE, CLOSE) == 2
    assert check(2.01, split, split, CLOSE, CLOSE, CLOSE) == 3
    assert check(2.01, {"side": ["N:z", 0, 0.25]}, CLOSE, CLOSE) == 2
    for nodes in ([split], [split, CLOSE], [split, split, CLOSE, CLOSE]):
        with pytest.raises(RefusedError, match="a split without both halves"):
            check(2.01, *nodes)
    for nodes in ([CLOSE, CLOSE], [split, CLOSE, CLOSE, CLOSE]):
        with pytest.raises(RefusedError, match="more nodes than its splits make"):
            check(2.01, *nodes)


def test_an_empty_leaf_needs_a_bound_above_zero() -> None:
    """z0 and z1 at least 0.5 leave no point with h0 <= 0: 0.5 h0 >= 0.5."""
    tree = [{"side": ["N:z", 0, 0.5]}, CLOSE, {"side": ["N:z", 1, 0.5]}, CLOSE]
    tree.append({"split": ["N:h", 0]})
    assert check(2.01, *tree, {"empty": {"beta": "beta"}}, CLOSE) == 4
    exact = {"empty": {"beta": [["1/3"]], "exact": True}}
    assert check(2.01, *tree, exact, CLOSE) == 4
    leaf: Any
    for leaf in ({"empty": {}}, {"empty": {"beta": [["0"]], "exact": True}}):
        with pytest.raises(RefusedError, match="not closed"):
            check(2.01, *tree, leaf, CLOSE)
    with pytest.raises(RefusedError, match="not closed"):
        check(2.01, {"empty": {}})
    with pytest.raises(RefusedError, match="not closed"):
        check(2.01, {"empty": {}}, exact=True)
    with pytest.raises(RefusedError, match="not closed"):
        check(2.01, *tree, CLOSE, {"empty": {"beta": "beta"}})  # the other half has points


def test_betas_and_alphas_that_do_not_fit_are_refused() -> None:
    split = {"split": ["N:h", 0]}
    one: dict[str, Any] = {"objectives": [0]}
    rest: dict[str, Any] = {"more": [{"objectives": [1], "nodes": [CLOSE]}]}
    assert check(2.6, split, {"close": {"beta": "beta"}}, CLOSE, **one, **rest) == 3
    for name in ("beta of two", "minus", "half"):
        with pytest.raises(RefusedError):
            check(9.0, split, {"close": {"beta": name}}, CLOSE, **one, **rest)
    beta: Any
    for beta in ([["1/2"], ["1/2"]], [["1/2", "0"]], [[]], [["-1/2"]]):
        with pytest.raises(RefusedError):
            check(9.0, split, {"close": {"beta": beta, "exact": True}}, CLOSE, **one, **rest)
    pair: Any = {"close": {"beta": [["1/2"], ["1/3"]], "exact": True}}
    assert check(9.0, split, pair, CLOSE) == 2
    twice: Any = {"close": {"beta": [["1/2", "1/3"]], "exact": True}}
    assert check(9.0, split, split, twice, CLOSE, CLOSE, **one, **rest) == 4
    with pytest.raises(RefusedError, match="fractions for each"):
        check(9.0, split, {"close": {"beta": [["1/2"]]}}, CLOSE, **one, **rest)
    good = {"alpha": {"N:h": ["units", "half"]}, **CLOSE}
    assert check(9.0, good) == 1
    for pair in (
        ["units", "no rows"],
        ["far", "half"],
        ["before", "half"],
        ["pair", "half"],
        ["column", "half"],
        ["none", "half"],
        ["units", "flat"],
        ["units", "half", "half"],
        ["units"],
        ["half", "half"],
        ["units", "units"],
    ):
        with pytest.raises(RefusedError):
            check(9.0, {"alpha": {"N:h": pair}, **CLOSE})
    assert check(9.0, {"alpha": {"N:h": ["none", "no columns"]}, **CLOSE}) == 1
    assert check(9.0, {"alpha": {"N:h": ["units", "two rows"]}, **CLOSE}) == 1
    for name in ("no rows", "three rows"):
        with pytest.raises(RefusedError, match="one choice for all objectives, or one for each"):
            check(9.0, {"alpha": {"N:h": ["units", name]}, **CLOSE})
    with pytest.raises(RefusedError, match="which there is not"):
        check(9.0, {"alpha": {"N:what": ["units", "half"]}, **CLOSE})


def test_an_alpha_of_no_rows_proves_nothing() -> None:
    """There is no bound then, and so none that fails."""
    leaf = {"alpha": {"N:h": ["units", "no rows"]}, **CLOSE}
    for exact in (False, True):
        with pytest.raises(RefusedError):
            check(1e-3, leaf, exact=exact)


def test_alphas_are_those_of_their_node_and_below() -> None:
    """A line below h0 that is steep gives -relu(h0) no other bound, but relu(h0) one of -2."""
    steep, flat = ({"alpha": {"N:h": ["units", name]}} for name in ("ones", "half"))
    bounds = {}
    for name, leaf in {"none": {}, "steep": steep, "flat": flat}.items():
        bounds[name] = _bound({**leaf, **CLOSE})
    assert bounds["steep"] == -2 - 0.5
    assert bounds["none"] == -0.5
    assert bounds["flat"] == pytest.approx(-1.5, abs=0.01)
    other = {"alpha": {"N:h": ["second", "one"]}}
    assert _bound({**other, **CLOSE}) == -0.5  # where none is chosen, that of the wider side
    split = {"split": ["N:h", 1]}
    assert _bound({**steep, **split}, CLOSE, CLOSE) == -2.5
    assert _bound({**steep, **split}, {**flat, **CLOSE}, CLOSE) == pytest.approx(-1.5, abs=0.01)


def test_units_without_an_alpha_have_none() -> None:
    asked = problem(9.0)
    proof = Proof(asked, lambda: asked, array, Data({"trees": []}, "proof"))
    found = proof._alpha(Data({"N:h": ["second", "one"]}, "alpha"), 2)
    assert {place: values.tolist() for place, values in found.items()} == {1: [[-1, 1]]}


def _bound(*nodes: Any) -> float:
    """By how much the tree fails to show that the difference is at most -0.5."""
    asked = problem(0.0, EXACT)
    asked.objectives = np.array([[Fraction(-1)]], dtype=object)
    asked.offsets = np.array([Fraction(-1, 2)], dtype=object)
    data = {"trees": [{"objectives": [0], "nodes": list(nodes)}]}
    with pytest.raises(RefusedError, match="its bound is") as caught:
        Proof(asked, lambda: asked, array, Data(data, "proof")).check()
    return float(str(caught.value).split("is ")[-1].rstrip("."))


def test_trees_may_be_so_deep_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many halves may wait as there is room for, and two more; and no more than are allowed."""
    units = sum(node.units for node in problem(9.0).nodes)
    split: Any = {"split": ["N:h", 0]}
    for deepest, numbers, most in ((3, 2**26, 3), (9, 2 * units, 4), (9, 2 * units - 1, 3)):
        monkeypatch.setattr(tree, "DEEPEST", deepest)
        monkeypatch.setattr(tree, "MOST_NUMBERS", numbers)
        assert check(9.0, *[split] * (most - 1), *[CLOSE] * most) == most
        with pytest.raises(RefusedError, match="deeper than the checker has room for"):
            check(9.0, *[split] * most, *[CLOSE] * (most + 1))


def test_an_exact_problem_is_not_built_again() -> None:
    asked = problem(2.0, EXACT)
    nodes = [{"close": {"exact": True}}]
    data = {"trees": [{"objectives": [0, 1], "nodes": nodes}]}
    assert Proof(asked, lambda: problem(1.0, EXACT), array, Data(data, "proof")).check() == 1


def test_an_exact_leaf_has_the_same_bounds() -> None:
    whole = Subdomain.whole(problem(9.0)).at_side(Side(0, 1, 0.1, True))
    made = tree.exactly(whole, problem(9.0, EXACT))
    for ends, exact in zip(whole.bounds, made.bounds, strict=True):
        for end, same in zip(ends, exact, strict=True):
            assert [Fraction(value) for value in end.tolist()] == same.tolist()
    assert (made.signs, made.sides) == (whole.signs, whole.sides)
    assert made.regions[0].lower.tolist() == [-1, Fraction(0.1)]


def test_malformed_nodes_are_refused() -> None:
    node: Any
    for node in ({}, {"close": {}, "empty": {}}, {"split": ["N:h", 0], **CLOSE}):
        with pytest.raises(RefusedError, match="one split or one leaf"):
            check(9.0, node, CLOSE, CLOSE)
    for node in (
        {},
        {"close": {}, "empty": {}},
        {"close": {}, "split": ["N:h", 0]},
        {"close": {}, "other": 1},
        {"close": {"other": 1}},
        {"split": ["N:h"]},
        {"split": ["N:h", 2]},
        {"split": ["N:h", -1]},
        {"split": ["N:h", 0, 0.0]},
        {"split": ["N:what", 0]},
        {"side": ["N:z", 0]},
        {"side": ["N:h", 0, 0.0]},
        {"side": ["N:z", 0, 1.5]},
        {"side": ["N:z", 2, 0.0]},
        {"side": ["N:z", 0, 0.0, 0.0]},
        {"tighten": ["N:what"], **CLOSE},
    ):
        with pytest.raises(RefusedError):
            check(9.0, node, CLOSE, CLOSE) if "s" in "".join(node)[:1] else check(9.0, node)
    with pytest.raises(RefusedError):
        check(9.0, CLOSE, more=[{"objectives": [0], "nodes": [CLOSE], "other": 1}])
    with pytest.raises(RefusedError):
        Proof(problem(9.0), lambda: problem(9.0), array, Data({"trees": [], "x": 1}, "proof"))


def test_a_split_of_a_unit_that_does_not_differ_is_the_networks() -> None:
    asked = problem(9.0)
    proof = Proof(asked, lambda: asked, array, Data({"trees": []}, "proof"))
    node = Data({}, "node")
    parts = [[Data("C:r", "name"), Data(unit, "unit")] for unit in (0, 1)]
    assert proof._unit(parts[0], node) == (asked.place("C:r"), 0)
    assert proof._unit(parts[1], node) == (asked.place("N:r"), 1)
    alike = [Data("C:h", "name"), Data(1, "unit")]
    assert proof._unit(alike, node) == (asked.place("N:h"), 1)


def test_unstable_units_are_tightened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a node of the circuit those that differ, and no node without unstable units."""
    asked: dict[str, list[int]] = {}

    def tighten(self: Subdomain, place: int, units: Any, alpha: Any) -> None:
        asked[self.problem.nodes[place].name] = units.tolist()

    monkeypatch.setattr(Subdomain, "tighten", tighten)
    at = problem(9.0)
    proof = Proof(at, lambda: at, array, Data({"trees": []}, "proof"))
    root = Subdomain.whole(at)
    names = ["N:h", "C:r", "N:z", "D:difference"]
    proof._tighten(root, Data({"tighten": names}, "proof"), {})
    assert asked == {"N:h": [0, 1], "C:r": [], "N:z": [0, 1], "D:difference": [0]}
    place = at.place("C:r")
    root.bounds[place] = np.array([-0.5, -0.5]), np.array([0.5, 0.5])
    root.bounds[1] = np.array([-0.5, 0.0]), np.array([0.25, 0.5])
    proof._tighten(root, Data({"tighten": names[:2]}, "proof"), {})
    assert asked["C:r"] == [0]
    assert asked["N:h"] == [0]
    root.bounds[1] = np.array([-0.5, -0.5]), np.array([0.0, 0.5])
    proof._tighten(root, Data({"tighten": names[:1]}, "proof"), {})
    assert asked["N:h"] == [1]
    asked.clear()
    check(9.0, {**CLOSE, "tighten": ["C:r"]}, tighten=["N:h"])
    assert list(asked) == ["N:h", "C:r"]


def test_halves_are_two() -> None:
    at = problem(9.0)
    proof, root = Proof(at, lambda: at, array, Data({"trees": []}, "proof")), Subdomain.whole(at)
    lower, upper = proof._halves(root, Data({"side": ["N:z", 1, 0.25]}, "node"))
    assert [(s.unit, s.value, s.above) for s in lower.sides] == [(1, 0.25, False)]
    assert [(s.unit, s.value, s.above) for s in upper.sides] == [(1, 0.25, True)]
    lower, upper = proof._halves(root, Data({"split": ["N:h", 1]}, "node"))
    assert [(s.node, s.unit, s.positive) for s in lower.signs] == [(1, 1, False)]
    assert [(s.node, s.unit, s.positive) for s in upper.signs] == [(1, 1, True)]


def test_a_node_is_tightened_with_the_alpha_from_above(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own alpha comes after, and holds for its bound and below."""
    given: list[bool] = []

    def tighten(self: Subdomain, place: int, units: Any, alpha: Any) -> None:
        given.append(bool(alpha))

    monkeypatch.setattr(Subdomain, "tighten", tighten)
    own = {"alpha": {"N:h": ["units", "half"]}, "tighten": ["N:h"]}
    assert check(9.0, {**CLOSE, **own}) == 1
    assert given == [False]
    given.clear()
    below = {**CLOSE, "tighten": ["N:h"]}
    assert check(9.0, {**own, "split": ["N:h", 0]}, below, below) == 2
    assert given == [False, True, True]
