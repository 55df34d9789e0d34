"""Many circuits at once: the same network, the same answers, and greedy search asked ahead."""

from __future__ import annotations

import importlib
import random

import pytest
import torch
from tests.clock import Clock
from tests.discover.searching import Logged
from tests.verify.networks import PATCHINGS, dense, residual

import provable_circuits as pc
from provable_circuits.discover.algorithms.greedy import greedy
from provable_circuits.discover.predicates.predicate import Decided
from provable_circuits.network.execution import evaluate
from provable_circuits.verify.branching.batched_splits import Backoff
from provable_circuits.verify.configuration import DEFAULT
from provable_circuits.verify.encoding.batched import Gate, encode_batch
from provable_circuits.verify.encoding.roles import Role, RoleKind

screen_room = importlib.import_module("provable_circuits.verify.stages.incomplete_batch")

METRICS: dict[str, pc.Metric] = {
    "logit": pc.LogitDifference(0.4, 1),
    "winner": pc.WinnerMargin(0.5),
    "all": pc.MaxAbs(0.5),
    "1-norm": pc.Norm(1.0, p=1),
    "2-norm": pc.Norm(0.8, p=2),
}
KINDS = [(p, m) for p in PATCHINGS for m in METRICS if p in ("zero", "hull") or m == "logit"]


def claim_of(graph: pc.Graph, patching: str, metric: str, point: bool = False) -> pc.Claim:
    centers = torch.rand(2, *graph.input_shape, generator=torch.Generator().manual_seed(1))
    inputs = [pc.Point(x) if point else pc.Ball(x, 0.05) for x in centers]
    return pc.Claim(inputs, PATCHINGS[patching], METRICS[metric])


def some_circuits(components: pc.Components, count: int, seed: int = 3) -> list[pc.Circuit]:
    dice = random.Random(seed)
    names = components.names
    return [
        components.circuit([name for name in names if dice.random() < share])
        for share in (dice.choice([0.5, 0.8, 0.95]) for _ in range(count))
    ]


def test_a_gate_is_its_own_transpose_and_encloses_what_it_lets_through() -> None:
    generator = torch.Generator().manual_seed(0)
    scale = torch.randint(0, 2, (3, 2, 4), generator=generator).double()
    gate = Gate(scale)
    x = torch.randn(3, 2, 4, generator=generator, dtype=torch.float64)
    rows = torch.randn(15, 2, 4, generator=generator, dtype=torch.float64)
    (pulled,) = gate.pullback(rows, (2, 4))
    by_problem = rows.unflatten(0, (3, 5))
    direct = (by_problem * gate.forward(x).unsqueeze(1)).sum((2, 3))
    transposed = (pulled.unflatten(0, (3, 5)) * x.unsqueeze(1)).sum((2, 3))
    assert torch.allclose(direct, transposed)
    wide = x + 1
    wide[0, 0, 0] = torch.inf
    lower, upper = gate.interval((x, wide))
    assert bool(((lower <= gate.forward(x)) & (gate.forward(x) <= upper)).all())
    assert not bool(lower.isnan().any() | upper.isnan().any())
    assert bool(((upper - lower)[scale == 0] == 0).all())


