"""Runs that contradict themselves or their certificate, one contradiction at a time."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.discover.results.saved import result

from provable_circuits.discover.results.agreement import contradiction, disagreement
from provable_circuits.proof.checker.certificate import MANIFEST


def document(change: Callable[[Any], Any], certify: bool = True) -> dict[str, Any]:
    told = copy.deepcopy(result(certify=certify).document())
    change(told)
    return told


@pytest.mark.parametrize("certify", [True, False])
def test_a_run_as_it_was_made_agrees(certify: bool) -> None:
    assert contradiction(document(lambda _: None, certify)) is None


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda d: d.update(faithful="undecided"), "it is certified, and undecided"),
        (lambda d: d.update(certification=None), "without a certificate"),
        (lambda d: d.update(certified=False), "has a certificate, and is not"),
        (lambda d: d["queries"].update(total=1), "questions do not add up"),
        (lambda d: d["queries"].update(by_stage={}), "stages do not add up"),
        (lambda d: d["minimality"].update(lower=99), "below 99"),
        (lambda d: d["kept"].update({next(iter(d["kept"])): "removable"}), "is removable"),
        (
            lambda d: (
                d["minimality"].update(notion="quasi", holds="unconditional"),
                d.update(kept=dict.fromkeys(d["kept"], "undecided")),
            ),
            "no component is necessary",
        ),
    ],
)
def test_a_contradiction_is_named(change: Callable[[Any], Any], what: str) -> None:
    found = contradiction(document(change))
    assert found is not None
    assert what in found


def test_proved_takes_a_certificate_or_a_confirmation() -> None:
    found = contradiction(document(lambda d: d.update(confirmation=None), certify=False))
    assert found == "it is proved, and neither certified nor confirmed"


def against(change: Callable[[Any], Any], manifest: Callable[[Any], Any] = lambda _: None) -> Any:
    """What a certificate says against a changed document, or a changed one against it."""
    run = result().record()
    assert run.certificate is not None
    files = dict(run.certificate)
    parsed = json.loads(files[MANIFEST])
    manifest(parsed)
    files[MANIFEST] = json.dumps(parsed).encode()
    return disagreement(document(change), run.inputs, files)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda d: d["circuit"]["components"].pop(), "another circuit"),
        (lambda d: d["circuit"]["layers"][0]["components"].pop(), "other components"),
        (lambda d: d["certification"]["statements"].pop(), "another number of statements"),
        (
            lambda d: d["kept"].update({next(iter(d["kept"])): "undecided"}),
            "other components are necessary",
        ),
        (lambda d: d["minimality"].update(lower=d["minimality"]["lower"] - 1), "lower bound"),
        (lambda d: d["minimality"].update(notion="subset"), "notion of minimality"),
    ],
)
def test_a_document_that_the_certificate_does_not_support(
    change: Callable[[Any], Any], what: str
) -> None:
    assert against(lambda _: None) is None
    assert what in against(change)


def test_a_certificate_about_something_else() -> None:
    def weaker(manifest: Any) -> None:
        manifest["statements"] = manifest["statements"][1:]

    assert "does not state that the circuit is faithful" in against(lambda _: None, weaker)
    assert "other inputs" in against(lambda _: None, lambda m: m["claim"]["inputs"].reverse())
    assert against(lambda _: None, lambda m: m.pop("claim")) == "it cannot be read"
