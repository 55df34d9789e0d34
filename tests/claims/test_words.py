"""Claims in plain words."""

from __future__ import annotations

import pytest
import torch

import provable_circuits as pc
from provable_circuits.claims.words import broken, domain_words, metric_words, patching_words

X = torch.tensor([0.25, 0.5, 0.75])


@pytest.mark.parametrize(
    ("domain", "words"),
    [
        (pc.Point(X), "the input itself, and no other"),
        (pc.Ball(X, 0.1), "every value may move by up to 0.1"),
        (
            pc.Ball(X, 0.1, clip=(0, 1)),
            "every value may move by up to 0.1, and stays within 0 to 1",
        ),
        (
            pc.Ball(X, [0.1, 0.2, 0.1]),
            "every value may move by up to 0.1 to 0.2, depending on its place",
        ),
        (pc.Ball(X, 0.5, 2), "all values together may move by up to 0.5 in the 2-norm"),
        (
            pc.Ball(X, 0.5, 1, mask=[1, 0, 1]),
            "all values together may move by up to 0.5 in the 1-norm; "
            "1 of 3 values do not move at all",
        ),
        (
            pc.Box(X - 0.25, X + 0.5),
            "every value ranges between two ends of its own, at most 0.75 apart",
        ),
    ],
)
def test_domains(domain: pc.Domain, words: str) -> None:
    assert domain_words(domain) == words


@pytest.mark.parametrize(
    ("patching", "part"),
    [
        (pc.Zero(), "zero"),
        (pc.Mean(X), "its mean over some data"),
        (pc.Constant(2.0), "a fixed value"),
        (pc.Reachable(eps=0.2), "at some input within 0.2 of the claimed one"),
        (pc.Reachable(domains=pc.Point(X)), "the same input for all removed components"),
        (pc.IntervalHull(eps=0.2), "any value of the interval"),
    ],
)
def test_patchings(patching: pc.Patching, part: str) -> None:
    assert part in patching_words(patching)


REFERENCE = torch.tensor([1.0, 5.0, 2.0])
OUTPUT = torch.tensor([4.0, 2.0, 2.5])
ANCHOR = torch.tensor([[1.0, 5.5, 2.0], [3.0, 1.0, 0.0]])


@pytest.mark.parametrize(
    ("metric", "asked", "outputs", "told"),
    [
        (
            pc.LogitDifference(2.0),
            "the output that the network predicts stays within 2 of the network's",
            (1,),
            "output 1 is 5 in the network and 2 in the circuit: 3 apart, where 2 is allowed",
        ),
        (
            pc.LogitDifference(0.25, 2),
            "output 2 stays within 0.25 of the network's",
            (2,),
            "output 2 is 2 in the network and 2.5 in the circuit: 0.5 apart, where 0.25 is allowed",
        ),
        (
            pc.LogitDifference(0.25, [0, 1]),
            "each input's target output stays within 0.25 of the network's",
            (0,),
            "output 0 is 1 in the network and 4 in the circuit: 3 apart, where 0.25 is allowed",
        ),
        (
            pc.MaxAbs(1.0),
            "every output stays within 1 of the network's",
            (0,),
            "output 0 is 1 in the network and 4 in the circuit: 3 apart, where 1 is allowed",
        ),
        (
            pc.WinnerMargin(0.5),
            "the network's winner keeps at least 0.5 of its lead over the runner-up",
            (1, 2),
            "output 1 falls behind output 2 by 0.5 in the circuit, where a lead of 1.75 is asked",
        ),
        (
            pc.WinnerMargin(0.5, against="all"),
            "the network's winner keeps at least 0.5 of its lead over every other output",
            (1, 0),
            "output 1 falls behind output 0 by 2 in the circuit, where a lead of 1.75 is asked",
        ),
        (
            pc.Norm(1.0),
            "the outputs stay within 1 of the network's in the 2-norm",
            (0, 1, 2),
            "the distance of the outputs in the 2-norm is 4.272, where 1 is allowed",
        ),
        (
            pc.MeanSquaredError(1.0),
            "the mean squared difference of the outputs is at most 1",
            (0, 1, 2),
            "the mean squared difference of the outputs is 6.083, where 1 is allowed",
        ),
        (
            pc.KLDivergence(0.5),
            "the Kullback-Leibler divergence of the outputs is at most 0.5",
            (0, 1, 2),
            "the Kullback-Leibler divergence of the outputs is 1.974, where 0.5 is allowed",
        ),
    ],
)
def test_metrics(metric: pc.Metric, asked: str, outputs: tuple[int, ...], told: str) -> None:
    assert metric_words(metric) == asked
    places = (REFERENCE.expand(2, -1), OUTPUT.expand(2, -1))
    excess = float(metric.excess(ANCHOR, *places)[0])
    how = broken(metric, 0, ANCHOR, REFERENCE, OUTPUT, excess)
    assert how.outputs == outputs
    assert how.words == told
