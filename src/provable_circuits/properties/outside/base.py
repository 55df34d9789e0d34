"""Outside verifiers: what another tool says, and how far we go along with it.

A tool is asked about an ONNX file and a VNN-LIB file. If it says that the property holds, that
rests on the tool, and the answer says so: it is never ``Proved``. If it says that the property is
violated, its counterexample is replayed here first; one that does not stand up leaves the question
open.
"""

from __future__ import annotations

import math
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from provable_circuits.arguments import time_limit
from provable_circuits.claims.claim import Claim
from provable_circuits.errors import ArgumentError
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.graph import Graph
from provable_circuits.properties.confirm import confirm, push
from provable_circuits.properties.export import (
    Exported,
    export_query,
    query_graph,
    query_property,
)
from provable_circuits.properties.status import PropertyStatus
from provable_circuits.properties.vnnlib import read_property
from provable_circuits.verify.attacking.candidates import candidate_at
from provable_circuits.verify.attacking.replay import Replay
from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.encoding.encoder import Encoder
from provable_circuits.verify.encoding.query import Query
from provable_circuits.verify.outcome import Reason
from provable_circuits.verify.verdict import Refuted, Undecided, Verdict, Witness


@dataclass(frozen=True, slots=True, eq=False)
class OutsideAnswer:
    """What an outside verifier says about a property.

    Attributes:
        status: ``holds`` (resting on the tool), ``violated``, ``unknown`` or ``timeout``.
        counterexample: for ``violated``, a flat input, float64.
        name: the tool that answered.
        seconds: how long it took.
        reason: why, where it is unknown.
    """

    status: PropertyStatus
    counterexample: Tensor | None
    name: str
    seconds: float
    reason: str = ""

    def __bool__(self) -> bool:
        raise TypeError("An answer is not a boolean: compare its status.")


@dataclass(frozen=True, slots=True, eq=False)
class Vouched(Verdict):
    """An outside verifier, ``by``, says that the claim holds. Nothing is proved here."""

    kind: ClassVar[str] = "vouched"
    by: str
    seconds: float


class OutsideVerifier(ABC):
    """A tool that decides properties.

    Attributes:
        name: what the tool is called in answers.
        dense: whether it reads no more than linear layers, additions and activations.
        dtype: the type of weights it reads; None for whichever holds them exactly.
    """

    name: str = ""
    dense: bool = False
    dtype: torch.dtype | None = None

    @abstractmethod
    def ask(self, onnx: Path, vnnlib: Path, timeout: float) -> OutsideAnswer:
        """What the tool says; nothing of it is checked."""

    def decide(
        self, onnx: str | PathLike[str], vnnlib: str | PathLike[str], timeout: float = 60.0
    ) -> OutsideAnswer:
        """What the tool says about a network and a property, its counterexample replayed.

        Args:
            onnx: the network.
            vnnlib: the property.
            timeout: seconds after which the tool is stopped.

        Raises:
            ModelError, PropertyError: the files are no network and no property that fits it.
        """
        timeout = time_limit("timeout", timeout)
        graph, question = Graph.from_onnx(onnx), read_property(vnnlib)
        question.check(graph)
        answer = self.ask(Path(onnx).resolve(), Path(vnnlib).resolve(), timeout)
        if answer.status != PropertyStatus.VIOLATED:
            return answer
        x = answer.counterexample
        if x is None or len(x) != question.inputs or not bool(x.isfinite().all()):
            return _doubted(answer)
        found = confirm(graph, question, x)
        return _doubted(answer) if found is None else replace(answer, counterexample=found[0])


def verify_outside(
    outside: OutsideVerifier, graph: Graph, circuit: Circuit, claim: Claim, timeout: float = 45.0
) -> Verdict:
    """Ask an outside verifier whether ``circuit`` behaves like ``graph`` wherever the claim says.

    Args:
        outside: the tool.
        graph: the network.
        circuit: a circuit of that network.
        claim: over which inputs, under which patching, by which metric.
        timeout: seconds after which the answer is Undecided.

    Returns:
        Vouched (by the tool), Refuted (the tool's counterexample was replayed through the original
        network) or Undecided.
    """
    if circuit.components.graph is not graph and circuit.components.graph.digest != graph.digest:
        raise ArgumentError("The circuit belongs to another network than the one given.")
    timeout = time_limit("timeout", timeout)
    deadline = Deadline.after(timeout)
    encoder = Encoder(circuit.components, claim)
    query = encoder.encode(circuit)
    replay = Replay(encoder)
    seconds, doubts = 0.0, []
    with tempfile.TemporaryDirectory(prefix="provable-circuits-") as folder:
        for part in export_query(query, folder, dtype=outside.dtype, dense=outside.dense):
            if deadline.left <= 0:
                return Undecided(Reason.TIME, outside.name)
            answer = outside.ask(part.onnx, part.vnnlib, deadline.left)
            seconds += answer.seconds
            if answer.status == PropertyStatus.VIOLATED:
                witness = _witness(replay, query, part, answer.counterexample)
                if witness is not None:
                    return Refuted(witness, outside.name)
                answer = _doubted(answer)
            if answer.status != PropertyStatus.HOLDS:
                doubts.append(
                    Reason.TIME if answer.status == PropertyStatus.TIMEOUT else answer.reason
                )
    return Undecided(doubts[0], outside.name) if doubts else Vouched(outside.name, seconds)


def _witness(replay: Replay, query: Query, part: Exported, x: Tensor | None) -> Witness | None:
    """A counterexample of an exported query, replayed through the original network.

    Where the point itself does not break the claim, it is pushed off the edge of each constraint.
    """
    count = sum(math.prod(shape) for _, shape in part.places.values())
    if x is None or len(x) < max(count, 1) or not bool(x.isfinite().all()):
        return None
    found = _replayed(replay, query, part.index, part.points(x))
    graph = query_graph(query, part.index)
    for case in query_property(query, part.index).cases:
        if found is None:
            nearby = part.points(push(graph, case, x.double()))
            found = _replayed(replay, query, part.index, nearby)
    return found


def _replayed(
    replay: Replay, query: Query, index: int, points: Mapping[str, Tensor]
) -> Witness | None:
    """Values of the merged graph's inputs as a witness, if they are one."""
    batch = {name: value.unsqueeze(0) for name, value in points.items()}
    candidate = candidate_at(replay.encoder, query.circuit, query.roles, batch, 0, index)
    return replay.witness(candidate)


def _doubted(answer: OutsideAnswer) -> OutsideAnswer:
    """A violation that was claimed and not confirmed."""
    what = (
        "without a counterexample"
        if answer.counterexample is None
        else "and its counterexample did not stand up to replay"
    )
    return replace(
        answer,
        status=PropertyStatus.UNKNOWN,
        counterexample=None,
        reason=f"{answer.name} claims a violation {what}",
    )
