"""Plain properties: never the opposite of the truth, and decided where that is promised."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from tests.clock import Clock
from torch import Tensor

from provable_circuits.errors import ArgumentError, PropertyError
from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.ops import (
    Affine,
    Conv2d,
    Gather,
    Linear,
    MaxPool2d,
    Op,
    ReLU,
    Sigmoid,
    Tanh,
)
from provable_circuits.properties.verify import PropertyVerdict, decide, decide_files
from provable_circuits.properties.vnnlib import Case, Property, parse_property, write_property
from provable_circuits.verify.attacking.attack import Attack
from provable_circuits.verify.configuration import DEFAULT
from provable_circuits.verify.deadline import Deadline, OutOfTime

TWO_INPUTS = """(declare-const X_0 Real)(declare-const X_1 Real)(declare-const Y_0 Real)
(assert (>= X_0 0))(assert (<= X_0 1))(assert (>= X_1 0))(assert (<= X_1 1))(assert (>= Y_0 1))"""


def f64(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def network(seed: int, sizes: list[int], curve: Op | None = None) -> Graph:
    dice = torch.Generator().manual_seed(seed)
    builder = GraphBuilder()
    value = builder.input("x", (sizes[0],))
    for i, (inputs, outputs) in enumerate(pairwise(sizes)):
        weight = torch.randn(outputs, inputs, generator=dice) * 1.5 / inputs**0.5
        layer = Linear(weight, torch.randn(outputs, generator=dice) * 0.3)
        value = builder.add(f"fc{i}", layer, value)
        if i < len(sizes) - 2:
            value = builder.add(f"act{i}", curve or ReLU(), value)
    return builder.build([value])


def chain(shape: tuple[int, ...], *operations: Op) -> Graph:
    builder = GraphBuilder()
    value = builder.input("x", shape)
    for op in operations:
        value = builder.add(op.name.lower(), op, value)
    return builder.build([value])


def random_case(dice: torch.Generator, y: Tensor, box: tuple[Tensor, Tensor], gap: float) -> Case:
    """Constraints of which one is violated everywhere, or, for a negative gap, not everywhere.

    ``y`` are outputs at a fine grid; the largest excess is least where it is ``gap``.
    """
    count = 1 + int(torch.randint(4, (), generator=dice))
    rows = torch.randn(count, y.shape[1], generator=dice).double()
    values = y @ rows.T
    base = values.quantile(0.3, 0)
    return Case.exact(*box, rows, base + (values - base).amax(1).min() - gap)


def assert_counterexample(verdict: PropertyVerdict, graph: Graph, cases: list[Case]) -> None:
    assert verdict.counterexample is not None
    x, y = verdict.counterexample
    torch.testing.assert_close(y, graph.run(x, torch.float64)[0])
    flat, output = x.flatten(), y.flatten()
    assert any(
        bool(((case.lower <= flat) & (flat <= case.upper)).all())
        and bool((case.rows @ output <= case.bounds + 1e-12).all())
        for case in cases
    )


@pytest.mark.parametrize("few", [12, 0], ids=["input split", "branching"])
@pytest.mark.parametrize("seed", range(12))
def test_against_a_fine_grid(seed: int, few: int) -> None:
    configuration = DEFAULT.changed(branching={"few_inputs": few})
    graph = network(seed, [2, 5, 4, 3])
    dice = torch.Generator().manual_seed(seed)
    lower, upper = -torch.rand(2, generator=dice).double(), torch.rand(2, generator=dice).double()
    axes = [
        torch.linspace(float(a), float(b), 200).double() for a, b in zip(lower, upper, strict=True)
    ]
    y = graph.run(torch.cartesian_prod(*axes), torch.float64)
    gaps = [0.05 if (seed >> i) % 2 else -0.05 for i in range(1 + seed % 3)]
    cases = [random_case(dice, y, (lower, upper), gap) for gap in gaps]
    verdict = decide(graph, Property(2, 3, tuple(cases)), configuration=configuration)
    if min(gaps) < 0:
        assert verdict.status == "violated"
        assert_counterexample(verdict, graph, cases)
    else:
        assert verdict.status == "holds"
        assert verdict.counterexample is None


@pytest.mark.parametrize("curve", [Tanh(), Sigmoid()], ids=lambda op: op.name)
@pytest.mark.parametrize("gap", [0.02, -0.02])
def test_curved_activations(curve: Op, gap: float) -> None:
    graph = network(3, [2, 6, 5, 3], curve)
    dice = torch.Generator().manual_seed(3)
    box = (f64([-1.0, -1.0]), f64([1.0, 1.0]))
    axis = torch.linspace(-1, 1, 200).double()
    y = graph.run(torch.cartesian_prod(axis, axis), torch.float64)
    case = random_case(dice, y, box, gap)
    verdict = decide(graph, Property(2, 3, (case,)))
    assert verdict.status == ("holds" if gap > 0 else "violated")


def test_curved_activations_of_many_inputs_may_stay_open() -> None:
    graph = network(1, [14, 10, 8, 2], Tanh())
    box = (torch.full((14,), -1.0).double(), torch.full((14,), 1.0).double())
    x = torch.rand(20_000, 14, generator=torch.Generator().manual_seed(0)).double() * 2 - 1
    least = float(graph.run(x, torch.float64)[:, 0].min())
    row = f64([[1.0, 0.0]])
    case = Case.exact(*box, row, f64([least - 0.9]))
    verdict = decide(graph, Property(14, 2, (case,)), max_nodes=2000)
    assert verdict.status in ("unknown", "timeout", "holds")
    if verdict.status == "unknown":
        assert "curved" in verdict.reason


@pytest.mark.parametrize("few", [12, 0], ids=["input split", "branching"])
@pytest.mark.parametrize(("end", "status"), [(-0.1, "holds"), (0.01, "violated")])
def test_conjunctions_that_no_constraint_alone_excludes(
    end: float, status: str, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """x <= end and -x <= end, and relu(x) and relu(-x) besides: empty for a negative end."""
    configuration = DEFAULT.changed(branching={"few_inputs": few})
    monkeypatch.setattr(Attack, "short", lambda *_: False)
    both = Linear(f64([[1.0], [-1.0]]))
    graph = chain((1,), both, ReLU(), Linear(f64([[1.0, -1.0], [-1.0, 1.0], [1.0, 1.0]])))
    rows = f64([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    case = Case.exact(f64([-1.0]), f64([1.75]), rows, f64([end, end, 1.5]))
    verdict = decide(graph, Property(1, 3, (case,)), configuration=configuration)
    assert verdict.status == status
    if status == "holds":
        assert verdict.reason == ("input-split" if few else "branching")


# --- where the truth hangs by a thread ----------------------------------------------------------

IDENTITY = chain((1,), Affine(f64(1.0)))
RELU = chain((1,), ReLU())


def asked(box: tuple[str, str], *constraints: str) -> Property:
    body = "".join(f"(assert {text})" for text in constraints)
    return parse_property(
        "(declare-const X_0 Real)(declare-const Y_0 Real)"
        f"(assert (>= X_0 {box[0]}))(assert (<= X_0 {box[1]})){body}"
    )


def test_constraints_include_their_ends() -> None:
    touched = decide(RELU, asked(("-1", "1"), "(>= Y_0 1.0)"))
    assert touched.status == "violated"
    assert touched.counterexample is not None
    assert touched.counterexample[0].tolist() == [1.0]
    assert decide(RELU, asked(("-1", "1"), "(>= Y_0 1.0000000000000003)")).status != "violated"
    assert decide(RELU, asked(("-1", "1"), "(>= Y_0 1.000001)")).status == "holds"
    assert decide(RELU, asked(("-1", "1"), "(<= Y_0 0.0)")).status == "violated"
    assert decide(RELU, asked(("-1", "1"), "(<= Y_0 -1e-12)")).status == "holds"


def test_a_network_that_may_or_may_not_touch_is_not_decided_either_way() -> None:
    verdict = decide(IDENTITY, asked(("0", "1"), "(>= Y_0 1.0)"))
    assert verdict.status in ("violated", "unknown"), "1 * x reaches 1, at the very end"
    third = chain((1,), Affine(f64(1 / 3)), Affine(f64(3.0)))
    verdict = decide(third, asked(("1", "1"), "(>= Y_0 1.0)"))
    assert verdict.status in ("holds", "unknown"), "3 * float(1/3) is a little less than 1"
    verdict = decide(third, asked(("1", "1"), "(<= Y_0 1.0)"))
    assert verdict.status in ("violated", "unknown")


def test_ends_are_decimals() -> None:
    """0.1 lies below float64's 0.1, and 0.3 above its own: the box as written decides."""
    assert decide(RELU, asked(("0", "0.1"), "(>= Y_0 0.1)")).status != "holds"
    inside = decide(RELU, asked(("0", "0.1"), "(>= Y_0 0.05)"))
    assert inside.counterexample is not None
    assert float(inside.counterexample[0]) <= math.nextafter(0.1, 0)
    assert decide(RELU, asked(("0", "0.1"), "(>= Y_0 0.10000000000001)")).status == "holds"


