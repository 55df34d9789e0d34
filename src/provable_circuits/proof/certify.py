"""Certify: prove statements in the calculus, and have the checker accept them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from provable_circuits.claims.claim import Claim
from provable_circuits.errors import ArgumentError, CertificateError, ModelError
from provable_circuits.files import write_file
from provable_circuits.network.circuit import Circuit
from provable_circuits.proof.checker.arithmetic import Arithmetic, RefusedError
from provable_circuits.proof.checker.certificate import MANIFEST, read
from provable_circuits.proof.checker.check import EXACT_UNITS, Finding, check_folder
from provable_circuits.proof.covering import LowerBound, covering
from provable_circuits.proof.prover import ExhaustedError, Limit, Plan, Prover
from provable_circuits.proof.reducing import Reducer
from provable_circuits.proof.tuning import USUAL, ProvingTuning
from provable_circuits.proof.writing import Writer


@dataclass(frozen=True, slots=True, eq=False)
class Certificate:
    """Statements about a circuit with what proves them; the checker has accepted every one.

    Attributes:
        files: the certificate's files, by name.
        findings: what the checker said of each statement.
        prove_seconds: how long the proof took to make.
        check_seconds: how long it took to check.
        checked_at: when the checker accepted it, in UTC.
        left_out: what was to be stated besides, and why the checker did not accept it.
    """

    files: Mapping[str, bytes]
    findings: tuple[Finding, ...]
    prove_seconds: float
    check_seconds: float
    checked_at: str
    left_out: tuple[Finding, ...] = ()

    @property
    def digest(self) -> str:
        """SHA-256 of the manifest, which has the digests of the other files."""
        return hashlib.sha256(self.files[MANIFEST]).hexdigest()

    @property
    def size(self) -> int:
        """Bytes of proof and witnesses, without the network and the claim's inputs."""
        apart = ("network.onnx", "claim.safetensors")
        return sum(len(data) for name, data in self.files.items() if name not in apart)

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the files into a folder, which is made if there is none."""
        path = Path(folder)
        try:
            path.mkdir(parents=True, exist_ok=True)
            for name, data in self.files.items():
                write_file(path / name, data)
        except OSError as error:
            raise CertificateError(f"The folder '{path}' cannot be written: {error}.") from error

    def __repr__(self) -> str:
        return f"Certificate({len(self.findings)} statements, {self.size} bytes)"


def certify(
    claim: Claim,
    circuit: Circuit,
    limit: Limit,
    *,
    faithful: bool = True,
    witness: Any = None,
    necessary: Mapping[str, Any] | None = None,
    lower: LowerBound | None = None,
    minimal: Sequence[tuple[str, str]] = (),
    tuning: ProvingTuning = USUAL,
) -> Certificate:
    """A certificate of what was found of a circuit, checked.

    Args:
        claim: the claim.
        circuit: the circuit.
        limit: when to stop proving.
        faithful: whether to state, and prove, that the circuit is faithful.
        witness: a witness that it is not.
        necessary: for components, witnesses that the circuit without them is not faithful.
        lower: a bound of the size of faithful circuits.
        minimal: notions of minimality, each with ``"shown"`` or ``"assumed"`` where it takes a
            monotone claim, else with an empty text.
        tuning: how hard the prover tries.

    The first statement, that the circuit is faithful or is not, must be accepted. Others that the
    checker does not accept, such as a witness within rounding errors, are left out.

    Raises:
        CertificateError: no proof was found, or the checker did not accept it.
    """
    began = time.perf_counter()
    try:
        writer = Writer(claim, circuit)
        unreduced = _prove(writer, limit, tuning) if faithful else None
    except (ExhaustedError, RefusedError) as error:
        raise CertificateError(f"No certificate was made: {error}.") from error
    except (ArgumentError, ModelError) as error:
        raise CertificateError(f"No certificate can be written: {error}") from error
    except MemoryError as error:
        raise CertificateError("No certificate was made: there was not enough memory.") from error
    if witness is not None:
        writer.refuted(witness)
    for component, found in (necessary or {}).items():
        writer.refuted(found, component)
    missing = [] if lower is None else _bounded(writer, lower)
    for notion, monotone in minimal:
        writer.minimal(notion, monotone)
    proved = time.perf_counter()
    try:
        files, findings, left_out = _checked(writer)
    except CertificateError:
        if unreduced is None:
            raise
        writer.prove(*unreduced)
        files, findings, left_out = _checked(writer)
    return Certificate(
        files=files,
        findings=findings,
        prove_seconds=proved - began,
        check_seconds=time.perf_counter() - proved,
        checked_at=now(),
        left_out=(*missing, *left_out),
    )


def _bounded(writer: Writer, lower: LowerBound) -> list[Finding]:
    """State a lower bound; what is left out if no covering proves it."""
    sets = list(lower.blocking)
    found = covering(sets, lower.size)
    if found is None:
        few = f"no circuit of fewer than {lower.size} components is faithful"
        return [Finding(few, False, f"No covering of {len(sets)} blocking sets proves it.")]
    used = [(sorted(sets[place]), lower.blocking[sets[place]]) for place in found.used]
    writer.lower_bound(lower.size, used, found.nodes, lower.monotone)
    return []


def now() -> str:
    """This moment in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _checked(writer: Writer) -> tuple[dict[str, bytes], tuple[Finding, ...], tuple[Finding, ...]]:
    """Files that the checker accepts as they are, what it says of them, and what was left out."""
    left_out: list[Finding] = []
    while True:
        files = writer.files()
        try:
            findings = check_files(files)
        except RefusedError as error:
            raise CertificateError(f"The checker refuses the certificate: {error}") from error
        failed = [place for place, finding in enumerate(findings) if not finding.holds]
        if not failed:
            return files, tuple(findings), tuple(left_out)
        if 0 in failed:
            first = findings[0]
            raise CertificateError(
                f"The checker does not accept that {first.statement}: {first.reason}"
            )
        left_out += [findings[place] for place in failed]
        writer.leave_out(failed)


