"""The facts stated about the toy networks, judged by brute force over all circuits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, combinations, product

import pytest
import torch

from provable_circuits.errors import ArgumentError
from provable_circuits.network.circuit import Circuit
from provable_circuits.zoo.toy import ToyNetwork, counterexample_network, xor_network

Kept = frozenset[str]
Predicate = Callable[[Kept], bool]


def subsets(names: Iterable[str]) -> Iterator[Kept]:
    """Every subset, smallest first."""
    names = tuple(names)
    sizes = (combinations(names, size) for size in range(len(names) + 1))
    return map(frozenset, chain.from_iterable(sizes))


def equality(toy: ToyNetwork) -> Predicate:
    """Phi under zero patching and tolerance 0, read from a table of all circuits."""
    components = toy.components
    everything = [Circuit(components, bits) for bits in range(2 ** len(components))]
    outputs = components.run(everything, toy.inputs)
    same = (outputs == toy.graph.run(toy.inputs)).flatten(1).all(dim=1).tolist()
    table = {frozenset(circuit.names): bool(s) for circuit, s in zip(everything, same, strict=True)}
    return table.__getitem__


def is_quasi_minimal(kept: Kept, faithful: Predicate) -> bool:
    return faithful(kept) and any(not faithful(kept - {one}) for one in kept)


def is_locally_minimal(kept: Kept, faithful: Predicate) -> bool:
    return faithful(kept) and all(not faithful(kept - {one}) for one in kept)


def is_subset_minimal(kept: Kept, faithful: Predicate) -> bool:
    return faithful(kept) and all(not faithful(kept - gone) for gone in subsets(kept) if gone)


def is_cardinally_minimal(kept: Kept, faithful: Predicate, names: Iterable[str]) -> bool:
    smaller = (other for other in subsets(names) if len(other) < len(kept))
    return faithful(kept) and not any(map(faithful, smaller))


def greedy(order: Iterable[str], faithful: Predicate) -> Kept:
    """Try each component once, in order; drop it when what is left is faithful."""
    order = tuple(order)
    kept = frozenset(order)
    for name in order:
        if faithful(kept - {name}):
            kept -= {name}
    return kept


def binary_search(order: Iterable[str], faithful: Predicate) -> Kept:
    """Halve the range in which the longest removable prefix of the order is sought."""
    order = tuple(order)
    low, high = 0, len(order)
    while high - low > 1:
        middle = (low + high) // 2
        if faithful(frozenset(order[middle:])):
            low = middle
        else:
            high = middle
    return frozenset(order[low:])


def minimum_hitting_set(blocking: list[Kept], names: Iterable[str]) -> Kept:
    return next(hits for hits in subsets(names) if all(hits & one for one in blocking))


class TestXor:
    toy = xor_network()
    names = toy.components.names
    faithful = staticmethod(equality(toy))

    @staticmethod
    def kept(*numbers: int) -> Kept:
        return frozenset(f"v/v{number}" for number in numbers)

    def notions(self, *numbers: int) -> list[str]:
        """The minimality notions that a circuit fulfils, weakest first."""
        kept = self.kept(*numbers)
        holds = {
            "quasi": is_quasi_minimal(kept, self.faithful),
            "local": is_locally_minimal(kept, self.faithful),
            "subset": is_subset_minimal(kept, self.faithful),
            "cardinal": is_cardinally_minimal(kept, self.faithful, self.names),
        }
        return [notion for notion, fulfilled in holds.items() if fulfilled]

    def test_only_the_six_gates_are_components(self) -> None:
        assert self.names == ("v/v1", "v/v2", "v/v3", "v/v4", "v/v5", "v/v6")

    def test_inputs_are_the_boolean_points(self) -> None:
        assert sorted(map(tuple, self.toy.inputs.tolist())) == list(product([0.0, 1.0], repeat=2))

    def test_the_network_computes_its_second_input(self) -> None:
        torch.testing.assert_close(
            self.toy.graph.run(self.toy.inputs), self.toy.inputs[:, 1:], rtol=0, atol=0
        )

    def test_every_circuit_computes_the_xor_of_what_it_keeps(self) -> None:
        """All 64 circuits, and the components' own values, against Boolean arithmetic."""
        for circuit in (Circuit(self.toy.components, bits) for bits in range(64)):
            outputs = circuit.run(self.toy.inputs).flatten().tolist()
            for (first, second), output in zip(
                self.toy.inputs.int().tolist(), outputs, strict=True
            ):
                values = (second, first, first, first ^ second, first ^ second, second ^ second)
                expected = 0
                for name, value in zip(self.names, values, strict=True):
                    expected ^= value if name in circuit else 0
                assert output == expected

    def test_v1_alone_is_cardinally_minimal(self) -> None:
        assert self.notions(1) == ["quasi", "local", "subset", "cardinal"]

    def test_v2_with_v4_is_subset_minimal(self) -> None:
        assert self.notions(2, 4) == ["quasi", "local", "subset"]

    def test_v1_v2_v3_is_locally_minimal(self) -> None:
        assert self.notions(1, 2, 3) == ["quasi", "local"]

    def test_v1_to_v5_is_locally_minimal_too(self) -> None:
        """The paper says quasi-minimal at most; each of its single removals does break it."""
        assert self.notions(1, 2, 3, 4, 5) == ["quasi", "local"]

    def test_the_whole_network_is_quasi_minimal_only(self) -> None:
        assert self.notions(1, 2, 3, 4, 5, 6) == ["quasi"]

    def test_nothing_kept_is_not_faithful(self) -> None:
        assert not self.faithful(frozenset())

    def test_equality_is_not_monotone(self) -> None:
        assert self.faithful(self.kept(1))
        assert not self.faithful(self.kept(1, 2))

    def test_the_hitting_set_bound_is_false_without_monotonicity(self) -> None:
        """Blocking sets say "at least 5" where 1 is enough."""
        everything = frozenset(self.names)
        blocking = [gone for gone in subsets(self.names) if not self.faithful(everything - gone)]
        bound = minimum_hitting_set(blocking, self.names)
        assert bound == self.kept(1, 2, 3, 4, 5)
        smallest = next(kept for kept in subsets(self.names) if self.faithful(kept))
        assert smallest == self.kept(1)


