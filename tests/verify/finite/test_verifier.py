"""Finite domains: every verdict is that of trying each input, and proofs have bounds that hold."""

from __future__ import annotations

import itertools

import pytest
import torch
from tests.verify.finite.attention import DOMAIN, captured

import provable_circuits as pc
from provable_circuits.network.graph import GraphBuilder
from provable_circuits.network.ops import Linear, ReLU, Softmax
from provable_circuits.verify.configuration import DEFAULT
from provable_circuits.verify.finite.verifier import FiniteVerifier
from provable_circuits.verify.outcome import Reason
from provable_circuits.verify.stage import Stage

METRICS = [
    pc.SameAnswer(),
    pc.SameAnswer(0.05),
    pc.MaxAbs(0.3),
    pc.Norm(0.4, 2),
    pc.Norm(0.5, 1),
    pc.LogitDifference(0.2),
    pc.WinnerMargin(0.5),
    pc.WinnerMargin(0.3, "all"),
]
PATCHINGS = [pc.Zero(), pc.Mean(DOMAIN), pc.Constant(0.25)]


def worst(circuit: pc.Circuit, claim: pc.Claim) -> float:
    """The largest excess over all inputs, and positions, by plain runs."""
    graph = circuit.components.graph
    patch = claim.patching.values(circuit.components)
    output = circuit.run(claim.centers, patch, torch.float64)
    reference = graph.run(claim.centers, torch.float64)
    if output.ndim == 2:
        output, reference = output.unsqueeze(1), reference.unsqueeze(1)
    places = range(output.shape[1]) if claim.positions is None else claim.positions
    return max(
        float(claim.metric.excess(reference[:, p], reference[:, p], output[:, p]).max())
        for p in places
    )


def right(verdict: pc.Verdict, circuit: pc.Circuit, claim: pc.Claim) -> bool:
    """Whether a verdict is what trying each input says."""
    excess = worst(circuit, claim)
    if isinstance(verdict, pc.Proved):
        return excess <= verdict.bound <= 0
    if isinstance(verdict, pc.Refuted):
        return excess >= verdict.witness.excess - 1e-9
    return abs(excess) < 1e-9


@pytest.mark.parametrize("metric", METRICS, ids=repr)
@pytest.mark.parametrize("patching", PATCHINGS, ids=lambda p: type(p).__name__)
def test_verdicts_are_those_of_trying_each_input(metric: pc.Metric, patching: pc.Patching) -> None:
    graph = captured()
    components = graph.components(["head", "neuron"])
    claim = pc.Claim(DOMAIN, patching, metric)
    verifier, fresh = (FiniteVerifier(components, claim, reuse=reuse) for reuse in (True, False))
    kinds = set()
    generator = torch.Generator().manual_seed(1)
    for _ in range(25):
        keep = torch.rand(len(components), generator=generator) < 0.8
        circuit = components.circuit_of(keep)
        verdict = verifier.ask(circuit)
        assert right(verdict, circuit, claim)
        assert fresh.ask(circuit).kind == verdict.kind
        kinds.add(verdict.kind)
    assert "refuted" in kinds
    assert right(verifier.ask(components.full()), components.full(), claim)


def test_a_greedy_walk_by_tails_is_that_of_fresh_verifiers() -> None:
    graph = captured(3)
    components = graph.components(["head", "neuron"])
    claim = pc.Claim(DOMAIN, pc.Zero(), pc.MaxAbs(4.0))
    verifier = FiniteVerifier(components, claim)
    circuit, stages = components.full(), set()
    for component in components.discovery_order():
        candidate = circuit.remove(component.name)
        verdict = verifier.ask(candidate)
        assert verdict.kind == FiniteVerifier(components, claim, reuse=False).ask(candidate).kind
        assert right(verdict, candidate, claim)
        stages.add(verdict.stage)
        circuit = candidate if verdict.proved else circuit
    assert {Stage.FINITE, Stage.POOL} <= stages
    assert 0 < len(circuit) < len(components)
    again = verifier.ask(components.full())
    assert again.proved


@pytest.mark.parametrize("positions", [None, [1], [0, 2]])
def test_outputs_with_positions(positions: list[int] | None) -> None:
    graph = captured(1, last=False, blocks=2)
    components = graph.components(["head", "neuron"])
    claim = pc.Claim(DOMAIN, pc.Zero(), pc.SameAnswer(), positions)
    verifier = FiniteVerifier(components, claim)
    seen = set()
    for name in components.names:
        circuit = components.full().remove(name)
        verdict = verifier.ask(circuit)
        assert right(verdict, circuit, claim)
        seen.add(verdict.kind)
        if isinstance(verdict, pc.Refuted):
            assert verdict.witness.position in (positions or [0, 1, 2])
    assert seen == {"proved", "refuted"}


def test_witnesses_are_inputs_of_the_domain_that_break_the_claim() -> None:
    graph = captured()
    components = graph.components("head")
    claim = pc.Claim(DOMAIN, pc.Zero(), pc.MaxAbs(0.05))
    verdict = pc.verify(graph, components.empty(), claim)
    assert isinstance(verdict, pc.Refuted)
    witness = verdict.witness
    assert torch.equal(witness.z, DOMAIN.points(witness.index, witness.index + 1)[0])
    output = components.empty().run(witness.z, dtype=torch.float64)[0]
    torch.testing.assert_close(output, witness.output)
    assert float((output - graph.run(witness.z, torch.float64)[0]).abs().max()) > 0.05


