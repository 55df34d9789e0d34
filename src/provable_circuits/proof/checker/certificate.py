"""The certificate: files of fixed names, read strictly, every digest checked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays

from .arithmetic import Arithmetic, Array, RefusedError
from .claim import Claim
from .data import Data, plain_json
from .network import Network, parse_network

FORMAT, VERSION = "provable-circuits certificate", 1
MANIFEST, NETWORK = "certificate.json", "network.onnx"
ARRAYS = ("claim.safetensors", "proof.safetensors", "witnesses.safetensors")
SECTIONS = ("components", "claim", "circuit", "proof", "statements")
MOST_BYTES = {MANIFEST: 2**26, NETWORK: 2**30, **dict.fromkeys(ARRAYS, 2**30)}


@dataclass
class Certificate:
    """What a folder holds: the network, what is claimed of it, and the arrays of the proof."""

    manifest: Data
    file: bytes
    arrays: Mapping[str, Mapping[str, Array]]

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

    def proof_array(self, name: Data, shape: Sequence[int] | None, kinds: str) -> Array:
        """An array of the proof."""
        return self.array(1, name, shape, kinds)

    @cached_property
    def network(self) -> Network:
        """The network, in float64."""
        network = parse_network(self.file)
        if len(network.shapes[network.output]) != 1:
            raise RefusedError("The network does not give one vector of outputs.")
        return network

    @cached_property
    def rational(self) -> Network:
        """The network with rational weights."""
        return parse_network(self.file, Arithmetic(exact=True))

    @cached_property
    def sites(self) -> list[tuple[str, Array, list[str]]]:
        """For each tensor with components, the component of each unit; and their names."""
        sites = []
        for site in self.manifest["components"].items():
            tensor = site.only("tensor", "names", "labels")["tensor"].text()
            shape = self.network.shapes.get(tensor)
            names = [name.text() for name in site["names"].items()]
            if shape is None:
                raise site.wrong("about a tensor of the network")
            labels = self.array(0, site["labels"], shape, "i").reshape(-1)
            if not (labels.min() >= -1 and labels.max() < len(names)):
                raise site.wrong("labelled by its components")
            sites.append((tensor, labels, names))
        every = [name for _, _, names in sites for name in names]
        if len(set(every)) != len(every):
            raise RefusedError("Two components have one name.")
        return sites

    @cached_property
    def circuit(self) -> frozenset[str]:
        """The components kept."""
        kept = [name.text() for name in self.manifest["circuit"].items()]
        known = {name for _, _, names in self.sites for name in names}
        if len(set(kept)) != len(kept) or set(kept) - known:
            raise RefusedError("The circuit is not a set of components, each named once.")
        return frozenset(kept)

    @cached_property
    def claim(self) -> Claim:
        """The claim."""
        return Claim(
            self.manifest["claim"],
            lambda arithmetic: self.rational if arithmetic.exact else self.network,
            lambda name, shape: self.array(0, name, shape),
            self.sites,
        )


def read(folder: Path) -> Certificate:
    """A certificate, with every digest checked."""
    data = {name: _bytes(folder / name, limit) for name, limit in MOST_BYTES.items()}
    manifest = Data(plain_json(data[MANIFEST]), "certificate")
    manifest.only("format", "version", "digests", *SECTIONS)
    if manifest["format"].value != FORMAT or manifest["version"].value != VERSION:
        raise RefusedError(f"The manifest is not one of version {VERSION} of this format.")
    digests = manifest["digests"].only(NETWORK, *ARRAYS, *SECTIONS)
    for name in (NETWORK, *ARRAYS):
        if digests[name].value != hashlib.sha256(data[name]).hexdigest():
            raise RefusedError(f"The file {name} is another than the certificate's.")
    for name in SECTIONS:
        if digests[name].value != section_digest(manifest[name].value):
            raise RefusedError(f"The section {name!r} is another than the certificate's.")
    arrays = {name: _arrays(data[name]) for name in ARRAYS}
    return Certificate(manifest, data[NETWORK], arrays)


def _arrays(data: bytes) -> Mapping[str, Array]:
    """The arrays of a safetensors file, each named once."""
    plain_json(data[8 : 8 + int.from_bytes(data[:8], "little")])
    try:
        return load_arrays(data)
    except (SafetensorError, ValueError, TypeError, KeyError, OverflowError) as error:
        raise RefusedError("The arrays of the certificate cannot be read.") from error


def section_digest(value: Any) -> str:
    """The digest of a section: of its JSON, keys in order and without spaces."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _bytes(path: Path, limit: int) -> bytes:
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > limit:
            raise RefusedError(f"The file {path.name} is missing, too large, or no plain file.")
        return path.read_bytes()
    except OSError as error:
        raise RefusedError(f"The file {path.name} cannot be read.") from error
