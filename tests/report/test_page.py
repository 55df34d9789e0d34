"""The report page as text: what it holds, and that nothing it was given becomes code."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from markupsafe import escape
from PIL import Image
from tests.report.runs import HOSTILE, digits, hostile, network, search
from torch import nn

import provable_circuits as pc
from provable_circuits.report.comparison import Comparison
from provable_circuits.report.page.build import report_page
from provable_circuits.report.page.pictures import Gallery
from provable_circuits.report.page.view import MOST_OUTPUTS, view_of
from provable_circuits.report.page.words import (
    OPEN,
    PARTLY,
    SHOWN,
    Statement,
    headline,
    lead,
    reason,
    statements,
)


def changed(run: pc.Run, **fields: Any) -> pc.Run:
    """A run with some fields of its document changed."""
    return replace(run, document={**run.document, **fields})


def said(run: pc.Run, title: str) -> Statement:
    (found,) = [statement for statement in statements(run) if statement.title == title]
    return found


def decoded(address: str) -> np.ndarray[Any, Any]:
    kind, _, data = address.partition(",")
    assert kind == "data:image/png;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))


def test_the_page_is_small_and_asks_for_nothing() -> None:
    page = report_page(digits())
    assert len(page.encode()) < 300_000
    addresses = re.findall(r"""(?:src|href|action|data)\s*=\s*["']([^"']*)""", page)
    assert addresses
    assert all(address.startswith(("data:image/png;", "#")) for address in addresses)
    assert "url(" not in page
    assert "@import" not in page


def test_the_policy_names_every_style_and_the_script_by_their_digests() -> None:
    page = report_page(digits())
    policy = html.unescape(re.findall(r'Content-Security-Policy" content="([^"]*)"', page)[0])
    assert policy.startswith("default-src 'none'; base-uri 'none'; form-action 'none'")
    assert "'unsafe-inline'" not in policy.replace("style-src-attr 'unsafe-inline'", "")
    for text in re.findall(r"<(?:style|script)>(.*?)</(?:style|script)>", page, re.DOTALL):
        digest = hashlib.sha256(html.unescape(text).encode()).digest()
        assert base64.b64encode(digest).decode() in policy


def test_hostile_text_is_escaped_wherever_it_stands() -> None:
    page = report_page(hostile(), HOSTILE)
    assert "window.hacked" in page
    assert "<script>window" not in page
    assert "<b>" not in page
    assert escape(f"{HOSTILE}.onnx") in page
    both = report_page(Comparison(hostile(), hostile(), (HOSTILE, "other")))
    assert "<script>window" not in both
    assert "<b>" not in both


def test_the_headline_and_the_claim_are_plain_words() -> None:
    run = digits()
    assert headline(run) == "6 of 34 components are provably enough"
    assert lead(run) == (
        "For every input in 3 regions, the output that the network predicts stays within 2 of the "
        "network's. Each of the 28 removed components outputs zero."
    )
    sampled = digits("sampling", "greedy")
    assert headline(sampled).endswith("are enough at the points tried")
    assert lead(sampled).startswith("At the points tried in 3 regions, ")
    undecided = changed(run, faithful="undecided")
    assert headline(undecided) == "6 of 34 components, and nothing was proved"


def test_each_guarantee_says_how_firm_it_is() -> None:
    run = digits()
    faithful = said(run, "Faithful")
    assert (faithful.answer, faithful.firmness) == ("certified", SHOWN)
    assert "real arithmetic" in faithful.basis
    assert "every rounding error" in faithful.basis
    necessity = said(run, "Each component")
    assert (necessity.answer, necessity.firmness) == ("all necessary", SHOWN)
    minimal = said(run, "Minimal")
    assert (minimal.answer, minimal.firmness) == ("locally minimal", SHOWN)
    assert minimal.basis == "every component is necessary, by a replayed witness."
    assert said(run, "Left open").answer == "nothing"
    assert said(digits("sampling", "greedy"), "Minimal").firmness == PARTLY
    sampled = said(digits("sampling", "greedy"), "Faithful")
    assert (sampled.answer, sampled.firmness) == ("at points only", PARTLY)
    assert "Nothing is proved" in sampled.basis


def test_what_was_not_shown_is_not_claimed() -> None:
    run = digits()
    first, *others = run.kept
    kept = {first: "undecided", **dict.fromkeys(others, "removable")}
    queries = {**run.document["queries"], "by_verdict": {"proved": 50, "undecided": 4}}
    minimality = {**run.document["minimality"], "notion": "none", "basis": "nothing was asked"}
    other = changed(
        run,
        faithful="undecided",
        kept=kept,
        queries=queries,
        minimality=minimality,
        stopped="budget",
    )
    assert said(other, "Faithful").firmness == OPEN
    assert said(other, "Each component").firmness == OPEN
    assert "1 were not shown to be necessary" in said(other, "Each component").words
    assert said(other, "Minimal").answer == "not shown"
    assert said(other, "Left open").words.startswith("4 of 54 questions stayed undecided.")
    assert "time was over" in said(other, "Left open").words
    assert reason(other, first)[0] == "kept, not shown necessary"
    report_page(other)


def test_bounds_and_assumptions_are_told() -> None:
    run = digits()
    minimality = {
        **run.document["minimality"],
        "notion": "subset",
        "holds": "assumed",
        "lower": 3,
        "lower_holds": "assumed",
    }
    found = {
        "components": ["fc1/3"],
        "smallest": True,
        "none": False,
        "holds": "assumed",
        "monotone": "so",
        "in_words": [
            "without it the network breaks the claim",
            "so; if so, no smaller set does so",
        ],
    }
    assumed = changed(run, minimality=minimality, blocking_set=found)
    assert said(assumed, "Minimal").firmness == PARTLY
    assert said(assumed, "Minimal").answer == "subset-minimal, if monotone"
    assert "if the predicate is monotone" in said(assumed, "Minimal").words
    assert said(assumed, "Smallest size").answer == "at least 3"
    assert said(assumed, "Blocking set").words == (
        "Without fc1/3 the network itself breaks the claim. So; if so, no smaller set does so."
    )
    assert said(assumed, "Blocking set").firmness == PARTLY


def test_a_blocking_set_that_does_not_exist_or_was_not_found_is_told() -> None:
    run = digits()
    none = {"components": None, "smallest": False, "monotone": "not so"}
    for none_at_all, holds, sentence, answer, firmness in [
        (True, "unconditional", "there is none", "none exists", SHOWN),
        (True, "assumed", "if so, there is none", "none exists", PARTLY),
        (False, None, "none was found", "not found", OPEN),
    ]:
        found = {**none, "none": none_at_all, "holds": holds, "in_words": [sentence]}
        told = said(changed(run, blocking_set=found), "Blocking set")
        assert (told.answer, told.firmness) == (answer, firmness)
        assert told.words.lower() == f"{sentence}."


def test_a_witness_shows_the_numbers_of_its_document() -> None:
    run = digits()
    view = view_of(run, "digits")
    by_name = {component.name: component.reasons[0] for component in view.components}
    assert list(by_name) == list(run.components)
    for name, told in run.document["witnesses"].items():
        witness = by_name[name].witness
        assert witness is not None
        assert [row.network for row in witness.outputs] == told["reference"]
        assert [row.circuit for row in witness.outputs] == told["output"]
        assert [row.clean for row in witness.outputs] == run.outputs[told["input"]].tolist()
        assert [row.number for row in witness.outputs if row.matters] == told["matters"]
        clean, perturbed, difference = (decoded(picture.address) for picture in witness.pictures)
        z = run.witness(name)
        assert z is not None
        np.testing.assert_array_equal(perturbed, np.rint(z.reshape(28, 28) * 255))
        x = run.inputs[told["input"]]
        np.testing.assert_array_equal(clean, np.rint(x.reshape(28, 28) * 255))
        rose = (z > x).reshape(28, 28)
        assert (difference[rose][:, 0] > difference[rose][:, 2]).all()
        assert witness.pictures[2].caption == "Difference, at most 0.01"
    assert by_name["fc1/0"].witness is None
    assert by_name["fc1/0"].status == "removed, by proof"


def test_bars_start_at_zero_and_end_at_the_value() -> None:
    view = view_of(digits(), "digits")
    witness = next(c.reasons[0].witness for c in view.components if c.reasons[0].witness)
    for row in witness.outputs:
        for bar in (row.network_bar, row.circuit_bar):
            assert 0 <= bar.start <= 100
            assert bar.start + bar.length <= 100.2
    lowest = min(witness.outputs, key=lambda row: row.network)
    assert lowest.network_bar.start == 0


def test_of_many_outputs_those_that_matter_are_listed() -> None:
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 40))
    torch.manual_seed(3)
    net.apply(lambda m: m.reset_parameters() if isinstance(m, nn.Linear) else None)
    graph = pc.Graph.from_torch(net, torch.zeros(1, 4))
    claim = pc.Claim(pc.Ball(torch.full((4,), 0.5), 0.02), pc.Zero(), pc.LogitDifference(0.05, 37))
    run = pc.discover(graph, claim, certify=False).record()
    witness = next(
        c.reasons[0].witness for c in view_of(run, "").components if c.reasons[0].witness
    )
    assert len(witness.outputs) == MOST_OUTPUTS
    assert witness.left_out == 40 - MOST_OUTPUTS
    assert 37 in [row.number for row in witness.outputs if row.matters]
    assert "28 more outputs are not listed" in report_page(run)