@pytest.mark.parametrize(("patching", "metric"), KINDS)
@pytest.mark.parametrize("make", [dense, residual], ids=["dense", "residual"])
@pytest.mark.parametrize("point", [False, True], ids=["ball", "point"])
def test_the_shared_graph_computes_what_each_circuit_computes(
    make: object, patching: str, metric: str, point: bool
) -> None:
    graph = make(2)  # type: ignore[operator]
    components = graph.components()
    verifier = pc.Verifier(components, claim_of(graph, patching, metric, point))
    circuits = some_circuits(components, 5)
    batched = encode_batch(verifier.encoder, circuits)
    generator = torch.Generator().manual_seed(5)
    points = {}
    for name, box in batched.ranges.items():
        share = torch.rand(box.lower.shape, generator=generator, dtype=torch.float64)
        points[name] = box.lower + share * (box.upper - box.lower)
    y = evaluate(batched.graph, points)[batched.graph.outputs[0]]
    for p, k in enumerate(batched.inputs.tolist()):
        circuit = batched.circuits[p // 2]
        z = points[verifier.encoder.z][p] if not point else verifier.claim.inputs[k].center
        patches: dict[str, torch.Tensor] = dict(verifier.encoder.fixed)
        given = {batched.roles[name]: value for name, value in points.items()}
        source = verifier.encoder.source_role(verifier.encoder.z)
        if source in given:
            run = graph.activations(given[source][p : p + 1])
            patches = {site.tensor: run[site.tensor] for site in components.sites}
        elif patching == "hull":
            patches = {
                site.tensor: given[Role(RoleKind.PATCH_VALUES, site.tensor)][p : p + 1]
                if Role(RoleKind.PATCH_VALUES, site.tensor) in given
                else torch.zeros(1, *site.layer.shape, dtype=torch.float64)
                for site in components.sites
            }
        output = components.run([circuit], z.double().unsqueeze(0), patches)[0]
        reference = graph.run(z.double().unsqueeze(0))
        assert torch.allclose(y[p], verifier.replay.compared(reference, output)[0], atol=1e-9)


@pytest.mark.parametrize(("patching", "metric"), KINDS)
@pytest.mark.parametrize("make", [dense, residual], ids=["dense", "residual"])
def test_screening_and_asking_agree(make: object, patching: str, metric: str) -> None:
    graph = make(1)  # type: ignore[operator]
    components = graph.components()
    claim = claim_of(graph, patching, metric)
    circuits = some_circuits(components, 24)
    verifier = pc.Verifier(components, claim)
    first = verifier.screen(circuits)
    again = verifier.screen(circuits)  # with the witnesses of the first time
    decided = 0
    for circuit, *verdicts in zip(circuits, first, again, strict=True):
        alone = pc.verify(graph, circuit, claim, certify=False)
        for verdict in verdicts:
            if verdict is not None:
                decided += 1
                assert verdict.kind == alone.kind, circuit
            if isinstance(verdict, pc.Refuted):
                assert claim.inputs[verdict.witness.index].contains(verdict.witness.z[None]).all()
                assert verdict.witness.excess > 0
    assert decided >= len(circuits)  # half of what was asked


@pytest.mark.parametrize("patching", PATCHINGS)
@pytest.mark.parametrize("tolerance", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_greedy_asked_ahead_is_greedy(patching: str, tolerance: float, seed: int) -> None:
    graph = dense(seed)
    components = graph.components()
    centers = torch.rand(2, 5, generator=torch.Generator().manual_seed(seed))
    claim = pc.Claim(
        [pc.Ball(x, 0.1) for x in centers],
        PATCHINGS[patching],
        pc.LogitDifference(tolerance, "predicted"),
    )
    order = list(components.discovery_order())
    ahead, single = Decided(components, claim), Decided(components, claim)
    assert ahead.together > 1
    single.together = 1
    single.foresees = False
    many, one = Logged(ahead), Logged(single)
    assert greedy(many) == greedy(one)
    assert {n: v.kind for n, v in many.by_component.items()} == {
        n: v.kind for n, v in one.by_component.items()
    }
    assert list(many.by_component) == [component.name for component in order]


def test_large_networks_are_left_to_single_questions() -> None:
    graph = dense(0)
    components = graph.components()
    large = DEFAULT.changed(bounding={"small_units": 0})
    claim = claim_of(graph, "zero", "logit")
    verifier = pc.Verifier(components, claim, configuration=large)
    assert verifier.screen(some_circuits(components, 3)) == [None] * 3
    assert verifier.suspects(some_circuits(components, 3)) == [False] * 3


def test_no_circuits_no_answers() -> None:
    graph = dense(0)
    verifier = pc.Verifier(graph.components(), claim_of(graph, "zero", "logit"))
    assert verifier.screen([]) == []


def test_what_fails_is_tried_less_and_less_often() -> None:
    patience = Backoff()
    pauses = []
    for succeeds in (False, False, False, True, False):
        left_out = 0
        while not patience.tries():
            left_out += 1
        pauses.append(left_out)
        patience.learn(succeeds)
    assert pauses == [0, 1, 3, 7, 0]
    assert [patience.tries() for _ in range(3)] == [False, True, True]
    for _ in range(20):
        patience.learn(False)
    assert patience.pause == 31


def test_splitting_many_circuits_is_given_up_where_it_proves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Open circuits are then left to single questions; what is asked changes no verdict."""
    components = dense(0).components("neuron")
    centers = torch.rand(2, 5, generator=torch.Generator().manual_seed(1))
    balls = [pc.Ball(x, 1.0) for x in centers]
    claim = pc.Claim(balls, pc.Zero(), pc.LogitDifference(0.3, 1))
    circuits = some_circuits(components, 24)
    calls = 0

    def fruitless(batched: object, bounds: object, rows: torch.Tensor, _: object) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return torch.zeros(len(rows), dtype=torch.bool)

    verdicts = Decided(components, claim).ask(circuits)
    assert "splitting" in {v.stage for v in verdicts}
    expected = [v.kind for v in verdicts]
    monkeypatch.setattr(screen_room, "split_rows", fruitless)
    decided = Decided(components, claim)
    for _ in range(12):
        assert [v.kind for v in decided.ask(circuits)] == expected
    assert 0 < calls < 6, "two groups of circuits are open, twelve times"


def test_only_what_is_asked_about_is_split(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """And then all that was bounded with it: questions about those are answered already."""
    components = dense(0).components("neuron")
    centers = torch.rand(2, 5, generator=torch.Generator().manual_seed(1))
    claim = pc.Claim([pc.Ball(x, 1.0) for x in centers], pc.Zero(), pc.LogitDifference(0.3, 1))
    calls = []
    honest = screen_room.split_rows

    def watched(*arguments: object) -> torch.Tensor:
        calls.append(arguments)
        found: torch.Tensor = honest(*arguments)
        return found

    monkeypatch.setattr(screen_room, "split_rows", watched)
    verifier = pc.Verifier(components, claim)
    circuits = some_circuits(components, 24)
    screened = verifier.screen(circuits, 1.0)
    open_ = [c for c, v in zip(circuits, screened, strict=True) if v is None]
    assert len(open_) > 2
    assert not calls
    clock.now += 1.1  # the time of the screening is over, that of questions is not
    asked = [verifier.ask(circuit) for circuit in open_]
    proofs = sum(verdict.stage == "splitting" for verdict in asked)
    assert 0 < len(calls) < proofs
    again = [verifier.ask(circuit) for circuit in open_]
    assert [v.kind for v in again] == [v.kind for v in asked]
    assert "splitting" not in {v.stage for v in again}, "what was prepared is used once"
    assert [v.kind for v in asked] == [pc.Verifier(components, claim).ask(c).kind for c in open_]
