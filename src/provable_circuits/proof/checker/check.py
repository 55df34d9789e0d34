"""Checking: each statement of a certificate, by the rules or by replaying its witness."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .arithmetic import Arithmetic, Array, RefusedError
from .certificate import Certificate, read
from .claim import Domain
from .data import Data, plain
from .machine import check_products
from .problem import Problem, Region
from .rules import Subdomain
from .tree import Proof

EXACT_UNITS = 2048
"""Rational arithmetic is for networks of at most so many units."""


@dataclass(frozen=True)
class Finding:
    """A statement, whether it holds, and on what that rests or why it does not."""

    statement: str
    holds: bool
    reason: str


def check_folder(folder: str | Path, exact: bool = False) -> list[Finding]:
    """Check every statement of a certificate.

    Args:
        folder: where the certificate is.
        exact: compute in rational numbers; for small networks without balls, sigmoid and tanh.

    Raises:
        RefusedError: the certificate as a whole cannot be read.
    """
    check_products()
    with np.errstate(all="ignore"):
        certificate = read(Path(folder))
        _guarded(_well_formed, certificate)
        statements = certificate.manifest["statements"].items()
        texts = [_guarded(_describe, certificate, statement) for statement in statements]
        found = []
        for statement, text in zip(statements, texts, strict=True):
            try:
                reason = _guarded(_check, certificate, statement, exact)
                found.append(Finding(text, True, reason))
            except RefusedError as refused:
                found.append(Finding(text, False, str(refused)))
    return found


def _guarded(step: Callable[..., str], *arguments: Any) -> str:
    """What a step says; whatever goes wrong in it is a refusal, and never a proof."""
    try:
        return step(*arguments)
    except RefusedError:
        raise
    except Exception as error:
        raise RefusedError(f"It cannot be checked: {type(error).__name__}.") from error


def _well_formed(certificate: Certificate) -> str:
    """Refuse a claim that says nothing certain at one of its inputs, whatever is stated of it."""
    claim = certificate.claim
    for place in range(claim.count):
        claim.input(place)
        claim.metric(place)
        claim.patch(place, Arithmetic())
        claim.check_boxes(place)
    return "well-formed"


def _describe(certificate: Certificate, statement: Data) -> str:
    kind = statement["kind"].text("faithful", "necessary", "unfaithful")
    size = len(certificate.circuit)
    if kind == "necessary":
        return f"{plain(statement['component'].text())} is necessary"
    return f"the circuit of {size} components is {'not ' * (kind != 'faithful')}faithful"


def _check(certificate: Certificate, statement: Data, exact: bool) -> str:
    kind = statement["kind"].value
    if kind == "faithful":
        statement.only("kind")
        return _faithful(certificate, exact)
    circuit = certificate.circuit
    if kind == "necessary":
        component = statement.only("kind", "component", "witness")["component"].text()
        if component not in circuit:
            raise statement.wrong("about a component of the circuit")
        circuit = circuit - {component}
    return _refuted(certificate, circuit, statement["witness"])


def _faithful(certificate: Certificate, exact: bool) -> str:
    """Follow the proof of each input."""
    proofs, claim = certificate.manifest["proof"].items(), certificate.claim
    if len(proofs) != claim.count or not proofs:
        raise RefusedError("There is not one proof for each input.")
    leaves = 0
    for place, proof in enumerate(proofs):
        rational = partial(_rational, certificate, place)
        plain = partial(claim.problem, place, certificate.circuit, Arithmetic())
        problem = rational() if exact else plain()
        leaves += Proof(problem, rational, certificate.proof_array, proof).check()
    way = "in rational arithmetic" if exact else "with every rounding error enclosed"
    trees, inputs = f"{leaves} lea{'f' if leaves == 1 else 'ves'}", len(proofs)
    return f"{trees} over {inputs} input{'s' * (inputs != 1)}, closed by bounds {way}"


def _rational(certificate: Certificate, place: int) -> Problem:
    """The problem of an input in rational arithmetic."""
    units = sum(step.units for step in certificate.network.steps)
    if units > EXACT_UNITS:
        raise RefusedError(f"The network is too large for rational arithmetic: {units} units.")
    return certificate.claim.problem(place, certificate.circuit, Arithmetic(exact=True))


# --- witnesses ----------------------------------------------------------------------------------


def _refuted(certificate: Certificate, circuit: frozenset[str], witness: Data) -> str:
    """Replay a witness by intervals: the circuit leaves the claim there, beyond rounding."""
    claim = certificate.claim
    witness.only("input", "z", "source", "patches")
    place = witness["input"].integer(claim.count)
    z = _point(certificate, witness["z"], claim.input(place))
    patch = claim.patch(place, Arithmetic())
    if isinstance(patch, Region):
        source = _point(certificate, witness["source"], claim.source(place))
        patch = Region(source, source)
    elif any(isinstance(value, Region) for value in patch.values()):
        patch = _patches(certificate, witness["patches"], patch)
    problem = claim.problem_at(Arithmetic(), Region(z, z), circuit, patch, place)
    lower, upper = Subdomain.whole(problem).bounds[problem.target]
    arithmetic, excess = problem.arithmetic, -np.inf
    offsets = arithmetic.up(arithmetic.up(problem.offsets))
    for row, offset in zip(problem.objectives, offsets, strict=True):
        ends = np.maximum(row * lower, row * upper)
        error = arithmetic.gamma(len(row) + 2) * np.abs(ends).sum()
        most = arithmetic.up(ends.sum() + arithmetic.grown(error) + arithmetic.tiny(len(row)))
        excess = max(excess, -float(arithmetic.up(most + offset)))
    if not excess > 0:
        raise RefusedError("The witness does not certainly break the claim.")
    return f"a witness at input {place} that exceeds the metric by {excess:.3g}"


def _point(certificate: Certificate, data: Data, domain: Domain) -> Array:
    """A point of a domain: numbers, or bits that choose a corner of its box."""
    shape = certificate.network.shapes[certificate.network.input]
    if "corner" in data:
        bits = certificate.array(2, data.only("corner")["corner"], None, "u").reshape(-1)
        if bits.dtype != np.uint8 or len(bits) != -(-len(domain.centre) // 8):
            raise data.wrong("one bit for each unit")
        high = np.unpackbits(bits)[: len(domain.centre)] != 0
        lower, upper = domain.corners()
        point = np.where(high, upper, lower)
    else:
        point = certificate.array(2, data.only("values")["values"], shape).reshape(-1)
    if not domain.contains(point):
        raise RefusedError("The witness lies outside of the claim's inputs.")
    return point


def _patches(certificate: Certificate, data: Data, boxes: Mapping[str, Any]) -> dict[str, Array]:
    """Patch values within their boxes; the middle of the box where none are given."""
    given, found = dict(data.pairs()), {}
    for tensor, box in boxes.items():
        middle = box.lower * 0.5 + box.upper * 0.5
        if tensor in given:
            shape = certificate.network.shapes[tensor]
            middle = certificate.array(2, given[tensor], shape).reshape(-1)
            if not ((box.lower <= middle) & (middle <= box.upper)).all():
                raise RefusedError("The witness patches with a value outside of its box.")
        found[tensor] = np.clip(middle, box.lower, box.upper)
    return found
