"""How long do searches for circuits take on the MNIST network?

    greedy        three digits, zero patching, eps 0.01, delta 2
    hitting set   one digit, interval-hull patching, eps 0.01 and 0.012, delta 2: a smallest circuit
    blocking sets the same claims, every set of up to three components
    two workers   the questions of an enumeration, answered by two processes and by one

The digits are real, and those the network gets right: classes take turns. Each search has a fresh
verifier and one thread; the workers have one thread each.

    python benchmarks/discovery.py --digits 100 --out docs/performance.md
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

import provable_circuits as pc
from measuring.tables import made_with, put, table
from provable_circuits.discover.predicates.distributed import Distributed
from provable_circuits.discover.predicates.predicate import Decided
from provable_circuits.zoo.digits import load_digits
from provable_circuits.zoo.mnist import mnist_network

EPS, PATCH_EPS, DELTA = 0.01, 0.012, 2.0
BUDGET = 60.0
SOON = 10.0
CLASSES = 10
ROUNDS = 3


class Mnist:
    """The network, and digits that it gets right."""

    def __init__(self) -> None:
        self.graph = mnist_network()
        self.components = self.graph.components("neuron")
        digits = load_digits()
        right = self.graph.run(digits.images).argmax(1) == digits.labels
        self.images, self.labels = digits.images[right], digits.labels[right]

    def nth(self, number: int, count: int = 1) -> tuple[int, torch.Tensor]:
        """Classes take turns: a class, and its next images."""
        label, turn = number % CLASSES, number // CLASSES
        own = self.images[self.labels == label]
        return label, own[count * turn : count * (turn + 1)]

    def greedy_claim(self, number: int) -> pc.Claim:
        """Three images, their pixels moved, the rest of the network set to zero."""
        label, images = self.nth(number, 3)
        balls = [pc.Ball(x, EPS, clip=(0, 1)) for x in images]
        return pc.Claim(balls, pc.Zero(), pc.LogitDifference(DELTA, label))

    def hull_claim(self, number: int) -> pc.Claim:
        """One image, its pixels moved, the rest of the network anywhere in its intervals."""
        label, images = self.nth(number)
        hull = pc.IntervalHull(PATCH_EPS, clip=(0, 1))
        ball = pc.Ball(images[0], EPS, clip=(0, 1))
        return pc.Claim(ball, hull, pc.LogitDifference(DELTA, label))


def greedy(mnist: Mnist, count: int) -> list[list[str]]:
    """Greedy searches by proof."""
    found = [
        pc.discover(mnist.graph, mnist.greedy_claim(i), mnist.components, certify=False)
        for i in range(count)
    ]
    seconds = [result.seconds for result in found]
    sizes = [len(result.circuit) for result in found]
    shown = (
        f"{np.median(seconds):.2f} s, {max(seconds):.2f} at most, mean size {np.mean(sizes):.1f}"
    )
    return [[f"greedy, 3 digits, {count} searches", "0.3 s", f"median {shown}"]]


def hitting_sets(mnist: Mnist, count: int) -> list[list[str]]:
    """Smallest circuits, and how far greedy is from them."""
    found = []
    for i in range(count):
        result = pc.discover(
            mnist.graph, mnist.hull_claim(i), mnist.components, "hitting-set", budget=BUDGET
        )
        found.append(result)
        gap = "" if result.minimality.notion == "cardinal" else f", at least {result.lower}"
        print(f"digit {i}: {len(result.circuit)}{gap}, {result.seconds:.1f} s", file=sys.stderr)
    exact = [r.seconds for r in found if r.minimality.notion == "cardinal"]
    soon = sum(seconds <= SOON for seconds in exact)
    sizes = np.mean([len(result.circuit) for result in found])
    firsts = np.mean([_greedy_size(result) for result in found])
    queries = int(np.median([sum(result.queries.values()) for result in found]))
    head = f"smallest circuit, {count} digits"
    return [
        [
            head,
            f"80 % within {SOON:g} s",
            f"{soon} within {SOON:g} s, median {np.median(exact):.1f} s",
        ],
        [head, f"95 % within {BUDGET:g} s", f"{len(exact)} within {BUDGET:g} s"],
        [f"{head}, size", "", f"mean {sizes:.1f}, greedy {firsts:.1f}; median {queries} questions"],
    ]


def _greedy_size(result: pc.Result) -> int:
    """The size that the greedy pass of a hitting-set search ended with."""
    return next((m.size for m in result.timeline if m.lower), len(result.circuit))


def enumerations(mnist: Mnist, count: int) -> list[list[str]]:
    """Blocking sets of up to three components."""
    found = [
        pc.discover(
            mnist.graph, mnist.hull_claim(i), mnist.components, "blocking-sets", certify=False
        )
        for i in range(count)
    ]
    seconds = [result.seconds for result in found]
    queries = int(np.median([sum(result.queries.values()) for result in found]))
    shown = f"median {np.median(seconds):.1f} s, {max(seconds):.1f} at most; {queries} questions"
    undecided = sum(result.queries.get("undecided", 0) for result in found)
    return [[f"blocking sets up to 3, {count} digits", "20 s", f"{shown}, {undecided} undecided"]]


def workers(mnist: Mnist, count: int) -> list[list[str]]:
    """The throughput of two workers over that of one, on the same questions."""
    ratios = []
    for i in range(count):
        full = mnist.components.full()
        circuits = [
            full.remove(*names) for names in itertools.combinations(mnist.components.names, 3)
        ]
        rates: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(ROUNDS):  # in turns, since the machine has other work too
            for processes, own in rates.items():
                predicate = Distributed(Decided(mnist.components, mnist.hull_claim(i)), processes)
                predicate.ask(circuits[: 64 * processes])  # the processes start, and prepare
                began = time.perf_counter()
                predicate.ask(circuits)
                own.append(len(circuits) / (time.perf_counter() - began))
                predicate.close()
        ratios.append(float(np.median(np.array(rates[2]) / np.array(rates[1]))))
        print(f"digit {i}: {rates} a second", file=sys.stderr)
    shown = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    head = f"two workers over one, {len(ratios)} enumerations, median of {ROUNDS} rounds"
    return [[head, "1.7 times", f"{shown} times"]]


PARTS = {"greedy": greedy, "hitting": hitting_sets, "blocking": enumerations, "workers": workers}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table, and write it into a page if asked."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--digits", type=int, default=20, help="digits for hitting sets")
    parser.add_argument("--few", type=int, default=10, help="digits for greedy and blocking sets")
    parser.add_argument("--only", choices=PARTS, help="one part")
    parser.add_argument("--out", type=Path, help="a page with the block 'discovery'")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    mnist = Mnist()
    counts = {
        "greedy": options.few,
        "hitting": options.digits,
        "blocking": options.few,
        "workers": 3,
    }
    rows: list[list[str]] = []
    for name, part in PARTS.items():
        if options.only in (None, name):
            rows += part(mnist, counts[name])
    text = table(["search", "asked", "measured"], rows)
    print(text)
    if options.out is not None:
        put(options.out, "discovery", f"{made_with('discovery.py')}\n\n{text}")


if __name__ == "__main__":
    main()
