"""Problems: what becomes a node of the circuit, and what the metrics state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.proof.models import FILES, METRICS

from provable_circuits.proof.checker.arithmetic import Arithmetic, RefusedError
from provable_circuits.proof.checker.network import parse_network
from provable_circuits.proof.checker.operations import Linear, Square
from provable_circuits.proof.checker.problem import Problem, Region, build
from provable_circuits.proof.checker.rules import Subdomain

FLOAT = Arithmetic()


def built(name: str, removed: dict[str, Any], patch: Any, metric: Any) -> Problem:
    network = parse_network(FILES[name])
    units = network.steps[0].units
    region = Region(np.zeros(units), np.ones(units))
    return build(FLOAT, network.steps, network.output, region, removed, patch, metric)


def test_only_what_a_removal_reaches_is_a_node_of_the_circuit() -> None:
    removed = {"relu0": np.array([False, True, False, False])}
    problem = built("perceptron", removed, {"relu0": np.full(4, 7.0)}, METRICS[0])
    names = [node.name for node in problem.nodes]
    assert not {"C:x", "C:fc0"} & set(names)
    assert {"C:relu0", "C:fc1", "C:relu1"} <= set(names)
    assert problem.place("C:fc0") == problem.place("N:fc0")
    node: Any = problem.nodes[problem.place("C:relu0")]
    assert node.twin == problem.place("N:relu0")
    assert node.differ.tolist() == removed["relu0"].tolist()
    assert node.removed is removed["relu0"]
    assert node.patch.tolist() == [7.0] * 4
    whole = Subdomain.whole(problem)
    lower, upper = whole.bounds[problem.place("C:relu0")]
    assert lower[1] == upper[1] == 7
    assert (upper[[0, 2, 3]] == whole.bounds[node.twin][1][[0, 2, 3]]).all()
    after: Any = problem.nodes[problem.place("C:fc1")]
    assert after.differ.all()
    assert after.removed is None
    with pytest.raises(RefusedError, match="which there is not"):
        problem.place("C:nothing")
    removed["relu1"] = np.zeros(4, dtype=bool)  # of which nothing is removed: no patch is asked for
    problem = built("perceptron", removed, {"relu0": np.full(4, 7.0)}, METRICS[0])
    assert problem.nodes[problem.place("C:relu1")].removed is None


def test_nothing_removed_is_the_network() -> None:
    problem = built("perceptron", {"relu0": np.zeros(4, dtype=bool)}, {}, METRICS[0])
    assert problem.place("C:fc2") == problem.place("N:fc2")
    whole = Subdomain.whole(problem)
    bounds = whole.lower_bound(problem.target, problem.objectives, {})
    assert (bounds <= 0).all()
    assert (bounds > -1e-13).all()


def test_a_removed_input() -> None:
    mask = np.array([True, False, True])
    problem = built("perceptron", {"x": mask}, {"x": np.array([0.5, 9.0, -0.5])}, METRICS[0])
    whole = Subdomain.whole(problem)
    lower, upper = whole.bounds[problem.place("C:x")]
    assert lower.tolist() == [0.5, 0, -0.5]
    assert upper.tolist() == [0.5, 1, -0.5]
    rows = np.eye(3)
    assert np.allclose(whole.lower_bound(problem.place("C:x"), rows, {}), lower)
    assert np.allclose(whole.lower_bound(problem.place("C:x"), -rows, {}), -upper)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: str(metric["kind"]))
def test_metrics(metric: dict[str, Any]) -> None:
    """The objectives are at least 0 where the claim holds, and below elsewhere."""
    problem = built("perceptron", {"relu1": np.ones(4, dtype=bool)}, {"relu1": np.ones(4)}, metric)
    node = problem.nodes[problem.target]
    for network, circuit in (
        ([1.0, 3], [1.25, 3]),
        ([1.0, 3], [3.0, 2]),
        ([0.0, 0], [0.0, -0.375]),
        ([0.0, 0], [0.375, 0.375]),
        ([0.0, 0], [0.0, -0.75]),
        ([0.0, 0], [0.75, 0.0]),
    ):
        n, c = np.array(network), np.array(circuit)
        off = c - n
        kind = metric["kind"]
        holds = {
            "max-abs": abs(off).max() <= 0.5,
            "logit-difference": abs(off[1]) <= 0.25,
            "norm": np.linalg.norm(off, metric.get("p")) <= 0.5,
            "winner-margin": c[1] - c[0] >= 0.125,
        }[kind]
        value = {"C:fc2": c, "D:difference": off, "D:sizes": abs(off) ** metric.get("p", 1)}[
            node.name
        ]
        assert ((problem.objectives @ value + problem.offsets >= 0).all()) == holds
    assert problem.offsets.shape == (len(problem.objectives),)
    if metric.get("p") == 2:
        assert problem.offsets[0] < 0.25
        assert isinstance(node.operation, Square)
    if node.name == "D:difference":
        assert isinstance(node.operation, Linear)
        assert node.inputs == (
            problem.place("C:fc2"),
            problem.place("N:fc2"),
        )


def test_the_winner_has_a_margin_to_each_other() -> None:
    metric = {"kind": "winner-margin", "winner": 1, "others": [0, 0], "margin": 0.125}
    problem = built("perceptron", {}, {}, metric)
    assert problem.objectives.tolist() == [[-1, 1], [-1, 1]]
    assert problem.offsets.tolist() == [-0.125, -0.125]


def test_other_metrics_are_refused() -> None:
    for metric in ({"kind": "norm", "p": 3, "tolerance": 1.0}, {"kind": "kl", "tolerance": 1.0}):
        with pytest.raises(RefusedError, match="none that can be proved"):
            built("perceptron", {}, {}, metric)
