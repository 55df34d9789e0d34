"""Claims in plain words: where inputs range, what is patched in, what is asked, how it is broken.

>>> from provable_circuits.claims.domains import Ball
>>> domain_words(Ball([0.2, 0.4], eps=0.1, clip=(0, 1)))
'every value may move by up to 0.1, and stays within 0 to 1'
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from provable_circuits.claims.domains import Ball, Box, Domain, Point
from provable_circuits.claims.finite import Finite
from provable_circuits.claims.metrics import (
    KLDivergence,
    LogitDifference,
    MaxAbs,
    MeanSquaredError,
    Metric,
    Norm,
    SameAnswer,
    WinnerMargin,
    target_outputs,
)
from provable_circuits.claims.normalisation import Normalisation, spread
from provable_circuits.claims.patching import Patching

POINT = "the input itself, and no other"
"""Where an input ranges that does not move."""

NORMS = {1.0: "the 1-norm", 2.0: "the 2-norm", math.inf: "the maximum norm"}


def domain_words(domain: Domain, scale: Normalisation | None = None) -> str:
    """Where an input ranges; in pixel scale first, where inputs were normalised."""
    if isinstance(domain, Ball):
        return _ball_words(domain, scale)
    if isinstance(domain, Point):
        return POINT
    if isinstance(domain, Finite):
        return f"each of {len(domain):,} inputs, by itself"
    if isinstance(domain, Box):
        width = domain.upper - domain.lower
        widest = f"{float(width.max()):.4g}"
        if scale is not None:
            pixels = float(scale.widths(width).max())
            widest = f"{pixels:.4g} in pixel scale ({widest} after normalisation)"
        return f"every value ranges between two ends of its own, at most {widest} apart"
    return repr(domain)


def _ball_words(ball: Ball, scale: Normalisation | None) -> str:
    radius = spread(ball.eps) if scale is None else scale.radius_words(ball)
    if ball.eps.numel() > 1 and " to " in radius:
        radius += ", depending on its place"
    if ball.p == math.inf:
        words = f"every value may move by up to {radius}"
    else:
        words = f"all values together may move by up to {radius} in {NORMS[ball.p]}"
    if ball.clip is not None:
        low, high = (end.expand(ball.shape) for end in ball.clip)
        if scale is not None:
            low, high = scale.pixels(low), scale.pixels(high)
        ends = (round(float(end), 12) + 0.0 for end in (low.min(), high.max()))
        words += ", and stays within {:.4g} to {:.4g}".format(*ends)
    if ball.mask is not None:
        fixed = int((~ball.mask.expand(ball.shape)).sum())
        words += f"; {fixed} of {math.prod(ball.shape)} values do not move at all"
    return words


def patching_words(patching: Patching, scale: Normalisation | None = None) -> str:
    """What a removed component outputs; radii in pixel scale first, if inputs were normalised."""
    radius = patching.radius
    told = None if scale is None or radius is None else scale.eps_words(*radius)
    return patching.description(told)


def metric_words(metric: Metric) -> str:
    """What is asked of a circuit's outputs."""
    if isinstance(metric, LogitDifference):
        which = {str: "the output that the network predicts", int: f"output {metric.target}"}
        target = which.get(type(metric.target), "each input's target output")
        return f"{target} stays within {metric.tolerance:.4g} of the network's"
    if isinstance(metric, WinnerMargin):
        rival = "the runner-up" if metric.against == "runner-up" else "every other output"
        return f"the network's winner keeps at least {metric.fraction:.4g} of its lead over {rival}"
    if isinstance(metric, SameAnswer):
        most = {str: "the network's largest output", int: f"output {metric.target}"}
        target = most.get(type(metric.target), "each input's target output")
        lead = f" by more than {metric.margin:.4g}" if metric.margin else ""
        return f"{target} is strictly larger than every other{lead}"
    if isinstance(metric, MaxAbs):
        return f"every output stays within {metric.tolerance:.4g} of the network's"
    if isinstance(metric, Norm):
        return f"the outputs stay within {metric.tolerance:.4g} of the network's in {_norm(metric)}"
    if isinstance(metric, MeanSquaredError):
        return f"the mean squared difference of the outputs is at most {metric.tolerance:.4g}"
    if isinstance(metric, KLDivergence):
        return f"the Kullback-Leibler divergence of the outputs is at most {metric.tolerance:.4g}"
    return repr(metric)


@dataclass(frozen=True, slots=True)
class Broken:
    """How a metric is broken at one place.

    Attributes:
        outputs: the outputs that matter.
        words: the numbers that break it, in a clause.
    """

    outputs: tuple[int, ...]
    words: str


