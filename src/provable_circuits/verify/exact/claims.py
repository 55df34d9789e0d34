"""Claims in rational numbers: circuits of a small piecewise-linear network, as they are defined.

This writes a claim for the exact stage (``stage``):

    for each input of the claim:
        run the network at z, the source of patches at z', and the circuit, on rational forms
        write each of the metric's constraints as a form that must not exceed zero
        have the stage search for a point at which one of them does

Which numbers are exact and which belong to the claim as they were computed:

*exact*
    f_G(z), f_C(z) and the activations of Reachable patching, as functions of the real numbers z and
    z' with the stored weights; the bounds of domains, such as x + eps.
*as computed*
    Numbers that the claim fixes once, as float64: tolerances, targets, the values of Zero, Mean and
    Constant patching, the boxes of IntervalHull patching, and WinnerMargin's winner, runner-up and
    ``fraction * gap``, which are taken from f_G computed in float64.

A witness consists of float64 points inside the exact domains. It is evaluated once more from the
definitions, by running the network and the circuit in rational numbers at that point.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import torch
from torch import Tensor

from provable_circuits.claims.claim import Claim
from provable_circuits.claims.metrics import Norm
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.components import Components
from provable_circuits.network.semantics import CircuitMask
from provable_circuits.verify.configuration import DEFAULT
from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.encoding.encoder import Encoder
from provable_circuits.verify.encoding.problem import InputRange
from provable_circuits.verify.exact.domains import (
    Extent,
    below,
    box,
    extent_of,
    fractions,
    nearest_float,
)
from provable_circuits.verify.exact.forms import ZERO, Atoms, Form, combination
from provable_circuits.verify.exact.network import RationalNetwork
from provable_circuits.verify.exact.search import Budget
from provable_circuits.verify.exact.stage import decide_rational, is_exact_size, is_searchable
from provable_circuits.verify.outcome import Outcome, Reason
from provable_circuits.verify.stage import Stage
from provable_circuits.verify.tuning.exact import ExactTuning
from provable_circuits.verify.verdict import Proved, Refuted, Undecided, Verdict, Witness

STAGE = Stage.EXACT

ONE = Fraction(1)
Constraints = list[tuple[int, Form]]
"""Forms that must not exceed zero, each with its number among the specification's."""


def decide_exactly(
    components: Components,
    claim: Claim,
    circuit: Circuit,
    deadline: Deadline,
    tuning: ExactTuning = DEFAULT.exact,
) -> Verdict | None:
    """Decide one circuit; see ``Exact``, which keeps what serves several."""
    return Exact(Encoder(components, claim), tuning).decide(circuit, deadline)


class Exact:
    """Decides circuits of one network under one claim, if they are small enough."""

    def __init__(self, encoder: Encoder, tuning: ExactTuning = DEFAULT.exact) -> None:
        self.encoder = encoder
        self.tuning = tuning
        self._network: RationalNetwork | None = None
        self._starts: dict[int, _Start] = {}

    @cached_property
    def _extents(self) -> list[tuple[Extent, Extent | None]] | None:
        """For each input where z and z' range; None if the claim is not for this stage."""
        encoder = self.encoder
        if _moving(encoder.z_range) > self.tuning.most_variables:
            return None
        if not is_exact_size(encoder.network, self.tuning):
            return None
        if not bool(encoder.specification.offsets.isfinite().all()):
            return None
        found: list[tuple[Extent, Extent | None]] = []
        patching = encoder.claim.patching
        for j, domain in enumerate(encoder.claim.inputs):
            z, source = extent_of(domain), None
            if patching.has_source:
                source = extent_of(patching.domain(j, encoder.claim.inputs))
                if source is None:
                    return None
            if z is None:
                return None
            found.append((z, source))
        return found

    def decide(self, circuit: Circuit, deadline: Deadline) -> Verdict | None:
        """Prove or refute the claim of ``circuit``; None if that is beyond this stage.

        Raises:
            OutOfTime: the deadline has passed.
        """
        if self._extents is None:
            return None
        budget, close = Budget(self.tuning.most_cells), False
        for j in range(self.encoder.count):
            question = self._question(j, circuit, deadline)
            if question is None:
                return None
            outcome, witness = decide_rational(question, budget, deadline, self.tuning)
            if witness is not None:
                return Refuted(witness, STAGE)
            if outcome == Outcome.OPEN:
                return None
            close |= outcome == Outcome.CLOSE
        return Undecided(Reason.TOO_CLOSE, STAGE) if close else Proved(0.0, STAGE)

    def _question(self, j: int, circuit: Circuit, deadline: Deadline) -> _Question | None:
        encoder = self.encoder
        if self._extents is None:
            return None
        z, source = self._extents[j]
        hull = _hull(encoder, circuit, j)
        if hull is None:
            return None
        moving = [z, *([source] if source is not None else []), *hull.values()]
        free = sum(extent.free for extent in moving)
        if not is_searchable(encoder.network, self.tuning, free):
            return None
        if self._network is None:
            self._network = RationalNetwork(encoder.network, deadline, self.tuning.rows_at_once)
        if j not in self._starts:
            self._starts[j] = _Start.at(self._network, z, source, deadline)
        return _Question(encoder, self._network, self._starts[j], hull, j, circuit, deadline)