def test_an_input_fixed_to_a_decimal_that_float64_does_not_hold() -> None:
    fixed = decide(RELU, asked(("0.1", "0.1"), "(>= Y_0 0.05)"))
    assert fixed.status == "violated"
    assert fixed.counterexample is not None
    assert float(fixed.counterexample[0]) == pytest.approx(0.1, abs=1e-16)
    assert decide(RELU, asked(("0.1", "0.1"), "(>= Y_0 0.2)")).status == "holds"
    assert decide(RELU, asked(("0.1", "0.1"), "(>= Y_0 0.1)")).status == "violated"


def test_without_constraints_on_outputs_any_input_will_do() -> None:
    assert decide(RELU, asked(("-1", "1"))).status == "violated"
    assert decide(RELU, asked(("0.1", "0.1"))).status == "violated"


def test_rounding_is_enclosed() -> None:
    """1e16 + 1 - 1e16 is 1 and not 0 or 2, whatever the order of summation."""
    graph = chain(
        (1,),
        Linear(f64([[1.0], [1.0], [1.0]])),
        Linear(f64([[1e16, 1.0, -1e16]])),
    )
    assert decide(graph, asked(("1", "1"), "(>= Y_0 1.5)")).status != "violated"
    assert decide(graph, asked(("1", "1"), "(<= Y_0 0.5)")).status != "violated"
    assert decide(graph, asked(("1", "1"), "(<= Y_0 1.5)")).status != "holds"


