"""Pictures of a result: what they show is what the result says."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

import provable_circuits as pc
from provable_circuits.drawing.pixels import NEUTRAL
from provable_circuits.drawing.scene import Pixels
from provable_circuits.errors import ArgumentError
from provable_circuits.network.graph import GraphBuilder
from provable_circuits.network.ops import Linear, ReLU
from provable_circuits.report.plots import plot_size, plot_verdicts, plot_witness

Image = pytest.importorskip("PIL.Image")


@pytest.fixture(scope="module")
def result() -> pc.Result:
    """Two of three neurons matter, each for one half of an image of 8 by 8."""
    halves = torch.zeros(3, 64)
    halves[0, :32] = halves[1, 32:] = 1 / 32
    builder = GraphBuilder()
    hidden = builder.add("fc", Linear(halves), builder.input("x", (64,)), layer="fc")
    active = builder.add("relu", ReLU(), hidden)
    output = builder.add("out", Linear(torch.ones(1, 3)), active, layer="out")
    claim = pc.Claim(
        inputs=[pc.Ball(torch.full((64,), 0.5), eps=0.1, clip=(0, 1))],
        patching=pc.Zero(),
        metric=pc.MaxAbs(tolerance=0.1),
    )
    return pc.discover(builder.build([output]), claim, "neuron", outputs=False, certify=False)


def written(path: Path) -> ElementTree.Element:
    return ElementTree.fromstring(path.read_text(encoding="utf-8"))


def pixels_of(element: ElementTree.Element) -> Pixels:
    content = base64.b64decode(element.attrib["href"].partition(",")[2])
    with Image.open(io.BytesIO(content)) as image:
        return np.asarray(image, dtype=np.uint8)


def test_the_size_over_time(result: pc.Result, tmp_path: Path) -> None:
    plot_size(result, tmp_path / "size.svg")
    root = written(tmp_path / "size.svg")
    description = root.findtext("{*}desc", "")
    assert description.startswith("components over seconds. size of the best circuit:")
    assert f" to 2 at {result.seconds:g}." in description
    assert "lower bound" not in description, "none is claimed"


def test_the_lower_bound_over_time(result: pc.Result, tmp_path: Path) -> None:
    graph = result.circuit.components.graph
    found = pc.discover(
        graph,
        result.claim,
        "neuron",
        outputs=False,
        algorithm="blocking-sets",
        assume_monotone=True,
        certify=False,
    )
    assert found.lower == 2
    plot_size(found, tmp_path / "size.svg")
    words = [text.text for text in written(tmp_path / "size.svg").iterfind(".//{*}text")]
    assert "lower bound, if the predicate is monotone" in words


def test_verdicts_by_stage(result: pc.Result, tmp_path: Path) -> None:
    plot_verdicts(result, tmp_path / "verdicts.svg")
    description = written(tmp_path / "verdicts.svg").findtext("{*}desc", "")
    for stage, kinds in result.answers.items():
        counts = ", ".join(
            f"{kinds[kind]} {kind}" for kind in ("proved", "refuted") if kind in kinds
        )
        assert f"{stage}: {counts}." in description
    assert sum(result.stages.values()) == sum(result.queries.values())


def test_a_witness_beside_the_clean_input(result: pc.Result, tmp_path: Path) -> None:
    assert set(result.circuit.names) == {"fc/0", "fc/1"}
    plot_witness(result, "fc/0", tmp_path / "witness.svg")
    root = written(tmp_path / "witness.svg")
    title = root.findtext("{*}title", "")
    assert title.startswith("Without fc/0 the claim fails at input 0, by ")
    clean, moved, difference = (pixels_of(image) for image in root.iterfind("{*}image"))
    assert (clean == 128).all()
    verdict = result.kept["fc/0"].verdict
    assert isinstance(verdict, pc.Refuted)
    z = verdict.witness.z.reshape(8, 8).numpy()
    assert np.array_equal(moved, np.rint(z * 255))
    assert difference.shape == (8, 8, 3)
    assert ((difference == np.array(NEUTRAL)).all(2) == (z == 0.5)).all()


def test_without_a_witness_it_is_said(result: pc.Result, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"component 'fc/2'; there is one for fc/0, fc/1\."):
        plot_witness(result, "fc/2", tmp_path / "witness.svg")


def test_png(result: pc.Result, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot_witness(result, "fc/0", tmp_path / "witness.png")
    with Image.open(tmp_path / "witness.png") as picture:
        greys = np.asarray(picture.convert("RGB"))
    middle_of_clean = greys[250, 200]
    assert middle_of_clean.tolist() == [128, 128, 128]


def test_a_result_shows_itself_in_notebooks(result: pc.Result) -> None:
    root = ElementTree.fromstring(result._repr_html_())
    drawing, chart = root.iterfind("{*}svg")
    assert drawing.findtext("{*}title") == "2 of 3 components kept"
    assert chart.findtext("{*}title") == "Size over time"
    assert root.findtext("pre") == str(result)


def test_a_blocking_set_shows_itself_in_notebooks(result: pc.Result) -> None:
    found = pc.blocking_set(result.circuit.components.graph, result.claim, outputs=False)
    root = ElementTree.fromstring(found._repr_html_())
    assert root.findtext("{*}svg/{*}title") == "2 of 3 components kept"
    assert root.findtext("pre") == str(found)


def test_a_result_is_drawn(result: pc.Result, tmp_path: Path) -> None:
    result.draw(tmp_path / "circuit.svg")
    assert written(tmp_path / "circuit.svg").findtext("{*}title") == "2 of 3 components kept"
