"""Knowledge: everything that is remembered between the questions of one verifier, in one object.

The verifier owns it and hands it to the stages. Without reuse it is emptied before every question,
so that each is decided as by a new verifier.
"""

from __future__ import annotations

from provable_circuits.verify.bounding.differential import Known
from provable_circuits.verify.reuse.memory import Memory
from provable_circuits.verify.tuning.stages import ReuseTuning
from provable_circuits.verify.verdict import Witness


class Knowledge:
    """What earlier questions showed.

    Args:
        tuning: how much is remembered.

    Attributes:
        memory: bounds of tensors, and how objectives were split when neuron hulls proved them.
        pool: the latest witnesses, oldest first.
        last: the latest circuit that was proved, with bounds of its tensors.
    """

    def __init__(self, tuning: ReuseTuning) -> None:
        self.tuning = tuning
        self.memory = Memory.empty(tuning)
        self.pool: list[Witness] = []
        self.last: Known | None = None

    def remember(self, witness: Witness) -> None:
        """Keep a witness for later circuits."""
        self.pool.append(witness)
        del self.pool[: -self.tuning.witnesses]

    def forget(self) -> None:
        """Forget what earlier questions showed, their witnesses included."""
        self.memory = Memory.empty(self.tuning)
        self.last = None
        self.pool.clear()
