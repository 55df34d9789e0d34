"""Limits: time, memory, interrupts, bounds that verdicts carry, and what cannot be asked."""

from __future__ import annotations

import importlib
import math

import pytest
import torch
from tests.clock import Clock
from tests.verify.networks import claim_for, dense, hard, pools, residual

import provable_circuits as pc
from provable_circuits.errors import ArgumentError
from provable_circuits.verify.configuration import DEFAULT
from provable_circuits.verify.stages.incomplete_batch import IncompleteBatch


@pytest.fixture
def passes(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When each backward pass began, on a clock on which a pass takes a second."""
    module = importlib.import_module("provable_circuits.verify.bounding.bounds")
    plain = module.Bounds.backward
    began: list[float] = []

    def timed(self: object, *args: object, **settings: object) -> object:
        began.append(clock.now)
        clock.now += 1.0
        return plain(self, *args, **settings)

    monkeypatch.setattr(module.Bounds, "backward", timed)
    return began


@pytest.mark.parametrize("limit", [0.5, 3.5, 7.5])
def test_the_time_limit_is_honoured(limit: float, passes: list[float], clock: Clock) -> None:
    """The pass during which the time runs out is the last."""
    graph = pools()
    circuit, claim = hard(graph)
    ends = clock.now + limit
    verdict = pc.verify(graph, circuit, claim, timeout=limit, certify=False)
    assert isinstance(verdict, pc.Undecided), "choose a harder case"
    assert verdict.reason == "time"
    assert verdict.bound > 0
    assert clock.now > ends
    assert sum(began > ends for began in passes) == 0
    assert len(passes) == math.ceil(limit)


def test_work_that_the_limit_cut_short_is_kept(passes: list[float]) -> None:
    """Each question gets too little time for the whole of the preparation; together they do it."""
    graph = pools()
    circuit, claim = hard(graph)
    slow = DEFAULT.changed(bounding={"small_units": 0, "chunk_elements": 1})
    verifier = pc.Verifier(circuit.components, claim, configuration=slow)
    assert not verifier.small
    stages = []
    for _ in range(200):
        verdict = verifier.ask(circuit, timeout=50.0)
        stages.append(verdict.stage)
        if verdict.stage != "linear":
            break
    assert "linear" in stages, "the preparation must not fit into one question"
    assert stages[-1] != "linear"


def test_memory_that_does_not_suffice_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    branching = importlib.import_module("provable_circuits.verify.branching.branch_and_bound")
    graph = pools()
    circuit, claim = hard(graph)
    refused = _refusing(RuntimeError("[enforce fail] can't allocate memory"))
    cramped = DEFAULT.changed(branching={"most_numbers": 0, "width": 1, "small_width": 1})
    for short in (False, True):
        with monkeypatch.context() as patched:
            if short:
                patched.setattr(branching, "optimise", refused)
            configuration = DEFAULT if short else cramped
            verifier = pc.Verifier(circuit.components, claim, configuration=configuration)
            verdict = verifier.ask(circuit)
        assert isinstance(verdict, pc.Undecided)
        assert verdict.reason == "memory"
        assert verdict.bound > 0


def test_other_errors_are_not_taken_for_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    attack = importlib.import_module("provable_circuits.verify.attacking.attack")
    monkeypatch.setattr(attack, "climb", _refusing(RuntimeError("shapes do not fit")))
    graph = pools()
    circuit, claim = hard(graph)
    with pytest.raises(RuntimeError, match="shapes"):
        pc.verify(graph, circuit, claim, certify=False)


def test_an_interrupt_ends_cleanly(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was interrupted can be asked again, and gets the answer it would have got."""
    rooms = {
        "climb": importlib.import_module("provable_circuits.verify.attacking.attack"),
        "optimise": importlib.import_module("provable_circuits.verify.stages.objectives"),
    }
    graph = dense(3)
    components = graph.components()
    centers = torch.rand(2, 5, generator=torch.Generator().manual_seed(1))
    domains = [pc.Ball(x, 0.4) for x in centers]
    circuits = [components.full().remove(name) for name in components.names]
    interrupted = dict.fromkeys(rooms, 0)
    for tolerance in (0.1, 0.2, 0.4, 0.8, 1.2):
        metric = pc.LogitDifference(tolerance, 1)
        claim = pc.Claim(domains, pc.Reachable(eps=0.4), metric)
        alone = [pc.verify(graph, circuit, claim, certify=False).kind for circuit in circuits]
        verifier = pc.Verifier(components, claim)
        for stage in interrupted:
            with monkeypatch.context() as patched:
                patched.setattr(rooms[stage], stage, _refusing(KeyboardInterrupt()))
                for circuit in circuits:
                    try:
                        verifier.ask(circuit)
                    except KeyboardInterrupt:
                        interrupted[stage] += 1
        assert [verifier.ask(circuit).kind for circuit in circuits] == alone
    assert all(interrupted.values())


def _refusing(error: BaseException) -> object:
    def refuse(*_: object, **__: object) -> object:
        raise error

    return refuse


@pytest.mark.parametrize("patching", ["zero", "constant"])
def test_bounds_that_verdicts_carry_are_bounds(patching: str) -> None:
    """No sampled point exceeds the metric by more than the verdict says is possible."""
    graph = dense(5)
    components = graph.components()
    generator = torch.Generator().manual_seed(4)
    seen = 0
    for tolerance in (0.05, 0.3, 1.0):
        claim = claim_for(graph, patching, tolerance)
        verifier = pc.Verifier(components, claim)
        for name in components.names:
            circuit = components.full().remove(name)
            verdict = verifier.ask(circuit)
            if not isinstance(verdict, pc.Proved):
                continue
            seen += 1
            assert verdict.bound <= 0
            for domain in claim.inputs:
                z = domain.sample(50, generator).double()
                anchor = graph.run(domain.center.double()[None])
                output = circuit.run(z, verifier.encoder.fixed)
                excess = claim.metric.excess(anchor, graph.run(z), output)
                assert float(excess.max()) <= verdict.bound + 1e-9
    assert seen > 10


def test_a_proof_is_worth_its_bound() -> None:
    """Zero would always be true; the bound says how much room is left."""
    graph = dense(5)
    components = graph.components()
    circuit = components.full().remove(components.names[0])
    wide, wider = (
        pc.verify(graph, circuit, claim_for(graph, "zero", tolerance), certify=False)
        for tolerance in (5.0, 6.0)
    )
    assert isinstance(wide, pc.Proved)
    assert isinstance(wider, pc.Proved)
    assert wider.bound == pytest.approx(wide.bound - 1, abs=1e-6)


@pytest.mark.parametrize("metric", [pc.MaxAbs(0.0), pc.Norm(0.0, p=1), pc.LogitDifference(0.0, 1)])
@pytest.mark.parametrize("make", [dense, residual, pools], ids=["dense", "residual", "pools"])
def test_the_network_equals_itself(make: object, metric: pc.Metric) -> None:
    graph = make(1)  # type: ignore[operator]
    x = torch.rand(graph.input_shape, generator=torch.Generator().manual_seed(0))
    claim = pc.Claim([pc.Ball(x, 0.1)], pc.Zero(), metric)
    verdict = pc.verify(graph, graph.components().full(), claim, certify=False)
    assert verdict.proved


def test_equality_is_decided_exactly() -> None:
    graph = dense(1)
    components = graph.components()
    x = torch.rand(5, generator=torch.Generator().manual_seed(0))
    claim = pc.Claim([pc.Ball(x, 0.1)], pc.Zero(), pc.MaxAbs(0.0))
    verifier = pc.Verifier(components, claim)
    kinds = {n: verifier.ask(components.full().remove(n)).kind for n in components.names}
    assert "undecided" not in kinds.values()
    assert "refuted" in kinds.values()


@pytest.mark.parametrize("timeout", [0, -1, math.nan, "a", True])
def test_a_timeout_is_a_positive_number(timeout: object) -> None:
    graph = dense(0)
    claim = claim_for(graph, "zero", 1.0)
    with pytest.raises(ArgumentError, match="timeout"):
        pc.verify(graph, graph.components().full(), claim, timeout=timeout, certify=False)  # type: ignore[arg-type]


def test_a_circuit_is_asked_about() -> None:
    graph = dense(0)
    claim = claim_for(graph, "zero", 1.0)
    with pytest.raises(ArgumentError, match="circuit"):
        pc.verify(graph, "fc1/0", claim, certify=False)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="circuit"):
        pc.Verifier(graph.components(), claim).ask("fc1/0")  # type: ignore[arg-type]


