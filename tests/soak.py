"""Damage the files of every reader for as long as one likes.

    python -m tests.soak --mutants 10000

It prints each finding with its seed, and how many mutants of each reader were read and refused. The
exit code is 1 if there was a finding: a foreign exception, or a message of more than 500 characters
or of several lines.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.fuzzing import finding, targets


def main() -> int:
    """Try mutants of every reader from a seed on."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=10_000, help="of each reader")
    parser.add_argument("--seed", type=int, default=0, help="of the first mutant")
    parser.add_argument("--only", default="", help="one reader")
    asked = parser.parse_args()
    wrong = 0
    for target in targets():
        if asked.only not in ("", target.name):
            continue
        counts: Counter[str] = Counter()
        with tempfile.TemporaryDirectory() as place:
            for seed in range(asked.seed, asked.seed + asked.mutants):
                kind, text = finding(target, seed, Path(place))
                counts[kind] += 1
                if text:
                    print(f"{target.name}, seed {seed}: {text}", flush=True)
        print(target.name, dict(counts), flush=True)
        wrong += counts["wrong"]
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
