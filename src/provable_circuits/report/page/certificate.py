"""The certificate of a run: a panel of the report, and a page of its own to be shown and signed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from markupsafe import Markup

from provable_circuits.discover.results.run import Run
from provable_circuits.drawing.picture import scene_of
from provable_circuits.drawing.svg import svg
from provable_circuits.proof.checker.certificate import MANIFEST, NETWORK

SHOWN = "shown"
OPEN = "open"

TRUSTED = (
    "Trusted for this: the checker's kernel and its reader of network files, IEEE 754 arithmetic "
    "of NumPy, Python, and that the network file means what it says. Not trusted: the search, the "
    "verifier, PyTorch, and solvers."
)


@dataclass(frozen=True, slots=True)
class CertificateView:
    """What is told of a certificate.

    Attributes:
        answer: certified, not checked, or not certified.
        firmness: the class of that answer.
        words: when and by which version it was checked, or why there is none.
        statements: each statement, and what it rests on.
        left_out: what the result says and the certificate does not, and why.
        digests: what is digested, and the SHA-256.
        commands: how to check it oneself.
    """

    answer: str
    firmness: str
    words: str
    statements: tuple[tuple[str, str], ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    digests: tuple[tuple[str, str], ...] = ()
    commands: tuple[str, ...] = ()


def certificate_view(run: Run, name: str) -> CertificateView | None:
    """The panel of a run; None where nothing was proved, or an earlier version made it.

    Args:
        run: the run.
        name: the name of its folder.
    """
    from provable_circuits import __version__

    document = run.document
    told = document.get("certification")
    if told is None:
        if document["faithful"] != "proved" or "certified" not in document:
            return None
        return CertificateView("not certified", OPEN, "No certificate was asked for.")
    if not document["certified"] or run.certificate is None:
        return CertificateView("not certified", OPEN, told["reason"])
    made = f"{told['checked_at']} by provable-circuits {told['version']}"
    if run.checked:
        answer, words = "certified", f"Checked {run.checked} by provable-circuits {__version__}."
    else:
        answer = "not checked"
        words = f"Not checked for this page. When it was made, says the run, it was: {made}."
    times = (
        f" The proof took {told['prove_seconds']:.2f} s to make and {told['check_seconds']:.2f} s "
        f"to check, and has {told['bytes']:,} bytes."
    )
    manifest = run.certificate[MANIFEST]
    digests = json.loads(manifest)["digests"]
    return CertificateView(
        answer=answer,
        firmness=SHOWN if run.checked else OPEN,
        words=words + times,
        statements=tuple((s["statement"], s["reason"]) for s in told["statements"]),
        left_out=tuple((s["statement"], s["reason"]) for s in told["left_out"]),
        digests=(
            ("certificate", hashlib.sha256(manifest).hexdigest()),
            ("network file", digests[NETWORK]),
            ("claim", digests["claim"]),
            ("circuit", digests["circuit"]),
            ("proof", digests["proof"]),
        ),
        commands=(
            f"provable-circuits check {name}",
            f"python -m provable_circuits.proof.checker {name}/certificate",
        ),
    )


@dataclass(frozen=True, slots=True)
class SheetView:
    """The page of a certificate.

    Attributes:
        title, lead: what was found, and the claim, in words.
        claim: the claim exactly, in parts with a title.
        components: the components kept, by layer.
        drawing: the circuit.
        certificate: what is told of the certificate.
        necessary: how many components are stated to be necessary; they are one line.
        trusted: what the check rests on.
    """

    title: str
    lead: str
    claim: tuple[tuple[str, str], ...]
    components: tuple[tuple[str, str], ...]
    drawing: Markup
    certificate: CertificateView
    necessary: tuple[str, ...]
    trusted: str = TRUSTED


def sheet_view(run: Run, name: str, title: str, lead: str) -> SheetView | None:
    """The page of a run's certificate; None if it has none.

    Args:
        run: the run.
        name: the name of its folder.
        title: what was found.
        lead: the claim in words.
    """
    certificate = certificate_view(run, name)
    if certificate is None or not certificate.statements:
        return None
    claim, circuit = run.document["claim"], run.document["circuit"]
    kept = set(circuit["components"])
    inputs = dict.fromkeys(claim["inputs"])
    layers = [
        (layer["name"], [n.rpartition("/")[2] for n in layer["components"] if n in kept])
        for layer in circuit["layers"]
    ]
    end = " is necessary"
    return SheetView(
        title=title,
        lead=lead,
        claim=(
            (f"inputs ({len(claim['inputs'])})", "; ".join(inputs)),
            ("patching", claim["patching"]),
            ("metric", claim["metric"]),
        ),
        components=tuple((layer, ", ".join(names) or "none") for layer, names in layers),
        drawing=Markup(svg(scene_of(run.diagram.explained(run.document["kept"])))),
        certificate=certificate,
        necessary=tuple(
            text.removesuffix(end) for text, _ in certificate.statements if text.endswith(end)
        ),
    )