def _moving(box: InputRange) -> int:
    """How many numbers of an input range, for the claim's input where most do."""
    return int((box.lower < box.upper).flatten(1).sum(1).max())


def _removed(encoder: Encoder, circuit: Circuit) -> dict[str, list[int]]:
    """For each site, by its tensor, the flat positions of removed units."""
    keep = encoder.components.masks([circuit])
    found = {}
    for site in encoder.components.sites:
        mask = site.unit_mask(keep)[0].expand(site.layer.shape)
        found[site.tensor] = (~mask).flatten().nonzero().flatten().tolist()
    return found


def _hull(encoder: Encoder, circuit: Circuit, j: int) -> dict[str, Extent] | None:
    """For IntervalHull patching, the boxes of all sites' removed units; None if one is infinite."""
    patching = encoder.claim.patching
    if not patching.has_boxes:
        return {}
    found = {}
    for name, units in _removed(encoder, circuit).items():
        lower, upper = (end.flatten()[units] for end in encoder.hull_at(name, j))
        if not bool((lower.isfinite() & upper.isfinite()).all()):
            return None
        found[name] = box(lower, upper)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Start:
    """What does not depend on the circuit: the network's runs at z and at z'."""

    z: Extent
    source: Extent | None
    atoms: Atoms
    z_forms: list[Form]
    source_forms: list[Form]
    reference: dict[str, list[Form]]
    patches: dict[str, list[Form]]

    @classmethod
    def at(
        cls, network: RationalNetwork, z: Extent, source: Extent | None, deadline: Deadline
    ) -> _Start:
        """Run the network on new variables."""
        atoms = Atoms()
        z_forms = z.enter(atoms)
        reference = network.run(atoms, z_forms, deadline)
        source_forms = [] if source is None else source.enter(atoms)
        patches = {} if source is None else network.run(atoms, source_forms, deadline)
        return cls(z, source, atoms, z_forms, source_forms, reference, patches)


