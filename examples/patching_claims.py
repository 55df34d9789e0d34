"""Four claims about one network: what may vary is the input, the patches, or both."""

import torch

import provable_circuits as pc
from provable_circuits.zoo import load_digits, mnist_network

EPS = 0.03


def main() -> None:
    """Find a circuit for each claim, and say what its minimality rests on."""
    torch.set_num_threads(1)
    graph, digits = mnist_network(), load_digits()
    x = digits.images[digits.labels == 7][0]
    train = load_digits(split="train")
    ball = pc.Ball(x, eps=EPS, clip=(0, 1))
    metric = pc.LogitDifference(tolerance=2.0, target=7)
    claims = {
        "inputs vary, patches are zero": pc.Claim(ball, pc.Zero(), metric),
        "inputs vary, patches are means": pc.Claim(ball, pc.Mean(train.images), metric),
        "patches vary with an input near x": pc.Claim(
            pc.Point(x), pc.Reachable(eps=EPS, clip=(0, 1)), metric
        ),
        "both vary, patches reachable": pc.Claim(ball, pc.Reachable(eps=EPS, clip=(0, 1)), metric),
        "both vary, patches in intervals": pc.Claim(
            ball, pc.IntervalHull(eps=EPS, clip=(0, 1)), metric
        ),
    }
    for name, claim in claims.items():
        result = pc.discover(graph, claim, timeout=5)
        print(f"{name}: {len(result.circuit)} of {len(result.circuit.components)}")
        print(f"  {result.minimality.notion} ({result.minimality.holds}): {result.monotone}")


if __name__ == "__main__":
    main()
