"""How much faster are sub-queries decided than by a MILP solver, and than by another verifier?

Takes sub-queries of greedy searches on the MNIST network (k = 3 inputs, zero patching, logit
difference, delta 2) and has each decided by this package, by HiGHS as mixed-integer programs, and
by Marabou from the exported ONNX and VNN-LIB files, in the same run. Prints Markdown: for each
radius and each peer how many times longer it took, and whether the verdicts agree.

What is compared:

- The sub-queries are every m-th of those that the searches ask and that need any work: those this
  package answers because the removal changes nothing (stage ``redundant``) are left out.
- All do the same work: three inputs with two constraints each, until a violation is found.
- This package: the best of three searches, each with a fresh verifier, so that a sub-query finds
  what its search has learnt by then, as it does in use.
- HiGHS: the same merged query, so that what circuit and network share is there once. The big-M
  constants come from interval propagation or, in a row of its own, from this package's closer
  bounds. Writing and solving the programs counts, those constants do not.
- Marabou: from the two files of each input to its answer, which takes reading them, starting a
  process and solving; in a row of its own, what the process takes once it is there.

    python benchmarks/against_others.py [--circuits 4] [--every 5] [--eps 0.01] [--peer highs]
                                        [--timeout 120] [--out docs/performance.md]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

import provable_circuits as pc
from measuring.greedy import Search, search
from measuring.milp import solve
from measuring.settings import SETTINGS, Setting, network
from measuring.tables import made_with, put, table
from provable_circuits.errors import MissingExtraError
from provable_circuits.properties.export import export_query
from provable_circuits.properties.outside.marabou import Marabou

REPEATS = 3
ASKED = {(0.01, "HiGHS"): 200, (0.05, "HiGHS"): 100, (0.01, "Marabou"): 300, (0.05, "Marabou"): 300}
"""How many times faster than each peer this package is asked to be, by radius."""


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One sub-query: its claim, its circuit, our verdict and the seconds it took."""

    claim: pc.Claim
    circuit: pc.Circuit
    verdict: pc.Verdict
    seconds: float


@dataclass(frozen=True, slots=True)
class Pair:
    """One sub-query decided twice: verdicts and seconds, ours and the peer's."""

    ours: str
    ours_seconds: float
    theirs: str
    theirs_seconds: float


def samples(setting: Setting, circuits: int, every: int) -> list[Sample]:
    """Every m-th sub-query that needed any work, over all searches of a setting."""
    benchmark = network(setting.network, None)
    components = benchmark.graph.components(benchmark.granularity)
    found: list[Sample] = []
    for batch in benchmark.batches(circuits):
        claim = setting.claim(benchmark, batch)
        runs = [search(components, claim, 45.0) for _ in range(REPEATS)]
        alone = search(components, claim, 45.0, ahead=False)
        for i, asked in enumerate(runs[0].asked):
            if alone.asked[i].verdict.stage == "redundant":
                continue
            best = min(run.asked[i].seconds for run in runs)
            _same(runs, i)
            found.append(Sample(claim, asked.circuit, asked.verdict, best))
    return found[every - 1 :: every]


def _same(runs: Sequence[Search], i: int) -> None:
    """Searches with the same seed must ask and answer the same."""
    told = {(run.asked[i].circuit.names, run.asked[i].verdict.kind) for run in runs}
    if len(told) > 1:
        sys.exit("Two searches of the same claim took different ways: nothing can be compared.")


Answer = tuple[str, dict[str, float]]
"""A peer's verdict, and its seconds by each way of counting them."""


def highs(sample: Sample, timeout: float, *, closer: bool = False) -> Answer:
    """What mixed-integer programs say."""
    encoder = pc.Verifier(sample.circuit.components, sample.claim).encoder
    answer = solve(encoder.encode(sample.circuit), timeout, closer=closer)
    return answer.kind, {"HiGHS, our bounds" if closer else "HiGHS": answer.seconds}


def marabou(sample: Sample, timeout: float) -> Answer:
    """What Marabou says about the exported query."""
    tool = Marabou()
    encoder = pc.Verifier(sample.circuit.components, sample.claim).encoder
    inside, outside, kind = 0.0, 0.0, "proved"
    with tempfile.TemporaryDirectory() as folder:
        for part in export_query(encoder.encode(sample.circuit), folder, dtype=tool.dtype):
            if outside >= timeout:
                kind = "undecided"
                break
            started = time.perf_counter()
            answer = tool.ask(part.onnx, part.vnnlib, timeout - outside)
            outside += time.perf_counter() - started
            inside += answer.seconds
            if answer.status == "violated":
                kind = "refuted"
                break
            if answer.status != "holds":
                kind = "undecided"
    return kind, {"Marabou, solving alone": inside, "Marabou": outside}


