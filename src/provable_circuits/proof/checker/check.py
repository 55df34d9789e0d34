"""Checking: each statement of a certificate, by the rules or by replaying its witness."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .arithmetic import Arithmetic, Array, RefusedError
from .certificate import Certificate, read
from .claim import Domain
from .covering import check_covering
from .data import Data, plain
from .machine import check_products
from .problem import Problem, Region
from .rules import Subdomain
from .tree import Proof

EXACT_UNITS = 2048
"""Rational arithmetic is for networks of at most so many units."""


KINDS = ("faithful", "unfaithful", "necessary", "lower-bound", "minimal")
NOTIONS = ("quasi", "local", "subset", "cardinal")


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
        shown: list[Data] = []
        for statement, text in zip(statements, texts, strict=True):
            try:
                reason = _guarded(_check, certificate, statement, exact, shown)
                found.append(Finding(text, True, reason))
                shown.append(statement)
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
    kind = statement["kind"].text(*KINDS)
    size = len(certificate.circuit)
    if kind in ("lower-bound", "minimal"):
        condition = ", if the claim is monotone" * (_monotone(statement) == "assumed")
        if kind == "minimal":
            notion = statement["notion"].text(*NOTIONS)
            return f"the circuit of {size} components is {notion}-minimal{condition}"
        few = _bound(certificate, statement)
        return f"no circuit of fewer than {few} components is faithful{condition}"
    if kind == "necessary":
        return f"{plain(statement['component'].text())} is necessary"
    return f"the circuit of {size} components is {'not ' * (kind != 'faithful')}faithful"


def _check(certificate: Certificate, statement: Data, exact: bool, shown: list[Data]) -> str:
    kind = statement["kind"].value
    if kind == "lower-bound":
        return _lower_bound(certificate, statement)
    if kind == "minimal":
        return _minimal(certificate, statement, shown)
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


# --- minimality ---------------------------------------------------------------------------------


def _monotone(statement: Data) -> str:
    """Whether monotonicity is shown, assumed, or not needed."""
    return statement["monotone"].text("shown", "assumed") if "monotone" in statement else ""


def _bound(certificate: Certificate, statement: Data) -> int:
    return statement["size"].integer(1 + sum(len(names) for _, _, names in certificate.sites))


def _lower_bound(certificate: Certificate, statement: Data) -> str:
    """Blocking sets, each by a witness; and that no set of fewer components meets all of them.

    The network without a blocking set is not faithful. In a monotone claim no circuit within it is
    either, so that every faithful circuit has a component of each blocking set.
    """
    statement.only("kind", "size", "monotone", "blocking", "tree")
    if not _monotone(statement):
        raise statement.wrong("one that says whether the claim is monotone")
    if _monotone(statement) == "shown":
        certificate.claim.check_monotone()
    every = frozenset(name for _, _, names in certificate.sites for name in names)
    family = []
    for item in statement["blocking"].items():
        removed = [name.text() for name in item.only("removed", "witness")["removed"].items()]
        if not every.issuperset(removed):
            raise item.wrong("a set of components")
        _refuted(certificate, every - set(removed), item["witness"])
        family.append(frozenset(removed))
    nodes: list[str | dict[int, Fraction]] = []
    for node in statement["tree"].items():
        if "branch" in node:
            nodes.append(node.only("branch")["branch"].text())
            continue
        weights = [pair.items() for pair in node.only("weights")["weights"].items()]
        if any(len(pair) != 2 for pair in weights):
            raise node.wrong("a list of sets and their weights")
        packing = {place.integer(len(family)): weight.fraction() for place, weight in weights}
        if len(packing) != len(weights):
            raise node.wrong("about sets that are each named once")
        nodes.append(packing)
    leaves = check_covering(family, _bound(certificate, statement), nodes)
    how = "by closed boxes" if _monotone(statement) == "shown" else "assumed"
    sets = f"{len(family)} blocking set{'s' * (len(family) != 1)} with witnesses"
    return f"{sets}, a covering of {leaves} lea{'f' if leaves == 1 else 'ves'}; monotone {how}"


def _minimal(certificate: Certificate, statement: Data, shown: list[Data]) -> str:
    """What the statements before this one, which hold, say of a notion of minimality."""
    notion = statement.only("kind", "notion", "monotone")["notion"].text(*NOTIONS)
    monotone, circuit = _monotone(statement), certificate.circuit
    by_kind: dict[str, list[Data]] = {kind: [] for kind in KINDS}
    for earlier in shown:
        by_kind[earlier["kind"].text()].append(earlier)
    if not by_kind["faithful"]:
        raise RefusedError("The circuit is not shown to be faithful.")
    necessary = {s["component"].text() for s in by_kind["necessary"]} & circuit
    if notion == "quasi":
        if not necessary:
            raise RefusedError("No component is shown to be necessary.")
        return "it is faithful, and a component is necessary"
    every = "it is faithful, and every component is necessary"
    if notion == "local" or (notion == "subset" and monotone) or len(circuit) <= 1:
        if necessary != circuit:
            raise RefusedError("Not every component is shown to be necessary.")
        if notion == "subset" and monotone == "shown" and len(circuit) > 1:
            certificate.claim.check_monotone()
        return every
    if notion == "cardinal":
        for bound in by_kind["lower-bound"]:
            if bound["size"].value == len(circuit) and _monotone(bound) in ("shown", monotone):
                return "it is faithful, and no smaller circuit is, by a lower bound"
    raise RefusedError("No statement before it implies that.")


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
