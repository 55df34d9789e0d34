"""Statements of minimality and of lower bounds: which hold, and which are refused."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.proof.certificates import make
from tests.proof.parts import Parts

from provable_circuits.proof.certify import check_files
from provable_circuits.proof.checker.arithmetic import RefusedError

HULL, REACHABLE = "smallest hull", "smallest reachable"


def statement(manifest: Any, kind: str) -> Any:
    return next(s for s in manifest["statements"] if s["kind"] == kind)


def checked(name: str, change: Callable[[Any], None]) -> dict[str, tuple[bool, str]]:
    """What the checker says of a changed certificate with digests made anew, by kind."""
    import random

    files = make(name).files
    parts = Parts.of(files, random.Random(0), files)
    change(parts.manifest)
    found = check_files(parts.seal())
    kinds = [s["kind"] for s in parts.manifest["statements"]]
    return {kind: (f.holds, f.reason) for kind, f in zip(kinds, found, strict=True)}


def test_a_smallest_circuit_is_certified() -> None:
    found = checked(HULL, lambda _: None)
    assert {kind for kind, (holds, _) in found.items() if holds} == {
        "faithful",
        "necessary",
        "lower-bound",
        "minimal",
    }
    assert "monotone by closed boxes" in found["lower-bound"][1]
    assert "by a lower bound" in found["minimal"][1]


def test_what_is_assumed_is_said() -> None:
    manifest = json.loads(make(REACHABLE).files["certificate.json"])
    assert statement(manifest, "lower-bound")["monotone"] == "assumed"
    texts = [f.statement for f in check_files(make(REACHABLE).files)]
    assert sum(text.endswith(", if the claim is monotone") for text in texts) == 2
    hull = [f.statement for f in check_files(make(HULL).files)]
    assert not any("if the claim is monotone" in text for text in hull)


def larger(manifest: Any) -> None:
    statement(manifest, "lower-bound")["size"] += 1


def fewer_sets(manifest: Any) -> None:
    """A blocking set and its weights are gone."""
    found = statement(manifest, "lower-bound")
    for node in found["tree"]:
        if "weights" in node:
            node["weights"] = [pair for pair in node["weights"] if pair[0] != 0]


def smaller_set(manifest: Any) -> None:
    """A blocking set without one of its components, at the old witness, would say more."""
    statement(manifest, "lower-bound")["blocking"][-1]["removed"].pop()


def monotone_by_decree(manifest: Any) -> None:
    statement(manifest, "lower-bound")["monotone"] = "shown"


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        (HULL, larger, "do not add up"),
        (HULL, fewer_sets, "do not add up"),
        (HULL, smaller_set, "does not certainly break"),
        (REACHABLE, monotone_by_decree, "certain to be monotone"),
    ],
)
def test_a_false_bound_is_refused(name: str, change: Callable[[Any], None], why: str) -> None:
    found = checked(name, change)
    holds, reason = found["lower-bound"]
    assert not holds
    assert why in reason
    assert not found["minimal"][0], "it rests on the bound"


def test_boxes_that_are_not_closed_show_no_monotone_claim() -> None:
    """A box of the first layer is made wider than the next layer's box allows for."""
    import random

    files = make(HULL).files
    parts = Parts.of(files, random.Random(0), files)
    boxes = parts.manifest["claim"]["patching"]["boxes"][0]
    name = boxes["fc0"][1] if "fc0" in boxes else boxes["act"][1]
    parts.arrays["claim.safetensors"][name] = parts.arrays["claim.safetensors"][name] + 1.0
    found = check_files(parts.seal())
    bound = next(f for f in found if "fewer than" in f.statement)
    assert not bound.holds
    assert "not closed" in bound.reason


@pytest.mark.parametrize("notion", ["quasi", "local", "subset", "cardinal"])
def test_a_notion_needs_the_statements_that_it_rests_on(notion: str) -> None:
    def without(*kinds: str) -> Callable[[Any], None]:
        def change(manifest: Any) -> None:
            kept = [s for s in manifest["statements"] if s["kind"] not in kinds]
            kept[-1] = {**kept[-1], "notion": notion}
            manifest["statements"] = copy.deepcopy(kept)

        return change

    assert checked(HULL, without())["minimal"][0]
    assert not checked(HULL, without("faithful"))["minimal"][0]
    needed = "lower-bound" if notion == "cardinal" else "necessary"
    assert not checked(HULL, without(needed))["minimal"][0]


def test_subset_minimality_takes_a_monotone_claim() -> None:
    def change(manifest: Any) -> None:
        manifest["statements"][-1] = {"kind": "minimal", "notion": "subset"}

    holds, reason = checked(HULL, change)["minimal"]
    assert not holds
    assert "No statement before it implies that" in reason


@pytest.mark.parametrize(
    "change",
    [
        {"notion": "global"},
        {"monotone": "known"},
    ],
)
def test_words_without_a_meaning_are_refused(change: dict[str, str]) -> None:
    with pytest.raises(RefusedError):
        checked(HULL, lambda manifest: manifest["statements"][-1].update(change))


def test_a_bound_that_does_not_say_whether_it_is_conditional_is_refused() -> None:
    found = checked(HULL, lambda m: statement(m, "lower-bound").pop("monotone"))
    assert not found["lower-bound"][0]
