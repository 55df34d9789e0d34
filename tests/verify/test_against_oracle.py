"""Verdicts against the exact optimum of random claims, as a mixed-integer program knows it.

For each case the largest excess is computed at tolerance zero, and the claim is asked with a
tolerance just above it, which must be Proved, and just below it, which must be Refuted by a
witness that plain code finds inside its domain and in breach of the claim. ``ORACLE_CLAIMS=2000``
asks more of them, and ``ORACLE_LOG`` names a file that gets one line for each.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.oracle.cases import Case, Truth, broken, draw, small
from tests.oracle.milp import NODES as MILP_NODES
from tests.oracle.random_networks import fully_connected, kinks
from tests.oracle.regions import Region
from tests.verify.around import around

import provable_circuits as pc
from provable_circuits.verify.configuration import DEFAULT, Configuration

CLAIMS = int(os.environ.get("ORACLE_CLAIMS", "300"))
FIRST = int(os.environ.get("ORACLE_FIRST", "0"))
NODES = int(os.environ.get("ORACLE_NODES", "200000"))
LOG = os.environ.get("ORACLE_LOG")

WALKS = int(os.environ.get("ORACLE_WALKS", "10"))
WALK_FIRST = int(os.environ.get("ORACLE_WALK_FIRST", "0"))


def check(case: Case, tolerance: float, wanted: str, verdict: pc.Verdict) -> None:
    """Never the opposite of the truth; the truth itself where the verifier promises it."""
    if isinstance(verdict, pc.Refuted):
        assert broken(case, tolerance, verdict.witness) is None, f"{case}, tolerance {tolerance!r}"
    if wanted == verdict.kind:
        return
    if isinstance(verdict, pc.Refuted):
        # The witness stands, by exact arithmetic that shares nothing with the verifier, so it is
        # the solver that missed its optimum. It has to find it when it is asked in another way.
        again = case.truth(10 * MILP_NODES, presolves=(False,))
        told = f"{case}, tolerance {tolerance!r}: a witness where the solver twice saw none"
        assert again is None or not case.holds(again, tolerance), told
        return
    reason = getattr(verdict, "reason", "")
    told = f"{case}, tolerance {tolerance!r}: {verdict.kind} ({reason}) and not {wanted}"
    assert isinstance(verdict, pc.Undecided), told
    assert case.hard, told


LARGE = DEFAULT.changed(bounding={"small_units": 0, "single_from": 0})
"""Small networks take the way of large ones: float32 passes, and derived enclosures."""

HULLS = LARGE.changed(stages={"hulls_after": 0})
"""The same, and hulls are tried before anything is split."""


def compare(seed: int, configuration: Configuration = DEFAULT) -> None:
    """One case, on both sides of its exact optimum."""
    case = draw(seed)
    truth = case.truth()
    if truth is None:
        pytest.skip(f"{case}: no exact optimum")
    for tolerance, wanted in around(case, truth):
        start = time.monotonic()
        verifier = pc.Verifier(
            case.circuit.components,
            case.claim(tolerance),
            reuse=False,
            configuration=configuration,
        )
        verdict = verifier.ask(case.circuit, max_nodes=NODES)
        if LOG:
            with Path(LOG).open("a") as log:
                log.write(f"{seed} {wanted} {verdict.kind} {time.monotonic() - start:.3f} {case}\n")
        check(case, tolerance, wanted, verdict)


def _drawn(seed: int) -> Iterator[Case]:
    return (draw(100_000 + 1_000 * seed + i) for i in range(1_000))


def walk(seed: int, configuration: Configuration = DEFAULT) -> None:
    """One verifier, many circuits: what it keeps between questions must not mislead it."""
    case = (
        small(seed)
        if seed % 2
        else next(c for c in _drawn(seed) if kinks(c.net) <= 10 and not c.hard)
    )
    dice = np.random.default_rng(seed)
    truths: dict[tuple[str, ...], Truth | None] = {}

    def truth_of(kept: list[str]) -> Truth | None:
        if tuple(kept) not in truths:
            truths[tuple(kept)] = case.keeping(kept).truth()
        return truths[tuple(kept)]

    everything = list(case.net.names)
    halves = [[n for n in everything if dice.random() < 0.6] for _ in range(4)]
    known = [t.high for t in map(truth_of, halves) if t is not None]
    tolerance = 0.5 if case.metric.startswith("winner") else max(float(np.median(known)), 0) + 1e-3
    components = case.graph.components(case.granularity)
    verifier = pc.Verifier(components, case.claim(tolerance), configuration=configuration)
    kept = everything
    asked: list[list[str]] = [everything]
    for name in dice.permutation(everything):  # as discovery does: one removal after another
        asked.append([n for n in kept if n != name])
        truth = truth_of(asked[-1])
        if truth is not None and case.holds(truth, tolerance):
            kept = asked[-1]
    asked += [*halves, everything, []]
    screened = verifier.screen([case.keeping(names).circuit for names in asked])
    for names, cheap in zip(asked, screened, strict=True):
        now, truth = case.keeping(names), truth_of(names)
        verdict = verifier.ask(now.circuit, max_nodes=NODES)
        if truth is None or truth.low - 1e-4 < tolerance < truth.high + 1e-4:
            continue
        wanted = "proved" if now.holds(truth, tolerance) else "refuted"
        check(now, tolerance, wanted, verdict)
        if cheap is not None:
            check(now, tolerance, wanted, cheap)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + CLAIMS // 2))
def test_verdicts_agree_with_the_exact_optimum(seed: int) -> None:
    compare(seed)


@pytest.mark.parametrize("seed", range(WALK_FIRST, WALK_FIRST + WALKS))
def test_a_verifier_that_remembers_agrees_too(seed: int) -> None:
    walk(seed)


@pytest.mark.parametrize("seed", range(FIRST + 50_000, FIRST + 50_000 + CLAIMS // 10))
def test_the_way_of_large_networks_agrees_with_the_exact_optimum(seed: int) -> None:
    compare(seed, LARGE)


@pytest.mark.parametrize("seed", range(FIRST + 70_000, FIRST + 70_000 + CLAIMS // 15))
def test_hulls_agree_with_the_exact_optimum(seed: int) -> None:
    compare(seed, HULLS)


@pytest.mark.parametrize("seed", range(WALK_FIRST + 5_000, WALK_FIRST + 5_000 + WALKS // 2))
def test_the_way_of_large_networks_remembers_rightly(seed: int) -> None:
    walk(seed, LARGE)


@pytest.mark.parametrize("seed", range(20))
def test_what_an_attack_breaks_is_never_proved(seed: int) -> None:
    """Where no exact optimum is known: curved activations, and 2-norm balls in many inputs."""
    dice = np.random.default_rng(seed)
    curve = ["tanh", "sigmoid", None][seed % 3]
    sizes = [int(dice.integers(3, 6)), 5, 4, 3]
    case = small(seed, net=fully_connected(dice, sizes, curve=curve), p=2.0 if seed % 2 else None)
    best = -np.inf
    points = np.random.default_rng(seed)
    for j, region in enumerate(case.regions):
        given = case.patches[j]
        for z in region.sample(400, points):
            source = next(iter(given.sample(1, points))) if isinstance(given, Region) else None
            best = max(best, float(case.value(j, z, source, {})))
    if case.metric.startswith("winner") or best <= 1e-3:
        pytest.skip("nothing to break")
    for share in (0.3, 0.9, 0.999):
        verdict = pc.verify(
            case.graph, case.circuit, case.claim(best * share), max_nodes=2000, certify=False
        )
        assert not verdict.proved
        if isinstance(verdict, pc.Refuted):
            assert broken(case, best * share, verdict.witness) is None
    loose = pc.verify(
        case.graph, case.circuit, case.claim(best * 30), max_nodes=2000, certify=False
    )
    assert not loose.refuted