def test_normalised_inputs_are_shown_as_pixels() -> None:
    run = digits()
    normalised = replace(
        run,
        inputs=(run.inputs - 0.13) / 0.3,
        witnesses={name: (z - 0.13) / 0.3 for name, z in run.witnesses.items()},
        mean=np.array([0.13]),
        std=np.array([0.3]),
    )
    name = run.kept[0]
    z, same = run.witness(name), normalised.witness(name)
    assert z is not None
    assert same is not None
    assert Gallery(normalised).image(same, "", "") == Gallery(run).image(z, "", "")
    assert Gallery(normalised).furthest(normalised.inputs[0], normalised.inputs[0]) == 0


def test_inputs_beyond_pixels_share_one_scale() -> None:
    run = digits()
    shifted = replace(
        run,
        inputs=run.inputs * 4 - 2,
        witnesses={name: z * 4 - 2 for name, z in run.witnesses.items()},
    )
    picture = Gallery(shifted).image(shifted.inputs[0], "", "")
    expected = np.rint(run.inputs[0].reshape(28, 28) * 255)
    np.testing.assert_array_equal(decoded(picture.address), expected)


def test_points_and_patch_inputs_are_shown() -> None:
    x = torch.linspace(0, 1, 64)
    graph = network(("first", "last"), 64)
    claim = pc.Claim(pc.Point(x), pc.Reachable(eps=0.1), pc.LogitDifference(0.05, 1))
    run = pc.discover(graph, claim, certify=False).record()
    assert lead(run).startswith("At this one input, output 1 stays within 0.05 of the network's.")
    page = report_page(run)
    assert "The claim is about exactly these inputs." in page
    view = view_of(run, "points")
    witness = next(c.reasons[0].witness for c in view.components if c.reasons[0].witness)
    captions = [picture.caption for picture in witness.pictures]
    assert captions == ["Clean input", "Patch input", "Difference, at most 0.1"]


