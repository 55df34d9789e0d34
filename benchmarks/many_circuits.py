"""How fast are thousands of candidate circuits evaluated?

Prints the time of 1,000 circuits of the MNIST network on 3 inputs, as a multiple of one forward
pass of the plain PyTorch module on 3,000 inputs, measured alternately in the same run. At most 20
is asked.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import torch

from provable_circuits.network.weights import load_weights
from provable_circuits.zoo.mnist import SHIPPED_WEIGHTS, MnistNet, mnist_network

CIRCUITS, INPUTS, ROUNDS = 1000, 3, 30


def seconds(job: Callable[[], object]) -> float:
    """How long one call takes."""
    began = time.perf_counter()
    job()
    return time.perf_counter() - began


def main() -> None:
    """Measure and print the ratio."""
    graph = mnist_network()
    module = MnistNet()
    load_weights(module, SHIPPED_WEIGHTS)
    components = graph.components("neuron")
    dice = random.Random(0)
    circuits = [
        components.circuit([name for name in components.names if dice.random() < 0.5])
        for _ in range(CIRCUITS)
    ]
    few, many = torch.rand(INPUTS, 784), torch.rand(CIRCUITS * INPUTS, 784)

    def forward() -> torch.Tensor:
        with torch.no_grad():
            logits: torch.Tensor = module(many)
            return logits

    def run() -> torch.Tensor:
        return components.run(circuits, few)

    forward(), run()
    times = [(seconds(run), seconds(forward)) for _ in range(ROUNDS)]
    ours, plain = min(t for t, _ in times), min(t for _, t in times)
    print(f"{CIRCUITS} circuits on {INPUTS} inputs: {ours * 1e3:.2f} ms")
    print(f"one forward pass of {CIRCUITS * INPUTS} inputs: {plain * 1e3:.2f} ms")
    print(f"ratio: {ours / plain:.2f} (asked: at most 20)")


if __name__ == "__main__":
    main()