class _Question:
    """One circuit on one input of the claim."""

    touching = False
    any_point = False

    def __init__(
        self,
        encoder: Encoder,
        network: RationalNetwork,
        start: _Start,
        hull: Mapping[str, Extent],
        index: int,
        circuit: Circuit,
        deadline: Deadline,
    ) -> None:
        self.encoder = encoder
        self.network = network
        self.start = start
        self.hull = hull
        self.index = index
        self.deadline = deadline
        keep = encoder.components.masks([circuit])
        self.mask = CircuitMask.of_nodes(encoder.components, keep)
        self.removed = _removed(encoder, circuit)
        self.output = network.graph.outputs[0]
        self.atoms = start.atoms.copy()
        self.hull_forms = {name: extent.enter(self.atoms) for name, extent in hull.items()}
        patched = [] if start.source is None else [(start.source, start.source_forms)]
        patched += [(hull[name], forms) for name, forms in self.hull_forms.items()]
        self.variables: Sequence[tuple[Extent, Sequence[Form]]] = [
            (start.z, start.z_forms),
            *patched,
        ]

    def clauses(self) -> list[list[Form]] | None:
        """What must not exceed zero, as forms over the variables; None if it has no such form."""
        patches = self._patches(self.start.patches, self.hull_forms)
        forms = self.start.z_forms
        run = self.network.run(self.atoms, forms, self.deadline, self.mask, patches)
        found = self._excess(self.atoms, self.start.reference[self.output], run[self.output])
        return None if found is None else [[form] for _, form in found]

    def _patches(
        self, source: Mapping[str, list[Form]], hull: Mapping[str, list[Form]]
    ) -> dict[str, dict[int, Form]]:
        """The patch of every removed unit."""
        patching = self.encoder.claim.patching
        found: dict[str, dict[int, Form]] = {}
        for name, units in self.removed.items():
            if patching.is_fixed:
                values = fractions(self.encoder.fixed[name][0].flatten()[units])
                found[name] = {i: Form(value) for i, value in zip(units, values, strict=True)}
            elif patching.has_source:
                found[name] = {i: source[name][i] for i in units}
            else:
                found[name] = dict(zip(units, hull[name], strict=True))
        return found

    def _excess(
        self, atoms: Atoms, reference: list[Form], output: list[Form]
    ) -> Constraints | None:
        """The metric's constraints, from the two outputs."""
        specification, metric = self.encoder.specification, self.encoder.claim.metric
        values = output
        if specification.needs_reference:
            values = [
                combination([(ONE, o), (-ONE, r)]) for o, r in zip(output, reference, strict=True)
            ]
        if isinstance(metric, Norm) and metric.p == 2:
            return _two_norm(values, Fraction(float(metric.tolerance)))
        if isinstance(metric, Norm) and metric.p == 1:
            sides = [(ONE, atoms.relu(side)) for value in values for side in (value, -value)]
            values = [combination(sides)]
        rows, offsets = specification.rows[self.index], specification.offsets[self.index]
        return [
            (
                number,
                combination(
                    zip(fractions(row), values, strict=True), Fraction(float(offsets[number]))
                ),
            )
            for number, row in enumerate(rows)
        ]

    # --- witnesses ------------------------------------------------------------------------------

    def witness(self, points: Sequence[Sequence[Fraction]]) -> Witness | None:
        """The witness, if the claim fails at these very numbers, which are floats."""
        z, *others = ([float(value) for value in point] for point in points)
        source = others.pop(0) if self.start.source is not None else []
        hull = dict(zip(self.hull_forms, others, strict=True))
        network, deadline, atoms = self.network, self.deadline, Atoms()
        at_source: dict[str, list[Form]] = {}
        if self.start.source is not None:
            at_source = network.run(atoms, _constants(source), deadline)
        patches = self._patches(at_source, {n: _constants(v) for n, v in hull.items()})
        reference = network.run(atoms, _constants(z), deadline)[self.output]
        output = network.run(atoms, _constants(z), deadline, self.mask, patches)[self.output]
        constraints = self._excess(atoms, reference, output)
        if constraints is None:
            return None
        number, worst = max(constraints, key=lambda found: found[1].constant)
        excess = self._in_metric(worst.constant) if worst.constant > 0 else 0.0
        if not excess > 0:
            return None
        shape = self.network.graph.input_shape
        return Witness(
            index=self.index,
            z=torch.tensor(z, dtype=torch.float64).reshape(shape),
            excess=excess,
            reference=_tensor(reference),
            output=_tensor(output),
            constraint=number,
            patch_input=torch.tensor(source, dtype=torch.float64).reshape(shape)
            if self.start.source is not None
            else None,
            patch_values=self._patch_values(hull) if hull else None,
        )

    def _in_metric(self, excess: Fraction) -> float:
        """By how much the metric is exceeded at least: constraints of a 2-norm are about squares.

        The norm exceeds its tolerance t by e / (sqrt(t^2 + e) + t); with t = 0 the constraints are
        about single differences, none of which is larger than the norm.
        """
        metric = self.encoder.claim.metric
        if not (isinstance(metric, Norm) and metric.p == 2 and metric.tolerance > 0):
            return below(excess)
        tolerance = Fraction(float(metric.tolerance))
        square = excess + tolerance**2
        if square > 10**300:
            return below(Fraction(math.isqrt(int(square))) - tolerance)
        norm = Fraction(math.sqrt(float(square)) * (1 + 1e-12))
        return below(excess / (norm + tolerance))

    def _patch_values(self, hull: Mapping[str, list[float]]) -> dict[str, Tensor]:
        """The values of all units of all sites; kept ones have the middle of their box."""
        found = {}
        for site in self.encoder.components.sites:
            lower, upper = self.encoder.hull_at(site.tensor, self.index)
            values = torch.minimum(torch.maximum(lower + (upper - lower) * 0.5, lower), upper)
            flat = values[0].flatten().clone()
            flat[self.removed[site.tensor]] = torch.tensor(hull[site.tensor], dtype=torch.float64)
            found[site.tensor] = flat.reshape(site.layer.shape)
        return found


def _two_norm(values: list[Form], tolerance: Fraction) -> Constraints | None:
    """``sum d_i^2 <= tolerance^2``, where that is linear: no d_i varies, or each must be zero."""
    if tolerance == 0:
        return [(0, form) for value in values for form in (value, -value)]
    if any(value.terms for value in values):
        return None
    total = sum((value.constant**2 for value in values), ZERO)
    return [(0, Form(total - tolerance**2))]


def _constants(values: list[float]) -> list[Form]:
    return [Form(Fraction(value)) for value in values]


def _tensor(forms: list[Form]) -> Tensor:
    return torch.tensor([nearest_float(form.constant) for form in forms], dtype=torch.float64)
