"""The verifier, the prover and the writer, broken on purpose: nothing false is certified.

Every claim here is false, by a mixed-integer program. A broken verifier calls some of them proved:
then a certificate is asked for. A broken prover or writer makes certificates of its own accord:
the checker has to see through them. What the checker accepts must be true of the certificate's own
statement, as the judge reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
from tests.oracle.cases import Case, draw
from tests.proof.broken_prover import PROVER, all_closed
from tests.proof.broken_verifier import VERIFIER, Patch, as_it_was, offsets_dropped
from tests.proof.findings import FINDINGS, Finding
from tests.proof.judge import false_statements

import provable_circuits as pc
from provable_circuits.proof import certify as certifying
from provable_circuits.proof.certify import certify, check_files
from provable_circuits.proof.checker.arithmetic import RefusedError
from provable_circuits.verify.attacking.replay import Replay
from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.exact.claims import Exact

Question = tuple[Case, pc.Claim]

SEEDS = (26, 31, 39, 6, 0)
NODES = 40


@cache
def _question(seed: int) -> Question:
    case = draw(seed)
    truth = case.truth(nodes=2000)
    assert truth is not None
    assert truth.low > 0
    return case, case.claim(0.85 * truth.low)


@pytest.fixture(scope="module")
def questions() -> list[Question]:
    """False claims, of most kinds."""
    return [_question(seed) for seed in SEEDS]


def certificate(claim: pc.Claim, circuit: pc.Circuit, nodes: int = 1) -> Any:
    """A certificate, or None where none is made; a broken part may raise anything."""
    try:
        return certify(claim, circuit, Deadline(max_nodes=nodes))
    except Exception:
        return None


@pytest.mark.parametrize("broken", VERIFIER, ids=lambda broken: broken.__name__)
def test_what_a_broken_verifier_calls_proved_is_not_certified(
    broken: Callable[[Patch], None], questions: list[Question], monkeypatch: Patch
) -> None:
    for case, claim in questions:
        with monkeypatch.context() as patch:
            patch.setattr(Replay, "witnesses", lambda self, given: [None] * len(given))
            patch.setattr(Exact, "decide", lambda *rest: None)  # rational arithmetic refutes them
            broken(patch)
            verifier = pc.Verifier(case.circuit.components, claim)
            for circuit in _towards(case):
                verdict = verifier.ask(circuit, max_nodes=NODES)
            if verdict.proved:  # and false
                assert certificate(claim, case.circuit) is None
                return
    pytest.fail("nothing false is proved")


def _towards(case: Case) -> Iterator[pc.Circuit]:
    """Circuits that lose one component after the other, the case's own last."""
    full = case.circuit.components.full()
    gone = [name for name in full.names if name not in case.circuit.names]
    for count in range(max(1, len(gone) - 2), len(gone)):
        yield full.remove(*gone[:count])
    yield case.circuit


# --- the prover and the writer ------------------------------------------------------------------


@pytest.mark.parametrize("broken", PROVER, ids=lambda broken: broken.__name__)
def test_what_a_broken_prover_writes_is_accepted_only_if_it_is_true(
    broken: Callable[[Patch], None], questions: list[Question], monkeypatch: Patch
) -> None:
    written: list[Any] = []

    def keep(files: Any) -> list[Any]:
        written.append(files)
        return []

    for case, claim in questions:
        with monkeypatch.context() as patch:
            patch.setattr(certifying, "check_files", keep)
            broken(patch)
            certificate(claim, case.circuit)
    assert written
    false = 0
    for files in written:
        try:
            accepted = all(finding.holds for finding in check_files(files))
        except RefusedError:
            accepted = False
        wrong = false_statements(files)
        assert not (accepted and wrong)
        false += bool(wrong)
    assert false


# --- the false proofs of old --------------------------------------------------------------------


@pytest.mark.parametrize("made", FINDINGS, ids=lambda made: made.__name__)
def test_the_false_proofs_of_old_are_not_certified(
    made: Callable[[], Finding], monkeypatch: Patch
) -> None:
    found = made()
    with monkeypatch.context() as patch:
        patch.setattr(Replay, "witnesses", lambda self, given: [None] * len(given))
        as_it_was(patch)
        if made.__name__ == "grouped":
            offsets_dropped(patch)
        verifier = pc.Verifier(found.circuits[-1].components, found.claim)
        verdicts = [verifier.ask(circuit, max_nodes=NODES) for circuit in found.circuits]
    assert verdicts[-1].proved  # and false
    assert certificate(found.claim, found.circuits[-1], nodes=1) is None
    all_closed(monkeypatch)
    with pytest.raises(pc.ProvableCircuitsError, match="A leaf is not closed"):
        certify(found.claim, found.circuits[-1], Deadline())


# --- witnesses ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 24, 39])
def test_witnesses_that_break_nothing_are_refused(seed: int) -> None:
    """A point at which the claim holds; one outside of the domain at which it does not."""
    case, claim = _question(seed)
    verdict = pc.verify(case.graph, case.circuit, claim, max_nodes=500)
    assert isinstance(verdict, pc.Refuted)
    good = verdict.witness
    truth = case.truth(nodes=2000)
    assert truth is not None
    certificate = certify(claim, case.circuit, Deadline(), faithful=False, witness=good)
    assert not false_statements(certificate.files)
    weak = case.claim(truth.high * 1.001 + 1e-9)
    with pytest.raises(pc.ProvableCircuitsError, match="does not certainly break the claim"):
        certify(weak, case.circuit, Deadline(), faithful=False, witness=good)
    far = SimpleNamespace(
        index=good.index,
        z=good.z + 5.0,
        patch_input=good.patch_input,
        patch_values=good.patch_values,
    )
    with pytest.raises(pc.ProvableCircuitsError, match="outside of the claim's inputs"):
        certify(claim, case.circuit, Deadline(), faithful=False, witness=far)
    with pytest.raises(pc.ProvableCircuitsError):
        certify(claim, case.circuit.components.full(), Deadline(), faithful=False, witness=good)
