"""Checking a saved run: its certificate by the checker, and what the run says by the certificate.

A run that was loaded is *not checked*, whatever it says of itself. Checking it takes neither the
model nor the data: the certificate has both.
"""

from __future__ import annotations

from dataclasses import replace
from os import PathLike
from pathlib import Path

from provable_circuits.discover.results.run import Run
from provable_circuits.errors import CertificateError
from provable_circuits.proof.certify import Check, check_files, now
from provable_circuits.proof.certify import check as check_certificate
from provable_circuits.proof.checker.arithmetic import RefusedError
from provable_circuits.proof.checker.certificate import MANIFEST


def check(folder: str | PathLike[str], exact: bool = False) -> Check:
    """Check every statement of a certificate, by a program that shares nothing with the search.

    Args:
        folder: where the certificate is; or a run with one, whose files must agree with it.
        exact: compute in rational numbers; for small networks without balls of the 1- and 2-norm,
            sigmoid and tanh.

    Raises:
        CertificateError: the certificate as a whole is refused, and why; or a run has none.
        DataError: the files of a run are damaged, or contradict each other.
    """
    path = Path(folder)
    if not (path / MANIFEST).exists() and (path / "result.json").exists():
        return check_run(Run.load(path), exact)[0]
    return check_certificate(path, exact)


def check_run(run: Run, exact: bool = False) -> tuple[Check, Run]:
    """What the checker says of a run's certificate; and the run, checked if every statement holds.

    Raises:
        CertificateError: the run has no certificate, or it is refused as a whole.
    """
    if run.certificate is None:
        told = run.document.get("certification") or {}
        why = told.get("reason") or "none was asked for"
        raise CertificateError(f"The run has no certificate: {why}")
    try:
        found = Check(tuple(check_files(run.certificate, exact)))
    except RefusedError as error:
        raise CertificateError(f"The certificate of the run is refused: {error}") from error
    return found, replace(run, checked=now()) if found.holds else run
