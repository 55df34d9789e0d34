"""Ask recorded questions again, and say which answers have changed.

The questions are those of greedy searches over the four benchmarks, in the order in which they were
asked of one verifier, under a limit in branch-and-bound nodes, so that answers are repeatable. They
are recorded before the verifier is rebuilt: no decided answer may change, and no more may stay
undecided.

    python benchmarks/recorded_questions.py DATA             compare; exit code 1 where one changed
    python benchmarks/recorded_questions.py DATA --record    record them anew
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch

import provable_circuits as pc
from measuring.settings import NETWORKS, SETTINGS, Setting, network

FILE = Path(__file__).parent / "recorded" / "questions.json"
NODES = 64
EACH = 34
"""Questions of one setting; with nine settings, about three hundred."""


def mask(components: pc.Components, circuit: pc.Circuit) -> str:
    """A circuit as bits, one for each component in the order of the graph."""
    kept = frozenset(circuit.names)
    return "".join("1" if name in kept else "0" for name in components.names)


def circuit_of(components: pc.Components, bits: str) -> pc.Circuit:
    """The circuit of some bits."""
    names = components.names
    return components.circuit([n for n, bit in zip(names, bits, strict=True) if bit == "1"])


def record(setting: Setting, folder: Path) -> list[dict[str, Any]]:
    """Questions of greedy searches for one setting, and their answers."""
    benchmark = network(setting.network, folder)
    components = benchmark.graph.components(benchmark.granularity)
    found: list[dict[str, Any]] = []
    for place, batch in enumerate(benchmark.batches(8)):
        claim = setting.claim(benchmark, batch)
        verifier = pc.Verifier(components, claim)
        circuit, asked = components.full(), []
        names = list(components.names)
        stride = max(1, len(names) // (EACH // 2))
        groups = [names[i : i + stride] for i in range(0, len(names), stride)]
        for group in groups:
            smaller = circuit.remove(*group)
            verdict = verifier.ask(smaller, max_nodes=NODES)
            asked.append({"circuit": mask(components, smaller), "verdict": verdict.kind})
            if verdict.proved:
                circuit = smaller
        found.append({"setting": str(setting), "batch": place, "questions": asked})
        if sum(len(search["questions"]) for search in found) >= EACH:
            break
    return found


def compare(searches: list[dict[str, Any]], setting: Setting, folder: Path) -> Counter[str]:
    """Ask the questions of one setting again; counts of what became of them."""
    counts: Counter[str] = Counter()
    benchmark = network(setting.network, folder)
    components = benchmark.graph.components(benchmark.granularity)
    batches = benchmark.batches(8)
    for search in searches:
        verifier = pc.Verifier(components, setting.claim(benchmark, batches[search["batch"]]))
        for place, question in enumerate(search["questions"]):
            circuit = circuit_of(components, question["circuit"])
            verdict = verifier.ask(circuit, max_nodes=NODES)
            before, now = question["verdict"], verdict.kind
            change = "same" if before == now else f"{before} before, {now} now"
            counts[change] += 1
            if change != "same":
                print(f"{setting}, batch {search['batch']}, question {place}: {change}", flush=True)
    return counts


def main() -> int:
    """Record, or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="the folder of the benchmarks")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--only", choices=NETWORKS)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    chosen = [s for s in SETTINGS if asked.only in (None, s.network)]
    if asked.record:
        searches = [search for setting in chosen for search in record(setting, asked.data)]
        FILE.parent.mkdir(exist_ok=True)
        FILE.write_text(json.dumps(searches, indent=1) + "\n")
        kinds = Counter(q["verdict"] for search in searches for q in search["questions"])
        print(f"{sum(kinds.values())} questions: {dict(kinds)}")
        return 0
    searches, counts = json.loads(FILE.read_text()), Counter[str]()
    for setting in chosen:
        own = [search for search in searches if search["setting"] == str(setting)]
        counts += compare(own, setting, asked.data)
    print(f"{sum(counts.values())} questions: {dict(counts)}")
    return int(any(not change.startswith(("same", "undecided")) for change in counts))


if __name__ == "__main__":
    sys.exit(main())
