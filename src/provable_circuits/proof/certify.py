"""Certify: prove a circuit's claim in the calculus, and have the checker accept it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from provable_circuits.claims.claim import Claim
from provable_circuits.network.circuit import Circuit
from provable_circuits.proof.checker.arithmetic import Arithmetic
from provable_circuits.proof.checker.certificate import read
from provable_circuits.proof.checker.check import Finding, check_folder
from provable_circuits.proof.prover import Plan, Prover
from provable_circuits.proof.writing import Writer

LEAVES = 2000
"""Leaves that the proof of one input may have."""


def certify_faithful(writer: Writer, circuit: Circuit, deadline: Any, leaves: int = LEAVES) -> None:
    """Add the proof that a circuit is faithful; raises what stops the prover."""
    with TemporaryDirectory() as folder:
        writer.write(folder)
        certificate = read(Path(folder))
    plans: list[Plan] = []
    names: dict[int, str] = {}
    for place in range(certificate.claim.count):
        problem = certificate.claim.problem(place, certificate.circuit, Arithmetic())
        prover = Prover(problem, leaves, deadline)
        plans.append(prover.plan())
        names |= {i: node.name for i, node in enumerate(prover.problem.nodes)}
    writer.faithful(plans, names)


def check_files(files: Mapping[str, bytes]) -> list[Finding]:
    """Check a certificate that was not written yet."""
    with TemporaryDirectory() as folder:
        for name, data in files.items():
            (Path(folder) / name).write_bytes(data)
        return check_folder(folder)


def certify(claim: Claim, circuit: Circuit, deadline: Any) -> tuple[Writer, list[Finding]]:
    """A certificate that the circuit is faithful, and what the checker says of it."""
    writer = Writer(claim, circuit)
    certify_faithful(writer, circuit, deadline)
    return writer, check_files(writer.files())