def broken(
    metric: Metric, index: int, anchor: Tensor, reference: Tensor, output: Tensor, excess: float
) -> Broken:
    """How a metric is broken by a circuit's outputs at one place.

    Args:
        metric: the metric.
        index: which of the claim's inputs the place belongs to.
        anchor: the network's outputs at the unperturbed inputs, [inputs, outputs].
        reference: the network's outputs at the place, [outputs].
        output: the circuit's outputs there, [outputs].
        excess: by how much the metric is exceeded.
    """
    if isinstance(metric, LogitDifference):
        return _apart(int(target_outputs(metric.target, anchor)[index]), metric, reference, output)
    if isinstance(metric, MaxAbs):
        return _apart(int((output - reference).abs().argmax()), metric, reference, output)
    if isinstance(metric, WinnerMargin):
        return _overtaken(metric, anchor[index], output)
    if isinstance(metric, SameAnswer):
        return _answered(int(target_outputs(metric.target, anchor)[index]), metric, output)
    everything = tuple(range(len(output)))
    tolerance = getattr(metric, "tolerance", None)
    if tolerance is None:
        return Broken(everything, f"the metric is exceeded by {excess:.4g}")
    measure = {
        MeanSquaredError: "the mean squared difference of the outputs",
        KLDivergence: "the Kullback-Leibler divergence of the outputs",
    }.get(type(metric), "the distance of the outputs")
    if isinstance(metric, Norm):
        measure += f" in {_norm(metric)}"
    return Broken(
        everything, f"{measure} is {excess + tolerance:.4g}, where {tolerance:.4g} is allowed"
    )


def failure_words(metric: Metric, domain: Domain, index: int, how: Broken) -> str:
    """That the network itself violates a claim: at which input, how, and what to change.

    Args:
        metric: the claim's metric.
        domain: where the input ranges.
        index: which of the claim's inputs it is, counted from 0.
        how: how the network breaks the metric there.
    """
    words = how.words.replace(" in the circuit,", ",")
    return (
        f"The network itself violates the claim at input {index} (counted from 0), {domain!r}: "
        f"{words}. No circuit can satisfy it: {_advice(metric, domain)}."
    )


def _advice(metric: Metric, domain: Domain) -> str:
    """What to change about a claim that the network itself violates."""
    choices = []
    if not domain.is_point:
        choices.append("a smaller eps" if isinstance(domain, Ball) else "a smaller domain")
    if isinstance(metric, WinnerMargin):
        choices += ["a smaller fraction"] if metric.fraction > 0 else []
    elif isinstance(metric, SameAnswer):
        choices += ["a smaller margin"] if metric.margin > 0 else []
    elif hasattr(metric, "tolerance"):
        choices.append("a larger tolerance")
    leave = "leave that input out"
    return f"choose {' or '.join(choices)}, or {leave}" if choices else leave


def _apart(
    place: int, metric: LogitDifference | MaxAbs, reference: Tensor, output: Tensor
) -> Broken:
    """One output of the circuit is too far from the network's."""
    network, circuit = float(reference[place]), float(output[place])
    return Broken(
        (place,),
        f"output {place} is {network:.4g} in the network and {circuit:.4g} in the circuit: "
        f"{abs(circuit - network):.4g} apart, where {metric.tolerance:.4g} is allowed",
    )


def _overtaken(metric: WinnerMargin, anchor: Tensor, output: Tensor) -> Broken:
    """The winner's lead became too small."""
    top = anchor.topk(2)
    winner, rival = (int(place) for place in top.indices)
    wanted = metric.fraction * float(top.values[0] - top.values[1])
    if metric.against == "all":
        others = output.clone()
        others[winner] = -math.inf
        rival = int(others.argmax())
    lead = float(output[winner] - output[rival])
    how = "leads" if lead >= 0 else "falls behind"
    return Broken(
        (winner, rival),
        f"output {winner} {how} output {rival} by {abs(lead):.4g} in the circuit, "
        f"where a lead of {wanted:.4g} is asked",
    )


def _answered(target: int, metric: SameAnswer, output: Tensor) -> Broken:
    """Another output is at least as large as the answer."""
    others = output.clone()
    others[target] = -math.inf
    rival = int(others.argmax())
    lead = float(output[target] - output[rival])
    how = "leads" if lead > 0 else "falls behind"
    wanted = f"a lead of more than {metric.margin:.4g}" if metric.margin else "a lead"
    return Broken(
        (target, rival),
        f"output {target} {how} output {rival} by {abs(lead):.4g} in the circuit, "
        f"where {wanted} is asked",
    )


def _norm(metric: Norm) -> str:
    return NORMS[float(metric.p)]