def test_overflow_decides_nothing() -> None:
    huge = Affine(f64(1e200))
    graph = chain((1,), huge, Affine(f64(2e200)), Gather(torch.tensor([0])))
    assert decide(graph, asked(("1", "2"), "(<= Y_0 0)")).status != "violated"
    assert decide(graph, asked(("1", "2"), "(>= Y_0 0)")).status != "holds"


# --- shapes, limits, errors ---------------------------------------------------------------------


def test_images_pooling_and_outputs_of_any_shape() -> None:
    dice = torch.Generator().manual_seed(5)
    conv = Conv2d(torch.randn(2, 1, 2, 2, generator=dice), torch.zeros(2))
    graph = chain((1, 5, 5), conv, ReLU(), MaxPool2d((2, 2), (2, 2)))
    assert len(graph.output_shape) == 3
    box = (torch.zeros(25).double(), torch.full((25,), 0.1).double())
    x = torch.rand(2000, 1, 5, 5, generator=dice).double() * 0.1
    y = graph.run(x, torch.float64).flatten(1)
    row = torch.zeros(1, 8, dtype=torch.float64)
    row[0, 3] = -1.0
    for end, status in (
        (2 * float(y[:, 3].max()) + 0.2, "holds"),
        (float(y[:, 3].mean()), "violated"),
    ):
        case = Case.exact(*box, row, f64([-end]))
        verdict = decide(graph, Property(25, 8, (case,)))
        assert verdict.status == status
    assert verdict.counterexample is not None
    assert verdict.counterexample[0].shape == (1, 5, 5)
    assert verdict.counterexample[1].shape == graph.output_shape


