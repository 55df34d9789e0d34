"""Try mutants of certificates for as long as one likes, and count what became of them.

    python -m tests.proof.soak --mutants 10000

It prints the counts at the end, and at once every mutant that is accepted though its statement is
false, that makes the checker raise, or that is refused in more than a sentence, with its seed:
``python -m tests.proof.soak --seed SEED --mutants 1``. The exit code is 1 if there was one.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

import torch
from tests.proof.trial import run


def main() -> int:
    """Try mutants from a seed on."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=10_000, help="so many")
    parser.add_argument("--seed", type=int, default=0, help="of the first mutant")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    began, seed, tried = time.monotonic(), asked.seed, 0
    counts: Counter[str] = Counter()
    slowest = 0.0
    while tried < asked.mutants:
        start = time.monotonic()
        outcome = run(seed, judge_all=True)
        for found in outcome.wrong:
            print(f"seed {seed}, {outcome.kind}: {found}", flush=True)
        counts["wrong"] += len(outcome.wrong)
        if outcome.verdict != "none":
            tried += 1
            counts[f"{outcome.verdict}"] += 1
            if tried > 100:
                slowest = max(slowest, time.monotonic() - start)
            if outcome.verdict == "refused":
                counts["refused, and false by the judge"] += bool(outcome.false)
        seed += 1
    for name, count in counts.items():
        print(f"{count:>12,} {name}")
    print(
        f"seeds {asked.seed} to {seed - 1}, {time.monotonic() - began:.0f} s, "
        f"the slowest {slowest:.1f} s"
    )
    return int(counts["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())
