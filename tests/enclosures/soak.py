"""Play sequences for as long as one likes, and count what was looked at.

    python -m tests.enclosures.soak --seconds 600
    python -m tests.enclosures.soak --questions 20000 --seed 1000

It prints the counts at the end, and every contradiction at once with the seed that plays it again:
``python -m tests.enclosures.soak --seed SEED --questions 1``. The exit code is 1 if there was one.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

import torch
from tests.enclosures.sequences import play

EVERY_LARGE = 20
"""One sequence of so many is about a network that is large by itself."""


def main() -> int:
    """Play sequences from a seed on."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.0, help="for so long")
    parser.add_argument("--questions", type=int, default=0, help="until so many were asked")
    parser.add_argument("--seed", type=int, default=10_000, help="of the first sequence")
    asked = parser.parse_args()
    if not (asked.seconds or asked.questions):
        parser.error("say --seconds or --questions")
    torch.set_num_threads(1)
    began, seed = time.monotonic(), asked.seed
    counts: Counter[str] = Counter()
    while (asked.questions and counts["questions"] < asked.questions) or (
        time.monotonic() - began < asked.seconds
    ):
        outcome = play(seed, large=seed % EVERY_LARGE == 0)
        for found in outcome.contradictions:
            print(f"seed {seed}: {found}", flush=True)
        counts["sequences"] += 1
        counts["questions"] += outcome.questions
        counts["contradictions"] += len(outcome.contradictions)
        counts.update(outcome.counts)
        seed += 1
    for name, count in counts.items():
        print(f"{count:>12,} {name}")
    print(f"seeds {asked.seed} to {seed - 1}, {time.monotonic() - began:.0f} s")
    return int(counts["contradictions"] > 0)


if __name__ == "__main__":
    sys.exit(main())
