"""Traps that once were, or easily could be, a proof of something false or a crash."""

from __future__ import annotations

import pytest
import torch
from tests.verify.networks import hard, pools
from torch import nn

import provable_circuits as pc
from provable_circuits.errors import ArgumentError
from provable_circuits.network.graph import GraphBuilder
from provable_circuits.network.ops import Clip, Linear, ReLU
from provable_circuits.verify.configuration import DEFAULT
from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.encoding.roles import RoleKind


def test_a_margin_that_overflows_is_refused() -> None:
    """Outputs of 1e310 have no finite margin; a NaN must not count as a row that holds."""
    builder = GraphBuilder()
    x = builder.input("x", (1,))
    large = torch.full((2, 1), 1e155, dtype=torch.float64)
    hidden = builder.add("r", ReLU(), builder.add("a", Linear(large, large[:, 0]), x))
    last = torch.tensor([[1e155, 1e155], [5e154, 5e154]], dtype=torch.float64)
    components = builder.build([builder.add("out", Linear(last), hidden)]).components("neuron")
    for domain in (pc.Ball([0.5], 0.1), pc.Point([0.5])):
        for against in ("runner-up", "all"):
            with pytest.raises(ArgumentError, match="finite"):
                pc.Verifier(components, pc.Claim(domain, pc.Zero(), pc.WinnerMargin(0.5, against)))


@pytest.mark.parametrize("leak", [0.01, 0.3, 0.1])
@pytest.mark.parametrize("scale", [1.0, 1e6])
@pytest.mark.parametrize("p", [1, 2])
def test_leaks_that_float32_does_not_hold_stay_below(leak: float, scale: float, p: int) -> None:
    """f = (leaky(x) + 2 leak, 0): the margin at x = -1 is half of that at 0, and not a bit more."""
    first, last = nn.Linear(1, 1), nn.Linear(1, 2)
    net = nn.Sequential(first, nn.LeakyReLU(leak), last).double()
    with torch.no_grad():
        first.weight.fill_(1.0)
        first.bias.zero_()
        last.weight.copy_(torch.tensor([[scale], [0.0]]))
        last.bias.copy_(torch.tensor([2 * leak * scale, 0.0], dtype=torch.float64))
    graph = pc.Graph.from_torch(net, torch.zeros(1, 1, dtype=torch.float64))
    components = graph.components("neuron", outputs=False)
    claim = pc.Claim(pc.Ball([0.0], 1.0, p), pc.Zero(), pc.WinnerMargin(0.5 * (1 + 1e-9)))
    for steps in (0, 12):
        verdict = pc.Verifier(components, claim, attack_steps=steps).ask(components.full())
        assert not verdict.proved


@pytest.mark.parametrize("name", ["patch:a", "at:a", "a~1", "b^above", "patch:input"])
@pytest.mark.parametrize("patching", [pc.Zero(), pc.Reachable(eps=0.1), pc.IntervalHull(eps=0.1)])
def test_names_like_those_that_a_proof_gives_change_nothing(
    name: str, patching: pc.Patching
) -> None:
    """Nothing is read from names: what is remembered of one tensor is never taken for another."""

    def verdicts(hidden: str) -> list[tuple[str, str, float]]:
        builder, w = GraphBuilder(), torch.Generator().manual_seed(4)
        x = builder.input("x", (2,))
        first = builder.add("a", Linear(torch.randn(3, 2, generator=w)), x)
        clipped = builder.add("b", Clip(0.0, 1.5), first)
        second = builder.add(hidden, Linear(torch.randn(3, 3, generator=w)), clipped)
        third = builder.add("r", ReLU(), second)
        graph = builder.build([builder.add("out", Linear(torch.randn(2, 3, generator=w)), third)])
        components = graph.components("neuron")
        assert name == hidden or hidden == "plain"
        found = []
        for tolerance in (0.3, 1.2):
            claim = pc.Claim(pc.Ball([0.5, -0.3], 0.1), patching, pc.MaxAbs(tolerance))
            verifier = pc.Verifier(components, claim)
            for i in range(len(components)):
                circuit = components.full().remove(components.names[i])
                verdict = verifier.ask(circuit, timeout=60.0)
                found.append(
                    (
                        verdict.kind,
                        str(verdict.stage),
                        round(float(getattr(verdict, "bound", 0.0)), 9),
                    )
                )
        return found

    assert verdicts(name) == verdicts("plain")