def test_patch_values_of_intervals_are_told() -> None:
    graph = network(("first", "last"))
    x = torch.linspace(0.1, 0.9, 4)
    claim = pc.Claim(pc.Ball(x, 0.02), pc.IntervalHull(eps=0.1), pc.LogitDifference(0.02, 1))
    page = report_page(pc.discover(graph, claim, certify=False).record())
    assert "Removed components were given values of their intervals" in page


def test_very_large_pictures_are_shown_smaller() -> None:
    run = digits()
    large = replace(run, inputs=np.zeros((3, 1, 1000, 1000)), witnesses={})
    gallery = Gallery(large)
    assert gallery.step > 1
    assert decoded(gallery.image(large.inputs[0], "", "").address).shape[0] < 1000


def test_vectors_are_listed_by_how_far_they_moved() -> None:
    run = search(network(("first", "last"))).record()
    name = next(iter(run.document["witnesses"]))
    z = run.witness(name)
    assert z is not None
    gallery = Gallery(run)
    assert not gallery.pictures
    moves = gallery.moves(run.inputs[0], z)
    assert len(moves) == 4
    sizes = [abs(move.difference) for move in moves]
    assert sizes == sorted(sizes, reverse=True)
    for move in moves:
        place = int(move.place)
        assert (move.clean, move.perturbed) == (run.inputs[0][place], z[place])


@pytest.mark.parametrize("tolerance", [0.0, 1000.0])
def test_the_whole_network_and_the_empty_circuit_have_pages(tolerance: float) -> None:
    run = search(network(("first", "last")), tolerance).record()
    page = report_page(run)
    if tolerance:
        assert "0 of 9 components are provably enough" in page
        assert "Is the tolerance too large?" in page
    else:
        assert re.search(r"\d of 9 components are provably enough", page)


def test_two_runs_share_a_page() -> None:
    first, second = digits(), digits("sampling", "greedy")
    view = view_of(Comparison(first, second, ("proved", "sampled")), "")
    assert view.compares
    assert [run.name for run in view.runs] == ["proved", "sampled"]
    assert dict(view.shares)["In both"] == first.kept
    assert all(len(component.reasons) == 2 for component in view.components)
    page = report_page(Comparison(first, second, ("proved", "sampled")))
    assert "Two circuits of one network: 6 and 12 of 34 components. They share 6." in page
    assert len(page.encode()) < 500_000
