"""Inputs in the scale of image files get a warning, and radii are told in pixel scale first."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import provable_circuits as pc
from provable_circuits.claims.normalisation import Normalisation, domain_text, patching_text
from provable_circuits.claims.words import domain_words, patching_words
from provable_circuits.errors import ArgumentError, ScaleWarning
from provable_circuits.report.page.build import report_page

IMAGE = np.arange(0, 256, 8).reshape(1, 4, 8)
"""Whole numbers from 0 to 248."""

DOMAINS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "Ball": ("The 'x' parameter of Ball", lambda x: pc.Ball(x, 0.01)),
    "Point": ("The 'x' parameter of Point", pc.Point),
    "Box": ("The 'upper' parameter of Box", lambda x: pc.Box(x, x)),
    "Mean": ("The 'data' parameter of Mean", lambda x: pc.Mean(x)),
}
IMAGES: dict[str, Any] = {
    "int64": IMAGE,
    "int32": IMAGE.astype(np.int32),
    "int16": IMAGE.astype(np.int16),
    "a tensor": torch.as_tensor(IMAGE),
    "a short tensor": torch.as_tensor(IMAGE).short(),
}


@pytest.mark.parametrize("image", IMAGES)
@pytest.mark.parametrize("kind", DOMAINS)
def test_an_image_of_integers_gets_a_warning_that_names_the_scale(kind: str, image: str) -> None:
    what, make = DOMAINS[kind]
    with pytest.warns(ScaleWarning) as caught:
        make(IMAGES[image])
    (warning,) = caught
    text = str(warning.message)
    assert text.startswith(f"{what} holds whole numbers from 0 to 248 (torch.int")
    assert "as in x / 255.0" in text
    assert warning.filename == __file__
    if kind == "Ball":
        assert "eps 0.01 is taken in that scale" in text


@pytest.mark.parametrize("kind", ["Ball", "Point", "Box"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_so_does_one_that_was_only_cast(kind: str, dtype: Any) -> None:
    with pytest.warns(ScaleWarning, match=r"as in x / 255\.0"):
        DOMAINS[kind][1](IMAGE.astype(dtype))


def test_batches_of_integers_are_seen_when_means_are_taken() -> None:
    graph = pc.Graph.from_torch(nn.Sequential(nn.Linear(4, 2)), torch.zeros(1, 4))
    data = [np.array([[0, 64, 128, 255]])]
    with pytest.warns(ScaleWarning, match="Batch 0 of the 'data' parameter of Mean"):
        pc.Mean(data).values(graph.components("neuron"))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("kind", DOMAINS)
def test_bytes_are_refused(kind: str, dtype: Any) -> None:
    with pytest.raises(ArgumentError, match=r"as in x / 255\.0"):
        DOMAINS[kind][1](IMAGE.astype(dtype))


@pytest.mark.parametrize(
    "make",
    [
        lambda: pc.Ball(IMAGE / 255.0, 0.01),
        lambda: pc.Ball(IMAGE.astype(float), 2.0),
        lambda: pc.Ball(IMAGE / 255.0 * 4 - 2, 0.01),
        lambda: pc.Ball((IMAGE > 99).astype(float), 0.01),
        lambda: pc.Ball(np.eye(16), 0.01),
        lambda: pc.Ball([1, 2], 0.01),
        lambda: pc.Point(np.array([3, 4])),
        lambda: pc.Box(np.zeros(32), np.full(32, 255.0)),
        lambda: pc.Mean(IMAGE / 255.0),
    ],
)
def test_nothing_else_does(make: Callable[[], Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make()


SCALE = Normalisation.of([0.5, 0.4, 0.3], [0.25, 0.5, 0.2])
PLAIN = Normalisation.of(0.5, 0.25)
COLOUR = torch.zeros(3, 2, 2)


def test_balls_are_told_in_pixels_first() -> None:
    assert SCALE is not None
    assert PLAIN is not None
    std = SCALE.std.reshape(3, 1, 1)
    even = pc.Ball(COLOUR, (0.01 / std).expand(3, 2, 2), clip=(-2.5, 3.5))
    told = "eps 0.01 in pixel scale (0.02 to 0.05 after normalisation), p inf, clipped)"
    assert domain_text(even, SCALE) == f"Ball(shape [3, 2, 2], {told}"
    assert domain_words(even, SCALE) == (
        "every value may move by up to 0.01 in pixel scale (0.02 to 0.05 after normalisation), "
        "depending on its place, and stays within -0.85 to 2.15"
    )
    ball = pc.Ball(COLOUR, 0.04)
    told = "eps 0.01 in pixel scale (0.04 after normalisation), p inf)"
    assert domain_text(ball, PLAIN) == f"Ball(shape [3, 2, 2], {told}"
    assert domain_text(ball, None) == repr(ball)
    assert domain_words(pc.Ball(COLOUR, 0.04, p=2), PLAIN).startswith(
        "all values together may move by up to 0.01 in pixel scale (0.04 after normalisation) in"
    )


def test_a_ball_that_is_none_in_pixels_says_that_it_is_normalised() -> None:
    ball = pc.Ball(COLOUR, 0.04, p=2)
    assert domain_text(ball, SCALE) == "Ball(shape [3, 2, 2], eps 0.04 after normalisation, p 2)"
    assert "up to 0.04 after normalisation in the 2-norm" in domain_words(ball, SCALE)


def test_boxes_and_patches_are_told_in_pixels_first() -> None:
    box = pc.Box(COLOUR - 0.04, COLOUR + 0.04)
    told = "0.02 in pixel scale (0.08 after normalisation)"
    assert domain_text(box, PLAIN) == f"Box(shape [3, 2, 2], widest {told})"
    assert domain_words(box, PLAIN).endswith(f"at most {told} apart")
    assert domain_text(pc.Point(COLOUR), PLAIN) == "Point(shape [3, 2, 2])"
    near = pc.Reachable(0.04)
    told = "0.01 in pixel scale (0.04 after normalisation)"
    assert f"within {told} of the claimed one" in patching_words(near, PLAIN)
    assert patching_text(near, PLAIN) == repr(near).replace("eps=0.04", f"eps={told}")
    assert patching_text(near, None) == repr(near)
    assert patching_text(pc.Zero(), PLAIN) == repr(pc.Zero())


def test_a_run_and_its_page_tell_it_so() -> None:
    graph = pc.Graph.from_torch(
        nn.Sequential(nn.Flatten(), nn.Linear(12, 3), nn.ReLU(), nn.Linear(3, 2)),
        torch.zeros(1, 3, 2, 2),
    )
    claim = pc.Claim(pc.Ball(COLOUR, 0.04), pc.Zero(), pc.MaxAbs(10.0))
    result = pc.discover(graph, claim, "neuron", certify=False)
    run = result.record(mean=0.5, std=0.25)
    told = "0.01 in pixel scale (0.04 after normalisation)"
    assert f"  inputs    Ball(shape [3, 2, 2], eps {told}, p inf)" in str(run).splitlines()
    assert f"every value may move by up to {told}" in report_page(run)
    assert "pixel scale" not in str(result.record())
