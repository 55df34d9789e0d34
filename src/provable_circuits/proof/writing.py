"""Certificates written: a network, a claim, a circuit, and what is to be believed of it.

The folder and the format are described in ``docs/certificates.md``. The network is written in the
precision of its weights, so that the file is the network.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import save as save_arrays
from torch import Tensor

from provable_circuits.claims.claim import Claim
from provable_circuits.claims.domains import Ball, Box, Domain, Point
from provable_circuits.claims.metrics import (
    LogitDifference,
    MaxAbs,
    Norm,
    WinnerMargin,
    target_outputs,
)
from provable_circuits.claims.patching import Zero
from provable_circuits.errors import ArgumentError
from provable_circuits.files import write_file
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.graph import Graph
from provable_circuits.proof.checker.arithmetic import Arithmetic
from provable_circuits.proof.checker.certificate import (
    ARRAYS,
    FORMAT,
    MANIFEST,
    NETWORK,
    SECTIONS,
    VERSION,
    section_digest,
)
from provable_circuits.proof.checker.claim import NOTHING
from provable_circuits.proof.checker.network import parse_network
from provable_circuits.proof.checker.problem import Region, build
from provable_circuits.proof.checker.rules import Subdomain
from provable_circuits.proof.prover import Plan

Array = NDArray[Any]

OUTWARD = 1e-9
"""By how much boxes of interval hulls are widened, relative to their ends."""


class Writer:
    """A certificate as far as it is written.

    Args:
        claim: the claim.
        circuit: the circuit that it is about.
    """

    def __init__(self, claim: Claim, circuit: Circuit) -> None:
        claim.check(circuit.components.graph)
        self._claim, self._circuit = claim, circuit
        self._graph = circuit.components.graph
        self._network = network_bytes(self._graph)
        self._arrays: dict[str, dict[str, Array]] = {name: {} for name in ARRAYS}
        self._known: list[dict[Any, str]] = [{} for _ in ARRAYS]
        self._statements: list[dict[str, Any]] = []
        self._proof: list[dict[str, Any]] = []
        self._sections: dict[str, Any] = {
            "components": self._components(),
            "claim": {
                "inputs": [self._domain(d) for d in claim.inputs],
                "patching": self._patching(),
                "metric": self._metric(),
            },
            "circuit": list(circuit.names),
        }

    def _put(self, file: int, values: Any, hint: str) -> str:
        """Keep an array, once; its name, which is that of an equal one if there is one."""
        array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
        array = np.ascontiguousarray(array)
        arrays, known = self._arrays[ARRAYS[file]], self._known[file]
        key = (array.dtype.str, array.shape, hashlib.sha256(array.tobytes()).digest())
        if key not in known:
            known[key] = f"{hint}{len(arrays)}"
            arrays[known[key]] = array
        return known[key]

    def _components(self) -> list[dict[str, Any]]:
        return [
            {
                "tensor": site.tensor,
                "names": [component.name for component in site.components],
                "labels": self._put(
                    0, site.labels.expand(self._graph[site.tensor].shape).to(torch.int32), "labels"
                ),
            }
            for site in self._circuit.components.sites
        ]

    # --- the claim ----------------------------------------------------------------------------

    def _domain(self, domain: Domain) -> dict[str, Any]:
        if isinstance(domain, Point):
            return {"kind": "point", "x": self._put(0, domain.x, "x")}
        if isinstance(domain, Box):
            ends = {"lower": domain.lower, "upper": domain.upper, "centre": domain.center}
            return {"kind": "box", **{key: self._put(0, v, key) for key, v in ends.items()}}
        if not isinstance(domain, Ball):
            raise ArgumentError(f"No certificate can be written for {type(domain).__name__}.")
        shape = domain.shape
        found: dict[str, Any] = {
            "kind": "ball",
            "x": self._put(0, domain.x, "x"),
            "eps": self._spread(domain.eps, shape, "eps"),
            "p": "inf" if domain.p == math.inf else int(domain.p),
        }
        if domain.clip is not None:
            found["clip"] = [self._spread(end, shape, "clip") for end in domain.clip]
        if domain.mask is not None:
            found["mask"] = self._put(0, domain.mask.expand(shape).double(), "mask")
        return found

    def _spread(self, value: Tensor, shape: Sequence[int], hint: str) -> float | str:
        if value.numel() == 1:
            return float(value)
        return self._put(0, value.expand(tuple(shape)), hint)

    def _patching(self) -> dict[str, Any]:
        patching, claim = self._claim.patching, self._claim
        if patching == Zero():
            return {"kind": "zero"}
        if patching.is_fixed:
            values = patching.values(self._circuit.components)
            tensors = {site.tensor for site in self._circuit.components.sites}
            names = {tensor: self._put(0, values[tensor][0], "patch") for tensor in sorted(tensors)}
            return {"kind": "constant", "values": names}
        if not (patching.has_source or patching.has_boxes):
            raise ArgumentError(f"No certificate can be written for {type(patching).__name__}.")
        domains = [patching.domain(i, claim.inputs) for i in range(len(claim.inputs))]
        found: dict[str, Any] = {"domains": [self._domain(domain) for domain in domains]}
        if patching.has_source:
            return {"kind": "reachable", **found}
        return {"kind": "hull", **found, "boxes": [self._boxes(domain) for domain in domains]}

    def _boxes(self, domain: Domain) -> dict[str, list[str]]:
        """The box of every site, each closed under those before it, and rounded outward generously.

        They are intervals of the network written, in which the units of earlier sites range over
        their boxes.
        """
        lower, upper = (end.double().numpy().reshape(-1) for end in domain.bounds())
        network, region = parse_network(self._network), Region(lower, upper)
        order = [step.name for step in network.steps]
        sites = self._circuit.components.sites
        found: dict[str, list[str]] = {}
        boxes: dict[str, Region] = {}
        removed: dict[str, Array] = {}
        for tensor in sorted({site.tensor for site in sites}, key=order.index):
            problem = build(
                Arithmetic(), network.steps, network.output, region, removed, boxes, NOTHING
            )
            low, high = Subdomain.whole(problem).bounds[problem.place(f"C:{tensor}")]
            room = OUTWARD * (1e-3 + np.maximum(np.abs(low), np.abs(high)))
            boxes[tensor] = Region(low - room, high + room)
            shape = self._graph[tensor].shape
            found[tensor] = [
                self._put(0, boxes[tensor].lower.reshape(shape), "low"),
                self._put(0, boxes[tensor].upper.reshape(shape), "high"),
            ]
            masks = [
                (site.labels.expand(shape) >= 0).numpy().reshape(-1)
                for site in sites
                if site.tensor == tensor
            ]
            removed[tensor] = np.logical_or.reduce(masks)
        return found

    def _metric(self) -> dict[str, Any]:
        metric = self._claim.metric
        anchor = self._graph.run(self._claim.centers, torch.float64)
        if isinstance(metric, LogitDifference):
            targets = target_outputs(metric.target, anchor).tolist()
            return {"kind": "logit-difference", "tolerance": metric.tolerance, "targets": targets}
        if isinstance(metric, MaxAbs) or (isinstance(metric, Norm) and metric.p == math.inf):
            return {"kind": "max-abs", "tolerance": metric.tolerance}
        if isinstance(metric, Norm):
            return {"kind": "norm", "tolerance": metric.tolerance, "p": int(metric.p)}
        if isinstance(metric, WinnerMargin):
            top = anchor.topk(2, dim=-1).values
            margins = (metric.fraction * (top[:, 0] - top[:, 1])).tolist()
            return {
                "kind": "winner-margin",
                "fraction": metric.fraction,
                "against": metric.against,
                "margins": margins,
            }
        raise ArgumentError(f"{type(metric).__name__} cannot be proved.")

    # --- statements ---------------------------------------------------------------------------

    def faithful(self, plans: Sequence[Plan], names: Mapping[int, str]) -> None:
        """State that the circuit is faithful, by one plan for each input."""
        self._statements.append({"kind": "faithful"})
        self.prove(plans, names)

    def prove(self, plans: Sequence[Plan], names: Mapping[int, str]) -> None:
        """Write these plans in place of those before."""
        self._arrays[ARRAYS[1]].clear()
        self._known[1].clear()
        self._proof = [
            {
                "tighten": plan.tighten,
                "trees": [
                    {
                        "objectives": tree.objectives,
                        "nodes": [self._node(node, names) for node in tree.nodes],
                    }
                    for tree in plan.trees
                ],
            }
            for plan in plans
        ]

    def _node(self, node: Mapping[str, Any], names: Mapping[int, str]) -> dict[str, Any]:
        found = dict(node)
        if "alpha" in node:
            found["alpha"] = {
                names[place]: [
                    self._put(1, units.astype(np.min_scalar_type(-1 - units.max())), "u"),
                    self._put(1, np.rint(values[:, units] * 255).astype(np.uint8), "a"),
                ]
                for place, (units, values) in node["alpha"].items()
            }
        if isinstance(node.get("close", {}).get("beta"), np.ndarray):
            found["close"] = {"beta": self._put(1, node["close"]["beta"], "b")}
        return found

    def refuted(self, witness: Any, component: str | None = None) -> None:
        """State that the circuit, or the circuit without a component, is not faithful."""
        kind = (
            {"kind": "unfaithful"}
            if component is None
            else {"kind": "necessary", "component": component}
        )
        self._statements.append({**kind, "witness": self._witness(witness)})

    def lower_bound(
        self,
        size: int,
        blocking: Sequence[tuple[Sequence[str], Any]],
        nodes: Sequence[str | Mapping[int, Fraction]],
        monotone: str,
    ) -> None:
        """State that no circuit of fewer components is faithful.

        Args:
            size: how many.
            blocking: sets of components without which the network breaks the claim, at witnesses.
            nodes: a covering of them, see ``checker.covering``.
            monotone: ``"shown"`` or ``"assumed"``.
        """
        sets = [{"removed": list(names), "witness": self._witness(w)} for names, w in blocking]
        tree = [
            {"branch": node}
            if isinstance(node, str)
            else {"weights": [[place, str(weight)] for place, weight in node.items()]}
            for node in nodes
        ]
        self._statements.append(
            {
                "kind": "lower-bound",
                "size": size,
                "monotone": monotone,
                "blocking": sets,
                "tree": tree,
            }
        )

    def minimal(self, notion: str, monotone: str = "") -> None:
        """State how minimal the circuit is, by the statements so far."""
        condition = {"monotone": monotone} if monotone else {}
        self._statements.append({"kind": "minimal", "notion": notion, **condition})

    def _witness(self, witness: Any) -> dict[str, Any]:
        """A witness as data."""
        found: dict[str, Any] = {
            "input": witness.index,
            "z": self._point(self._claim.inputs[witness.index], witness.z),
        }
        patching = self._claim.patching
        if witness.patch_input is not None and patching.has_source:
            domain = patching.domain(witness.index, self._claim.inputs)
            found["source"] = self._point(domain, witness.patch_input)
        if witness.patch_values is not None:
            boxes = self._sections["claim"]["patching"]["boxes"][witness.index]
            found["patches"] = {
                tensor: self._put(2, self._within(value, boxes[tensor]), "patch")
                for tensor, value in witness.patch_values.items()
            }
        return found

    def leave_out(self, places: Sequence[int]) -> None:
        """Take some statements back; arrays of their witnesses go too."""
        kept = [s for place, s in enumerate(self._statements) if place not in set(places)]
        self._statements = kept
        named = json.dumps(kept)
        arrays = self._arrays[ARRAYS[2]]
        self._arrays[ARRAYS[2]] = {n: v for n, v in arrays.items() if f'"{n}"' in named}
        self._known[2].clear()

    def _within(self, value: Tensor, box: Sequence[str]) -> Array:
        """Patch values in their box: a slope that the file holds in float32 moves its ends."""
        low, high = (self._arrays[ARRAYS[0]][name] for name in box)
        within: Array = np.clip(value.double().numpy().reshape(low.shape), low, high)
        return within

    def _point(self, domain: Domain, point: Tensor) -> dict[str, str]:
        """A point; where it is a corner of a box, as bits; in single precision if that holds it."""
        ends = self._corner(domain)
        if ends is not None:
            low, high = ends
            if bool(((point == low) | (point == high)).all()):
                bits = np.packbits((point == high).reshape(-1).cpu().numpy())
                return {"corner": self._put(2, bits, "corner")}
        single = point.float() if bool((point.float().double() == point.double()).all()) else point
        return {"values": self._put(2, single.reshape(domain.shape), "z")}

    def _corner(self, domain: Domain) -> tuple[Tensor, Tensor] | None:
        if isinstance(domain, Point):
            return domain.x, domain.x
        if isinstance(domain, Box):
            return domain.lower, domain.upper
        if isinstance(domain, Ball) and domain.p == math.inf:
            return domain.inner_box()
        return None

    # --- files --------------------------------------------------------------------------------

    def write(self, folder: str | PathLike[str]) -> None:
        """Write the certificate into a folder, which is made if there is none."""
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        for name, data in self.files().items():
            write_file(path / name, data)

    def files(self) -> dict[str, bytes]:
        """The certificate's files by name."""
        files = {NETWORK: self._network}
        for name in ARRAYS:
            files[name] = save_arrays(self._arrays[name])
        sections = {**self._sections, "proof": self._proof, "statements": self._statements}
        digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
        digests |= {name: section_digest(sections[name]) for name in SECTIONS}
        manifest = {"format": FORMAT, "version": VERSION, "digests": digests, **sections}
        text = json.dumps(manifest, indent=None, separators=(",", ":"), allow_nan=False)
        return {MANIFEST: text.encode(), **files}


def network_bytes(graph: Graph) -> bytes:
    """The network as an ONNX file, in the smallest precision that holds its weights."""
    single = all(
        bool((value.double() == value.float().double()).all())
        for node in graph.nodes
        for value in node.op.parameters().values()
        if value.is_floating_point()
    )
    with TemporaryDirectory() as folder:
        path = Path(folder) / NETWORK
        graph.to_onnx(path, torch.float32 if single else torch.float64)
        return path.read_bytes()