def test_ordinary_names_do_not_collide_with_what_a_proof_adds() -> None:
    """A network may well have tensors of these names."""
    builder = GraphBuilder()
    torch.manual_seed(0)
    value = builder.input("total", (2,))
    for name in ("difference", "squares", "x.zero", "x.above", "rise"):
        value = builder.add(name, Linear(torch.randn(2, 2)), value)
        value = builder.add(f"{name}.kept", ReLU(), value)
    graph = builder.build([builder.add("sides", Linear(torch.randn(2, 2)), value)])
    components = graph.components("neuron")
    for metric in (pc.Norm(0.5, p=1), pc.Norm(0.5, p=2), pc.MaxAbs(0.5)):
        claim = pc.Claim(pc.Ball([0.3, -0.2], 0.1), pc.Constant(0.1), metric)
        verifier = pc.Verifier(components, claim)
        for component in components.names:
            circuit = components.full().remove(component)
            assert (
                verifier.ask(circuit).kind == pc.verify(graph, circuit, claim, certify=False).kind
            )


@pytest.mark.parametrize("seed", [28, 31, 40, 57])
@pytest.mark.parametrize("metric", ["max", "2-norm"])
def test_the_bound_of_a_proof_is_about_all_inputs(seed: int, metric: str) -> None:
    """One input is closed by linear bounds with little room, the other needs more work."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    for parameter in net.parameters():
        parameter.data = torch.randn_like(parameter)
    graph = pc.Graph.from_torch(net, torch.zeros(1, 3))
    components = graph.components("neuron", outputs=False)
    generator = torch.Generator().manual_seed(seed)
    domains = [pc.Ball(torch.rand(3), 1e-4), pc.Ball(torch.rand(3), 0.3)]
    seen = 0
    for name in components.names:
        circuit = components.full().remove(name)
        largest = 0.0
        for domain in domains:
            z = domain.sample(2000, generator).double()
            moved = circuit.run(z) - graph.run(z)
            size = moved.abs().amax(1) if metric == "max" else moved.norm(dim=1)
            largest = max(largest, float(size.max()))
        for tolerance in (1.02 * largest + 1e-6, 1.3 * largest + 1e-6, 50 * largest + 1.0):
            judged = pc.MaxAbs(tolerance) if metric == "max" else pc.Norm(tolerance, p=2)
            verdict = pc.verify(
                graph, circuit, pc.Claim(domains, pc.Zero(), judged), max_nodes=500, certify=False
            )
            if not isinstance(verdict, pc.Refuted):
                seen += 1
                assert isinstance(verdict, pc.Proved | pc.Undecided)
                assert verdict.bound >= largest - tolerance - 1e-9
    assert seen > len(components)


def test_a_question_without_anything_that_ranges() -> None:
    """Nothing of the empty circuit depends on its input; the claim holds with equality."""
    torch.manual_seed(0)
    graph = pc.Graph.from_torch(
        nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2)), torch.zeros(1, 2)
    )
    components = graph.components("neuron")
    claim = pc.Claim(pc.Ball([0.1, 0.2], 0.1), pc.Constant(0.5), pc.WinnerMargin(0.0))
    assert pc.verify(graph, components.empty(), claim, certify=False).proved
    claim = pc.Claim(pc.Ball([0.1, 0.2], 0.1), pc.Constant(0.5), pc.WinnerMargin(0.5))
    assert pc.verify(graph, components.empty(), claim, certify=False).refuted


def test_unfinished_work_of_other_questions_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time runs out before a tensor that an earlier question had begun on is reached."""
    circuit, claim = hard(pools())
    large = DEFAULT.changed(bounding={"small_units": 0})
    verifier = pc.Verifier(circuit.components, claim, configuration=large)
    query = verifier.encoder.encode(circuit)
    sources = [n.inputs[0] for n in query.graph.nodes if isinstance(n.op, ReLU)]
    node = [n for n in sources if query.roles[n].kind is RoleKind.PATCH_SOURCE][-1]
    begun, shape = query.roles[node], (1, *query.graph[node].shape)
    ends = (torch.full(shape, -9e9).double(), torch.full(shape, 9e9).double())
    verifier.knowledge.memory.started[begun] = (ends, torch.zeros(shape, dtype=torch.bool))
    monkeypatch.setattr(Deadline, "passed", property(lambda _: True))
    assert verifier.ask(circuit).undecided
    assert begun in verifier.knowledge.memory.started
