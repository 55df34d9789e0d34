"""What was measured in one setting, and the tables made of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from measuring.settings import Limit, Setting
from measuring.tables import table

MEMORY = Limit("memory", 4.0)
"""Asked of every setting."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How one sub-query ended: verdict, stage, seconds, and the reason of an undecided one."""

    kind: str
    stage: str
    seconds: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    """All searches of one setting.

    Attributes:
        setting: the setting.
        components: how many components the network has.
        answers: every sub-query of every search.
        sizes: of the circuits found.
        totals: seconds of each search, with all set-up.
        memory: the largest memory of a process, in GB.
    """

    setting: Setting
    components: int
    answers: tuple[Answer, ...]
    sizes: tuple[int, ...]
    totals: tuple[float, ...]
    memory: float

    @staticmethod
    def joined(several: Sequence[Measured]) -> Measured:
        """The searches of processes that ran side by side."""
        return replace(
            several[0],
            answers=tuple(answer for found in several for answer in found.answers),
            sizes=tuple(size for found in several for size in found.sizes),
            totals=tuple(total for found in several for total in found.totals),
            memory=max(found.memory for found in several),
        )

    @property
    def seconds(self) -> np.ndarray:
        """The time of each sub-query."""
        return np.array([answer.seconds for answer in self.answers])

    @property
    def undecided(self) -> list[Answer]:
        """The sub-queries without an answer."""
        return [answer for answer in self.answers if answer.kind == "undecided"]

    def value(self, what: str) -> float:
        """What a limit is about: times in ms, undecided as a share, memory in GB."""
        return {
            "mean": float(self.seconds.mean() * 1e3),
            "median": float(np.median(self.seconds) * 1e3),
            "undecided": len(self.undecided) / len(self.answers),
            "memory": self.memory,
        }[what]


def _shown(what: str, value: float) -> str:
    if what == "undecided":
        return f"{value:.1%}"
    return f"{value:.2f} GB" if what == "memory" else f"{value:.2f} ms"


def summary(results: Sequence[Measured]) -> str:
    """One row for each setting."""
    heads = [
        "setting",
        "circuits",
        "sub-queries",
        "mean ms",
        "median ms",
        "s / circuit (median)",
        "mean size",
        "undecided",
        "time in undecided",
        "peak GB",
    ]
    rows = []
    for found in results:
        times, lost = found.seconds, sum(answer.seconds for answer in found.undecided)
        rows.append(
            [
                str(found.setting),
                str(len(found.sizes)),
                str(len(times)),
                f"{found.value('mean'):.2f}",
                f"{found.value('median'):.2f}",
                f"{np.median(found.totals):.2f}",
                f"{np.mean(found.sizes):.1f} of {found.components}",
                f"{len(found.undecided)} ({found.value('undecided'):.1%})",
                f"{lost / times.sum():.1%}",
                f"{found.memory:.2f}",
            ]
        )
    return table(heads, rows)


def targets(results: Sequence[Measured]) -> str:
    """What is asked, what was measured, whether that is enough."""
    rows = []
    for found in results:
        for limit in (*found.setting.limits, MEMORY):
            value = found.value(limit.what)
            rows.append(
                [
                    str(found.setting),
                    f"{limit.what} at most {_shown(limit.what, limit.most)}",
                    _shown(limit.what, value),
                    "yes" if value <= limit.most else "**no**",
                ]
            )
    return table(["setting", "asked", "measured", "met"], rows)


def stages(found: Measured) -> str:
    """Which stage gave which verdicts, and how long that took."""
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for answer in found.answers:
        verdict = f"{answer.kind}: {answer.reason}" if answer.reason else answer.kind
        groups[answer.stage, verdict].append(answer.seconds)
    total = float(found.seconds.sum())
    rows = [
        [stage, verdict, str(len(s)), f"{np.mean(s) * 1e3:.2f}", f"{sum(s) / total:.1%}"]
        for (stage, verdict), s in sorted(groups.items(), key=lambda item: -sum(item[1]))
    ]
    return table(["stage", "verdict", "count", "ms each", "share of the time"], rows)
