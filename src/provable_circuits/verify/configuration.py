"""The configuration: every tuning number of the verifier, in groups, with unit and explanation.

A number is in here if it may be changed without making any answer false: it moves work from one
stage to another, trades memory for time, or gives up earlier. Constants of soundness are not. The
unit roundoff, the smallest normal numbers, the slack of a rounded line and of a rounded sum stand
as constants in the module whose proof needs them, since with other values its bounds would be wrong
(``rounding``, ``bounding/crown``, ``bounding/relaxation``).

A configuration is frozen and handed down: a ``Verifier`` is given one, its context and the
structure of every graph carry it, and nothing else decides about these numbers.

    >>> from provable_circuits.verify.configuration import DEFAULT
    >>> DEFAULT.bounding.small_units
    600
    >>> patient = DEFAULT.changed(branching={"steps": 12}, limits={"question_seconds": 600.0})
    >>> patient.branching.steps, DEFAULT.branching.steps
    (12, 6)
    >>> DEFAULT.branching.senses()["steps"].explanation
    'Steps of ascent for each subdomain'
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from provable_circuits.arguments import instance, refused
from provable_circuits.proof.tuning import ProvingTuning
from provable_circuits.verify.tuning.attacking import AttackingTuning
from provable_circuits.verify.tuning.bounding import BoundingTuning
from provable_circuits.verify.tuning.branching import BranchingTuning
from provable_circuits.verify.tuning.exact import ExactTuning
from provable_circuits.verify.tuning.finite import FiniteTuning
from provable_circuits.verify.tuning.neuron_hull import NeuronHullTuning
from provable_circuits.verify.tuning.properties import PropertiesTuning
from provable_circuits.verify.tuning.stages import LimitsTuning, ReuseTuning, StagesTuning


@dataclass(frozen=True, slots=True)
class Configuration:
    """Tuning of the verifier: what it costs to decide a question, never what the answer is.

    Attributes:
        bounding: linear bounds, and the size up to which a graph is small.
        attacking: attacks by gradients.
        branching: ReLU splits, input splits and linear programs.
        neuron_hull: neuron hulls.
        exact: rational arithmetic.
        finite: claims over finite domains.
        stages: when a stage hands on to the next.
        reuse: what is remembered between questions.
        limits: seconds and nodes where the caller does not say.
        properties: plain properties.
        proving: certificates.
    """

    bounding: BoundingTuning = field(default_factory=BoundingTuning)
    attacking: AttackingTuning = field(default_factory=AttackingTuning)
    branching: BranchingTuning = field(default_factory=BranchingTuning)
    neuron_hull: NeuronHullTuning = field(default_factory=NeuronHullTuning)
    exact: ExactTuning = field(default_factory=ExactTuning)
    finite: FiniteTuning = field(default_factory=FiniteTuning)
    stages: StagesTuning = field(default_factory=StagesTuning)
    reuse: ReuseTuning = field(default_factory=ReuseTuning)
    limits: LimitsTuning = field(default_factory=LimitsTuning)
    properties: PropertiesTuning = field(default_factory=PropertiesTuning)
    proving: ProvingTuning = field(default_factory=ProvingTuning)

    def __post_init__(self) -> None:
        for group in fields(self):
            kind: Any = group.default_factory
            given = getattr(self, group.name)
            instance(group.name, given, kind, f"a {kind.__name__}", "Configuration")

    def changed(self, **groups: Mapping[str, Any]) -> Configuration:
        """The configuration with other values of some fields, by group.

        Raises:
            ArgumentError: there is no such group or field, or the value makes no sense.
        """
        known = [group.name for group in fields(self)]
        for name in groups:
            if name not in known:
                raise refused("A group of Configuration", f"one of {', '.join(known)}", name)
        changes = {name: getattr(self, name).changed(values) for name, values in groups.items()}
        return replace(self, **changes)


DEFAULT = Configuration()
"""The configuration that the benchmarks were measured with."""
