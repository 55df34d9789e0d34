"""The certificate: files of fixed names, read strictly, as the data that the rules work on."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays

from .arithmetic import Arithmetic, Array, Refused, magnitude
from .network import Network, parse_network
from .problem import Patch, Problem, Region, build
from .rules import Subdomain

FORMAT, VERSION = "provable-circuits certificate", 1
MANIFEST, NETWORK = "certificate.json", "network.onnx"
ARRAYS = ("claim.safetensors", "proof.safetensors", "witnesses.safetensors")
SECTIONS = ("components", "claim", "circuit", "proof", "statements")
MOST_BYTES = {MANIFEST: 2**26, NETWORK: 2**30, **dict.fromkeys(ARRAYS, 2**30)}


class Data:
    """Parsed JSON that is asked for by type; whatever does not fit is refused."""

    def __init__(self, value: Any, what: str) -> None:
        self.value, self.what = value, what

    def wrong(self, expected: str) -> Refused:
        return Refused(f"{self.what} is not {expected}.")

    def __getitem__(self, key: str) -> Data:
        if not isinstance(self.value, dict) or key not in self.value:
            raise Refused(f"{self.what} has no {key!r}.")
        return Data(self.value[key], f"{self.what}.{key}"[:200])

    def __contains__(self, key: str) -> bool:
        return isinstance(self.value, dict) and key in self.value

    def only(self, *keys: str) -> Data:
        """Refuse other keys than these."""
        if not isinstance(self.value, dict) or set(self.value) - set(keys):
            raise self.wrong(f"an object with no more than {', '.join(keys)}")
        return self

    def items(self) -> list[Data]:
        if not isinstance(self.value, list):
            raise self.wrong("a list")
        return [Data(item, f"{self.what}[{i}]"[:200]) for i, item in enumerate(self.value)]

    def pairs(self) -> list[tuple[str, Data]]:
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        return [(key, self[key]) for key in self.value]

    def text(self, *allowed: str) -> str:
        if not isinstance(self.value, str) or (allowed and self.value not in allowed):
            raise self.wrong("one of " + ", ".join(allowed) if allowed else "a text")
        return self.value

    def integer(self, below: int) -> int:
        if type(self.value) is not int or not 0 <= self.value < below:
            raise self.wrong(f"an integer from 0 to {below - 1}")
        return self.value

    def number(self) -> float:
        if type(self.value) not in (int, float) or not math.isfinite(self.value):
            raise self.wrong("a finite number")
        return float(self.value)


@dataclass
class Certificate:
    """What a folder holds: the network, what is claimed of it, and the arrays of the proof."""

    manifest: Data
    network: Network
    arrays: Mapping[str, Mapping[str, Array]]
    sites: list[tuple[str, Array, list[str]]]
    circuit: frozenset[str]

    def array(self, file: int, name: Data, shape: Sequence[int] | None, kinds: str = "f") -> Array:
        """An array of a file, by name, of a shape; floats as float64."""
        values = self.arrays[ARRAYS[file]].get(name.text())
        if values is None or values.dtype.kind not in kinds:
            raise name.wrong("the name of an array of its kind")
        if shape is not None and tuple(values.shape) != tuple(shape):
            raise name.wrong(f"the name of an array of shape {list(shape)}")
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise name.wrong("the name of an array of finite numbers")
        return values.astype(np.float64) if values.dtype.kind == "f" else values

    # --- the claim ----------------------------------------------------------------------------

    @property
    def inputs(self) -> list[Data]:
        """The domains of the claim."""
        return self.manifest["claim"]["inputs"].items()

    def _flat(self, name: Data) -> Array:
        return self.array(0, name, self.network.shapes[self.network.input]).reshape(-1)

    def domain(self, data: Data) -> Domain:
        """A domain of inputs."""
        kind = data["kind"].text("point", "box", "ball")
        if kind == "point":
            x = self._flat(data.only("kind", "x")["x"])
            return Domain(x, x, x)
        if kind == "box":
            data.only("kind", "lower", "upper", "centre")
            lower, upper, centre = (self._flat(data[key]) for key in ("lower", "upper", "centre"))
            if not ((lower <= centre) & (centre <= upper)).all():
                raise data.wrong("a box around its centre")
            return Domain(centre, lower, upper)
        x = self._flat(data.only("kind", "x", "eps", "p", "clip", "mask")["x"])
        eps = self._number_or_array(data["eps"], len(x))
        p = 0 if data["p"].value == "inf" else data["p"].integer(3)
        if (eps < 0).any() or (p == 0 and data["p"].value != "inf") or (p and eps.min() != eps.max()):
            raise data.wrong("a ball of the 1-, 2- or maximum norm")
        clip = [self._number_or_array(end, len(x)) for end in data["clip"].items()] if "clip" in data else []
        free = self._flat(data["mask"]) != 0 if "mask" in data else np.ones(len(x), dtype=bool)
        if clip and not (len(clip) == 2 and (clip[0] <= x).all() and (x <= clip[1]).all()):
            raise data.wrong("a ball whose clip encloses the centre")
        lower, upper = np.nextafter(x - eps, -np.inf), np.nextafter(x + eps, np.inf)
        if clip:
            lower, upper = np.maximum(lower, clip[0]), np.minimum(upper, clip[1])
        still = ~free | (eps == 0)
        return Domain(x, np.where(still, x, lower), np.where(still, x, upper), eps, p)

    def _number_or_array(self, data: Data, units: int) -> Array:
        if isinstance(data.value, str):
            return self._flat(data)
        return np.full(units, data.number())

    def removed(self, circuit: frozenset[str]) -> dict[str, Array]:
        """The units of each tensor whose components a circuit does not keep."""
        masks: dict[str, Array] = {}
        for tensor, labels, names in self.sites:
            kept = np.array([name in circuit for name in names] + [True])
            masks[tensor] = masks.get(tensor, False) | ~kept[labels]
        return masks

    def patch(self, place: int) -> Patch:
        """What removed components output at an input."""
        data = self.manifest["claim"]["patching"]
        kind = data["kind"].text("zero", "constant", "reachable", "hull")
        if kind == "zero":
            data.only("kind")
            return {tensor: np.zeros(len(labels)) for tensor, labels, _ in self.sites}
        if kind == "reachable":
            domains = data.only("kind", "domains")["domains"].items()
            return self.domain(domains[place]).region() if place < len(domains) else _none(data)
        values: dict[str, Any] = {}
        if kind == "constant":
            for tensor, name in data.only("kind", "values")["values"].pairs():
                shape = self.network.shapes.get(tensor, ())
                values[tensor] = self.array(0, name, shape).reshape(-1)
        else:
            boxes = data.only("kind", "domains", "boxes")["boxes"].items()
            for tensor, pair in (boxes[place] if place < len(boxes) else _none(data)).pairs():
                shape = self.network.shapes.get(tensor, ())
                ends = [self.array(0, name, shape).reshape(-1) for name in pair.items()]
                if len(ends) != 2 or not (ends[0] <= ends[1]).all():
                    raise pair.wrong("a lower and an upper end")
                values[tensor] = Region(*ends)
        missing = [tensor for tensor, _, _ in self.sites if tensor not in values]
        if missing:
            raise data.wrong(f"complete: {missing[0]!r} is missing")
        return values

    def check_boxes(self, place: int) -> None:
        """Refuse boxes of an interval hull that the network can leave."""
        data = self.manifest["claim"]["patching"]
        if data["kind"].value != "hull":
            return
        region = self.domain(data["domains"].items()[place]).region()
        whole = Subdomain.whole(self.problem(Arithmetic(), region, {}, {}, {"kind": "max-abs", "tolerance": 0.0}))
        for tensor, box in self.patch(place).items():  # type: ignore[union-attr]
            lower, upper = whole.bounds[whole.problem.places[f"N:{tensor}"]]
            if not ((box.lower <= lower) & (upper <= box.upper)).all():
                raise data.wrong(f"inductive: {tensor!r} can leave its box")

    def metric(self, place: int) -> dict[str, Any]:
        """The metric at an input, with its numbers."""
        data = self.manifest["claim"]["metric"]
        outputs = self.network.shapes[self.network.output][0]
        kind = data["kind"].text("logit-difference", "max-abs", "norm", "winner-margin")
        if kind == "winner-margin":
            data.only("kind", "fraction", "against", "margins")
            return {"kind": kind, **self._winner(place, data, outputs)}
        found: dict[str, Any] = {"kind": kind, "tolerance": data["tolerance"].number()}
        if found["tolerance"] < 0:
            raise data.wrong("a metric of a tolerance of at least 0")
        if kind == "logit-difference":
            targets = data.only("kind", "tolerance", "targets")["targets"].items()
            found["target"] = targets[place].integer(outputs) if place < len(targets) else _none(data)
        elif kind == "norm":
            found["p"] = data.only("kind", "tolerance", "p")["p"].integer(3)
        else:
            data.only("kind", "tolerance")
        return found

    def _winner(self, place: int, data: Data, outputs: int) -> dict[str, Any]:
        """Winner and runner-up at the centre, by intervals; the margin must be that of the gap."""
        centre = self.domain(self.inputs[place]).centre
        lower, upper = self.outputs_at(centre)
        winner = int(np.argmax(lower))
        others = [i for i in range(outputs) if i != winner]
        fraction, margin = data["fraction"].number(), data["margins"].items()[place].number()
        if not others or not 0 <= fraction <= 1 or max(upper[others]) > lower[winner]:
            raise data.wrong("one with a certain winner")
        runner = max(others, key=lambda i: lower[i])
        rest = [upper[i] for i in others if i != runner]
        if data["against"].text("runner-up", "all") == "runner-up":
            if rest and max(rest) > lower[runner]:
                raise data.wrong("one with a certain runner-up")
            others = [runner]
        gap = lower[winner] - upper[runner], upper[winner] - lower[runner]
        slack = 1e-9 * float(magnitude(*gap)) + 1e-300
        if not fraction * gap[0] - slack <= margin <= fraction * gap[1] + slack:
            raise data.wrong("one whose margins are the network's")
        return {"winner": winner, "others": others, "margin": margin}

    def outputs_at(self, x: Array) -> tuple[Array, Array]:
        """Bounds of the network's outputs at a point."""
        steps = self.network.steps
        metric = {"kind": "max-abs", "tolerance": 0.0}
        whole = Subdomain.whole(build(Arithmetic(), steps, self.network.output, Region(x, x), {}, {}, metric))
        return whole.bounds[whole.problem.places[f"N:{self.network.output}"]]

    def problem(
        self,
        arithmetic: Arithmetic,
        region: Region,
        removed: Mapping[str, Array],
        patch: Patch,
        metric: Mapping[str, Any],
    ) -> Problem:
        """The problem of a region: see ``build``."""
        return build(
            arithmetic, self.network.steps, self.network.output, region, removed, patch, metric
        )


