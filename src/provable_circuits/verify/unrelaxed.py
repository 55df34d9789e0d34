"""What is said of networks that no linear relaxation is there for: nothing, and at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from provable_circuits import arguments
from provable_circuits.claims.claim import Claim
from provable_circuits.claims.metrics import LogitDifference, MaxAbs, Norm
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.components import Components
from provable_circuits.network.ops import (
    Clip,
    Constant,
    Input,
    IntegerInput,
    LeakyReLU,
    LinearOp,
    MaxPool2d,
    ReLU,
    Sigmoid,
    Square,
    Tanh,
)
from provable_circuits.verify.configuration import DEFAULT, Configuration
from provable_circuits.verify.outcome import Reason
from provable_circuits.verify.stage import Stage
from provable_circuits.verify.verdict import Proved, Refuted, Undecided, Verdict, Witness

RELAXED = (LinearOp, ReLU, LeakyReLU, Clip, Sigmoid, Tanh, Square, MaxPool2d, Constant, Input)


def relaxable(components: Components) -> bool:
    """Whether circuits of these components can be decided over regions of inputs."""
    nodes = components.graph.nodes
    known = all(isinstance(n.op, RELAXED) and not isinstance(n.op, IntegerInput) for n in nodes)
    return known and all(site.layer.kind in ("linear", "conv") for site in components.sites)


class UnrelaxedVerifier:
    """Answers that nothing can be said, but of the network itself.

    Args:
        components: the components that circuits are sets of.
        claim: the claim.
        seed: not used.
        device: not used.
        configuration: not used.
    """

    small = False
    together = 1

    def __init__(
        self,
        components: Components,
        claim: Claim,
        *,
        seed: int = 0,
        device: torch.device | str = "cpu",
        configuration: Configuration = DEFAULT,
    ) -> None:
        claim.check(components.graph)
        self.components, self.claim, self.configuration = components, claim, configuration
        self.seed, self.device = arguments.seed(seed), torch.device(device)

    def ask(
        self,
        circuit: Circuit,
        timeout: float | None = None,
        max_nodes: int | None = None,
        budget: float | None = None,
    ) -> Verdict:
        """Undecided; proved for the network itself, where the metric compares with it."""
        metric = self.claim.metric
        compares = isinstance(metric, LogitDifference | MaxAbs | Norm)
        if compares and circuit.bits == self.components.full().bits:
            return Proved(-float(metric.tolerance), Stage.IDENTICAL)  # type: ignore[attr-defined]
        return Undecided(Reason.NO_RELAXATION, Stage.BOUNDS)

    def prepare(self, timeout: float | None = None) -> None:
        """Nothing."""

    def forget(self) -> None:
        """Nothing."""

    def screen(
        self, circuits: Sequence[Circuit], timeout: float | None = None
    ) -> list[Verdict | None]:
        """Nothing."""
        return [None] * len(circuits)

    def broken(self, circuits: Sequence[Circuit]) -> list[bool]:
        """None of them."""
        return [False] * len(circuits)

    suspects = broken

    def carried(
        self, circuits: Sequence[Circuit], witnesses: Sequence[Witness]
    ) -> list[Refuted | None]:
        """None of them."""
        return [None] * len(circuits)

    def grown(
        self, circuit: Circuit, witness: Witness, favour: Tensor
    ) -> list[tuple[Circuit, Refuted]]:
        """Nothing."""
        return []
