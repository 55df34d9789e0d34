"""What a result says of its circuit, where searches end early or answers contradict each other."""

from __future__ import annotations

import pytest
import torch
from tests.discover.results.wide import ASSUMED, wide
from tests.discover.searching import MONOTONE, NOT_MONOTONE, Answer, Given, Logged
from torch import nn

import provable_circuits as pc
from provable_circuits.discover.predicates.monotonicity import Monotonicity
from provable_circuits.discover.results.guarantees import minimality, necessity
from provable_circuits.progress import Progress


def search(answer: Answer, monotone: Monotonicity = NOT_MONOTONE, count: int = 4) -> Logged:
    return Logged(Given(wide(count), answer), monotone=monotone)


def test_what_was_never_asked_is_not_called_undecided() -> None:
    for monotone in (MONOTONE, ASSUMED, NOT_MONOTONE):
        own = search(lambda names: True, monotone)
        full = own.components.full()
        verdict = own.ask(full)
        kept = necessity(own, full, local_check=False)
        assert {reason.status for reason in kept.values()} == {"undecided"}
        said = minimality(own, full, verdict, kept)
        assert (said.notion, said.holds) == ("none", "unknown")
        assert set(said.notions.values()) == {"unknown"}


@pytest.mark.parametrize(
    ("monotone", "local", "subset"),
    [
        (NOT_MONOTONE, "undecided", "unknown"),
        (ASSUMED, "undecided", "assumed-undecided"),
        (MONOTONE, "undecided", "undecided"),
    ],
)
def test_undecided_questions_are_named(monotone: Monotonicity, local: str, subset: str) -> None:
    own = search(lambda names: True if len(names) == 4 else None, monotone)
    full = own.components.full()
    verdict = own.ask(full)
    kept = necessity(own, full, local_check=True)
    said = minimality(own, full, verdict, kept)
    assert (said.notions["local"], said.notions["subset"]) == (local, subset)
    assert "but for those whose removal stayed undecided" in said.basis


def test_an_undecided_question_about_a_larger_circuit_counts_only_if_answers_carry() -> None:
    for monotone, local in ((NOT_MONOTONE, "unknown"), (MONOTONE, "undecided")):
        own = search(lambda names: None if names == {"fc/0", "fc/1", "fc/2"} else True, monotone)
        own.ask(own.components.circuit(["fc/0", "fc/1", "fc/2"]))
        circuit = own.components.circuit(["fc/2", "fc/3"])
        verdict = own.ask(circuit)
        kept = necessity(own, circuit, local_check=False)
        assert kept["fc/3"].undecided == "larger"
        assert kept["fc/2"].undecided == ""
        kept["fc/2"] = kept["fc/3"]
        assert minimality(own, circuit, verdict, kept).notions["local"] == local


def test_a_refutation_whose_witness_is_gone_still_counts() -> None:
    own = search(lambda names: "fc/0" in names, MONOTONE)
    own.ask(own.components.circuit(["fc/1", "fc/2", "fc/3"]))
    own.refuted.clear()
    circuit = own.components.circuit(["fc/0", "fc/1"])
    own.ask(circuit)
    assert necessity(own, circuit, local_check=False)["fc/0"].status == "refuted-when-tried"


def graph() -> pc.Graph:
    torch.manual_seed(5)
    net = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2))
    return pc.Graph.from_torch(net, torch.zeros(1, 4))


def claim() -> pc.Claim:
    x = torch.rand(2, 4, generator=torch.Generator().manual_seed(1))
    return pc.Claim([pc.Ball(v, 0.05) for v in x], pc.Zero(), pc.LogitDifference(0.15, 0))


def test_an_interrupt_of_the_local_check_keeps_the_result() -> None:
    whole = pc.discover(graph(), claim(), "auto", "binary-search", certify=False)
    asked = sum(whole.queries.values())

    def interrupt(progress: Progress) -> None:
        if sum(progress.queries.values()) == asked + 1:
            raise KeyboardInterrupt

    result = pc.discover(
        graph(),
        claim(),
        "auto",
        "binary-search",
        local_check=True,
        listener=interrupt,
        certify=False,
    )
    assert result.stopped == "interrupted"
    assert result.circuit == whole.circuit
    assert result.faithful == "proved"
    assert sum(result.queries.values()) == asked + 1


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("algorithm", ["greedy", "binary-search", "blocking-sets"])
def test_the_verdict_is_that_of_the_circuit(seed: int, algorithm: str) -> None:
    """Also when the local check proves smaller circuits, which are told of and not taken."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 1))
    network = pc.Graph.from_torch(net, torch.zeros(1, 2))
    own = pc.Claim([pc.Ball([0.4, 0.6], 0.1)], pc.Zero(), pc.LogitDifference(0.1, 0))
    plain = pc.discover(
        network, own, "neuron", algorithm, t_max=1, assume_monotone=True, certify=False
    )
    checked = pc.discover(
        network,
        own,
        "neuron",
        algorithm,
        t_max=1,
        assume_monotone=True,
        local_check=True,
        certify=False,
    )
    assert checked.circuit == plain.circuit
    assert checked.verdict is not None
    assert plain.verdict is not None
    assert getattr(checked.verdict, "bound", 0) == getattr(plain.verdict, "bound", 0)
    assert checked.timeline[-1].size == len(checked.circuit)
    removable = [n for n, kept in checked.kept.items() if kept.status == "removable"]
    if removable:
        assert checked.lower is None or checked.lower < len(checked.circuit)
        assert checked.minimality.notion in ("quasi", "none")
    if checked.lower is not None and checked.minimality.notion != "cardinal":
        assert "if the predicate is monotone, no faithful circuit has fewer" in str(checked)


def test_contradicting_answers_anywhere_are_seen() -> None:
    own = search(lambda names: len(names) != 3)
    names = own.components.names
    own.ask(own.components.circuit(names[:2]))
    own.ask(own.components.circuit(names[3:]))
    assert not own.contradicted
    own.ask(own.components.circuit(names[:3]))
    assert own.best is not None
    assert own.best.names == ("fc/3",)
    assert own.contradicted


def test_a_blocking_set_that_was_not_found_is_not_said_not_to_exist() -> None:
    def interrupt(progress: Progress) -> None:
        raise KeyboardInterrupt

    found = pc.blocking_set(graph(), claim(), listener=interrupt)
    assert found.stopped == "interrupted"
    assert found.removed is None
    assert not found.none
    assert str(found) == "Blocking set: none was found"
    easy = pc.Claim(claim().inputs, pc.Zero(), pc.LogitDifference(100.0, 0))
    none = pc.blocking_set(graph(), easy)
    assert none.none
    assert str(none) == (
        "Blocking set: there is none: without any set of components the network satisfies the claim"
    )
    hull = pc.Claim(claim().inputs, pc.IntervalHull(eps=5.0), pc.LogitDifference(1e6, 0))
    assert str(pc.blocking_set(graph(), hull)) == (
        "Blocking set: interval-hull patching is monotone by construction; there is none, since "
        "the empty circuit is faithful"
    )
