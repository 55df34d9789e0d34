"""What all algorithms have in common: sampling, limits, interrupts, determinism, workers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from tests.clock import Clock
from torch import nn

import provable_circuits as pc
from provable_circuits.discover.api import ALGORITHMS
from provable_circuits.progress import Progress

X = torch.rand(2, 4, generator=torch.Generator().manual_seed(1))


def graph() -> pc.Graph:
    torch.manual_seed(5)
    net = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2))
    return pc.Graph.from_torch(net, torch.zeros(1, 4))


def claim(patching: pc.Patching | None = None, tolerance: float = 0.15) -> pc.Claim:
    return pc.Claim(
        [pc.Ball(x, 0.05) for x in X], patching or pc.Zero(), pc.LogitDifference(tolerance, 0)
    )


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_sampling_finds_circuits_that_hold_at_the_points(algorithm: str) -> None:
    network = graph()
    result = pc.discover(network, claim(), algorithm=algorithm, method="sampling", points=5)
    assert result.faithful == "sampled"
    assert "proved" not in result.queries
    moved = (result.circuit.run(X) - network.run(X))[:, 0].abs()
    assert float(moved.max()) <= 0.15
    assert {kept.status for kept in result.kept.values()} <= {"necessary", "removable"}
    for name, kept in result.kept.items():
        if kept.status == "necessary":
            assert isinstance(kept.verdict, pc.Refuted)
            z = kept.verdict.witness.z.unsqueeze(0)
            moved = (result.circuit.remove(name).run(z) - network.run(z))[:, 0].abs()
            assert float(moved) > 0.15


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("patching", [pc.Zero(), pc.Reachable(eps=0.1), pc.IntervalHull(eps=0.1)])
def test_the_same_again_and_with_other_workers(algorithm: str, patching: pc.Patching) -> None:
    network = graph()
    first = pc.discover(network, claim(patching), algorithm=algorithm, certify=False)
    second = pc.discover(network, claim(patching), algorithm=algorithm, certify=False)
    with ThreadPoolExecutor(2) as executor:
        third = pc.discover(
            network, claim(patching), algorithm=algorithm, workers=executor, certify=False
        )
    assert first.circuit == second.circuit == third.circuit
    assert first.queries == second.queries
    assert first.lower == second.lower == third.lower
    assert first.minimality == second.minimality == third.minimality


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_interrupt_returns_the_best_circuit_so_far(algorithm: str) -> None:
    def interrupt(progress: Progress) -> None:
        if sum(progress.queries.values()) == 5:
            raise KeyboardInterrupt

    result = pc.discover(graph(), claim(), algorithm=algorithm, listener=interrupt, certify=False)
    assert result.stopped == "interrupted"
    assert result.faithful == "proved"
    assert pc.verify(graph(), result.circuit, claim(), certify=False).proved
    assert "interrupted; this is the best circuit so far" in str(result)
    assert sum(result.queries.values()) >= 5


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_budget_is_kept(algorithm: str, clock: Clock) -> None:
    """Nothing is asked after the answer during which the time ran out.

    What was asked together is answered together: every single removal, by blocking sets.
    """
    together = {"blocking-sets": 13}

    def slow(progress: Progress) -> None:
        if sum(progress.queries.values()) == 2:
            clock.now += 2.0

    network = graph()
    whole = pc.discover(network, claim(), algorithm=algorithm, certify=False)
    result = pc.discover(
        network, claim(), algorithm=algorithm, budget=1.0, listener=slow, certify=False
    )
    assert sum(result.queries.values()) == together.get(algorithm, 2)
    assert sum(result.queries.values()) < sum(whole.queries.values())
    assert result.stopped == "budget"
    assert result.faithful == "proved"
    assert result.document()["stopped"] == "budget"


@pytest.mark.usefixtures("clock")
def test_a_budget_that_is_not_needed_changes_nothing() -> None:
    whole = pc.discover(graph(), claim(), budget=60, certify=False)
    assert whole.stopped is None
    assert whole.circuit == pc.discover(graph(), claim(), certify=False).circuit


def test_the_document_says_what_the_result_rests_on() -> None:
    result = pc.discover(
        graph(), claim(pc.IntervalHull(eps=0.1), 0.03), algorithm="hitting-set", certify=False
    )
    document = result.document()
    assert document["circuit"]["components"] == list(result.circuit.names)
    assert document["circuit"]["size"] == len(result.circuit)
    assert document["circuit"]["of"] == 11
    assert document["minimality"]["notion"] == "cardinal"
    assert document["minimality"]["lower"] == len(result.circuit)
    assert set(document["kept"]) == set(result.circuit.names)
    assert set(document["kept"].values()) == {"necessary"}
    assert set(document["witnesses"]) == set(result.circuit.names)
    assert document["queries"]["total"] == sum(document["queries"]["by_stage"].values())
    answers = document["queries"]["by_stage_and_verdict"]
    stages = {stage: sum(kinds.values()) for stage, kinds in answers.items()}
    assert stages == document["queries"]["by_stage"]
    for kind, count in document["queries"]["by_verdict"].items():
        assert sum(kinds.get(kind, 0) for kinds in answers.values()) == count
    assert document["timeline"][-1]["size"] == len(result.circuit)


def test_earlier_witnesses_carry_over_under_interval_hulls() -> None:
    """Greedy refutes removals from larger circuits; every one holds for the final circuit too."""
    result = pc.discover(graph(), claim(pc.IntervalHull(eps=0.1), 0.03), certify=False)
    assert {kept.status for kept in result.kept.values()} == {"necessary"}
    assert "carried" in {getattr(kept.verdict, "stage", "") for kept in result.kept.values()}
    for name, kept in result.kept.items():
        assert isinstance(kept.verdict, pc.Refuted)
        verifier = pc.Verifier(result.circuit.components, result.claim)
        again = verifier.carried([result.circuit.remove(name)], [kept.verdict.witness])
        assert again[0] is not None
