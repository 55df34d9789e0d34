"""Find circuits in neural networks, and prove that they behave like the network.

The checker of certificates, ``provable_circuits.proof.checker``, needs NumPy and safetensors alone:
where PyTorch is not installed, it can be used, and nothing else.
"""

from importlib.util import find_spec

if find_spec("torch") is not None:
    from provable_circuits.claims.claim import Claim
    from provable_circuits.claims.domains import Ball, Box, Domain, Point
    from provable_circuits.claims.finite import Finite, Tokens
    from provable_circuits.claims.metrics import (
        KLDivergence,
        LogitDifference,
        MaxAbs,
        MeanSquaredError,
        Metric,
        Norm,
        SameAnswer,
        WinnerMargin,
    )
    from provable_circuits.claims.patching import (
        Constant,
        IntervalHull,
        Mean,
        Patching,
        Reachable,
        Zero,
    )
    from provable_circuits.discover.api import blocking_set, discover
    from provable_circuits.discover.results import minimality
    from provable_circuits.discover.results.checking import check
    from provable_circuits.discover.results.result import BlockingSet, Result
    from provable_circuits.discover.results.run import Run
    from provable_circuits.errors import ProvableCircuitsError
    from provable_circuits.network.circuit import Circuit
    from provable_circuits.network.components import Component, Components
    from provable_circuits.network.granularity import (
        Along,
        Blocks,
        Filters,
        Granularity,
        Groups,
        Heads,
        MLPs,
        Neurons,
        Patches,
    )
    from provable_circuits.network.graph import Graph
    from provable_circuits.network.weights import load_weights
    from provable_circuits.proof.certify import Certificate, Check
    from provable_circuits.verify.api import verify
    from provable_circuits.verify.verdict import Held, Proved, Refuted, Undecided, Verdict, Witness
    from provable_circuits.verify.verifier import Verifier

__version__ = "0.1.0"

__all__ = [
    "Along",
    "Ball",
    "BlockingSet",
    "Blocks",
    "Box",
    "Certificate",
    "Check",
    "Circuit",
    "Claim",
    "Component",
    "Components",
    "Constant",
    "Domain",
    "Filters",
    "Finite",
    "Granularity",
    "Graph",
    "Groups",
    "Heads",
    "Held",
    "IntervalHull",
    "KLDivergence",
    "LogitDifference",
    "MLPs",
    "MaxAbs",
    "Mean",
    "MeanSquaredError",
    "Metric",
    "Neurons",
    "Norm",
    "Patches",
    "Patching",
    "Point",
    "ProvableCircuitsError",
    "Proved",
    "Reachable",
    "Refuted",
    "Result",
    "Run",
    "SameAnswer",
    "Tokens",
    "Undecided",
    "Verdict",
    "Verifier",
    "WinnerMargin",
    "Witness",
    "Zero",
    "blocking_set",
    "check",
    "discover",
    "load_weights",
    "minimality",
    "verify",
]