def plain(weight: list[list[float]]) -> pc.Graph:
    builder = GraphBuilder()
    x = builder.input("x", (2,))
    hidden = builder.add("relu", ReLU(), builder.add("fc", Linear(torch.eye(2)), x))
    return builder.build([builder.add("out", Linear(torch.tensor(weight)), hidden)])


def test_a_tie_is_a_violation() -> None:
    """The empty circuit's outputs are all exactly zero: nothing is the largest."""
    graph = plain([[1.0, 0.0], [0.0, 1.0]])
    claim = pc.Claim(pc.Finite([[2.0, 1.0], [1.0, 3.0]]), pc.Zero(), pc.SameAnswer())
    components = graph.components()
    verdict = pc.verify(graph, components.empty(), claim)
    assert isinstance(verdict, pc.Refuted)
    assert verdict.witness.excess == 0
    assert pc.verify(graph, components.full(), claim).proved


def test_ties_of_the_network_itself_are_named() -> None:
    graph = plain([[1.0, 0.0], [0.0, 1.0]])
    claim = pc.Claim(pc.Finite([[2.0, 1.0], [1.0, 1.0]]), pc.Zero(), pc.SameAnswer())
    says = "tied, or too close to call, at 1 places: input 1"
    with pytest.raises(pc.ProvableCircuitsError, match=says):
        pc.verify(graph, graph.components().full(), claim)


def test_a_removal_that_changes_nothing_is_proved_without_arithmetic() -> None:
    graph = plain([[1.0, 5.0], [2.0, 1.0]])
    claim = pc.Claim(pc.Finite([[2.0, -1.0], [1.0, -3.0]]), pc.Zero(), pc.MaxAbs(0.0))
    components = graph.components(outputs=False)
    verifier = FiniteVerifier(components, claim)
    assert verifier.ask(components.full()).proved
    verdict = verifier.ask(components.circuit(["fc/0"]))
    assert (verdict.kind, verdict.stage) == ("proved", Stage.REDUNDANT)
    assert verifier.ask(components.circuit(["fc/1"])).refuted


def test_a_margin_within_rounding_is_too_close_to_call() -> None:
    graph = plain([[1.0, 1e-17], [0.0, 1.0]])
    claim = pc.Claim(pc.Finite([[0.1, 0.3]]), pc.Zero(), pc.MaxAbs(0.3e-17))
    verdict = pc.verify(graph, graph.components(outputs=False).circuit(["fc/1", "fc/0"]), claim)
    assert verdict.proved  # the network itself, by definition
    verdict = pc.verify(graph, graph.components().circuit(["fc/0", "fc/1", "out/0"]), claim)
    assert verdict.refuted
    close = pc.Claim(pc.Finite([[0.1, 0.3]]), pc.Zero(), pc.MaxAbs(0.3))
    verdict = pc.verify(graph, graph.components().circuit(["fc/0", "fc/1", "out/0"]), close)
    assert isinstance(verdict, pc.Undecided)
    assert verdict.reason == Reason.TOO_CLOSE


def test_limits_in_nodes_are_inputs() -> None:
    graph = captured()
    components = graph.components("head")
    claim = pc.Claim(DOMAIN, pc.Zero(), pc.MaxAbs(100.0))
    circuit = components.empty()
    verdict = FiniteVerifier(components, claim).ask(circuit, max_nodes=26)
    assert isinstance(verdict, pc.Undecided)
    assert verdict.reason == Reason.NODES
    assert FiniteVerifier(components, claim).ask(circuit, max_nodes=27).proved


def test_domains_in_several_chunks() -> None:
    graph = captured(2)
    components = graph.components(["head", "neuron"])
    claim = pc.Claim(DOMAIN, pc.Mean(DOMAIN), pc.MaxAbs(3.0))
    pairs = itertools.combinations(components.names, 2)
    circuits = [components.full().remove(*pair) for pair in pairs]
    whole = [FiniteVerifier(components, claim).ask(circuit).kind for circuit in circuits]
    tuned = DEFAULT.changed(finite={"chunk_numbers": 64})
    verifier = FiniteVerifier(components, claim, configuration=tuned)
    assert [verifier.ask(circuit).kind for circuit in circuits] == whole
    tuned = tuned.changed(finite={"cache_numbers": 0})
    verifier = FiniteVerifier(components, claim, configuration=tuned)
    assert [verifier.ask(circuit).kind for circuit in circuits] == whole
    assert set(whole) == {"proved", "refuted"}


def test_ranging_patchings_are_refused_in_words() -> None:
    graph = captured()
    claim = pc.Claim(DOMAIN, pc.IntervalHull(domains=DOMAIN), pc.MaxAbs(1.0))
    with pytest.raises(pc.ProvableCircuitsError, match="must be Zero, Mean or Constant"):
        pc.verify(graph, graph.components("head").empty(), claim)


def test_what_has_no_relaxation_is_undecided_over_regions() -> None:
    builder = GraphBuilder()
    x = builder.input("x", (2,))
    hidden = builder.add("fc", Linear(torch.eye(2)), x)
    graph = builder.build([builder.add("soft", Softmax(0), hidden)])
    components = graph.components()
    claim = pc.Claim(pc.Ball([0.1, 0.2], 0.1), pc.Zero(), pc.MaxAbs(0.5))
    verdict = pc.verify(graph, components.empty(), claim)
    assert isinstance(verdict, pc.Undecided)
    assert verdict.reason == Reason.NO_RELAXATION
    assert pc.verify(graph, components.full(), claim).proved