@dataclass
class Domain:
    """A set of inputs: a box around a centre, cut with a ball of the 1- or 2-norm if ``p``."""

    centre: Array
    lower: Array
    upper: Array
    eps: Array | None = None
    p: int = 0

    def region(self) -> Region:
        """The domain, rounded outward."""
        if not self.p or self.eps is None:
            return Region(self.lower, self.upper)
        return Region(self.lower, self.upper, self.p, float(self.eps[0]), self.centre)

    def contains(self, x: Array) -> bool:
        """Whether a point is in the domain, exactly."""
        if not ((self.lower <= x) & (x <= self.upper)).all():
            return False
        if self.eps is None:
            return True
        moved = [abs(Fraction(a) - Fraction(b)) for a, b in zip(x.tolist(), self.centre.tolist(), strict=True)]
        eps = [Fraction(e) for e in self.eps.tolist()]
        if not self.p:
            return all(m <= e for m, e in zip(moved, eps, strict=True))
        return bool(sum(m**self.p for m in moved) <= eps[0] ** self.p)


def _none(data: Data) -> Any:
    raise data.wrong("complete: it has not one item for each input")


# --- reading ------------------------------------------------------------------------------------


def read(folder: Path) -> Certificate:
    """A certificate, with every digest checked."""
    data = {name: _bytes(folder / name, limit) for name, limit in MOST_BYTES.items()}
    manifest = Data(_json(data[MANIFEST]), "certificate")
    manifest.only("format", "version", "digests", *SECTIONS)
    if manifest["format"].value != FORMAT or manifest["version"].value != VERSION:
        raise Refused(f"The manifest is not one of version {VERSION} of this format.")
    for name in (NETWORK, *ARRAYS):
        if manifest["digests"][name].value != hashlib.sha256(data[name]).hexdigest():
            raise Refused(f"The file {name} is not the one that the certificate was made with.")
    for name in SECTIONS:
        if manifest["digests"][name].value != section_digest(manifest[name].value):
            raise Refused(f"The section {name!r} is not the one that the certificate was made with.")
    try:
        arrays = {name: load_arrays(data[name]) for name in ARRAYS}
    except (SafetensorError, ValueError, TypeError, KeyError, OverflowError) as error:
        raise Refused("The arrays of the certificate cannot be read.") from error
    network = parse_network(data[NETWORK])
    certificate = Certificate(manifest, network, arrays, [], frozenset())
    names: list[str] = []
    for site in manifest["components"].items():
        tensor = site.only("tensor", "names", "labels")["tensor"].text()
        shape = network.shapes.get(tensor)
        own = [name.text() for name in site["names"].items()]
        if shape is None:
            raise site.wrong("about a tensor of the network")
        labels = certificate.array(0, site["labels"], shape, "i").reshape(-1)
        if len(labels) and not (-1 <= labels.min() and labels.max() < len(own)):
            raise site.wrong("labelled by its components")
        certificate.sites.append((tensor, labels, own))
        names += own
    kept = [name.text() for name in manifest["circuit"].items()]
    if len(set(names)) != len(names) or len(set(kept)) != len(kept) or set(kept) - set(names):
        raise Refused("The circuit is not a set of components, each named once.")
    certificate.circuit = frozenset(kept)
    if len(network.shapes[network.output]) != 1:
        raise Refused("The network does not give one vector of outputs.")
    return certificate


def section_digest(value: Any) -> str:
    """The digest of a section: of its JSON, keys in order and without spaces."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _bytes(path: Path, limit: int) -> bytes:
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > limit:
            raise Refused(f"The file {path.name} is missing, too large, or no plain file.")
        return path.read_bytes()
    except OSError as error:
        raise Refused(f"The file {path.name} cannot be read.") from error


def _json(data: bytes) -> Any:
    try:
        return json.loads(data, object_pairs_hook=_unique, parse_constant=_constant)
    except (ValueError, RecursionError) as error:
        raise Refused("The manifest is not plain JSON.") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise Refused("The manifest has a key twice.")
    return made


def _constant(name: str) -> Any:
    raise Refused(f"The manifest has the number {name}.")
