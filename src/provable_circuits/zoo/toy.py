"""Networks small enough to reason about by hand: the XOR network and the counterexample family.

Both come from the paper (Section 4.1 with the appendix "Toy Example: Minimality Notions", and the
proof that greedy search may miss subset-minimal circuits). Their weights are small integers, so on
the inputs given with them every value is exact in floating point, and equality of outputs
(tolerance 0) is decided by running.

    >>> toy = xor_network()
    >>> toy.components.circuit(["v/v2", "v/v4"]).run(toy.inputs).flatten().tolist()
    [0.0, 1.0, 0.0, 1.0]
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from provable_circuits.errors import ArgumentError
from provable_circuits.network.components import Components
from provable_circuits.network.granularity import Groups
from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.ops import Concat, Linear, ReLU


@dataclass(frozen=True, slots=True, eq=False)
class ToyNetwork:
    """A network, its components, and inputs on which equality decides faithfulness.

    Attributes:
        graph: the network.
        components: what its circuits are sets of.
        inputs: a batch of inputs. A circuit under zero patching equals the network on the whole of
            its domain exactly when it does so on these.
    """

    graph: Graph
    components: Components
    inputs: Tensor


def xor_network() -> ToyNetwork:
    """The XOR network: ``y = v1 xor v2 xor ... xor v6`` of two bits, which computes ``x2``.

    Its six components are v1 = x2, v2 = v3 = x1, v4 = v5 = x1 xor x2 and v6 = x2 xor x2, named
    ``v/v1`` to ``v/v6``. A gate is ``a xor b = |a - b| = ReLU(a - b) + ReLU(b - a)``, which is
    right on bits. The ReLUs that encode gates are no components. The domain is the four Boolean
    points.
    """
    builder = GraphBuilder()
    x = builder.input("x", (2,))
    # The bits themselves (never negative, so ReLU keeps them), then both halves of x1 xor x2 and
    # of x2 xor x2.
    halves = _dense([[1, 0], [0, 1], [1, -1], [-1, 1], [0, 1 - 1], [0, 1 - 1]])
    bits = _relu_layer(builder, "bits", halves, x)
    v_weight = _dense(
        [
            [0, 1, 0, 0, 0, 0],
            [1, 0, 0, 0, 0, 0],
            [1, 0, 0, 0, 0, 0],
            [0, 0, 1, 1, 0, 0],
            [0, 0, 1, 1, 0, 0],
            [0, 0, 0, 0, 1, 1],
        ]
    )
    v = builder.add("v", Linear(v_weight), bits, layer="v")
    pairs_weight = _dense(
        [
            [1, -1, 0, 0, 0, 0],
            [-1, 1, 0, 0, 0, 0],
            [0, 0, 1, -1, 0, 0],
            [0, 0, -1, 1, 0, 0],
            [0, 0, 0, 0, 1, -1],
            [0, 0, 0, 0, -1, 1],
        ]
    )
    pairs = _relu_layer(builder, "pairs", pairs_weight, v)
    # Both halves of (v1 xor v2) xor (v3 xor v4), and v5 xor v6 handed on.
    fours_weight = _dense([[1, 1, -1, -1, 0, 0], [-1, -1, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1]])
    fours = _relu_layer(builder, "fours", fours_weight, pairs)
    sixes = _relu_layer(builder, "sixes", _dense([[1, 1, -1], [-1, -1, 1]]), fours)
    y = builder.add("y", Linear(_dense([[1, 1]])), sixes, layer="y")
    graph = builder.build([y])
    components = graph.components(Groups({"v": {f"v{i + 1}": [i] for i in range(6)}}))
    return ToyNetwork(graph, components, _dense([[0, 0], [0, 1], [1, 0], [1, 1]]))


def counterexample_network(pairs: int = 1) -> ToyNetwork:
    """One network of the infinite family on which single removals never lead to a smaller circuit.

    For x in [0, 1], ``p_i = q_i = ReLU(x)``, ``v3 = x`` and ``v4 = v3 + sum_i (p_i - q_i) = x``,
    the output. Components are ``p/0``, ..., ``q/0``, ..., ``v3/0`` and ``v4/0``; the paper calls p
    and q of the smallest network v1 and v2. With zero patching and equality, no component can go
    alone, but each pair (p_i, q_i) can. Every circuit computes a multiple of x on [0, 1]; the ends
    of the interval decide equality, and its middle is given with them.

    Args:
        pairs: how many pairs (p_i, q_i); the paper's m.

    Raises:
        ArgumentError: fewer than one pair.
    """
    if isinstance(pairs, bool) or not isinstance(pairs, int) or pairs < 1:
        raise ArgumentError(
            "The 'pairs' parameter of counterexample_network must be an integer of at least 1. "
            f"Got {pairs!r} instead."
        )
    builder = GraphBuilder()
    x = builder.input("x", (1,))
    # Separate weight tensors: the builder shares an operation that holds the very same ones.
    p = _relu_layer(builder, "p", _dense([[1]] * pairs), x)
    q = _relu_layer(builder, "q", _dense([[1]] * pairs), x)
    v3 = builder.add("v3", Linear(_dense([[1]])), x, layer="v3")
    hidden = builder.add("hidden", Concat(0), p, q, v3)
    v4_weight = _dense([[1] * pairs + [-1] * pairs + [1]])
    v4 = builder.add("v4", Linear(v4_weight), hidden, layer="v4")
    graph = builder.build([v4])
    return ToyNetwork(graph, graph.components("neuron"), _dense([[0.0], [0.5], [1.0]]))


def _dense(rows: list[list[int]] | list[list[float]]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float32)


def _relu_layer(builder: GraphBuilder, name: str, weight: Tensor, source: str) -> str:
    """A linear layer without bias and its ReLU; returns the name of the ReLU's tensor."""
    return builder.add(
        f"{name}.relu", ReLU(), builder.add(name, Linear(weight), source, layer=name)
    )