def test_memory_that_screening_lacks_leaves_circuits_to_single_questions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    components = dense(0).components("neuron")
    claim = pc.Claim([pc.Ball(torch.zeros(5), 0.1)], pc.Zero(), pc.LogitDifference(0.5, 1))
    verifier = pc.Verifier(components, claim)
    circuits = [components.full().remove(name) for name in components.names[:3]]

    def full(*_: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate")

    monkeypatch.setattr(IncompleteBatch, "answers", full)
    assert verifier.screen(circuits) == [None, None, None]
    assert verifier.ask(circuits[0]).kind in ("proved", "refuted")

    def wrong(*_: object) -> None:
        raise RuntimeError("something else")

    monkeypatch.setattr(IncompleteBatch, "answers", wrong)
    with pytest.raises(RuntimeError, match="something else"):
        verifier.screen(circuits)


def test_what_circuits_leave_behind_is_limited() -> None:
    components = dense(0).components("neuron")
    claim = pc.Claim([pc.Ball(torch.zeros(5), 0.1)], pc.Zero(), pc.LogitDifference(0.5, 1))
    names = components.names

    def kept(verifier: pc.Verifier) -> int:
        for name in names[:6]:
            verifier.ask(components.full().remove(name))
        return sum(ends[0].numel() for _, ends in verifier.knowledge.memory.cut.values())

    most = kept(pc.Verifier(components, claim))
    forgetful = DEFAULT.changed(reuse={"own_numbers": 7})
    least = kept(pc.Verifier(components, claim, configuration=forgetful))
    assert 0 < least <= 7 < most
