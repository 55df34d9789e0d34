"""What a question is, by content: the same key means the same question, in any run.

A key has two parts. The setting of a question is the network, its components, the claim, the seed
and the device, and the code that decides: each may change a verdict. The other part is the circuit,
as bits. Limits are no part of it: an answer holds whatever time it was given, and a question that
stayed undecided is asked again under a longer limit.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

import provable_circuits
from provable_circuits.claims.claim import Claim
from provable_circuits.discover.predicates.transport import claim_digest
from provable_circuits.network.components import Components

DECIDING = ("claims", "network", "verify", "arguments.py", "rounding.py", "tuning.py")
"""Rooms and modules whose code can change a verdict."""


@dataclass(frozen=True, slots=True)
class QuestionSetting:
    """All of a question but its circuit.

    Attributes:
        network: the digest of the network.
        components: the digest of what can be removed.
        claim: the digest of the claim.
        inputs: for each input of the claim, the digest of its unperturbed point.
        code: the version of the deciding code.
        settings: what else can change a verdict, as JSON.
        description: the claim in words, for people.
    """

    network: str
    components: str
    claim: str
    inputs: tuple[str, ...]
    code: str
    settings: str
    description: str

    @property
    def digest(self) -> str:
        """The key of the setting."""
        parts = [self.network, self.components, self.claim, self.code, self.settings]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    @classmethod
    def of(
        cls, components: Components, claim: Claim, settings: dict[str, Any]
    ) -> QuestionSetting | None:
        """The setting of a verifier's questions; None for a claim that has no digest."""
        claimed = claim_digest(components, claim)
        if claimed is None:
            return None
        sites = [
            [site.tensor, list(site.labels.shape), site.labels.flatten().tolist()]
            for site in components.sites
        ]
        cut = json.dumps([sites, components.names])
        centers = claim.centers.double().contiguous()
        words = f"{claim.metric!r}, {claim.patching!r}, {len(claim.inputs)} inputs"
        return cls(
            network=components.graph.digest,
            components=hashlib.sha256(cut.encode()).hexdigest(),
            claim=claimed,
            inputs=tuple(hashlib.sha256(c.numpy().tobytes()).hexdigest() for c in centers),
            code=code_version(),
            settings=json.dumps(settings, sort_keys=True),
            description=words[:500],
        )


@cache
def code_version() -> str:
    """A digest of the code that decides questions, and of the library that computes for it."""
    root = Path(provable_circuits.__file__).parent
    hasher = hashlib.sha256(str(torch.__version__).encode())
    for name in DECIDING:
        place = root / name
        for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
            hasher.update(path.relative_to(root).as_posix().encode())
            hasher.update(path.read_bytes())
    return hasher.hexdigest()[:16]
