"""No mutant of a real certificate fools the checker; and the judge that says so is judged."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from tests.oracle.cases import draw
from tests.proof.certificates import SEEDS, make
from tests.proof.judge import Judge, false_statements
from tests.proof.parts import Parts
from tests.proof.trial import check, run

import provable_circuits as pc
from provable_circuits.proof.writing import Writer

ALWAYS = (8, 11, 19)
"""Claims that hold whatever the tolerance: nothing that matters was removed."""

BATCHES, EACH = 8, 60
"""Mutants of these tests; ``tests.proof.soak`` tries more."""


@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_mutant_is_accepted_whose_statement_is_false(batch: int) -> None:
    start = 100_000 + batch * EACH
    outcomes = {seed: run(seed) for seed in range(start, start + EACH)}
    wrong = {seed: (o.kind, o.wrong) for seed, o in outcomes.items() if o.wrong}
    assert not wrong
    verdicts = {o.verdict for o in outcomes.values()}
    assert {"refused", "same", "true"} <= verdicts  # each of them is tried


@pytest.mark.parametrize("seed", [seed for seed in SEEDS if seed not in ALWAYS])
def test_the_judge_finds_claims_false_that_are_false_by_little(seed: int) -> None:
    """Tolerances on both sides of the threshold that the mixed-integer program gives."""
    case = draw(seed)
    truth = case.truth(nodes=2000)
    assert truth is not None
    winner = case.metric.startswith("winner")
    beyond = truth.high * 1.1 + 1e-3 if winner else truth.low * 0.9
    if winner:
        beyond = min(beyond, 1.0)
    writer = Writer(case.claim(beyond), case.circuit)
    writer.faithful([], {})
    assert false_statements(writer.files())
    assert not false_statements(make(str(seed)).files)


@pytest.mark.parametrize("seed", [seed for seed in SEEDS if seed not in ALWAYS])
@pytest.mark.parametrize("share", [0.5, 1e-2, 1e-6])
def test_no_proof_reaches_below_the_threshold(seed: int, share: float) -> None:
    """A real proof, for a tolerance that the mixed-integer program says is not enough."""
    case = draw(seed)
    truth = case.truth(nodes=2000)
    assert truth is not None
    files = make(str(seed)).files
    mutant = Parts.of(files, random.Random(0), files)
    metric = mutant.manifest["claim"]["metric"]
    if case.metric.startswith("winner"):
        fraction = min(truth.high * (1 + share) + 1e-6, 1.0)
        ratio = fraction / metric["fraction"] if metric["fraction"] else 1.0
        metric["margins"] = [fraction * case.gap(j) for j in range(len(case.regions))]
        metric["fraction"] = fraction
        assert ratio > 1
    else:
        metric["tolerance"] = truth.low * (1 - share) - 1e-9
    found = check(mutant.seal())
    assert isinstance(found, str) or not any(finding.holds for finding in found)


@pytest.mark.parametrize("name", ["0", "7", "8", "24", "concat", "clip"])
def test_the_judge_runs_the_network_as_the_package_does(name: str, tmp_path: Path) -> None:
    files = make(name).files
    (tmp_path / "network.onnx").write_bytes(files["network.onnx"])
    graph = pc.Graph.from_onnx(tmp_path / "network.onnx")
    z = torch.rand(5, *graph.input_shape, dtype=torch.float64)
    network = Judge(files).network
    ours = network.run(z)[network.output]
    torch.testing.assert_close(ours, graph.run(z, torch.float64), rtol=1e-9, atol=1e-9)
