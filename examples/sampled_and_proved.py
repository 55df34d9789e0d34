"""Circuits found by sampling, held against proof: how many break, where, and by how much."""

import torch

import provable_circuits as pc
from provable_circuits.zoo import load_digits, mnist_network


def main() -> None:
    """For each class: a sampled circuit, a proved one, and the witness that tells them apart."""
    torch.set_num_threads(1)
    graph, digits = mnist_network(), load_digits()
    right = graph.run(digits.images).argmax(1) == digits.labels
    broken = 0
    for label in range(5):
        inputs = digits.images[(digits.labels == label) & right][:3]
        claim = pc.Claim(
            inputs=[pc.Ball(x, eps=0.02, clip=(0, 1)) for x in inputs],
            patching=pc.Zero(),
            metric=pc.LogitDifference(tolerance=2.0, target=label),
        )
        sampled = pc.discover(graph, claim, method="sampling").circuit
        proved = pc.discover(graph, claim).circuit
        shared = len(sampled & proved) / len(sampled | proved)
        verdict = pc.verify(graph, sampled, claim)
        line = f"{label}: sampled {len(sampled)}, proved {len(proved)}, overlap {shared:.0%}"
        if isinstance(verdict, pc.Refuted):
            broken += 1
            witness = verdict.witness
            moved = (witness.z - inputs[witness.index]).abs().max()
            reference, output = witness.reference[label], witness.output[label]
            line += f"; pixels moved by {moved:.2f} turn {reference:.1f} into {output:.1f}"
        print(f"{line} ({verdict.kind})")
    print(f"{broken} of 5 sampled circuits are refuted; the proved ones cannot be")


if __name__ == "__main__":
    main()
