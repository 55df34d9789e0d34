"""The demo tells a true story, in words a newcomer follows."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

import provable_circuits as pc
from provable_circuits.report.demo import run_demo
from provable_circuits.zoo.digits import load_digits
from provable_circuits.zoo.mnist import mnist_network


@pytest.fixture(scope="module")
def story() -> str:
    screen = io.StringIO()
    run_demo(Console(file=screen, width=80, highlight=False), digit=9, eps=0.01, delta=2.0)
    return screen.getvalue()


def test_it_goes_step_by_step(story: str) -> None:
    steps = re.findall(r"^(\d)\. ", story, re.MULTILINE)
    assert steps == ["1", "2", "3", "4", "5"]


def test_the_sampled_circuit_is_refuted_and_the_proved_one_is_not(story: str) -> None:
    assert "held at the sampled points; nothing is proved" in story
    assert "NOT faithful nearby" in story
    assert "certified for every input in 3 domain(s)" in story


def test_no_line_is_wider_than_a_terminal(story: str) -> None:
    assert max(len(line) for line in story.splitlines()) <= 80


def test_the_proved_circuit_it_prints_is_proved_again_from_scratch(story: str) -> None:
    graph, digits = mnist_network(), load_digits()
    right = (digits.labels == 9) & (graph.run(digits.images).argmax(1) == 9)
    images = digits.images[right][:3]
    claim = pc.Claim(
        [pc.Ball(x, 0.01, clip=(0, 1)) for x in images], pc.Zero(), pc.LogitDifference(2.0, 9)
    )
    text = story[story.index("5. By proof") :]
    kept = [
        f"{layer}/{unit}"
        for layer, units in re.findall(r"^ +(fc\d) +\d+ of \d+ +([\d, ]+)$", text, re.MULTILINE)
        for unit in units.split(", ")
    ]
    circuit = graph.components("neuron").circuit(kept)
    assert f"Circuit: {len(circuit)} of 34 components" in text
    assert pc.verify(graph, circuit, claim, certify=False).proved
