"""Transport: choose the lines above first units so that they cancel what pulls on the cube.

A unit of weight w = -a > 0 whose line takes the share s_j of G_j has the mass m_j = w s_j |G_j|
there. Its line costs max(sum m, w U - sum m), U = b + |G|_1 being its largest input, and changes
the coefficient q_j of z_j by m_j, against the sign of G_j. The bound pays sum |q_j|, so

    mass put where q_j has the sign of G_j gains what it costs, up to |q_j|;
    mass anywhere is free as long as the unit carries less than w U / 2 in all.

So each unit takes first what gains, evenly, and fills up to w U / 2 with what is free: that is
a best answer to what the others carry, and leaves them something to take. Units answer one after
the other, units without a common coordinate at once; two or three rounds come close to the optimum.
(A chord is the same mass at all coordinates, which is a poor answer.)
"""

from __future__ import annotations

import torch
from torch import Tensor

from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.hull.condensed import Condensed

NOTHING = 1e-30

MOST_ENTRIES = 2**22
"""Entries of all lines that are chosen at once, at most."""


def transport(
    problem: Condensed,
    weights: Tensor,
    rest: Tensor,
    pull: Tensor,
    rounds: int,
    deadline: Deadline,
) -> Tensor:
    """The shares of the lines, [k, first units, width], at the largest entries of G.

    Args:
        problem: the problem.
        weights: w, [k, first units]; where it is zero, shares are too.
        rest: the shares at all other entries, [first units].
        pull: the coefficients of z with lines at those entries alone, [k, n].
        rounds: how often each unit answers.
        deadline: when to stop.
    """
    sparse = problem.sparse
    k = len(weights)
    held = torch.cat([pull, pull.new_zeros(k, 1)], dim=1)
    sizes, signs = sparse.sizes.to(pull), sparse.values.sign().to(pull)
    half = 0.5 * problem.reach - rest * sparse.rest_size
    wanted = (weights * half.clamp_min(0.0)).to(pull).unsqueeze(2)
    weights = weights.to(pull).unsqueeze(2)
    mass = pull.new_zeros(k, *sparse.values.shape)
    used = (weights > 0).any(0).flatten()
    classes = [units[used[units]] for units in sparse.classes]
    classes = [units for units in classes if len(units)]
    for turn in range(rounds):
        for units in classes if turn % 2 == 0 else reversed(classes):
            deadline.check()
            columns = sparse.columns[units]
            sign = signs[units]
            before = held[:, columns] + mass[:, units] * sign
            room = weights[:, units] * sizes[units]
            gains = torch.minimum((before * sign).clamp_min_(0.0), room)
            need = wanted[:, units]
            total = gains.sum(2, keepdim=True)
            taken = gains.mul_((need / total.clamp_min(NOTHING)).clamp_max_(1.0))
            lack = (need - total).clamp_min_(0.0)
            spare = room.sub_(taken)
            share = (lack / spare.sum(2, keepdim=True).clamp_min(NOTHING)).clamp_max_(1.0)
            taken = taken.add_(spare.mul_(share))
            held[:, columns] = before.sub_(taken * sign)
            mass[:, units] = taken
    return mass.div_((weights * sizes).clamp_min_(NOTHING))
