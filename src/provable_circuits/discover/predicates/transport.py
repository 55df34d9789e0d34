"""What travels between processes: networks, components, claims and verdicts as plain bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from functools import cache
from typing import Any

from provable_circuits.claims import domains, finite, metrics, patching
from provable_circuits.claims.claim import Claim
from provable_circuits.errors import ArgumentError
from provable_circuits.network import ops
from provable_circuits.network.components import Component, Components, Site
from provable_circuits.network.graph import Graph, Node
from provable_circuits.network.layers import Layer
from provable_circuits.portable import Portable
from provable_circuits.verify import verdict
from provable_circuits.verify.configuration import DEFAULT, Configuration
from provable_circuits.verify.outcome import reason_named
from provable_circuits.verify.stage import stage_named
from provable_circuits.verify.verdict import Undecided, Verdict


@cache
def _portable() -> Portable:
    kinds: dict[str, type] = {
        "node": Node,
        "layer": Layer,
        "site": Site,
        "component": Component,
        "claim": Claim,
        "configuration": Configuration,
    }
    for group in fields(DEFAULT):
        kinds[f"tuning.{group.name}"] = type(getattr(DEFAULT, group.name))
    for room, bases in [
        (ops, (ops.Op,)),
        (domains, (domains.Domain,)),
        (finite, (finite.Finite,)),
        (patching, (patching.Patching,)),
        (metrics, (metrics.Metric,)),
        (verdict, (verdict.Verdict, verdict.Witness)),
    ]:
        prefix = room.__name__.rpartition(".")[2]
        for name, kind in vars(room).items():
            if isinstance(kind, type) and issubclass(kind, bases):
                kinds[f"{prefix}.{name}"] = kind
    return Portable(kinds)


def pack_question(components: Components, claim: Claim, settings: dict[str, Any]) -> bytes:
    """All that a verifier is made of."""
    graph = components.graph
    return _portable().pack(
        {
            "nodes": graph.nodes,
            "inputs": graph.inputs,
            "outputs": graph.outputs,
            "sites": components.sites,
            "claim": _fixed(claim, components),
            "settings": settings,
        }
    )


def unpack_question(data: bytes) -> tuple[Components, Claim, dict[str, Any]]:
    """The components, the claim and the settings of a verifier."""
    given = _portable().unpack(data)
    graph = Graph(given["nodes"], given["inputs"], given["outputs"])
    return Components(graph, given["sites"]), given["claim"], given["settings"]


def claim_digest(components: Components, claim: Claim) -> str | None:
    """A digest of a claim; None for one that holds what is not known here."""
    patched: Any = claim.patching
    if patched.is_fixed:
        values = patched.values(components)
        patched = {
            site.tensor: values[site.tensor].double().expand(1, *site.layer.shape)
            for site in components.sites
        }
    try:
        positions = [] if claim.positions is None else [claim.positions]
        return _portable().digest([claim.inputs, patched, claim.metric, *positions])
    except ArgumentError:
        return None


def pack_verdicts(verdicts: Sequence[Verdict]) -> bytes:
    """Verdicts, witnesses included."""
    return _portable().pack(list(verdicts))


def unpack_verdicts(data: bytes) -> list[Verdict]:
    """The verdicts that were packed."""
    verdicts = _portable().unpack(data)
    try:
        if not all(isinstance(arrived, Verdict) for arrived in verdicts):
            raise TypeError("what is no verdict")
        return [_named(arrived) for arrived in verdicts]
    except (TypeError, ValueError, AttributeError) as error:
        raise ArgumentError(f"The data is not that of verdicts: {str(error)[:200]}.") from None


def _named(arrived: Any) -> Verdict:
    """The verdict with its stage and its reason, which travel as texts."""
    named: dict[str, str] = {"stage": stage_named(arrived.stage)}
    if isinstance(arrived, Undecided):
        named["reason"] = reason_named(arrived.reason)
    made: Verdict = replace(arrived, **named)
    return made


def _fixed(claim: Claim, components: Components) -> Claim:
    """The claim with means as the numbers they are: their data need not travel."""
    patching = claim.patching.without_data(components)
    return Claim(claim.inputs, patching, claim.metric, claim.positions)