def test_outputs_that_depend_on_nothing() -> None:
    builder = GraphBuilder()
    builder.input("x", (1,))
    graph = builder.build([builder.constant("y", f64([2.0]))])
    assert decide(graph, asked(("0", "1"), "(>= Y_0 3)")).status == "holds"
    assert decide(graph, asked(("0", "1"), "(>= Y_0 1)")).status == "violated"
    assert decide(graph, asked(("0", "1"), "(>= Y_0 1)", "(<= Y_0 1.5)")).status == "holds"


def test_the_same_seed_gives_the_same_answer() -> None:
    graph = network(8, [6, 10, 10, 3])
    box = (torch.full((6,), -1.0).double(), torch.full((6,), 1.0).double())
    rows = f64([[1.0, -1.0, 0.0], [1.0, 0.0, -1.0]])
    question = Property(6, 3, (Case.exact(*box, rows, f64([-0.3, -0.2])),))
    first, second = (decide(graph, question, seed=4) for _ in range(2))
    assert first.status == second.status
    if first.counterexample is not None and second.counterexample is not None:
        assert torch.equal(first.counterexample[0], second.counterexample[0])


@pytest.mark.parametrize("limit", [1, 30, 300])
def test_the_time_limit_is_kept(limit: int, clock: Clock) -> None:
    """Looking at the clock takes a second: few looks follow the one that finds the time over."""
    graph = network(0, [40, 60, 60, 60, 60, 2])
    box = (torch.full((40,), -1.0).double(), torch.full((40,), 1.0).double())
    x = torch.rand(4000, 40, generator=torch.Generator().manual_seed(0)).double() * 2 - 1
    end = float(graph.run(x, torch.float64)[:, 0].min()) * 6
    case = Case.exact(*box, f64([[1.0, 0.0]]), f64([end]))
    clock.step = 1.0
    verdict = decide(graph, Property(40, 2, (case,)), limit)
    assert verdict.status == "timeout"
    assert limit < verdict.seconds <= limit + 6
    assert f"{limit} seconds" in verdict.reason


def test_reading_counts_towards_the_limit(tmp_path: Path, clock: Clock) -> None:
    """Every look at the clock takes a second, and only reading looks that often."""
    graph = network(0, [1, 2, 1])
    graph.to_onnx(tmp_path / "net.onnx")
    ways = " ".join(f"(and (>= X_0 0) (<= X_0 1.5) (>= Y_0 {100 + i}))" for i in range(2000))
    text = f"(declare-const X_0 Real)(declare-const Y_0 Real)(assert (or {ways}))"
    (tmp_path / "p.vnnlib").write_text(text)
    clock.step = 1.0
    verdict = decide_files(tmp_path / "net.onnx", tmp_path / "p.vnnlib", 30)
    assert (verdict.status, verdict.reason) == ("timeout", "30 seconds have passed")
    assert 30 < verdict.seconds <= 33
    with pytest.raises(OutOfTime):
        parse_property(text, deadline=Deadline.after(30))
    clock.step = 0.0
    assert len(parse_property(text, deadline=Deadline.after(30)).cases) == 2000


def test_files_are_decided_as_what_they_hold(tmp_path: Path) -> None:
    graph = network(0, [1, 2, 1])
    graph.to_onnx(tmp_path / "net.onnx")
    for bound, status in (("-1e3", "violated"), ("1e3", "holds")):
        write_property(asked(("0", "1"), f"(>= Y_0 {bound})"), tmp_path / "p.vnnlib")
        assert decide_files(tmp_path / "net.onnx", tmp_path / "p.vnnlib").status == status
    write_property(parse_property(TWO_INPUTS), tmp_path / "p.vnnlib")
    with pytest.raises(PropertyError, match="about 2 inputs"):
        decide_files(tmp_path / "net.onnx", tmp_path / "p.vnnlib")


def test_calls_that_are_wrong() -> None:
    question = asked(("0", "1"), "(>= Y_0 3)")
    with pytest.raises(ArgumentError, match="'timeout' parameter"):
        decide(RELU, question, 0)
    with pytest.raises(PropertyError, match="about 1 inputs"):
        decide(network(0, [2, 3, 1]), question)
    with pytest.raises(TypeError, match="not a boolean"):
        bool(decide(RELU, question))
