"""What a search found, and what it rests on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from provable_circuits.claims.claim import Claim
from provable_circuits.network.circuit import Circuit
from provable_circuits.verify.verdict import Verdict

NECESSITY = MappingProxyType(
    {
        "refuted-when-tried": "removing it broke the circuit it was tried on",
        "undecided": "its removal could not be decided: kept without being shown necessary",
    }
)
"""Why a component was kept, and what that means."""


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """The outcome of a search over circuits.

    Attributes:
        circuit: the circuit found.
        claim: the claim it was asked about.
        faithful: ``"proved"`` everywhere in the claim's domains, ``"sampled"`` at points only, or
            ``"undecided"``.
        verdict: the verdict on the circuit found.
        kept: why each component of the circuit was kept: ``"refuted-when-tried"`` or
            ``"undecided"``.
        tried: the verdict of every question asked about a removal, by component.
        algorithm: the search.
        seconds: how long it took.
    """

    circuit: Circuit
    claim: Claim
    faithful: str
    verdict: Verdict
    kept: Mapping[str, str]
    tried: Mapping[str, Verdict]
    algorithm: str
    seconds: float

    @property
    def queries(self) -> dict[str, int]:
        """How many questions were answered how."""
        return dict(Counter(verdict.kind for verdict in self.tried.values()))

    @property
    def stages(self) -> dict[str, int]:
        """How many questions each stage answered."""
        return dict(Counter(verdict.stage for verdict in self.tried.values()))

    def __str__(self) -> str:
        circuit, claim = self.circuit, self.claim
        share = f"{len(circuit)} of {len(circuit.components)} components"
        how = {
            "proved": f"proved for every input in {len(claim.inputs)} domain(s)",
            "sampled": "held at the sampled points; nothing is proved",
            "undecided": "not decided",
        }[self.faithful]
        lines = [f"Circuit: {share}", *_by_layer(circuit)]
        lines.append(f"Faithful: {how}")
        lines.append(f"  inputs    {claim.inputs[0]!r}" + (" ..." if len(claim.inputs) > 1 else ""))
        lines.append(f"  patching  {claim.patching!r}")
        lines.append(f"  metric    {claim.metric!r}")
        counts = Counter(self.kept.values())
        lines.append("Kept components:")
        lines.extend(f"  {count:>3} {NECESSITY[reason]}" for reason, count in counts.items())
        if not counts:
            lines.append("    0 (the empty circuit is faithful)")
        answers = ", ".join(f"{count} {kind}" for kind, count in sorted(self.queries.items()))
        lines.append(f"Questions: {sum(self.queries.values())} ({answers}) in {self.seconds:.2f} s")
        return "\n".join(lines)


def _by_layer(circuit: Circuit) -> list[str]:
    """One line for each layer: what is kept, of how many."""
    lines = []
    width = max(len(site.layer.name) for site in circuit.components.sites)
    for site in circuit.components.sites:
        kept = [c.name.rpartition("/")[2] for c in site.components if c in circuit]
        names = ", ".join(kept) if kept else "nothing"
        lines.append(
            f"  {site.layer.name:<{width}}  {len(kept):>3} of {len(site.components):<4} {names}"
        )
    return lines
