"""``discover`` by proof and by sampling: what it returns, what it says, what it refuses."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import provable_circuits as pc
from provable_circuits.discover.search import Search
from provable_circuits.errors import ClaimFailsError
from provable_circuits.progress import Progress


def graph() -> pc.Graph:
    torch.manual_seed(2)
    net = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2))
    return pc.Graph.from_torch(net, torch.zeros(1, 3))


def claim(tolerance: float = 0.2, eps: float = 0.05) -> pc.Claim:
    center = torch.tensor([0.3, 0.6, 0.9])
    return pc.Claim([pc.Ball(center, eps)], pc.Zero(), pc.LogitDifference(tolerance, 0))


def test_a_proved_circuit_is_proved_again_from_scratch() -> None:
    network = graph()
    result = pc.discover(network, claim(), certify=False)
    assert result.faithful == "proved"
    assert pc.verify(network, result.circuit, claim(), certify=False).proved
    assert 0 < len(result.circuit) < len(result.circuit.components)


def test_every_kept_component_says_why() -> None:
    result = pc.discover(graph(), claim(), local_check=True, certify=False)
    assert set(result.kept) == set(result.circuit.names)
    for name, kept in result.kept.items():
        fresh = pc.verify(graph(), result.circuit.remove(name), claim(), certify=False)
        assert fresh.kind == {"necessary": "refuted", "removable": "proved"}[kept.status]
        assert kept.verdict is not None
        assert kept.verdict.kind == fresh.kind


def test_counts_add_up() -> None:
    result = pc.discover(graph(), claim(), certify=False)
    assert sum(result.queries.values()) == sum(result.stages.values()) == 12
    assert result.timeline[-1].size == len(result.circuit)
    assert result.timeline[0].size == 11


def test_sampling_says_that_nothing_is_proved() -> None:
    result = pc.discover(graph(), claim(), method="sampling")
    assert result.faithful == "sampled"
    assert "nothing is proved" in str(result)


def test_the_empty_circuit_is_an_answer() -> None:
    result = pc.discover(graph(), claim(tolerance=100.0), certify=False)
    assert len(result.circuit) == 0
    assert "the empty circuit is faithful" in str(result)


def test_the_text_names_what_is_kept_and_what_was_claimed() -> None:
    text = str(pc.discover(graph(), claim(), certify=False))
    assert "Circuit: " in text
    assert "proved for every input in 1 domain(s)" in text
    assert "LogitDifference(tolerance=0.2, target=0)" in text


def test_an_order_of_ones_own_is_followed() -> None:
    network = graph()
    names = list(network.components().names)
    heard: list[Progress] = []
    pc.discover(network, claim(), order=names, listener=heard.append, certify=False)
    tried = [progress.doing for progress in heard if progress.doing in names]
    assert list(dict.fromkeys(tried)) == names


def last_layer_only(search: Search) -> None:
    """Tries to remove each output, and nothing else."""
    circuit = search.components.full()
    for component in search.order[:2]:
        smaller = circuit.remove(component.name)
        if search.ask(smaller, component.name).proved:
            circuit = smaller


def test_a_search_of_ones_own_is_told_apart_by_what_it_showed() -> None:
    result = pc.discover(graph(), claim(), algorithm=last_layer_only, certify=False)
    assert result.algorithm == "last_layer_only"
    assert (~result.circuit).names == ("4/1",)
    assert result.faithful == "proved"
    assert result.kept["4/0"].status == "necessary"
    assert result.kept["0/0"].status == "undecided"
    assert result.minimality.notion == "quasi"
    assert sum(result.queries.values()) == 3


class Nothing:
    """A search that asks nothing."""

    def __call__(self, search: Search) -> None:
        pass


def test_a_search_may_be_any_object_that_can_be_called() -> None:
    result = pc.discover(graph(), claim(), algorithm=Nothing(), certify=False)
    assert result.algorithm == "Nothing"
    assert result.circuit == result.circuit.components.full()


def test_a_listener_hears_every_question() -> None:
    heard: list[Progress] = []
    pc.discover(graph(), claim(), listener=heard.append, certify=False)
    assert sum(heard[-1].queries.values()) == 12


def test_a_network_that_violates_the_claim_itself_is_refused_with_the_witness() -> None:
    center = torch.tensor([0.3, 0.6, 0.9])
    wide = pc.Claim([pc.Ball(center, 5.0)], pc.Zero(), pc.WinnerMargin(1.0))
    with pytest.raises(ClaimFailsError, match="The network itself violates the claim") as caught:
        pc.discover(graph(), wide, certify=False)
    assert isinstance(caught.value.verdict, pc.Refuted)
    assert caught.value.exit_code == 1


class Steady(pc.Metric):
    """Outputs stay where they were at the unperturbed input: the network itself may fail this."""

    def excess(
        self, anchor: torch.Tensor, reference: torch.Tensor, output: torch.Tensor
    ) -> torch.Tensor:
        return (output - anchor).abs().amax(-1) - getattr(self, "tolerance", 1e-9)


class SteadyWithin(Steady):
    tolerance = 0.5


class Never(Steady):
    def excess(
        self, anchor: torch.Tensor, reference: torch.Tensor, output: torch.Tensor
    ) -> torch.Tensor:
        return (output - anchor).abs().amax(-1) + 1.0


NEAR, FAR = pc.Ball([0.3, 0.6, 0.9], 1e-6), pc.Ball([0.3, 0.6, 0.9], 50.0, clip=(-50, 50))
WIDE = pc.Box([-50.0] * 3, [50.0] * 3, [0.3, 0.6, 0.9])
STILL = pc.Point([0.3, 0.6, 0.9])


LEAVE = "leave that input out."


@pytest.mark.parametrize(
    ("metric", "domains", "advice"),
    [
        (
            pc.WinnerMargin(1.0),
            [NEAR, FAR],
            f"choose a smaller eps or a smaller fraction, or {LEAVE}",
        ),
        (pc.WinnerMargin(0.0), [FAR], f"choose a smaller eps, or {LEAVE}"),
        (
            pc.WinnerMargin(0.5, "all"),
            [NEAR, WIDE],
            f"choose a smaller domain or a smaller fraction, or {LEAVE}",
        ),
        (SteadyWithin(), [STILL, FAR], f"choose a smaller eps or a larger tolerance, or {LEAVE}"),
        (Steady(), [STILL, WIDE], f"choose a smaller domain, or {LEAVE}"),
        (Never(), [STILL], LEAVE),
    ],
)
def test_it_names_the_input_and_advises_what_the_metric_has(
    metric: pc.Metric, domains: list[pc.Domain], advice: str
) -> None:
    method = "proof" if isinstance(metric, pc.WinnerMargin) else "sampling"
    asked = pc.Claim(domains, pc.Zero(), metric)
    with pytest.raises(ClaimFailsError) as caught:
        pc.discover(
            graph(), asked, method=method, points=50 if method == "sampling" else 0, certify=False
        )
    text, index = str(caught.value), len(domains) - 1
    assert caught.value.verdict.witness.index == index
    assert f"at input {index} (counted from 0), {domains[-1]!r}: " in text
    assert text.endswith(f" No circuit can satisfy it: {advice}")
    assert "in the circuit" not in text
    if method == "proof":
        with pytest.raises(ClaimFailsError) as dual:
            pc.blocking_set(graph(), asked)
        assert str(dual.value).endswith(advice)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"algorithm": "magic"}, "The 'algorithm' parameter must be one of greedy"),
        ({"algorithm": ["greedy"]}, "or a function of a Search. Got list instead"),
        ({"method": "guess"}, "The 'method' parameter must be 'proof' or 'sampling'"),
        ({"order": ["0/0"]}, "must name every component once"),
        ({"order": "best"}, "must be one of paper, attribution, random, or a list"),
        ({"t_max": 0}, "The 't_max' parameter must be a whole number of at least 1"),
        ({"budget": 0}, "The 'budget' parameter must be a positive number of seconds"),
        ({"workers": 0}, "The 'workers' parameter must be a whole number of at least 1"),
        ({"granularity": "atom"}, "The 'granularity' parameter must be"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(pc.ProvableCircuitsError, match=message):
        pc.discover(graph(), claim(), **arguments, certify=False)  # type: ignore[arg-type]
