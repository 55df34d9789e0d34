"""What removed components output."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from provable_circuits.claims import patching
from provable_circuits.claims.domains import Ball, Box, Point
from provable_circuits.claims.patching import (
    Constant,
    IntervalHull,
    Mean,
    Reachable,
    Zero,
    mean_activations,
)
from provable_circuits.errors import ArgumentError
from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.ops import Conv2d, Linear, ReLU, Reshape


def network(seed: int = 0) -> Graph:
    """conv [3, 4, 4] -> relu -> fc [2]."""
    generator = torch.Generator().manual_seed(seed)
    builder = GraphBuilder()
    x = builder.input("x", (1, 4, 4))
    conv = builder.add("conv", Conv2d(torch.randn(3, 1, 1, 1, generator=generator)), x)
    flat = builder.add("flat", Reshape((48,)), builder.add("relu", ReLU(), conv))
    fc = builder.add("fc", Linear(torch.randn(2, 48, generator=generator)), flat)
    return builder.build([fc])


def data(count: int = 1000) -> Tensor:
    return torch.randn(count, 1, 4, 4, generator=torch.Generator().manual_seed(1))


def test_zero_is_zero_at_every_site() -> None:
    values = Zero().values(network().components("filter", outputs=False))
    assert {name: tuple(value.shape) for name, value in values.items()} == {"relu": (1, 3, 4, 4)}
    assert not values["relu"].any()
    assert values["relu"].dtype == torch.float64
    assert repr(Zero()) == "Zero()"
    assert Zero() == Zero()


def test_mean_is_that_of_each_unit() -> None:
    graph, x = network(), data()
    values = Mean(x).values(graph.components())
    wanted = graph.activations(x.double())
    for name in ("relu", "fc"):
        torch.testing.assert_close(values[name], wanted[name].mean(0, keepdim=True))
        assert values[name].dtype == torch.float64


class Loader:
    """Batches of inputs with labels, as a data loader gives them, one at a time."""

    def __init__(self, x: Tensor, size: int, kind: type = list) -> None:
        self.x, self.size, self.kind = x, size, kind
        self.rounds = 0

    def __iter__(self) -> Iterator[Any]:
        self.rounds += 1
        for part in self.x.split(self.size):
            yield self.kind([part, torch.zeros(len(part))])


STREAMS: dict[str, Callable[[Any], Any]] = {
    "one array": lambda x: x,
    "numpy": lambda x: x.numpy(),
    "float64": lambda x: x.double(),
    "list of batches": lambda x: list(x.split(300)),
    "generator": lambda x: (part for part in x.split(7)),
    "single samples": lambda x: list(x),
    "pairs": lambda x: Loader(x, 128),
    "tuples": lambda x: Loader(x, 128, tuple),
    "one batch": lambda x: [x],
    "nested lists": lambda x: x.tolist(),
}


@pytest.mark.parametrize("kind", STREAMS)
def test_streamed_means_are_the_means_of_all(kind: str) -> None:
    graph, x = network(), data(601)
    found = mean_activations(graph, STREAMS[kind](x))
    wanted = graph.activations(x.double())
    for name in ("relu", "fc"):
        torch.testing.assert_close(
            found[name], wanted[name].mean(0, keepdim=True), rtol=1e-6, atol=1e-6
        )


def test_one_array_goes_through_the_network_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patching, "BATCH", 10)
    graph, x = network(), data(25)
    wanted = graph.activations(x.double())["fc"].mean(0, keepdim=True)
    torch.testing.assert_close(mean_activations(graph, x)["fc"], wanted)


def test_means_are_taken_once_for_each_network() -> None:
    loader = Loader(data(10), 5)
    mean = Mean(loader)
    components = network().components()
    first = mean.values(components)
    assert mean.values(network().components("neuron")) is first
    assert loader.rounds == 1
    mean.values(network(seed=3).components())
    assert loader.rounds == 2
    assert repr(mean) == "Mean(data)"


def test_an_iterator_serves_one_network() -> None:
    mean = Mean(iter([data(5)]))
    mean.values(network().components())
    mean.values(network().components())
    with pytest.raises(ArgumentError, match="at least one input"):
        mean.values(network(seed=3).components())


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([], "'data' parameter of Mean must hold at least one input"),
        (torch.zeros(0, 1, 4, 4), "at least one number"),
        (3, "array of inputs or an iterable of batches. Got 3"),
        (torch.zeros(5, 3), r"inputs of shape \[1, 4, 4\]"),
        ([torch.zeros(2, 1, 4, 4), torch.zeros(2, 3)], r"Got \[2, 3\]"),
        (torch.full((2, 1, 4, 4), math.nan), "'data' parameter of Mean must be finite. Got NaN"),
        (
            torch.full((2, 1, 4, 4), 1e308, dtype=torch.float64),
            "finite activations. Got NaN or infinity at 'relu'",
        ),
        (torch.ones(2, 1, 4, 4).byte(), r"Got torch.uint8 instead, .* as in x / 255.0"),
        ([torch.ones(2, 1, 4, 4), torch.ones(2, 1, 4, 4).byte()], "Batch 1 of the 'data' .* 255"),
        ([torch.ones(2, 1, 4, 4), "b"], "Batch 1 of the 'data' parameter of Mean must be an array"),
    ],
)
def test_data_that_gives_no_mean(given: Any, says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        Mean(given).values(network().components())


def test_constants_by_number_and_by_layer() -> None:
    components = network().components(outputs=False)
    assert torch.equal(
        Constant(0.5).values(components)["relu"], torch.full((1, 3, 4, 4), 0.5).double()
    )
    by_filter = Constant({"conv": np.array([1.0, 2.0, 3.0])[:, None, None]}).values(components)
    assert by_filter["relu"][0, :, 0, 0].tolist() == [1.0, 2.0, 3.0]
    assert by_filter["relu"].shape == (1, 3, 4, 4)
    assert repr(Constant(0.5)) == "Constant(0.5)"
    assert repr(Constant({"conv": 1})) == "Constant(by layer)"


def test_a_layer_that_is_not_named_is_patched_with_zero() -> None:
    values = Constant({"fc": 2.0}).values(network().components("neuron"))
    assert set(values) == {"fc"}
    assert values["fc"].tolist() == [[2.0, 2.0]]
    assert not Constant({}).values(network().components("filter"))["relu"].any()


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"conv9": 1.0}, "names 'conv9', which is no layer with components; those are conv"),
        ({"fc": 1.0}, "which is no layer with components"),
        (math.nan, "must be a finite number. Got nan"),
        ({"conv": [1.0, 2.0]}, r"layer 'conv' must broadcast to \[3, 4, 4\]. Got \[2\]"),
        ("zero", "must be a finite number. Got 'zero'"),
        ({"conv": None}, "must be an array of numbers. Got None"),
    ],
)
def test_constants_that_do_not_fit(value: Any, says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        Constant(value).values(network().components())


@pytest.mark.parametrize("kind", [Reachable, IntervalHull])
def test_ranging_patches_have_a_domain_for_each_input(kind: type[Reachable | IntervalHull]) -> None:
    inputs = [Point([0.25]), Ball([0.75], 0.1)]
    around = [kind(eps=0.5, clip=(0, 1)).domain(i, inputs) for i in (0, 1)]
    assert [domain.center.tolist() for domain in around] == [[0.25], [0.75]]
    lower, upper = around[0].bounds()
    assert float(lower) == 0.0
    assert float(upper) == pytest.approx(0.75)
    shared = Box([0.0], [1.0])
    assert kind(domains=shared).domain(1, inputs) is shared
    each = [Box([0.0], [1.0]), Box([0.5], [1.0])]
    assert kind(domains=each).domain(1, inputs) is each[1]
    assert repr(kind(eps=0.5)) == f"{kind.__name__}(eps=0.5)"
    with pytest.raises(ArgumentError, match="one for each of the 2 inputs"):
        kind(domains=each[:1]).domain(0, inputs)


@pytest.mark.parametrize("settings", [{}, {"eps": 0.1, "domains": Box([0.0], [1.0])}])
def test_ranging_patches_take_a_radius_or_domains(settings: Any) -> None:
    with pytest.raises(ArgumentError, match=r"Reachable takes either 'eps'.* Got both or neither"):
        Reachable(**settings)


def test_each_patching_is_one_of_three_things() -> None:
    graph = network()
    fixed = (Zero(), Mean(torch.zeros(2, *graph.input_shape)), Constant(0.5))
    for one in fixed:
        assert (one.is_fixed, one.has_source, one.has_boxes) == (True, False, False)
        assert one.radius is None
        with pytest.raises(ArgumentError, match="come from no domain"):
            one.domain(0, [Point([0.0])])
    source, boxes = Reachable(eps=0.25, p=2), IntervalHull(domains=Box([0.0], [1.0]))
    assert (source.is_fixed, source.has_source, source.has_boxes) == (False, True, False)
    assert (boxes.is_fixed, boxes.has_source, boxes.has_boxes) == (False, False, True)
    assert source.radius == (0.25, 2.0)
    assert boxes.radius is None
    for ranging in (source, boxes):
        with pytest.raises(ArgumentError, match="no single function"):
            ranging.values(graph.components())


def test_means_without_their_data_are_the_same_numbers() -> None:
    graph = network()
    components = graph.components()
    mean = Mean(torch.randn(5, *graph.input_shape, generator=torch.Generator().manual_seed(3)))
    numbers = mean.without_data(components)
    assert isinstance(numbers, Constant)
    values, same = mean.values(components), numbers.values(components)
    for site in components.sites:
        assert torch.equal(values[site.tensor], same[site.tensor])
        assert bool(values[site.tensor].any())
    zero = Zero()
    assert zero.without_data(components) is zero
