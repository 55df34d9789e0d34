"""One linear program whose subdomains are solved one after another, each from the nearest basis.

The programs of all subdomains of a problem have the same columns and rows; they differ in a few
bounds, and in the coefficient of each chord. So there is one model in the solver, and a subdomain
starts from the final basis of the solved one whose signs differ from its own in the fewest units:
most often its parent, and the dual simplex method is done after a few pivots.

Columns: the inputs x, what units read g, their outputs r, and violations v at a high price. Rows,
for every unit i with bounds l and u, s its sign (+1 active, -1 inactive, 0 unstable):

    g - A x - B r  = c
    r - g         >= 0                        for s = 0;   = 0 for s > 0
    r - chord g - v <= -chord l               for s = 0,   chord = u / (u - l)
    g + v         >= 0                        for s > 0
    g - v         <= 0                        for s < 0

with r >= 0 unless s > 0, and r = 0 for s < 0. Rows that a sign does not have are left unbounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from provable_circuits.verify.tuning.branching import BranchingTuning

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class ProgramOptimum:
    """The solution of one program.

    Attributes:
        value: the least value of the objective.
        inputs: x.
        outputs: r.
        reads: g.
        above: the duals of r >= g, or of the sign of g where it is fixed; not negative.
        ground: the duals of r >= 0.
    """

    value: float
    inputs: Floats
    outputs: Floats
    reads: Floats
    above: Floats
    ground: Floats


class WarmProgram:
    """The programs of one problem's subdomains.

    Args:
        lower, upper: bounds of the inputs.
        matrix, constant: what units read as functions of inputs and of outputs, [A B] and c.
        tuning: the price of violations, limits of pivots and of bases.
    """

    def __init__(
        self,
        lower: Floats,
        upper: Floats,
        matrix: Floats,
        constant: Floats,
        tuning: BranchingTuning,
    ) -> None:
        self.tuning = tuning
        self.inputs, self.units = len(lower), len(constant)
        n, u = self.inputs, self.units
        self._model = _solver(tuning.pivots * 5 * u)
        self._model.passModel(_written(lower, upper, matrix, constant))
        grown = np.linalg.solve(np.eye(u) - matrix[:, n:], matrix[:, :n])
        self._growth = max(1.0, float(np.abs(grown).max(initial=0.0)))
        """How much larger an objective may get when outputs are written as functions of inputs."""
        self._chords, self._cost = np.ones(u), np.full(n + u, np.nan)
        self._least, self._most = np.full((4, u), -np.inf), np.full((4, u), np.inf)
        self._columns = np.arange(n + 3 * u, dtype=np.int32)
        self._rows = np.arange(u, 5 * u, dtype=np.int32)
        self._signs = np.zeros((tuning.most_bases, u), dtype=np.int8)
        self._bases: dict[int, highspy.HighsBasis] = {}
        self._next = 0

    def solve(
        self, goal: tuple[Floats, float], lower: Floats, upper: Floats, signs: Floats
    ) -> ProgramOptimum | None:
        """The least value of a function over a subdomain; None where the solver finds none.

        Args:
            goal: coefficients of inputs and outputs, and a constant.
            lower: lower bounds of what the units read.
            upper: upper bounds of the same.
            signs: +1 for active units, -1 for inactive ones, 0 elsewhere.
        """
        model, n, u = self._model, self.inputs, self.units
        cost, constant = goal
        largest = float(np.abs(cost).max(initial=0.0)) or 1.0
        size = largest * self._growth
        self._change(cost / size, lower, upper, signs)
        if self._bases:
            model.setBasis(self._nearest(signs))
        model.run()
        if model.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            model.clearSolver()
            return None
        self._keep(signs, model.getBasis())
        found = model.getSolution()
        columns, reduced = np.asarray(found.col_value), np.asarray(found.col_dual)
        duals = np.asarray(found.row_dual).reshape(5, u) * size
        above = np.where(signs == 0, duals[1], np.where(signs > 0, duals[3], -duals[4]))
        return ProgramOptimum(
            float(model.getInfo().objective_function_value) * size + constant,
            columns[:n],
            columns[n + u : n + 2 * u],
            columns[n : n + u],
            np.maximum(above, 0.0),
            np.maximum(reduced[n + u : n + 2 * u], 0.0) * size,
        )

    def _change(self, cost: Floats, lower: Floats, upper: Floats, signs: Floats) -> None:
        """Make the model that of a subdomain."""
        model, n, u = self._model, self.inputs, self.units
        free, active, inactive = signs == 0, signs > 0, signs < 0
        if not np.array_equal(cost, self._cost):
            price = self.tuning.violation_price
            whole = np.concatenate([cost[:n], np.zeros(u), cost[n:], np.full(u, price)])
            model.changeColsCost(len(whole), self._columns, whole)
            self._cost = cost
        chords = np.where(free, upper / np.where(free, upper - lower, 1.0), self._chords)
        for unit in np.nonzero(chords != self._chords)[0].tolist():
            model.changeCoeff(2 * u + unit, n + unit, -float(chords[unit]))
        self._chords = chords
        least, most = self._least, self._most
        least[0], least[2] = np.where(inactive, -np.inf, 0.0), np.where(active, 0.0, -np.inf)
        most[0], most[3] = np.where(active, 0.0, np.inf), np.where(inactive, 0.0, np.inf)
        most[1] = np.where(free, -chords * lower, np.inf)
        model.changeRowsBounds(len(self._rows), self._rows, least.ravel(), most.ravel())
        outputs = self._columns[n + u : n + 2 * u]
        model.changeColsBounds(
            u, outputs, np.where(active, -np.inf, 0.0), np.where(inactive, 0.0, np.inf)
        )

    def _nearest(self, signs: Floats) -> highspy.HighsBasis:
        """The basis of the solved subdomain with the most signs in common; the latest of these."""
        known = self._signs[: min(self._next, self.tuning.most_bases)]
        alike = np.count_nonzero(known == signs.astype(np.int8), axis=1)
        start = self._next % len(known)
        behind = (np.arange(len(known)) - start) % len(known)
        return self._bases[int((alike * len(known) + behind).argmax())]

    def _keep(self, signs: Floats, basis: highspy.HighsBasis) -> None:
        """Take note of the final basis of a subdomain."""
        place = self._next % self.tuning.most_bases
        self._signs[place] = signs
        self._bases[place] = basis
        self._next += 1


def _solver(pivots: int) -> Any:
    """A simplex solver that is silent, has one thread, and stops after so many pivots."""
    model: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    for option, value in (
        ("output_flag", False),
        ("presolve", "off"),
        ("solver", "simplex"),
        ("threads", 1),
        ("simplex_iteration_limit", pivots),
    ):
        model.setOptionValue(option, value)
    return model


def _written(lower: Floats, upper: Floats, matrix: Floats, constant: Floats) -> highspy.HighsLp:
    """The model, with every row but the first kind unbounded."""
    n, u = len(lower), len(constant)
    one, none, no_input = sparse.eye_array(u), sparse.coo_array((u, u)), sparse.coo_array((u, n))
    rows = sparse.vstack(
        [
            sparse.hstack([-sparse.coo_array(matrix[:, :n]), one, -matrix[:, n:], none]),
            sparse.hstack([no_input, -one, one, none]),
            sparse.hstack([no_input, -one, one, -one]),
            sparse.hstack([no_input, one, none, one]),
            sparse.hstack([no_input, one, none, -one]),
        ]
    ).tocsc()
    model = highspy.HighsLp()
    model.num_row_, model.num_col_ = rows.shape
    model.col_cost_ = np.zeros(n + 3 * u)
    model.col_lower_ = np.concatenate([lower, np.full(u, -np.inf), np.zeros(2 * u)])
    model.col_upper_ = np.concatenate([upper, np.full(3 * u, np.inf)])
    model.row_lower_ = np.concatenate([constant, np.full(4 * u, -np.inf)])
    model.row_upper_ = np.concatenate([constant, np.full(4 * u, np.inf)])
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = rows.indptr
    model.a_matrix_.index_ = rows.indices
    model.a_matrix_.value_ = rows.data
    return model
