"""A certificate taken apart, and sealed again with digests that are right."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import onnx
from safetensors.numpy import load, save

Files = dict[str, bytes]
ARRAYS = ("claim.safetensors", "proof.safetensors", "witnesses.safetensors")
SECTIONS = ("components", "claim", "circuit", "proof", "statements")
NOISE: tuple[Any, ...] = (
    0, 1, -1, 2, 3, 10**400, 0.5, 1e-300, 1e300, -0.0, 2.0**70, True, False, None, "", "x",
    "nothing\nhere", "../../etc/passwd", "a" * 5000, "\ud800", "\u202e", [], {}, [[]], [0, 0],
    {"kind": "zero"}, "inf", "1e999999999", "1/0", 2**63,
)  # fmt: skip


@dataclass
class Parts:
    """A certificate taken apart."""

    manifest: dict[str, Any]
    arrays: dict[str, dict[str, Any]]
    model: Any
    dice: random.Random
    other: Mapping[str, bytes]

    @classmethod
    def of(
        cls, files: Mapping[str, bytes], dice: random.Random, other: Mapping[str, bytes]
    ) -> Parts:
        arrays = {name: {k: v.copy() for k, v in load(files[name]).items()} for name in ARRAYS}
        model = onnx.load_from_string(files["network.onnx"])
        return cls(json.loads(files["certificate.json"]), arrays, model, dice, other)

    def seal(self) -> Files:
        files = {name: save(arrays) for name, arrays in self.arrays.items()}
        files["network.onnx"] = self.model.SerializeToString()
        return sealed(self.manifest, files)

    # --- choices ------------------------------------------------------------------------------

    def array(self, file: int, kinds: str = "fiu") -> Any:
        found = [v for v in self.arrays[ARRAYS[file]].values() if v.dtype.kind in kinds and v.size]
        return self.dice.choice(found) if found else Nothing.give()

    def spots(self, value: Any) -> list[tuple[Any, Any]]:
        """Every place of a JSON value: what holds it, and its key."""
        if isinstance(value, dict):
            return [s for k, v in value.items() for s in [(value, k), *self.spots(v)]]
        if isinstance(value, list):
            return [s for i, v in enumerate(value) for s in [(value, i), *self.spots(v)]]
        return []

    def trees(self) -> list[Any]:
        trees = [tree for proof in self.manifest["proof"] for tree in proof["trees"]]
        return trees or Nothing.give()

    def nodes(self) -> Any:
        """A list of nodes, with splits where there are any."""
        trees = [tree["nodes"] for tree in self.trees()]
        split = [nodes for nodes in trees if len(nodes) > 1]
        return self.dice.choice(split or trees)

    def node(self) -> Any:
        return self.dice.choice(self.nodes())

    def domain(self) -> Any:
        patching = self.manifest["claim"]["patching"]
        return self.dice.choice([*self.manifest["claim"]["inputs"], *patching.get("domains", [])])

    def weight(self) -> Any:
        found = [t for t in self.model.graph.initializer if t.data_type in (1, 11) and t.raw_data]
        return self.dice.choice(found)

    def statement(self, *kinds: str) -> Any:
        found = [s for s in self.manifest["statements"] if s["kind"] in kinds]
        return self.dice.choice(found) if found else Nothing.give()


class Nothing(Exception):  # noqa: N818 - not an error
    """There is nothing of the kind to change."""

    @classmethod
    def give(cls) -> Any:
        raise cls


def digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def sealed(manifest: dict[str, Any], files: Mapping[str, bytes]) -> Files:
    """The files of a certificate whose digests are right."""
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    digests |= {name: digest(manifest[name]) for name in SECTIONS if name in manifest}
    return {"certificate.json": json.dumps({**manifest, "digests": digests}).encode(), **files}


def factor(p: Parts) -> float:
    """A factor near one, or far from it."""
    return p.dice.choice([0.0, 0.3, 0.8, 0.9, 0.96, 0.999, 1.001, 1.04, 1.2, 2.0, 10.0, -1.0, 1e12])
