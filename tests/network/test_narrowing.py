"""Narrowing leaves out what is not read, and computes the rest as before."""

from __future__ import annotations

import torch
from tests.verify.finite.attention import DOMAIN, captured

from provable_circuits.network.graph import Graph
from provable_circuits.network.narrowing import Span, narrowed


def test_only_the_last_position_is_computed_behind_attention() -> None:
    graph = captured()
    narrow, parts = narrowed(graph)
    wide = {name: graph[name].shape for name, part in parts.items() if part is not None}
    assert wide
    for name, shape in wide.items():
        assert shape[0] == 3
        assert narrow[name].shape == (1, *shape[1:])
    assert any("mlp" in name for name in wide)
    torch.testing.assert_close(
        narrow.run(DOMAIN.inputs, torch.float64), graph.run(DOMAIN.inputs, torch.float64)
    )


def test_a_network_whose_outputs_all_count_stays_as_it_is() -> None:
    graph = captured(0, last=False)
    assert narrowed(graph)[0] is graph


def test_tensors_that_are_wanted_whole_stay_whole() -> None:
    graph = captured(0, blocks=2)
    _, parts = narrowed(graph)
    name = next(name for name, part in parts.items() if part is not None and "mlp" in name)
    narrow, kept = narrowed(graph, keep=[name])
    assert kept[name] is None
    assert narrow[name].shape == graph[name].shape
    assert isinstance(narrow, Graph)
    torch.testing.assert_close(
        narrow.run(DOMAIN.inputs, torch.float64), graph.run(DOMAIN.inputs, torch.float64)
    )


def test_a_part_of_what_broadcasts() -> None:
    part = Span(0, 1, 3, 1)
    value = torch.arange(8.0).reshape(4, 2)
    assert part.of(value, 2).tolist() == [[2.0, 3.0], [4.0, 5.0]]
    assert part.of(value[:1], 2).tolist() == [[0.0, 1.0]]
    assert part.of(value[0], 2).tolist() == [0.0, 1.0]
    assert part.of(value.unsqueeze(0), 2).shape == (1, 2, 2)
