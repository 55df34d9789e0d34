"""Are questions about small networks decided, 1e-3 to either side of the exact optimum?

Random networks of up to 40 unstable units (fully connected of one to four layers, leaky, residual,
convolutional; 2 to 25 inputs). A mixed-integer program that shares no code with this package says
what the optimum is; the threshold is put just above and just below it. Each network is asked about
twice on each side: as a VNN-LIB property of its ONNX file, and as a claim about a circuit of it.

Prints the shares decided within 10 and within 60 seconds of computing, counted over all threads
(asked: 99 % and all), and whether any answer was wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

import provable_circuits as pc
from measuring.optimum import largest_difference, largest_output
from measuring.small import Small, draw
from provable_circuits.network.graph import Graph
from provable_circuits.properties.verify import decide
from provable_circuits.properties.vnnlib import decimal_text, parse_property

MARGIN = 1e-3
SOON, LATE = 10.0, 60.0
WORDS = {"holds": "proved", "violated": "refuted"}

Answer = tuple[str, str, float]
"""What it should be, what it is, and how many seconds of computing it took."""


def property_text(small: Small, threshold: float) -> str:
    """That row . y is at least the threshold somewhere in the box."""
    names = [f"X_{i}" for i in range(len(small.lower))]
    lines = [f"(declare-const {name} Real)" for name in names]
    lines += [f"(declare-const Y_{i} Real)" for i in range(len(small.row))]
    for name, low, high in zip(names, small.lower, small.upper, strict=True):
        lines.append(f"(assert (>= {name} {decimal_text(float(low))}))")
        lines.append(f"(assert (<= {name} {decimal_text(float(high))}))")
    left = "Y_0" if len(small.row) == 1 else "(- Y_0 Y_1)"
    return "\n".join([*lines, f"(assert (>= {left} {decimal_text(threshold)}))"])


def ask_property(small: Small, seconds: float) -> Iterator[Answer]:
    """Both sides of the largest output, through ONNX and VNN-LIB."""
    best = largest_output(small.net, small.lower, small.upper, small.row, seconds)
    if best is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        small.graph.to_onnx(path)
        for shift, wanted in ((MARGIN, "proved"), (-MARGIN, "refuted")):
            began = time.process_time()
            question = parse_property(property_text(small, best + shift))
            verdict = decide(Graph.from_onnx(path), question, LATE)
            took = time.process_time() - began
            yield wanted, WORDS.get(verdict.status, verdict.status), took


def ask_claim(small: Small, seconds: float) -> Iterator[Answer]:
    """Both sides of the largest difference of the circuit from the network."""
    best = largest_difference(small.net, small.lower, small.upper, small.keep, seconds)
    if best is None or best < 2 * MARGIN:
        return
    ends = (
        torch.from_numpy(end).reshape(small.graph.input_shape) for end in (small.lower, small.upper)
    )
    box = pc.Box(*ends)
    for shift, wanted in ((MARGIN, "proved"), (-MARGIN, "refuted")):
        claim = pc.Claim([box], pc.Zero(), pc.MaxAbs(best + shift))
        began = time.process_time()
        verdict = pc.verify(small.graph, small.circuit, claim, LATE, certify=False)
        yield wanted, verdict.kind, time.process_time() - began


def summary(name: str, answers: list[Answer]) -> str:
    """The shares of one front end."""
    right = [took for wanted, got, took in answers if wanted == got]
    wrong = sum(got in ("proved", "refuted") and got != wanted for wanted, got, _ in answers)
    times = np.array(right) if right else np.full(1, np.inf)
    soon, late = (100 * (times <= limit).sum() / max(len(answers), 1) for limit in (SOON, LATE))
    return (
        f"{name}: {len(answers)} questions, {soon:.2f} % decided within {SOON:g} s (asked: 99 %), "
        f"{late:.2f} % within {LATE:g} s (asked: 100 %), {wrong} wrong; median "
        f"{np.median(times):.2f} s, longest {times.max():.2f} s"
    )


def main() -> None:
    """Draw networks, ask, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", type=int, default=20, help="how many networks")
    parser.add_argument("--first", type=int, default=0, help="the number of the first network")
    parser.add_argument("--seed", type=int, default=0, help="of the networks")
    parser.add_argument("--solver", type=float, default=120.0, help="seconds for each optimum")
    given = parser.parse_args()
    answers: dict[str, list[Answer]] = {"properties": [], "claims": []}
    for number in range(given.first, given.first + given.networks):
        small = draw(given.seed, number)
        for name, ask in (("properties", ask_property), ("claims", ask_claim)):
            for wanted, got, took in ask(small, given.solver):
                answers[name].append((wanted, got, took))
                if got != wanted or took > 1.0:
                    sizes = [len(block.bias) for block in small.net]
                    print(
                        f"{number} {small.kind} {len(small.lower)} {sizes}, {small.unstable} "
                        f"unstable: {name}, {wanted}: {got} in {took:.2f} s",
                        flush=True,
                    )
    for name, found in answers.items():
        print(summary(name, found))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
