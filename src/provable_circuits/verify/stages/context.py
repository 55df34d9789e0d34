"""The context of a question: what a verifier prepares once for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from provable_circuits.claims.claim import Claim
from provable_circuits.network.components import Components
from provable_circuits.network.graph import Graph
from provable_circuits.verify.attacking.pgd import Effort
from provable_circuits.verify.attacking.replay import Replay
from provable_circuits.verify.bounding.bounds import Structure, activation_units
from provable_circuits.verify.bounding.differential import DifferentialBounds
from provable_circuits.verify.bounding.region import Region
from provable_circuits.verify.configuration import Configuration
from provable_circuits.verify.encoding.encoder import Encoder
from provable_circuits.verify.encoding.problem import InputRange
from provable_circuits.verify.exact.claims import Exact
from provable_circuits.verify.reuse.knowledge import Knowledge


@dataclass(frozen=True, slots=True, eq=False)
class Context:
    """What stages work with; they write to ``knowledge`` alone.

    Attributes:
        encoder: writes a circuit as one graph with the network and the patch source.
        device: where bounds are computed.
        effort: how hard the attacks try.
        reuse: whether a question may be derived from the proof of another circuit.
        replay: runs candidates through the plain executor.
        differential: bounds derived from those of the circuit that was proved last.
        exact: rational arithmetic.
        knowledge: what earlier questions showed.
        configuration: the tuning of all stages.
        batches: whether many circuits go through the cheap stages as one batch: network, circuit
            and patch source together are small.
    """

    encoder: Encoder
    device: torch.device
    effort: Effort
    reuse: bool
    replay: Replay
    differential: DifferentialBounds
    exact: Exact
    knowledge: Knowledge
    configuration: Configuration
    batches: bool

    @classmethod
    def of(
        cls,
        components: Components,
        claim: Claim,
        device: torch.device,
        effort: Effort,
        reuse: bool,
        configuration: Configuration,
    ) -> Context:
        """The context of one claim about circuits of one network."""
        encoder = Encoder(components, claim)
        units = 3 * activation_units(encoder.network)
        small = configuration.bounding.is_small(units) and device.type == "cpu"
        replay, exact = Replay(encoder), Exact(encoder, configuration.exact)
        return cls(
            encoder,
            device,
            effort,
            reuse,
            replay,
            DifferentialBounds(encoder),
            exact,
            Knowledge(configuration.reuse),
            configuration,
            small,
        )

    def structure(self, graph: Graph) -> Structure:
        """What bounds need to know of a graph."""
        return Structure(graph, self.device, self.configuration)

    def region(self, ranges: Mapping[str, InputRange]) -> Region:
        """Where the inputs of a graph range."""
        return Region(ranges, self.configuration.bounding.few_boxes)
