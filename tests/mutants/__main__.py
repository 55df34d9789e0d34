"""Plant small faults in the code that proofs rest on, and see whether the tests catch them.

    python -m tests.mutants                       every fault
    python -m tests.mutants --count 200 --seed 1  a sample of every file and kind
    python -m tests.mutants --survivors           those again that survived the last time
    python -m tests.mutants --keep --quick        while tests are added: what was not caught yet,
                                                  without the oracle of the enclosures

Outcomes are kept in a journal under ``build``; while the sources and tests are the same, a run that
was broken off goes on where it was. The exit code is 1 where less than 95 % were caught, or where
one survived that ``explained.toml`` does not explain, or where that explains what is not there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
import tomllib
from collections import Counter
from pathlib import Path

from tests.mutants.judging import CAUGHT, STOPPED, judge
from tests.mutants.operators import KINDS, Fault, faults, spread
from tests.mutants.targets import TARGETS, judges_of

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "provable_circuits"
JOURNAL = ROOT / "build" / "mutants.jsonl"
EXPLAINED = Path(__file__).with_name("explained.toml")
SHARE = 0.95
GOOD = (CAUGHT, STOPPED)
FILES = tuple(TARGETS)

Key = tuple[str, str, str, str]


def every_fault() -> list[Fault]:
    """All faults of all files."""
    return [fault for file in FILES for fault in faults(file, (PACKAGE / file).read_text())]


def explained() -> dict[Key, str]:
    """The reasons why some faults cannot be caught."""
    entries = tomllib.loads(EXPLAINED.read_text()).get("survivor", [])
    return {(e["file"], e["where"], e["before"], e["after"]): e["reason"] for e in entries}


def digest() -> str:
    """One word for all that decides about outcomes."""
    found = hashlib.sha256()
    for folder in (PACKAGE, ROOT / "tests"):
        for path in sorted(folder.rglob("*.py")):
            found.update(path.read_bytes())
    return found.hexdigest()[:16]


class Journal:
    """Outcomes by key, on disk as they come."""

    def __init__(self, path: Path, current: str, quick: bool, keep: bool) -> None:
        self.path = path
        self.current = current
        self.quick = quick
        self.outcomes: dict[Key, str] = {}
        self.last: dict[Key, str] = {}
        for line in path.read_text().splitlines() if path.exists() else ():
            entry = json.loads(line)
            file, scope, before, after = entry["key"]
            key, outcome = (file, scope, before, after), entry["outcome"]
            self.last[key] = outcome
            good = outcome in GOOD
            if (keep and good) or (
                entry["digest"] == current and (good or quick == entry["quick"])
            ):
                self.outcomes[key] = outcome

    def write(self, fault: Fault, outcome: str, by: str) -> None:
        self.outcomes[fault.key] = outcome
        self.path.parent.mkdir(exist_ok=True)
        entry: dict[str, object] = {"key": fault.key, "outcome": outcome, "by": by}
        entry |= {"digest": self.current, "quick": self.quick}
        with self.path.open("a") as stream:
            stream.write(json.dumps(entry) + "\n")


def table(chosen: list[Fault], outcomes: dict[Key, str], reasons: dict[Key, str]) -> str:
    """Caught of planted, by file and kind, as Markdown."""
    planted = Counter((fault.file, fault.kind) for fault in chosen)
    good = Counter((f.file, f.kind) for f in chosen if outcomes[f.key] in (CAUGHT, STOPPED))
    lines = [
        f"| file | {' | '.join(KINDS)} | caught | stopped | survived, explained |",
        f"| --- |{' --- |' * (len(KINDS) + 3)}",
    ]
    for file in (*FILES, "all"):
        own = [fault for fault in chosen if file in (fault.file, "all")]
        cells = []
        for kind in KINDS:
            pairs = [(f, kind) for f in FILES if file in (f, "all")]
            count = sum(planted[pair] for pair in pairs)
            cells.append(f"{sum(good[pair] for pair in pairs)} of {count}" if count else "")
        found = Counter(outcomes[fault.key] for fault in own)
        caught = found[CAUGHT] + found[STOPPED]
        known = sum(fault.key in reasons for fault in own if outcomes[fault.key] not in GOOD)
        share = f"{100 * caught / len(own):.1f} %" if own else ""
        cells += [f"{caught} of {len(own)}, {share}", str(found[STOPPED])]
        cells.append(f"{len(own) - caught}, {known}")
        lines.append(f"| `{file}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Choose, plant, judge, and say what came out."""
    parser = argparse.ArgumentParser(
        prog="tests.mutants", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--count", type=int, default=0, help="so many faults; 0 for all")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--file", choices=FILES, action="append", help="faults of this file alone")
    parser.add_argument("--survivors", action="store_true", help="that survived last time")
    parser.add_argument("--quick", action="store_true", help="without the oracle of enclosures")
    parser.add_argument("--keep", action="store_true", help="what was caught before is caught")
    parser.add_argument("--list", action="store_true", help="show faults, plant none")
    asked = parser.parse_args()
    everything = every_fault()
    chosen = [fault for fault in everything if not asked.file or fault.file in asked.file]
    reasons = explained()
    stale = set(reasons) - {fault.key for fault in everything}
    journal = Journal(JOURNAL, digest(), asked.quick, asked.keep)
    if asked.count:
        chosen = list(spread(chosen, asked.count, asked.seed))
    if asked.survivors:
        chosen = [fault for fault in chosen if journal.last.get(fault.key, CAUGHT) not in GOOD]
    if asked.list:
        print("\n".join(str(fault) for fault in chosen))
        return 0
    began = time.monotonic()
    waiting = [fault for fault in chosen if fault.key not in journal.outcomes]
    print(f"{len(chosen)} faults, {len(chosen) - len(waiting)} of them judged before", flush=True)

    def tell(fault: Fault, outcome: str, by: str) -> None:
        journal.write(fault, outcome, by)
        if outcome not in GOOD and fault.key not in reasons:
            print(f"{outcome}: {fault}", flush=True)

    problem = (
        judge(ROOT, waiting, lambda f: judges_of(f.file, not asked.quick), tell) if waiting else ""
    )
    if problem:
        print(f"Nothing can be said: {problem}.")
        return 1
    left = [fault for fault in chosen if journal.outcomes[fault.key] not in GOOD]
    print(f"\n{table(chosen, journal.outcomes, reasons)}\n")
    for fault in left:
        print(f"{fault}\n    = {reasons.get(fault.key, 'NOT EXPLAINED')}")
    wrong = [fault for fault in chosen if fault.key in reasons and fault not in left]
    for fault in wrong:
        print(f"explained.toml explains what was caught:\n{fault}")
    for key in stale:
        print(f"explained.toml explains what is not there: {key}")
    print(f"{time.monotonic() - began:.0f} s")
    bad = any(fault.key not in reasons for fault in left) or bool(stale or wrong)
    return int(bad or len(left) > (1 - SHARE) * len(chosen))


if __name__ == "__main__":
    sys.exit(main())
