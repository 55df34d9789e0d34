"""How claims over finite domains are decided: memory for time, and what is remembered."""

from __future__ import annotations

from dataclasses import dataclass

from provable_circuits.tuning import Tuning, tuned


@dataclass(frozen=True, slots=True)
class FiniteTuning(Tuning):
    """Tuning of ``verify/finite``."""

    chunk_numbers: int = tuned(
        2**22, "numbers", "In the largest tensor of a chunk of inputs: 32 MB", least=1
    )
    cache_numbers: int = tuned(
        2**27, "numbers", "Of tensors kept for the base circuit, both ends: 1 GB", least=0
    )
    tail_numbers: int = tuned(
        2**24, "numbers", "In the largest tensor while the matrix of a tail is made", least=0
    )
    remembered: int = tuned(
        96, "inputs", "Hard inputs that every circuit is tried at first", least=0
    )
    close: int = tuned(8, "inputs", "Inputs that are looked at for an exact tie", least=0)
