"""The configuration: explained, frozen, sensible, and handed down to everything that is built."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError, fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.verify.networks import dense, hard, pools

import provable_circuits as pc
from provable_circuits.discover.predicates.distributed import Distributed
from provable_circuits.discover.predicates.predicate import Decided
from provable_circuits.discover.predicates.transport import pack_question, unpack_question
from provable_circuits.errors import ArgumentError
from provable_circuits.tuning import Tuning
from provable_circuits.verify.bounding.bounds import Structure
from provable_circuits.verify.bounding.region import Region
from provable_circuits.verify.configuration import DEFAULT, Configuration
from provable_circuits.verify.exact.claims import Exact
from provable_circuits.verify.neuron_hull.presolved import Presolved
from provable_circuits.verify.tuning.bounding import BoundingTuning

GROUPS: dict[str, Tuning] = {group.name: getattr(DEFAULT, group.name) for group in fields(DEFAULT)}


def every_field() -> Iterator[tuple[str, str, Any]]:
    """Groups, their fields, and the values of these."""
    for group, values in GROUPS.items():
        for name in values.senses():
            yield group, name, getattr(values, name)


def test_every_field_has_a_unit_and_one_line_of_explanation() -> None:
    assert len(list(every_field())) > 90
    for group, name, _ in every_field():
        sense = GROUPS[group].senses()[name]
        assert sense.unit, (group, name)
        assert 10 < len(sense.explanation) < 100, (group, name)
        assert "\n" not in sense.explanation, (group, name)


def test_every_group_is_explained() -> None:
    for name in GROUPS:
        assert f"        {name}: " in str(Configuration.__doc__)


@pytest.mark.parametrize(
    ("group", "name", "value"), list(every_field()), ids=lambda part: str(part)
)
def test_every_field_has_a_sensible_default_and_refuses_nonsense(
    group: str, name: str, value: Any
) -> None:
    assert DEFAULT.changed(**{group: {name: value}}) == DEFAULT
    owner = type(GROUPS[group]).__name__
    wrong: Any = (-1.0,) if isinstance(value, tuple) else -1
    for nonsense in (wrong, "many", None, float("nan")):
        with pytest.raises(ArgumentError, match=f"The '{name}' parameter of {owner} must be"):
            DEFAULT.changed(**{group: {name: nonsense}})


def test_no_field_is_left_unread() -> None:
    """A number that nobody reads would be changed in vain."""
    room = Path(pc.__file__).parent
    read = set()
    for path in room.rglob("*.py"):
        read |= {
            node.attr
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
        }
    assert {name for _, name, _ in every_field()} - read == set()


def test_a_configuration_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        DEFAULT.bounding = BoundingTuning()  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        DEFAULT.bounding.small_units = 0  # type: ignore[misc]


def test_what_is_no_configuration_is_refused() -> None:
    with pytest.raises(ArgumentError, match="A group of Configuration must be one of bounding, "):
        DEFAULT.changed(bounds={"small_units": 1})
    with pytest.raises(ArgumentError, match=r"must be one of small_units, .* Got 'small' instead"):
        DEFAULT.changed(bounding={"small": 1})
    with pytest.raises(ArgumentError, match="'exact' parameter of Configuration must be a ExactT"):
        replace(DEFAULT, exact=DEFAULT.bounding)  # type: ignore[arg-type]
    graph = dense(0)
    claim = pc.Claim([pc.Ball(torch.zeros(5), 0.1)], pc.Zero(), pc.LogitDifference(0.5, 1))
    with pytest.raises(ArgumentError, match="'configuration' parameter of Verifier must be a Con"):
        pc.Verifier(graph.components(), claim, configuration={})  # type: ignore[arg-type]


def question(graph: pc.Graph) -> tuple[pc.Components, pc.Claim]:
    ball = pc.Ball(torch.zeros(graph.input_shape), 0.1)
    return graph.components(), pc.Claim([ball], pc.Zero(), pc.MaxAbs(0.01))


@pytest.mark.parametrize("units", [0, 10**6])
def test_one_threshold_of_size_decides_everywhere(units: int) -> None:
    components, claim = question(dense(0))
    configuration = DEFAULT.changed(bounding={"small_units": units}, stages={"together": 17})
    verifier = pc.Verifier(components, claim, configuration=configuration)
    query = verifier.encoder.encode(components.full().remove(components.names[0]))
    assert verifier.small == (units > 0)
    assert verifier.context.structure(query.graph).small == (units > 0)
    assert verifier.together == (17 if units else 1)
    assert Decided(components, claim, configuration=configuration).together == verifier.together


def test_a_verifier_uses_its_configuration() -> None:
    """The same question, with and without neuron hulls before the tree grows."""
    circuit, claim = hard(pools())

    def stage(**groups: dict[str, Any]) -> str:
        large = DEFAULT.changed(bounding={"small_units": 0}).changed(**groups)
        verifier = pc.Verifier(circuit.components, claim, configuration=large)
        return str(verifier.ask(circuit, max_nodes=8).stage)

    assert stage(stages={"hulls_after": 10**6}) == "branching"
    assert stage(stages={"hulls_after": 0}) == "neuron-hull"


@pytest.mark.parametrize("small", [0, 10**6])
def test_whatever_is_built_for_a_question_has_its_configuration(
    small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A default that someone forgot to replace would go unnoticed elsewhere."""
    configuration = DEFAULT.changed(
        bounding={"small_units": small, "few_boxes": 5},
        stages={"hulls_after": 0},
        neuron_hull={"sample": 63},
        exact={"most_cells": 63},
    )
    seen: set[str] = set()

    def watch(kind: Any, held: Callable[[Any], Any], wanted: Any) -> None:
        honest = kind.__init__

        def made(self: Any, *arguments: Any, **named: Any) -> None:
            honest(self, *arguments, **named)
            seen.add(kind.__name__)
            assert held(self) == wanted, kind.__name__

        monkeypatch.setattr(kind, "__init__", made)

    watch(Structure, lambda made: made.configuration, configuration)
    watch(Region, lambda made: made.few_boxes, 5)
    watch(Presolved, lambda made: made.tuning, configuration.neuron_hull)
    watch(Exact, lambda made: made.tuning, configuration.exact)
    circuit, claim = hard(pools())
    verifier = pc.Verifier(circuit.components, claim, configuration=configuration)
    smaller = [circuit.remove(name) for name in circuit.names[:2]]
    verifier.screen([circuit, *smaller])
    verifier.suspects(smaller)
    for one in (circuit, *smaller):
        verifier.ask(one, max_nodes=40)
    assert seen >= {"Structure", "Region", "Exact"}
    assert ("Presolved" in seen) == (small == 0)


def test_a_configuration_travels_to_workers() -> None:
    components, claim = question(dense(0))
    configuration = DEFAULT.changed(
        bounding={"least_cost": 3e-10},
        exact={"retreats": (0, 5)},
        proving={"denominator": 10**9},
        branching={"most_numbers": 2**60},
    )
    _, _, settings = unpack_question(
        pack_question(components, claim, {"configuration": configuration})
    )
    assert settings["configuration"] == configuration
    assert settings["configuration"] != DEFAULT


def test_workers_have_the_configuration_of_their_predicate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    components, claim = question(dense(0))
    configuration = DEFAULT.changed(stages={"together": 5})
    packed: list[bytes] = []

    class NoCrew:
        def __init__(self, workers: int, build: object, data: bytes) -> None:
            packed.append(data)

    monkeypatch.setattr(importlib.import_module(Distributed.__module__), "Crew", NoCrew)
    Distributed(Decided(components, claim, configuration=configuration), 2)
    assert unpack_question(packed[0])[2]["configuration"] == configuration
