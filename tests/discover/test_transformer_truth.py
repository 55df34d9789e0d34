"""Transformers with known facts: what is proved of them agrees with what was measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.discover.transformers import ModularAddition, compiled

import provable_circuits as pc
from provable_circuits.verify.finite.verifier import FiniteVerifier


@pytest.fixture(scope="module")
def folder(shared_data: Path) -> Path:
    found = shared_data / "transformers"
    if not found.is_dir():
        pytest.skip("the data pack has no transformers")
    return found


DOMAIN = pc.Tokens([range(113), range(113), [113]])


def test_every_single_ablation_of_the_modular_addition_model(folder: Path) -> None:
    graph = pc.Graph.from_torch(ModularAddition(folder), DOMAIN.inputs[:2].long())
    components = graph.components(["head", "neuron"])
    assert len(components) == 516
    claim = pc.Claim(DOMAIN, pc.Zero(), pc.SameAnswer())
    verifier = FiniteVerifier(components, claim)
    facts = np.load(folder / "mod_addition_113" / "ablations.npz", allow_pickle=False)
    margins = np.concatenate([facts["head_zero"][:, 2], facts["neuron_zero"][:, 2]])
    verdicts = [verifier.ask(components.full().remove(name)) for name in components.names]
    assert [v.proved for v in verdicts] == [bool(margin > 0) for margin in margins]
    assert sum(v.proved for v in verdicts) == 494
    network = verifier.ask(components.full())
    assert isinstance(network, pc.Proved)
    for verdict, margin in zip(verdicts, margins, strict=True):
        if isinstance(verdict, pc.Proved):
            assert verdict.bound == pytest.approx(-margin, abs=1e-3)


def test_a_circuit_of_the_modular_addition_model_is_proved_for_every_input(folder: Path) -> None:
    graph = pc.Graph.from_torch(ModularAddition(folder), DOMAIN.inputs[:2].long())
    patching = pc.Mean(DOMAIN)
    claim = pc.Claim(DOMAIN, patching, pc.SameAnswer())
    result = pc.discover(graph, claim, ["head", "neuron"], "repeated-greedy", max_nodes=10**9)
    assert result.faithful == "proved"
    assert result.minimality.notions["local"] == "unconditional"
    assert all(kept.status == "necessary" for kept in result.kept.values())
    assert {f"attn/h{i}" for i in range(4)} <= set(result.circuit.names)
    assert 4 < len(result.circuit) < 140
    patch = patching.values(result.circuit.components)
    tokens = DOMAIN.inputs.long()
    parts = [result.circuit.run(part, patch) for part in tokens.split(2000)]
    answers = torch.cat(parts).argmax(-1)
    assert torch.equal(answers, (tokens[:, 0] + tokens[:, 1]) % 113)


PROGRAMS = ["frac_prevs", "hist", "length", "pair_balance", "sort_unique", "trend"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_circuits_of_compiled_programs(folder: Path, program: str) -> None:
    module, tokens, target, truth = compiled(folder, program)
    graph = pc.Graph.from_torch(module, tokens[:2])
    categorical = graph.output_shape[-1] > 1
    count = target.shape[1]
    defined = [p for p in range(count) if not categorical or bool((target[:, p] >= 0).all())]
    positions = defined if len(defined) < count else None
    metric: pc.Metric = pc.SameAnswer() if categorical else pc.MaxAbs(0.01)
    claim = pc.Claim(pc.Finite(tokens), pc.Zero(), metric, positions)
    result = pc.discover(graph, claim, ["head", "neuron"], "repeated-greedy", max_nodes=10**9)
    assert result.faithful == "proved"
    known = len(truth["circuit_heads"]) + len(truth["circuit_neurons"])
    assert len(result.circuit) <= known
    outputs = result.circuit.run(tokens, dtype=torch.float64)[:, defined].numpy()
    wanted = target[:, defined]
    if categorical:
        assert (outputs.argmax(-1) == wanted).all()
    else:
        assert np.nanmax(np.abs(outputs[..., 0] - wanted)) < 0.011
    for kept in result.kept.values():
        assert kept.status != "removable"


def test_pairs_that_cancel_are_no_trap(folder: Path) -> None:
    """One at a time both neurons of a pair stay; together they go."""
    module, tokens, _, truth = compiled(folder, "hist")
    graph = pc.Graph.from_torch(module, tokens[:2])
    claim = pc.Claim(pc.Finite(tokens), pc.Zero(), pc.SameAnswer())
    pair = {
        f"layers_{layer}_W_in/{index}"
        for layer, index, kind in truth["distractor_neurons"]
        if kind == "cancel_pair"
    }
    assert len(pair) == 2
    single = pc.discover(graph, claim, ["head", "neuron"], "greedy")
    assert pair <= set(single.circuit.names)
    grouped = pc.discover(graph, claim, ["head", "neuron"], "repeated-greedy")
    assert not pair & set(grouped.circuit.names)
