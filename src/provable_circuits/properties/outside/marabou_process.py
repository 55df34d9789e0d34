"""The process in which Marabou runs: ``python marabou_process.py PROBLEM RESULT SECONDS``.

It is started by its path and imports nothing of this package, so that it is there at once. PROBLEM
and RESULT are JSON files; ``marabou.py`` says what is in them.
"""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path
from typing import Any


def main(problem: str, result: str, seconds: str) -> None:
    """Solve one case after the other until one is satisfied; write down how each ended."""
    started = time.monotonic()
    given = json.loads(Path(problem).read_text())
    ends: list[str] = []
    x: list[float] | None = None
    for case in given["cases"]:
        left = float(seconds) - (time.monotonic() - started)
        end, x = ("timeout", None) if left <= 0 else solve(given, case, left)
        ends.append(end)
        if x is not None:
            break
    told = {"ends": ends, "x": x, "seconds": time.monotonic() - started}
    Path(result).write_text(json.dumps(told))


def solve(given: dict[str, Any], case: dict[str, Any], left: float) -> tuple[str, Any]:
    """How Marabou's search for one case ended, in lower case; and the inputs it found."""
    from maraboupy import MarabouCore

    query = _query(MarabouCore, given, case)
    if query is None:
        return "unsat", None
    options = MarabouCore.Options()
    options._verbosity = 0  # noqa: SLF001 - Marabou's options have no other names
    options._timeoutInSeconds = max(1, math.ceil(left))  # noqa: SLF001
    end, values, _ = MarabouCore.solve(query, options, "")
    if end == "sat":
        # An input on which nothing depends has no value: any will do.
        return end, [
            values.get(i, low) for i, low in zip(given["inputs"], case["lower"], strict=True)
        ]
    return str(end).lower(), None


def _query(core: Any, given: dict[str, Any], case: dict[str, Any]) -> Any:
    """The problem in Marabou's own terms; None if the bounds of an output contradict."""
    query = core.InputQuery()
    query.setNumberOfVariables(given["variables"])
    for i, variable in enumerate(given["inputs"]):
        query.markInputVariable(variable, i)
        query.setLowerBound(variable, case["lower"][i])
        query.setUpperBound(variable, case["upper"][i])
    for i, variable in enumerate(given["outputs"]):
        query.markOutputVariable(variable, i)
    for equation in given["equations"]:
        _add(query, core.Equation(), equation["variables"], equation["factors"], equation["value"])
    for source, target in given["relus"]:
        core.addReluConstraint(query, source, target)
    for source, target, slope in given["leaky"]:
        core.addLeakyReluConstraint(query, int(source), int(target), slope)
    lowest = {int(variable): value for variable, value in given["fixed"]}
    highest = dict(lowest)
    for row in case["rows"]:
        variables = [given["outputs"][i] for i in row["outputs"]]
        if len(variables) > 1:
            kind = core.Equation(core.Equation.LE)
            _add(query, kind, variables, row["factors"], row["bound"])
            continue
        (variable,), (factor,) = variables, row["factors"]
        end = row["bound"] / factor
        if factor > 0:
            highest[variable] = min(end, highest.get(variable, math.inf))
        else:
            lowest[variable] = max(end, lowest.get(variable, -math.inf))
    for variable, end in lowest.items():
        if end > highest.get(variable, math.inf):
            return None
        query.setLowerBound(variable, end)
    for variable, end in highest.items():
        query.setUpperBound(variable, end)
    return query


def _add(
    query: Any, equation: Any, variables: list[int], factors: list[float], value: float
) -> None:
    for variable, factor in zip(variables, factors, strict=True):
        equation.addAddend(factor, variable)
    equation.setScalar(value)
    query.addEquation(equation)


if __name__ == "__main__":
    main(*sys.argv[1:])
