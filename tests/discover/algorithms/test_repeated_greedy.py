"""Repeated greedy passes end locally minimal, and pairs that cancel go together."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.verify.finite.attention import DOMAIN, captured

import provable_circuits as pc
from provable_circuits.discover.algorithms.repeated_greedy import opposite_pairs
from provable_circuits.network.graph import GraphBuilder
from provable_circuits.network.ops import Linear, ReLU


def cancelling() -> pc.Graph:
    """Neuron 0 computes the output; neurons 1 and 2 are equal, and written with opposite signs."""
    builder = GraphBuilder()
    x = builder.input("x", (2,))
    first = torch.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 1.0]])
    hidden = builder.add("relu", ReLU(), builder.add("fc", Linear(first), x))
    second = torch.tensor([[1.0, 5.0, -5.0], [-1.0, 5.0, -5.0]])
    return builder.build([builder.add("out", Linear(second), hidden)])


def test_pairs_that_cancel_go_together() -> None:
    graph = cancelling()
    claim = pc.Claim(pc.Finite([[1.0, 2.0], [3.0, 1.0]]), pc.Zero(), pc.MaxAbs(0.1))
    settings = {"outputs": False}
    single = pc.discover(graph, claim, "neuron", "greedy", **settings)  # type: ignore[arg-type]
    assert single.circuit.names == ("fc/0", "fc/1", "fc/2")
    result = pc.discover(graph, claim, "neuron", "repeated-greedy", **settings)  # type: ignore[arg-type]
    assert result.circuit.names == ("fc/0",)
    assert result.faithful == "proved"
    full = graph.components("neuron", outputs=False).full()
    assert opposite_pairs(full, claim) == [("fc/1", "fc/2")]


def test_the_circuit_left_is_locally_minimal_and_every_component_has_a_witness() -> None:
    graph = captured(4, blocks=2)
    claim = pc.Claim(DOMAIN, pc.Mean(DOMAIN), pc.SameAnswer())
    result = pc.discover(graph, claim, ["head", "neuron"], "repeated-greedy")
    assert result.faithful == "proved"
    assert 0 < len(result.circuit) < 16
    assert result.minimality.notions["local"] == "unconditional"
    for name, kept in result.kept.items():
        assert kept.status == "necessary"
        verdict = kept.verdict
        assert isinstance(verdict, pc.Refuted)
        patch = claim.patching.values(result.circuit.components)
        smaller = result.circuit.remove(name)
        output = smaller.run(verdict.witness.z, patch, torch.float64)
        reference = graph.run(verdict.witness.z, torch.float64)
        assert float(claim.metric.excess(reference, reference, output)) >= -1e-9
    assert "strictly larger" in str(result.document()["claim"]["in_words"]["metric"])
    assert "necessary" in str(result)


def test_runs_over_finite_domains_are_saved_but_not_of_positions(tmp_path: Path) -> None:
    for last in (True, False):
        claim = pc.Claim(DOMAIN, pc.Zero(), pc.SameAnswer())
        result = pc.discover(captured(4, last=last), claim, ["head", "neuron"])
        if last:
            result.save(tmp_path / "run")
            assert set(pc.Run.load(tmp_path / "run").kept) == set(result.kept)
        else:
            with pytest.raises(pc.ProvableCircuitsError, match="positions cannot be saved yet"):
                result.save(tmp_path / "positions")
