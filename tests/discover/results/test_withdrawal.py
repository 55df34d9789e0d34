"""Labels of several searches about one claim: what one refutes withdraws the others'."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.discover.results.wide import ASSUMED, wide
from tests.discover.searching import MONOTONE, Given, Logged

import provable_circuits as pc
from provable_circuits.discover.algorithms.binary_search import binary_search
from provable_circuits.discover.algorithms.blocking_sets import blocking_sets
from provable_circuits.discover.algorithms.greedy import greedy
from provable_circuits.discover.algorithms.hitting_set import hitting_set
from provable_circuits.discover.predicates.monotonicity import CONTRADICTED, Monotonicity
from provable_circuits.discover.results.guarantees import minimality, necessity
from provable_circuits.discover.results.minimality import NOTIONS, holds
from provable_circuits.discover.results.withdrawal import (
    Labels,
    labels_of,
    settled,
    settled_documents,
    shown_by,
)
from provable_circuits.discover.search import Search
from provable_circuits.network.circuit import Circuit
from provable_circuits.zoo.toy import ToyNetwork, xor_network

UNKNOWN = dict.fromkeys(NOTIONS, "unknown")


def labels(name: str, circuit: int, **told: Any) -> Labels:
    own = Labels(
        name, "proof", circuit, frozenset({circuit}), frozenset(), UNKNOWN, None, False, False
    )
    return replace(own, **told)


def subset(how: str = "assumed") -> dict[str, str]:
    return {**UNKNOWN, "subset": how}


def cardinal(how: str = "assumed") -> dict[str, str]:
    return {**UNKNOWN, "quasi": "unconditional", "local": how, "subset": how, "cardinal": how}


def test_a_smaller_circuit_refutes_what_a_smallest_one_rests_on() -> None:
    """And then labels fall that no circuit contradicts: here that of the smaller one."""
    large = labels("a", 0b0111, notions=cardinal(), lower=3, lower_assumed=True)
    small = labels("b", 0b1100, notions=subset())
    a, b = settled([large, small])
    assert a.notions == {**cardinal("unknown"), "quasi": "unconditional", "cardinal": "no"}
    assert (a.lower, b.lower) == (None, None)
    assert b.notions["subset"] == "unknown"
    assert a.because == b.because
    assert a.because == (
        "b proved a circuit of 2 components, and that of a, of 3, is a smallest one "
        "if the predicate is monotone: it is not"
    )


def test_a_circuit_within_refutes_what_a_subset_minimal_one_rests_on() -> None:
    large, small = labels("a", 0b0111, notions=subset()), labels("b", 0b0001)
    other = labels("c", 0b1000, notions=UNKNOWN, lower=1, lower_assumed=True)
    a, b, c = settled([large, small, other])
    assert a.notions["subset"] == "no"
    assert b == small
    assert c.lower is None
    assert "b proved a circuit within that of a, which is subset-minimal if" in c.because


def test_a_lower_bound_is_refuted_by_a_smaller_circuit() -> None:
    bound = labels("a", 0b1111, lower=3, lower_assumed=True)
    (a, _b) = settled([bound, labels("b", 0b11)])
    assert a.lower is None
    assert "by a none has fewer than 3 if the predicate is monotone: it is not" in a.because


def test_two_searches_contradict_each_other_by_what_they_met() -> None:
    one = labels("a", 0b0011, notions=subset())
    two = labels("b", 0b1100, notions=subset(), refuted=frozenset({0b0111}))
    for found in settled([one, two]):
        assert found.notions["subset"] == "unknown"
        assert "a proved a circuit within one that b refuted" in found.because


def test_a_search_that_contradicts_itself_takes_the_others_along() -> None:
    one = labels("a", 0b0011, notions=cardinal(), lower=2, lower_assumed=True)
    two = labels("b", 0b1100, contradicted=True)
    a, b = settled([one, two])
    assert (a.notions["cardinal"], a.lower) == ("unknown", None)
    assert a.because.startswith("b refuted a circuit around a faithful one")
    assert b == two


def test_what_does_not_rest_on_the_assumption_stays() -> None:
    one = labels(
        "a", 0b0011, notions={**UNKNOWN, "quasi": "unconditional", "local": "unconditional"}
    )
    known = labels("k", 0b0011, notions=cardinal("unconditional"), lower=2)
    two = labels("b", 0b1100, contradicted=True)
    assert settled([one, known, two]) == [one, known, two]


def test_agreement_withdraws_nothing() -> None:
    searches = [
        labels("a", 0b0011, notions=cardinal(), lower=2, lower_assumed=True),
        labels("b", 0b1100, notions=cardinal(), refuted=frozenset({0b0001, 0b1000})),
        labels("c", 0b0111, lower=1, lower_assumed=True),
    ]
    assert settled(searches) == searches


def test_a_label_up_to_undecided_questions_falls_by_itself() -> None:
    """It may be wrong because of what was undecided, so that the assumption may still hold."""
    large = labels("a", 0b0111, notions=subset("assumed-undecided"))
    other = labels("b", 0b0001, notions=cardinal(), lower=1, lower_assumed=True)
    a, b = settled([large, other])
    assert a.notions["subset"] == "no"
    assert a.because == "b proved a circuit of 1 components within this one"
    assert b == other


def test_what_was_shown_without_condition_and_is_contradicted_is_not_said() -> None:
    wrong = labels("a", 0b0111, notions=cardinal("unconditional"), lower=3)
    a, _ = settled([wrong, labels("b", 0b0001)])
    assert (a.notions["cardinal"], a.notions["subset"], a.lower) == ("unknown", "unknown", None)
    assert "against what was shown without condition" in a.because


def test_points_say_nothing_of_proofs() -> None:
    proof = labels("a", 0b0111, notions=cardinal(), lower=3, lower_assumed=True)
    points = labels("b", 0b0001, method="sampling 0 0", notions=cardinal(), refuted=frozenset({0}))
    assert settled([proof, points]) == [proof, points]
    held = replace(proof, method="sampling 0 0")
    a, _ = settled([held, labels("b", 0b0001)])
    assert a.notions["cardinal"] == "no", "what is proved holds at points too"


# --- real searches -------------------------------------------------------------------------------

ALGORITHMS: dict[str, Callable[[Search], Any]] = {
    "greedy": greedy,
    "binary-search": binary_search,
    "blocking-sets": lambda search: blocking_sets(search, 2),
    "hitting-set": hitting_set,
}


def searched(answers: set[int], monotone: Monotonicity, count: int = 5) -> list[Labels]:
    """Every search on a predicate that is given as a set of faithful circuits."""
    components = wide(count)
    found = []
    for name, run in ALGORITHMS.items():
        predicate = Given(components, lambda names: components.circuit(names).bits in answers)
        search = Logged(predicate, monotone=monotone)
        search.ask(components.full())
        run(search)
        circuit = search.best
        assert circuit is not None
        kept = necessity(search, circuit, local_check=False)
        own = Monotonicity(False, False, CONTRADICTED) if search.contradicted else monotone
        search.monotone = own
        shown = shown_by(search)
        found.append(
            Labels(
                name=name,
                method="proof",
                circuit=circuit.bits,
                proved=frozenset(shown.proved),
                refuted=frozenset(shown.refuted),
                notions=minimality(search, circuit, search.verdict, kept).notions,
                lower=search.claimed_lower or None,
                lower_assumed=not own.known,
                contradicted=search.contradicted,
            )
        )
    return found


@pytest.mark.parametrize("seed", range(40))
def test_labels_that_stand_are_contradicted_by_nothing(seed: int) -> None:
    """On predicates that are not monotone; whatever is unconditional is true."""
    source = random.Random(seed)
    answers = {bits for bits in range(31) if source.random() < 0.3} | {31}
    before = searched(answers, ASSUMED)
    after = settled(before)
    assert settled(after) == after
    components = wide(5)
    predicate = Given(components, lambda names: components.circuit(names).bits in answers)
    proved = {bits for own in before for bits in own.proved}
    for own in after:
        assert proved <= answers
        circuit = Circuit(components, own.circuit)
        for notion, how in own.notions.items():
            if how == "unconditional" and notion != "quasi":
                assert holds(circuit, predicate, notion)
            if how.startswith("assumed"):
                assert not any(
                    bits != own.circuit and bits & own.circuit == bits for bits in proved
                )
            if how == "assumed" and notion == "cardinal":
                assert min(bits.bit_count() for bits in proved) == own.size
        assert own.lower is None or min(bits.bit_count() for bits in proved) >= own.lower
    assumed = [how for own in after for how in own.notions.values() if how.startswith("assumed")]
    if any(small & large == small for small in proved for own in before for large in own.refuted):
        assert not assumed
        assert all(own.lower is None for own in after)


def test_some_of_these_searches_disagree() -> None:
    """So that the test above tests something: labels fall that their own search let stand."""
    fallen = 0
    for seed in range(40):
        source = random.Random(seed)
        answers = {bits for bits in range(31) if source.random() < 0.3} | {31}
        before = searched(answers, ASSUMED)
        fallen += sum(old != new for old, new in zip(before, settled(before), strict=True))
    assert fallen > 10


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("monotone", [ASSUMED, MONOTONE], ids=["assumed", "known"])
def test_nothing_is_withdrawn_where_the_predicate_is_monotone(
    seed: int, monotone: Monotonicity
) -> None:
    source = random.Random(seed)
    minimal = [source.randrange(1, 32) for _ in range(3)]
    answers = {bits for bits in range(32) if any(m & bits == m for m in minimal)}
    before = searched(answers, monotone)
    assert settled(before) == before
    assert any(own.notions["cardinal"] != "unknown" for own in before)


# --- documents -----------------------------------------------------------------------------------


def asks(toy: ToyNetwork, *names: str) -> Callable[[Search], Any]:
    return lambda search: search.ask(toy.components.circuit(names))


def xor_claim(toy: ToyNetwork) -> pc.Claim:
    return pc.Claim([pc.Point(x) for x in toy.inputs], pc.Zero(), pc.MaxAbs(0.0))


def test_documents_say_what_was_withdrawn_and_why() -> None:
    """Of the XOR network v1 alone is enough, which no search by single removals finds."""
    toy = xor_network()
    claim = xor_claim(toy)
    whole = pc.discover(
        toy.graph,
        claim,
        toy.components,
        "hitting-set",
        assume_monotone=True,
        certify=False,
    ).document()
    assert (whole["minimality"]["notion"], whole["minimality"]["holds"]) == ("cardinal", "assumed")
    assert any(moment["lower"] for moment in whole["timeline"])
    one = pc.discover(toy.graph, claim, toy.components, asks(toy, "v/v1"), certify=False).document()
    assert one["circuit"]["components"] == ["v/v1"]
    found, other = settled_documents([whole, one], ["wide", "narrow"])
    told = found["minimality"]
    assert told["notions"]["subset"] == told["notions"]["cardinal"] == "no"
    assert (told["lower"], told["lower_holds"]) == (None, None)
    assert all(moment["lower"] is None for moment in found["timeline"])
    assert told["withdrawn"]["notion"] == "cardinal"
    assert told["withdrawn"]["lower"] == whole["minimality"]["lower"] == 5
    assert "narrow proved a circuit of 1 components" in told["basis"]
    assert told["notion"] == "local", "each of the five is necessary, by its own witness"
    assert told["basis"].startswith("every component is necessary, by a replayed witness; ")
    assert other["minimality"] == one["minimality"]
    assert "minimality" in whole
    assert whole["minimality"]["notion"] == "cardinal", "the document itself is left alone"


def test_documents_tell_circuits_that_were_met_on_the_way() -> None:
    toy = xor_network()
    result = pc.discover(
        toy.graph, xor_claim(toy), toy.components, asks(toy, "v/v1"), certify=False
    )
    own = labels_of(result.document(), "own")
    place = {name: 1 << i for i, name in enumerate(toy.components.names)}
    assert place["v/v1"] in own.proved
    assert own.circuit == place["v/v1"]
    search = pc.discover(
        toy.graph, xor_claim(toy), toy.components, "hitting-set", certify=False
    ).document()
    refuted = labels_of(search, "other").refuted
    full = (1 << 6) - 1
    assert full & ~place["v/v1"] in refuted
    assert not any(place["v/v1"] & bits == place["v/v1"] == bits for bits in refuted)


def test_a_blocking_set_and_a_circuit_share_the_assumption() -> None:
    toy = xor_network()
    claim = xor_claim(toy)
    result = pc.discover(
        toy.graph, claim, toy.components, "greedy", assume_monotone=True, certify=False
    )
    assert result.minimality.holds == "assumed"
    blocking = pc.blocking_set(toy.graph, claim, toy.components, assume_monotone=True)
    document = result.record(blocking_set=replace(blocking, monotone=CONTRADICTED)).document
    assert document["minimality"]["notions"]["subset"] == "unknown"
    assert document["minimality"]["withdrawn"]["notion"] == "subset"
    plain = result.record(blocking_set=blocking).document
    assert plain["minimality"]["notion"] == "subset"


def test_only_so_many_circuits_are_kept() -> None:
    components = wide(3)
    search = Logged(Given(components, lambda names: "fc/0" in names), monotone=ASSUMED)
    for bits in range(8):
        search.ask(Circuit(components, bits))
    shown = shown_by(search)
    assert shown.proved == (0b001,), "the smallest; others contain it"
    assert shown.refuted == (0b110,), "the largest; others are within it"


def test_digests_tell_claims_apart() -> None:
    graph = pc.Graph.from_torch(torch.nn.Linear(2, 2), torch.zeros(1, 2))
    domain = pc.Ball([0.1, 0.2], 0.1)

    def digest(domain: pc.Domain, patching: pc.Patching, delta: float = 1.0) -> str:
        claim = pc.Claim([domain], patching, pc.MaxAbs(delta))
        told: str = pc.discover(graph, claim, certify=False).record().document["claim"]["digest"]
        return told

    data = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    own = digest(domain, pc.Mean(data))
    assert own == digest(
        pc.Ball(torch.tensor([0.1, 0.2], dtype=torch.float64), 0.1), pc.Mean(data.clone())
    )
    others = [
        digest(pc.Ball([0.1, 0.3], 0.1), pc.Mean(data)),
        digest(domain, pc.Mean(data + 1)),
        digest(domain, pc.Zero()),
        digest(domain, pc.Mean(data), 2.0),
    ]
    assert len({own, *others}) == 5