Plans = tuple[list[Plan], dict[int, str]]
"""A plan for each input, and the names of the places of nodes."""


def _prove(writer: Writer, limit: Limit, tuning: ProvingTuning) -> Plans | None:
    """Add the proof that the circuit is faithful, input by input; the unreduced one, if another."""
    with TemporaryDirectory() as folder:
        for name, data in writer.files().items():
            (Path(folder) / name).write_bytes(data)
        certificate = read(Path(folder))
    claim, circuit = certificate.claim, certificate.circuit
    small = sum(step.units for step in certificate.network.steps) <= EXACT_UNITS
    plans: list[Plan] = []
    reduced: list[Plan] = []
    names: dict[int, str] = {}
    for place in range(claim.count):
        rational = partial(claim.problem, place, circuit, Arithmetic(exact=True))
        problem = claim.problem(place, circuit, Arithmetic())
        prover = Prover(problem, rational if small else None, limit, tuning)
        plans.append(prover.plan())
        reduced.append(Reducer(prover).reduce(plans[-1]))
        names |= {i: node.name for i, node in enumerate(problem.nodes)}
    writer.faithful(reduced, names)
    return plans, names


def check_files(files: Mapping[str, bytes], exact: bool = False) -> list[Finding]:
    """Check a certificate that was not written yet."""
    with TemporaryDirectory() as folder:
        for name, data in files.items():
            (Path(folder) / name).write_bytes(data)
        return check_folder(folder, exact)


@dataclass(frozen=True, slots=True)
class Check:
    """What the checker says of a certificate.

    Attributes:
        findings: a finding for each statement: ``statement``, ``holds``, ``reason``.
    """

    findings: tuple[Finding, ...]

    @property
    def holds(self) -> bool:
        """Whether every statement holds."""
        return bool(self.findings) and all(finding.holds for finding in self.findings)

    def __str__(self) -> str:
        return "\n".join(
            f"{'holds' if f.holds else 'DOES NOT HOLD'}  {f.statement}: {f.reason}"
            for f in self.findings
        )


def check(folder: str | PathLike[str], exact: bool = False) -> Check:
    """Check every statement of a certificate, by a program that shares nothing with the search.

    Args:
        folder: where the certificate is.
        exact: compute in rational numbers; for small networks without balls of the 1- and 2-norm,
            sigmoid and tanh.

    Raises:
        CertificateError: the certificate as a whole is refused, and why.
    """
    try:
        return Check(tuple(check_folder(Path(folder), exact)))
    except RefusedError as error:
        raise CertificateError(f"The certificate in '{folder}' is refused: {error}") from error
