"""Knowledge: everything that is remembered between the questions of one verifier, in one object.

The verifier owns it and hands it to the stages. Without reuse it is emptied before every question,
so that each is decided as by a new verifier.
"""

from __future__ import annotations

from provable_circuits.verify.bounding.differential import Known
from provable_circuits.verify.reuse.memory import Memory
from provable_circuits.verify.verdict import Witness

POOL = 64
"""How many witnesses are kept to be tried on later circuits."""


class Knowledge:
    """What earlier questions showed.

    Attributes:
        memory: bounds of tensors, and how objectives were split when neuron hulls proved them.
        pool: the latest witnesses, oldest first.
        last: the latest circuit that was proved, with bounds of its tensors.
    """

    def __init__(self) -> None:
        self.memory = Memory()
        self.pool: list[Witness] = []
        self.last: Known | None = None

    def remember(self, witness: Witness) -> None:
        """Keep a witness for later circuits."""
        self.pool.append(witness)
        del self.pool[:-POOL]

    def forget(self) -> None:
        """Forget what earlier questions showed, their witnesses included."""
        self.memory = Memory()
        self.last = None
        self.pool.clear()