@pytest.mark.parametrize("pairs", [1, 2, 3, 4])
class TestCounterexample:
    def test_components_and_function(self, pairs: int) -> None:
        toy = counterexample_network(pairs)
        numbered = [f"{side}/{i}" for side in "pq" for i in range(pairs)]
        assert toy.components.names == (*numbered, "v3/0", "v4/0")
        x = torch.linspace(0, 1, 17)[:, None]
        torch.testing.assert_close(toy.graph.run(x), x, rtol=0, atol=0)
        assert toy.inputs.flatten().tolist() == [0.0, 0.5, 1.0]

    def test_every_circuit_computes_a_multiple_of_x(self, pairs: int) -> None:
        """So the given inputs decide equality on the whole of [0, 1]."""
        toy = counterexample_network(pairs)
        circuits = [Circuit(toy.components, bits) for bits in range(2 ** len(toy.components))]
        x = torch.linspace(0, 1, 9)[:, None]
        outputs = toy.components.run(circuits, x)
        assert torch.equal(outputs, outputs[:, -1:] * x)

    def test_no_component_can_go_alone(self, pairs: int) -> None:
        toy = counterexample_network(pairs)
        assert is_locally_minimal(frozenset(toy.components.names), equality(toy))

    def test_a_pair_can_go_together(self, pairs: int) -> None:
        toy = counterexample_network(pairs)
        everything, faithful = frozenset(toy.components.names), equality(toy)
        for p, q in product(range(pairs), repeat=2):
            assert faithful(everything - {f"p/{p}", f"q/{q}"})
        assert not is_subset_minimal(everything, faithful)
        assert is_cardinally_minimal(frozenset({"v3/0", "v4/0"}), faithful, everything)

    def test_searches_by_single_removals_stay_at_the_whole_network(self, pairs: int) -> None:
        toy = counterexample_network(pairs)
        everything, faithful = frozenset(toy.components.names), equality(toy)
        p, q = ([f"{side}/{i}" for i in range(pairs)] for side in "pq")
        published = [*p, "v3/0", *q, "v4/0"]
        ours = [component.name for component in toy.components.discovery_order()]
        assert greedy(published, faithful) == everything
        assert greedy(ours, faithful) == everything
        assert binary_search(published, faithful) == everything


@pytest.mark.parametrize("pairs", [0, -1, 1.5, True, "2"])
def test_a_family_needs_at_least_one_pair(pairs: int) -> None:
    with pytest.raises(ArgumentError, match=r"'pairs' .* must be an integer of at least 1\. Got"):
        counterexample_network(pairs)