PEERS: dict[str, Callable[[Sample, float], Answer]] = {
    "highs": highs,
    "highs-closer": partial(highs, closer=True),
    "marabou": marabou,
}


def compare(peer: str, taken: Sequence[Sample], timeout: float) -> dict[str, list[Pair]]:
    """Every sample decided by a peer, for each way of counting its time."""
    pairs: dict[str, list[Pair]] = defaultdict(list)
    for i, sample in enumerate(taken):
        ours = sample.verdict
        kind, times = PEERS[peer](sample, timeout)
        for name, seconds in times.items():
            pairs[name].append(Pair(ours.kind, sample.seconds, kind, seconds))
        print(
            f"{peer}, {i + 1} of {len(taken)}: {kind} in {max(times.values()):.2f} s; "
            f"ours {ours.kind} ({ours.stage}) in {sample.seconds * 1e3:.2f} ms",
            file=sys.stderr,
        )
    return pairs


def row(setting: Setting, name: str, pairs: Sequence[Pair]) -> list[str]:
    """A row of the table of ratios."""
    ours = np.array([pair.ours_seconds for pair in pairs])
    theirs = np.array([pair.theirs_seconds for pair in pairs])
    decided = [p for p in pairs if "undecided" not in (p.ours, p.theirs)]
    agree = sum(pair.ours == pair.theirs for pair in decided)
    open_ = sum(pair.theirs == "undecided" for pair in pairs)
    asked = ASKED.get((setting.eps, name))
    ratio = float(np.median(theirs / ours))
    return [
        f"eps {setting.eps:g}",
        name,
        f"{len(pairs)} ({sum(pair.ours == 'proved' for pair in pairs)} proved, "
        f"{sum(pair.ours == 'refuted' for pair in pairs)} refuted)",
        f"{np.median(ours) * 1e3:.2f}",
        f"{np.median(theirs) * 1e3:.0f}",
        f"{ratio:.0f}",
        f"{theirs.sum() / ours.sum():.0f}",
        "" if asked is None else f"{asked}: {'yes' if ratio >= asked else '**no**'}",
        f"{agree} of {len(decided)}",
        str(open_),
    ]


HEADS = [
    "setting",
    "peer",
    "sub-queries",
    "ours, median ms",
    "peer, median ms",
    "median of ratios",
    "ratio of totals",
    "asked: met",
    "verdicts agree",
    "peer undecided",
]


def main() -> None:
    """Measure and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--circuits", type=int, default=4, help="searches for each radius")
    parser.add_argument("--every", type=int, default=5, help="take every m-th sub-query")
    parser.add_argument("--eps", type=float, choices=(0.01, 0.05), help="only this radius")
    parser.add_argument("--peer", choices=sorted(PEERS), help="only this peer")
    parser.add_argument("--timeout", type=float, default=120.0, help="a peer's seconds for each")
    parser.add_argument("--out", type=Path, help="a page that takes the table between markers")
    arguments = parser.parse_args()
    if arguments.circuits < 1 or arguments.every < 1 or not arguments.timeout > 0:
        parser.error("--circuits, --every and --timeout must be positive")
    torch.set_num_threads(1)
    rows, left_out = [], []
    for setting in SETTINGS:
        if (setting.network, setting.kind) != ("mnist", "input"):
            continue
        if arguments.eps not in (None, setting.eps):
            continue
        taken = samples(setting, arguments.circuits, arguments.every)
        for peer in PEERS:
            if arguments.peer in (None, peer) and taken:
                try:
                    found = compare(peer, taken, arguments.timeout)
                    rows += [row(setting, name, pairs) for name, pairs in found.items()]
                except MissingExtraError as error:
                    left_out.append(f"Left out: {error}")
    text = "\n\n".join([made_with(Path(__file__).name), *left_out[:1], table(HEADS, rows)])
    print(text)
    if arguments.out is not None:
        put(arguments.out, "against others", text)


if __name__ == "__main__":
    main()
