"""What stages are given besides the problem, and what they answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

from provable_circuits.network.graph import Graph
from provable_circuits.verify.attacking.pgd import Effort
from provable_circuits.verify.bounding.bounds import Structure
from provable_circuits.verify.configuration import DEFAULT, Configuration
from provable_circuits.verify.outcome import Outcome
from provable_circuits.verify.reuse.memory import Memory
from provable_circuits.verify.stage import Stage

Given = TypeVar("Given")


@dataclass(frozen=True, slots=True, eq=False)
class Means:
    """What the stages of a question work with.

    Attributes:
        device: where bounds are computed.
        effort: how hard the attacks try.
        memory: bounds and trees of earlier questions; stages write what they learn to it alone.
        configuration: the tuning of all stages.
        inputs_first: whether few free inputs are split before ReLUs are.
    """

    device: torch.device
    effort: Effort
    memory: Memory
    configuration: Configuration = DEFAULT
    inputs_first: bool = False

    def structure(self, graph: Graph) -> Structure:
        """What bounds need to know of a graph."""
        return Structure(graph, self.device, self.configuration)


@dataclass(frozen=True, slots=True, eq=False)
class Answer(Generic[Given]):
    """What a stage has shown of a problem.

    Attributes:
        outcome: proved, refuted, or open.
        stage: the stage that showed it, or that was at work last.
        bound: a rigorous upper bound of the clauses' excess; infinite where nothing is known.
        found: for a refutation the witness, replayed.
        reason: why it stays open.
    """

    outcome: Outcome
    stage: Stage
    bound: float
    found: Given | None = None
    reason: str = ""
