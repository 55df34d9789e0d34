"""The smallest circuit, proved to be so, and the fewest neurons that break the network."""

import torch

import provable_circuits as pc
from provable_circuits.progress import Progress
from provable_circuits.zoo import load_digits, mnist_network


class Bounds:
    """Prints the bounds of a search whenever they move."""

    def __init__(self) -> None:
        self.last: tuple[int | None, int] | None = None

    def __call__(self, progress: Progress) -> None:
        """Hear of an answer."""
        bounds = (progress.lower, progress.size)
        if bounds != self.last and progress.lower:
            print(f"  between {progress.lower} and {progress.size} after {progress.seconds:.1f} s")
        self.last = bounds


def main() -> None:
    """Interval-hull patching makes the claim monotone, so that no assumption is needed."""
    torch.set_num_threads(1)
    graph, digits = mnist_network(), load_digits()
    x = digits.images[digits.labels == 5][0]
    claim = pc.Claim(
        inputs=pc.Ball(x, eps=0.01, clip=(0, 1)),
        patching=pc.IntervalHull(eps=0.012, clip=(0, 1)),
        metric=pc.LogitDifference(tolerance=2.0),
    )
    print(f"greedy: {len(pc.discover(graph, claim).circuit)} components")
    smallest = pc.discover(graph, claim, algorithm="hitting-set", budget=60, listener=Bounds())
    print(f"smallest: {len(smallest.circuit)} components, none has fewer than {smallest.lower}")
    print(f"  {smallest.minimality.notion}, {smallest.minimality.holds}")
    print(pc.blocking_set(graph, claim, budget=60))


if __name__ == "__main__":
    main()
