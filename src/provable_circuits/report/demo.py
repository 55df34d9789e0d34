"""The demo: real digits, one small network, a sampled and a proved circuit side by side."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from torch import Tensor

import provable_circuits as pc
from provable_circuits.progress import Progress
from provable_circuits.zoo.digits import Digits, load_digits
from provable_circuits.zoo.mnist import mnist_network, mnist_record

INPUTS = 3
SHADES = " .:-=+*#%@"


@dataclass(frozen=True, slots=True, eq=False)
class Story:
    """What the demo found: a circuit by sampling, what a proof says of it, and one by proof.

    The last is certified: the checker has accepted its proof.
    """

    sampled: pc.Result
    verdict: pc.Verdict
    proved: pc.Result


def run_demo(
    console: Console,
    digit: int,
    eps: float,
    delta: float,
    *,
    seed: int = 0,
    quiet: bool = False,
) -> Story:
    """Find a circuit for one digit by sampling and by proof, and tell the difference."""
    graph = mnist_network()
    digits = load_digits()
    images = _right_ones(graph, digits, digit)
    accuracy = float(mnist_record()["accuracy"])
    console.print(
        "[bold]1. A network[/bold]\n"
        f"   784-13-11-10, trained on real digits, right on {accuracy:.1%} of held-out ones.\n"
        "   Its 34 neurons are the components: a circuit keeps some of them\n"
        "   and sets the others to zero.\n"
    )
    console.print(f"[bold]2. Inputs[/bold]\n   {INPUTS} images of a {digit} that it gets right:\n")
    console.print(_pictures(images), markup=False)
    console.print(
        "[bold]3. The question[/bold]\n"
        f"   Which neurons are enough to keep the logit of {digit} within {delta:g} of the "
        "network's,\n"
        f"   not only on these images but wherever each pixel moves by up to {eps:g}?\n"
    )
    claim = pc.Claim(
        inputs=[pc.Ball(image, eps=eps, clip=(0, 1)) for image in images],
        patching=pc.Zero(),
        metric=pc.LogitDifference(tolerance=delta, target=digit),
    )
    sampled = pc.discover(graph, claim, granularity="neuron", method="sampling", seed=seed)
    verdict = pc.verify(graph, sampled.circuit, claim, certify=False, seed=seed)
    console.print("[bold]4. The usual way: try it on the images themselves[/bold]")
    console.print(_indented(str(sampled)), markup=False)
    console.print(f"   {_judgement(verdict, claim)}\n", markup=False)
    proved = _discover_with_progress(console, graph, claim, seed, quiet)
    console.print("[bold]5. By proof: every image within reach, all at once[/bold]")
    console.print(_indented(str(proved)), markup=False)
    console.print(_indented(f"\n{_certification(proved)}"), markup=False)
    both = len(sampled.circuit & proved.circuit)
    console.print(
        f"\n   The two circuits share {both} components. "
        f"Proof cost {len(proved.circuit) - len(sampled.circuit):+d} component(s) "
        f"and {proved.seconds:.1f} s.\n"
        "   'Proved' means: for the network in real arithmetic, with every rounding error\n"
        "   of the proof enclosed.",
        markup=False,
    )
    return Story(sampled, verdict, proved)


def _certification(result: pc.Result) -> str:
    """What the checker says of the proved circuit."""
    certificate = result.certificate
    if certificate is None:
        return f"Certified: no. {result.certification.reason if result.certification else ''}"
    return (
        f"Certified: the proof was written down in {certificate.size:,} bytes "
        f"({certificate.prove_seconds:.2f} s),\n"
        "  and a checker that shares no code with the search accepted it "
        f"({certificate.check_seconds:.2f} s)."
    )


def _right_ones(graph: pc.Graph, digits: Digits, digit: int) -> Tensor:
    """The first images of the digit that the network classifies correctly."""
    right = (digits.labels == digit) & (graph.run(digits.images).argmax(1) == digit)
    return digits.images[right][:INPUTS]


def _pictures(images: Tensor) -> str:
    """Images side by side in characters, every other row (a character is twice as high)."""
    rows = []
    for y in range(2, 26, 2):
        line = "  ".join(
            "".join(
                SHADES[round(float(v) * (len(SHADES) - 1))] for v in image.reshape(28, 28)[y, 3:25]
            )
            for image in images
        )
        rows.append(f"   {line}".rstrip())
    return "\n".join(rows).strip("\n") + "\n"


def _discover_with_progress(
    console: Console, graph: pc.Graph, claim: pc.Claim, seed: int, quiet: bool
) -> pc.Result:
    total = len(graph.components("neuron"))
    columns = (
        TextColumn("   asking the verifier: {task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Bar(*columns, console=console, transient=True, disable=quiet) as progress:
        task = progress.add_task("starting", total=total)

        def listen(told: Progress) -> None:
            progress.update(
                task, completed=told.done, description=f"{told.doing}, {told.size} left"
            )

        return pc.discover(graph, claim, granularity="neuron", seed=seed, listener=listen)


def _judgement(verdict: pc.Verdict, claim: pc.Claim) -> str:
    """What a proof says of the sampled circuit."""
    if isinstance(verdict, pc.Refuted):
        witness = verdict.witness
        moved = float((witness.z - claim.inputs[witness.index].center).abs().max())
        metric = claim.metric
        excess = witness.excess + getattr(metric, "tolerance", 0.0)
        return (
            f"But it is NOT faithful nearby: move pixels of image {witness.index} by at most "
            f"{moved:.3g}\n   and the logit differs by {excess:.3g} (replayed)."
        )
    if verdict.proved:
        return "It happens to be faithful nearby too: proved."
    return "Whether it is faithful nearby could not be decided."


def _indented(text: str) -> str:
    return "\n".join(f"   {line}" for line in text.splitlines())
