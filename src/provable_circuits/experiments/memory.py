"""How much memory a process took."""

from __future__ import annotations

import sys


def peak_memory() -> float | None:
    """The most memory that this process had so far, in GB; None where the system does not tell."""
    if sys.platform == "win32":
        return None
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (2**30 if sys.platform == "darwin" else 2**20)
