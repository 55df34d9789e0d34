"""Two runs side by side: what their circuits share, and what only one of them has.

If the two are about one claim, labels of the one that the other refutes are withdrawn: see
``discover.withdrawal``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from provable_circuits.discover.results.run import Run
from provable_circuits.discover.results.withdrawal import settled_documents
from provable_circuits.drawing.diagram import Diagram
from provable_circuits.errors import DataError


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """Two runs about one network.

    Attributes:
        first, second: the runs, without labels that the other one refutes.
        names: what they are called.
    """

    first: Run
    second: Run
    names: tuple[str, str]

    def __post_init__(self) -> None:
        networks = [run.document["circuit"]["network"] for run in (self.first, self.second)]
        if networks[0] != networks[1]:
            raise DataError(
                "The two runs are about different networks, and circuits of different networks "
                "cannot be compared: give two runs of the same model file."
            )
        if self.first.components != self.second.components:
            raise DataError(
                "The two runs cut the network into different components: give two runs of the "
                "same granularity."
            )
        if _same_claim(self.first, self.second):
            runs = (self.first, self.second)
            documents = settled_documents([run.document for run in runs], self.names)
            for field, run, document in zip(("first", "second"), runs, documents, strict=True):
                object.__setattr__(self, field, replace(run, document=document))

    @property
    def withdrawn(self) -> tuple[str, ...]:
        """What was withdrawn from each run, and why, in a sentence; empty if nothing was."""
        return tuple(
            _withdrawn(name, told)
            for name, run in zip(self.names, (self.first, self.second), strict=True)
            if (told := run.document["minimality"].get("withdrawn")) is not None
        )

    @property
    def shared(self) -> tuple[str, ...]:
        """Components that both circuits keep."""
        return self._where(True, True)

    @property
    def first_only(self) -> tuple[str, ...]:
        """Components that only the first circuit keeps."""
        return self._where(True, False)

    @property
    def second_only(self) -> tuple[str, ...]:
        """Components that only the second circuit keeps."""
        return self._where(False, True)

    @property
    def diagram(self) -> Diagram:
        """Both circuits in one drawing."""
        status = dict.fromkeys(self.shared, "kept")
        status |= dict.fromkeys(self.first_only, "first only")
        status |= dict.fromkeys(self.second_only, "second only")
        columns = tuple(
            replace(
                column,
                nodes=tuple(
                    replace(node, status=status.get(node.name, "removed")) for node in column.nodes
                ),
            )
            for column in self.first.diagram.columns
        )
        title = (
            f"{len(self.first.kept)} and {len(self.second.kept)} of {len(self.first.components)} "
            f"components kept, {len(self.shared)} by both"
        )
        return replace(self.first.diagram, columns=columns, title=title, compared=self.names)

    def document(self) -> dict[str, Any]:
        """The comparison as plain data, ready for JSON."""
        return {
            "runs": list(self.names),
            "shared": list(self.shared),
            "first_only": list(self.first_only),
            "second_only": list(self.second_only),
            "withdrawn": list(self.withdrawn),
            "first": self.first.document,
            "second": self.second.document,
        }

    def _where(self, first: bool, second: bool) -> tuple[str, ...]:
        one, two = set(self.first.kept), set(self.second.kept)
        return tuple(
            name
            for name in self.first.components
            if (name in one) is first and (name in two) is second
        )


def _same_claim(first: Run, second: Run) -> bool:
    """Whether two runs are about one claim; by what they tell of it, if one has no digest."""
    one, two = first.document["claim"], second.document["claim"]
    digests = one.get("digest"), two.get("digest")
    if None not in digests:
        return bool(digests[0] == digests[1])
    told = all(one[name] == two[name] for name in ("inputs", "patching", "metric"))
    return told and np.array_equal(first.inputs, second.inputs)


def _withdrawn(name: str, told: Mapping[str, Any]) -> str:
    parts = []
    if told["notion"] is not None:
        parts.append(f"{told['notion']} minimality")
    if told["lower"] is not None:
        parts.append(f"the lower bound of {told['lower']} components")
    what = " and ".join(parts) or "a statement about minimality"
    return f"{name}: {what}, since {told['because']}"


def names_of(first: Path, second: Path) -> tuple[str, str]:
    """What two folders are called: by their names, told apart if those are the same."""
    one, two = first.resolve().name, second.resolve().name
    return (one, two) if one != two else (f"{one} (first)", f"{two} (second)")
