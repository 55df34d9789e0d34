"""Hull bounds: multipliers and lines that prove a lower bound of a presolved problem's rows.

For any numbers D (one for each second unit) and d (one for each first unit), since y and x are
what they are,

    v = c + D e + d b  +  (p + D P + d G) z  +  sum_k (t_k g_k - D_k y_k)
                                             +  sum_i (a_i h_i - d_i x_i),      a = o + D Q.

Each bracket is bounded by itself:

    t g - D y   is at least 0                       for t >= 0 and 0 <= D <= t,
                            what it is at l or u    for t < 0, being concave,
                            0                       where y >= 0 was fixed and D <= t,
                            0                       where y <= 0 was fixed and D >= 0.
    a h - d x   is at least 0                       for a >= 0 and 0 <= d <= a,
                            0                       where x >= 0 was fixed and d <= a,
                            0                       where x <= 0 was fixed and d >= 0.

What is left are first units that are open and have a < 0. A chord would treat x as a number between
two bounds. But x is a function on the cube, and there, for any line f z,

    relu(G_i z + b_i)  =  max(0, G_i z + b_i)  <=  f z + max(|f|, |G_i - f| + b_i),

|.| being the 1-norm: both pieces minus f z are linear, and their largest values are at hand. The
best f describe the convex hull of the unit's graph over the whole cube. They lie between 0 and G_i,
so a line is given by the share s_j in [0, 1] of G_ij that it takes at each coordinate:

    f_j = s_j G_ij,    |f| = t = sum s_j |G_ij|,    |G_i - f| = T - t,    T = |G_i|.

Most shares are settled for all subdomains alike (``lines``), the others are each subdomain's own.

Finally the linear function of z that has gathered is at least minus the 1-norm of its coefficients.

Rounding: every quantity is a sum of at most N products, and the exact one differs by at most
gamma(N) times the sum of absolute values. S adds up all terms of the bound in absolute values, with
h, g, x, y and z as large as they can get. A term of S is met, each time with gamma(N) at most, by

    the a that are used instead of the exact ones, times h;
    the coefficients of z;                     the dot products with b and e, and the radii;
    the sum of all of these;                   brackets, in place of h, for second units;
    t, T and T - t + b, for lines, whose terms S counts twice.

That is five times or less, so 8 gamma(N) S covers everything, the rounding of S included. Products
that underflow lose TINY each.

Convex hulls of single neurons: Anderson, Huchette, Ma, Tjandraatmadja and Vielma (2020), Strong
Mixed-Integer Programming Formulations for Trained Neural Networks. Ours: the hull is taken over the
box of the inputs and of what remains of lower layers, its weights are chosen by ascent, and the
bound is rigorous for any choice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from provable_circuits.rounding import TINY, gamma
from provable_circuits.verify.neuron_hull.lines import Settled
from provable_circuits.verify.neuron_hull.presolved import Presolved, Rows


@dataclass(frozen=True, slots=True, eq=False)
class Signs:
    """What is known of k subdomains: +1 and -1 where x or y is nonnegative or nonpositive, else 0.

    Attributes:
        first: [k, first units].
        second: [k, second units].
    """

    first: Tensor
    second: Tensor

    def __getitem__(self, index: Tensor) -> Signs:
        return Signs(self.first[index], self.second[index])


@dataclass(frozen=True, slots=True, eq=False)
class Multipliers:
    """What proves bounds of k subdomains.

    Attributes:
        second: D, [k, second units].
        slopes: d as a share of a, in [0, 1], of unstable units with positive a; [k, first units].
        first: how far d is from a where x >= 0 was fixed, from 0 where x <= 0 was, not negative;
            [k, first units].
        shares: s at the largest entries of G, of the units that are moving, in [0, 1];
            [k, moving units, width].
    """

    second: Tensor
    alpha: Tensor
    first: Tensor
    shares: Tensor

    def __getitem__(self, index: Tensor | slice) -> Multipliers:
        return Multipliers(*(getattr(self, field.name)[index] for field in fields(self)))

    @staticmethod
    def joined(several: Sequence[Multipliers]) -> Multipliers:
        """Those of several, one after the other."""
        return Multipliers(
            *(torch.cat([getattr(one, f.name) for one in several]) for f in fields(Multipliers))
        )


@dataclass(frozen=True, slots=True, eq=False)
class Certified:
    """Rigorous lower bounds, v >= base + cube z and therefore v >= value.

    Attributes:
        value: [k].
        base: [k].
        cube: [k, n].
    """

    value: Tensor
    base: Tensor
    cube: Tensor

    def or_better(self, others: Certified) -> Certified:
        """These bounds, or others where those are better."""
        better = others.value > self.value
        return Certified(
            torch.where(better, others.value, self.value),
            torch.where(better, others.base, self.base),
            torch.where(better.unsqueeze(1), others.cube, self.cube),
        )


def allowed(second: Tensor, signs: Tensor, weights: Tensor) -> Tensor:
    """D moved to where its bracket has a bound; signs and weights t as D, [k, second units]."""
    nothing = torch.zeros_like(second)
    fixed = torch.where(signs > 0, torch.minimum(second, weights), second.clamp_min(0.0))
    below = torch.minimum(torch.maximum(second, nothing), weights)
    free = torch.where(weights >= 0, below, second)
    return torch.where(signs != 0, fixed, free)


def brackets(problem: Presolved, second: Tensor, signs: Tensor, weights: Tensor) -> Tensor:
    """What t g - D y is at least, [k, second units], for D that are allowed."""
    lower, upper = problem.lower, problem.upper
    at_lower = weights * lower.clamp_min(0.0) - second * lower
    at_upper = weights * upper.clamp_min(0.0) - second * upper
    return torch.where((signs == 0) & (weights < 0), torch.minimum(at_lower, at_upper), 0.0)


def through(rows: Tensor, signs: Tensor, alpha: Tensor, first: Tensor) -> Tensor:
    """The d of first units with coefficients a = ``rows``, zero where lines take their place."""
    fixed = torch.where(signs > 0, rows - first, first)
    return torch.where(signs == 0, alpha * rows.clamp_min(0.0), fixed)


def certify(
    problem: Presolved, settled: Settled, goal: Rows, signs: Signs, chosen: Multipliers
) -> Certified:
    """Lower bounds of one row each, on the subdomains where units have these signs.

    Args:
        problem: the problem.
        settled: what is settled of the first layer's lines, from shares in [0, 1].
        goal: k of its rows.
        signs: what is known of the subdomains.
        chosen: any multipliers at all; better ones prove more.
    """
    first, second, sparse = problem.first, problem.second, problem.sparse
    beta = allowed(chosen.second.double(), signs.second, goal.second)
    rows = goal.first + beta @ second.first
    alpha, fixed = chosen.alpha.double().clamp(0.0, 1.0), chosen.first.double().clamp_min(0.0)
    share = through(rows, signs.first, alpha, fixed)
    weight = torch.where(signs.first == 0, (-rows).clamp_min(0.0), 0.0)
    shares, moving = chosen.shares.double().clamp(0.0, 1.0), settled.moving
    own = torch.einsum("kmw,mw->km", shares, sparse.sizes[moving])
    held = settled.held.expand(len(own), -1).index_add(1, moving, own)
    height = torch.maximum(held, sparse.total - held + first.constant + first.radius)
    lines = shares.mul_(weight[:, moving].unsqueeze(2)).mul_(sparse.values[moving])
    cube = goal.cube + beta @ second.cube + share @ first.cube
    cube = cube - weight @ settled.lines - sparse.scattered(lines, moving)
    base = (
        (goal.constant - goal.radius)
        + beta @ second.constant
        - beta.abs() @ second.radius
        + share @ first.constant
        - share.abs() @ first.radius
        + brackets(problem, beta, signs.second, goal.second).sum(1)
        - (weight * height).sum(1)
    )
    largest = torch.maximum(problem.lower.abs(), problem.upper.abs())
    scale = (
        _sizes(goal, problem.top, largest)
        + beta.abs() @ (_sizes(second, problem.top, largest[:0]) + largest)
        + goal.second.abs() @ largest
        + (share.abs() + 2 * weight) @ (_sizes(first, problem.top[:0], largest[:0]) + problem.top)
    )
    terms = 3 * len(first) + len(second) + first.cube.shape[1] + sparse.values.shape[1] + 32
    extent = 1.0 + float(problem.top.sum() + largest.sum())
    lost = terms * (len(first) + len(second) + 4) * TINY * (extent + weight.sum(1))
    base = base - 8 * gamma(terms) * 1.01 * scale - lost
    value = base - cube.abs().sum(1) * (1 + gamma(terms))
    return Certified(
        value.nan_to_num(nan=-math.inf, posinf=-math.inf, neginf=-math.inf),
        base.nan_to_num(nan=-math.inf, posinf=-math.inf, neginf=-math.inf),
        cube,
    )


def _sizes(rows: Rows, top: Tensor, largest: Tensor) -> Tensor:
    """How large the terms of each row can be, added up."""
    size = rows.cube.abs().sum(1) + rows.constant.abs() + rows.radius
    if len(top):
        size = size + rows.first.abs() @ top
    if len(largest):
        size = size + rows.second.abs() @ largest
    return size
