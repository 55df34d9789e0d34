"""Mutants of certificates: what an adversary would try, and what accidents do.

Most kinds change one thing of a certificate that was taken apart and seal it again, digests and
all, so that only the meaning can give them away. The others change bytes and leave the digests.
"""

from __future__ import annotations

import copy
import json
import random
import struct
from collections.abc import Callable, Mapping

import numpy as np
import onnx
from safetensors.numpy import load
from tests.proof.meanings import (
    attribute,
    ball,
    centre,
    circuit,
    components,
    flip,
    inputs,
    invented,
    metric_kind,
    model,
    operation,
    patching,
    radius,
    shape_of_weight,
    targets,
    tolerance,
    weights,
    wiring,
)
from tests.proof.parts import ARRAYS, NOISE, SECTIONS, Files, Nothing, Parts, sealed

# --- the proof ----------------------------------------------------------------------------------


def alpha(p: Parts) -> None:
    array = p.array(1, "u")
    array[...] = np.random.default_rng(p.dice.randrange(10**6)).integers(0, 256, array.shape)


def alpha_units(p: Parts) -> None:
    array = p.array(1, "i")
    array[p.dice.randrange(len(array))] = p.dice.choice([0, 1, -1, 10**6, 2**31 - 1, -(2**31)])


def beta(p: Parts) -> None:
    array = p.array(1, "f")
    spot = p.dice.randrange(array.size)
    value = p.dice.choice([0.0, 0.1, 1.0, 10.0, -1e-3, -1.0, np.nan, np.inf, 1e300, 5e-324])
    array.reshape(-1)[spot] = value


def tree(p: Parts) -> None:
    nodes = p.nodes()
    spot = p.dice.randrange(len(nodes))
    change = p.dice.choice(["drop", "double", "close", "split", "halve", "cut", "turn"])
    if change == "drop":
        nodes.pop(spot)
    elif change == "double":
        nodes.insert(spot, copy.deepcopy(nodes[spot]))
    elif change == "close":
        nodes[spot] = {"close": {}}
    elif change == "split":
        names = ["N", "C", "S"]
        tensors = [name for node in p.model.graph.node for name in node.output]
        name = f"{p.dice.choice(names)}:{p.dice.choice(tensors)}"
        nodes[spot : spot + 1] = [
            {"split": [name, p.dice.randrange(-1, 4)]},
            nodes[spot],
            nodes[spot],
        ]
    elif change == "halve":
        inputs_ = [
            f"N:{p.model.graph.input[0].name}",
            f"S:{p.model.graph.input[0].name}",
            "D:difference",
        ]
        value = p.dice.choice([0.5, 0.6, -1.0, 1e300])
        nodes[spot : spot + 1] = [
            {"side": [p.dice.choice(inputs_), 0, value]},
            nodes[spot],
            nodes[spot],
        ]
    elif change == "cut":
        del nodes[spot:]
    else:
        nodes.reverse()


def split(p: Parts) -> None:
    found = [node for t in p.trees() for node in t["nodes"] if "split" in node or "side" in node]
    if not found:
        Nothing.give()
    node = p.dice.choice(found)
    parts = node.get("split") or node["side"]
    spot = p.dice.randrange(len(parts))
    parts[spot] = p.dice.choice([0, 1, 2, -1, 10**9, 0.5, "N:nothing", None, *parts])


def leaf(p: Parts) -> None:
    node = p.node()
    change = p.dice.choice(["empty", "exact", "beta", "fractions", "alpha", "both", "tighten"])
    close = node.pop("close", {})
    if change == "empty":
        node["empty"] = close
    elif change == "exact":
        node["close"] = {**close, "exact": True}
    elif change == "beta":
        node["close"] = {}
    elif change == "fractions":
        text = p.dice.choice(["1", "1/3", "-1/3", "0", "1e999999999", "1/0", "9" * 5000, " 1", "½"])
        node["close"] = {"exact": True, "beta": [[text]]}
    elif change == "alpha":
        node.pop("alpha", None)
        node["close"] = close
    elif change == "both":
        node.update(close=close, empty={})
    else:
        node.update(close=close, tighten=[p.dice.choice(["N:x", "C:nothing", "D:difference"])] * 3)


def objectives(p: Parts) -> None:
    chosen = p.dice.choice(p.trees())
    change = p.dice.choice(["drop", "double", "other", "none"])
    rows = chosen["objectives"]
    if change == "drop":
        rows.pop()
    elif change == "double":
        rows *= 2
    elif change == "other":
        rows[-1] = p.dice.choice([0, 1, -1, 10**6])
    else:
        chosen["objectives"] = []


def trees(p: Parts) -> None:
    proof = p.dice.choice(p.manifest["proof"]) if p.manifest["proof"] else Nothing.give()
    change = p.dice.choice(["drop", "double", "tighten", "order", "inputs", "again"])
    if change == "drop":
        proof["trees"].pop()
    elif change == "double":
        proof["trees"] *= 2
    elif change == "tighten":
        proof["tighten"] = []
    elif change == "order":
        proof["tighten"].reverse()
    elif change == "again":
        proof["tighten"] = proof["tighten"] * 3
    else:
        p.manifest["proof"].reverse()
        if p.dice.random() < 0.5:
            p.manifest["proof"].pop()


def witness(p: Parts) -> None:
    found = p.statement("necessary", "unfaithful")["witness"]
    change = p.dice.choice(["values", "values", "input", "drop", "swap"])
    if change == "values":
        array = p.array(2)
        spot = p.dice.randrange(array.size)
        if array.dtype.kind == "f":
            array.reshape(-1)[spot] += p.dice.choice([1e-15, 1e-9, 1e-3, 0.3, -0.3, 100.0, np.nan])
        else:
            array.reshape(-1)[spot] ^= 1 << p.dice.randrange(8)
    elif change == "input":
        found["input"] = p.dice.choice([0, 1, 2, -1, True, 10**9])
    elif change == "drop":
        found.pop(p.dice.choice(list(found)))
    else:
        found["z"] = p.dice.choice([{"values": "z0"}, {"corner": "z0"}, {"corner": "corner0"}, {}])


def lower_bound(p: Parts) -> None:
    found = p.statement("lower-bound")
    change = p.dice.choice(["size", "monotone", "weights", "branch", "tree", "sets", "witness"])
    leaves = [node["weights"] for node in found["tree"] if node.get("weights")]
    branches = [node for node in found["tree"] if "branch" in node]
    sets = found["blocking"]
    if change == "size":
        found["size"] += p.dice.choice([1, 1, 2, -1, 0.5, 10**9])
    elif change == "monotone":
        found["monotone"] = p.dice.choice(["shown", "assumed", "known", None])
    elif change == "weights" and leaves:
        pair = p.dice.choice(p.dice.choice(leaves))
        pair[p.dice.randrange(2)] = p.dice.choice([0, 1, "1", "2", "3/2", "-1", "1/3", "0", 10**9])
    elif change == "branch" and branches:
        node = p.dice.choice(branches)
        node["branch"] = p.dice.choice([*p.manifest["circuit"], "nobody", 3])
    elif change == "tree":
        nodes = found["tree"]
        place = p.dice.randrange(len(nodes))
        if p.dice.random() < 0.5:
            nodes.insert(place, copy.deepcopy(p.dice.choice(nodes)))
        else:
            nodes.pop(place)
    elif change == "sets" and sets:
        removed = p.dice.choice(sets)["removed"]
        if p.dice.random() < 0.5 and removed:
            removed.pop()
        else:
            removed.append(p.dice.choice(p.manifest["circuit"]))
    elif sets:
        one, other = p.dice.choice(sets), p.dice.choice(sets)
        one["witness"] = copy.deepcopy(other["witness"])


def minimal(p: Parts) -> None:
    found = p.statement("minimal")
    change = p.dice.choice(["notion", "monotone", "first", "without"])
    statements = p.manifest["statements"]
    if change == "notion":
        found["notion"] = p.dice.choice(["quasi", "local", "subset", "cardinal", "global"])
    elif change == "monotone":
        found["monotone"] = p.dice.choice(["shown", "assumed", "known", None])
    elif change == "first":
        statements.insert(0, statements.pop())
    else:
        statements.remove(p.statement("necessary", "lower-bound", "faithful"))


# --- the arrays and the manifest ----------------------------------------------------------------


def numbers(p: Parts) -> None:
    array = p.array(p.dice.randrange(3), "f")
    array.reshape(-1)[p.dice.randrange(array.size)] = p.dice.choice([np.nan, np.inf, -np.inf])


def array_shape(p: Parts) -> None:
    arrays = p.arrays[ARRAYS[p.dice.randrange(3)]]
    name = p.dice.choice(list(arrays)) if arrays else Nothing.give()
    change = p.dice.choice(["flat", "cut", "more", "type", "gone", "zero", "swap"])
    value = arrays[name]
    if change == "flat":
        arrays[name] = value.reshape(-1, 1).copy()
    elif change == "cut":
        arrays[name] = value.reshape(-1)[:-1].copy()
    elif change == "more":
        arrays[name] = np.concatenate([value.reshape(-1)] * 2)
    elif change == "type":
        kinds = [np.float16, np.float32, np.int64, np.uint8, np.bool_]
        arrays[name] = value.astype(p.dice.choice(kinds))
    elif change == "gone":
        del arrays[name]
    elif change == "zero":
        arrays[name] = np.zeros((p.dice.choice([1, 10**6, 2**40]), 0), value.dtype)
    else:
        arrays[name] = arrays[p.dice.choice(list(arrays))].copy()


def anything(p: Parts) -> None:
    """Some value of the manifest, replaced by another."""
    section = p.dice.choice(SECTIONS)
    spots = p.spots({section: p.manifest[section]})
    holder, key = p.dice.choice(spots)
    holder[key] = copy.deepcopy(p.dice.choice(NOISE))
    p.manifest[section] = holder[key] if key == section else p.manifest[section]


def key(p: Parts) -> None:
    """A key more, or one less, somewhere in the manifest."""
    held = [h for h, _ in p.spots(p.manifest) if isinstance(h, dict)]
    holder = p.dice.choice(held)
    if p.dice.random() < 0.5:
        holder.pop(p.dice.choice(list(holder)))
    else:
        holder[p.dice.choice(["exact", "note", "a\nb", "__class__"])] = p.dice.choice(NOISE)


def borrowed(p: Parts) -> None:
    """A section of another certificate."""
    section = p.dice.choice(SECTIONS)
    p.manifest[section] = json.loads(p.other["certificate.json"])[section]


def borrowed_arrays(p: Parts) -> None:
    """The arrays, or the network, of another certificate."""
    file = p.dice.choice([*ARRAYS, "network.onnx"])
    if file == "network.onnx":
        p.model = onnx.load_from_string(p.other[file])
    else:
        p.arrays[file] = load(p.other[file])


MEANINGS: tuple[Callable[[Parts], None], ...] = (
    tolerance, tolerance, metric_kind, targets, radius, radius, ball, centre, inputs, patching,
    circuit, circuit, components, flip, invented, weights, weights, shape_of_weight, operation,
    attribute, wiring, model, alpha, alpha_units, beta, tree, tree, split, leaf, objectives, trees,
    witness, witness, lower_bound, lower_bound, minimal, numbers, array_shape, anything, anything,
    key, borrowed, borrowed_arrays,
)  # fmt: skip


# --- bytes --------------------------------------------------------------------------------------


def flipped(files: Files, dice: random.Random) -> None:
    name = dice.choice(list(files))
    data = bytearray(files[name])
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    files[name] = bytes(data)


def truncated(files: Files, dice: random.Random) -> None:
    name = dice.choice(list(files))
    files[name] = files[name][: dice.randrange(len(files[name]))]


def missing(files: Files, dice: random.Random) -> None:
    files.pop(dice.choice(list(files)))


def longer(files: Files, dice: random.Random) -> None:
    name = dice.choice(list(files))
    files[name] += dice.choice([b"\x00", b" ", b"{}", b"\xff" * 20])


def resealed_bytes(files: Files, dice: random.Random) -> None:
    """Bytes of a file changed, and the digests after it."""
    manifest = json.loads(files.pop("certificate.json"))
    dice.choice([flipped, truncated, longer])(files, dice)
    files.update(sealed(manifest, files))


def repeated_key(files: Files, dice: random.Random) -> None:
    text = files["certificate.json"].decode()
    section = dice.choice([*SECTIONS, "digests", "format"])
    value = json.dumps(json.loads(text)[section])
    files["certificate.json"] = f'{text[:-1]}, "{section}": {value}}}'.encode()


def odd_json(files: Files, dice: random.Random) -> None:
    text = files["certificate.json"].decode()
    manifest = json.loads(text)
    deep = dice.choice([100, 900, 1500, 10**5])
    made = [
        "[" * deep,
        "[" * deep + "]" * deep,
        text[:-1] + ', "circuit": ' + "[" * deep + "]" * deep + "}",
        json.dumps({**manifest, "circuit": float("nan")}),
        text.replace('"version": 1', '"version": 1e999').replace('"version":1', '"version":1e999'),
        json.dumps({**manifest, "circuit": 0}).replace('"circuit": 0', '"circuit": [1e999]'),
        json.dumps({**manifest, "circuit": 0}).replace('"circuit": 0', f'"circuit": {"9" * 5000}'),
        json.dumps({**manifest, "circuit": 0}).replace(
            '"circuit": 0', '"circuit": ' + '{"a":' * deep + "0" + "}" * deep
        ),
        "\ufeff" + text,
        "null",
        "",
    ]
    files["certificate.json"] = dice.choice(made).encode()


def odd_arrays(files: Files, dice: random.Random) -> None:
    """Headers of arrays that lie, digests put right."""
    manifest = json.loads(files.pop("certificate.json"))
    name = dice.choice(ARRAYS)
    size = struct.unpack("<Q", files[name][:8])[0]
    header, body = files[name][8 : 8 + size], files[name][8 + size :]
    entry = {"dtype": "F64", "shape": [2**62, 4], "data_offsets": [0, 0]}
    text = header.decode().rstrip()
    made = [
        (2**63, header),
        (size + 8, header),
        (0, header),
        (None, json.dumps({"z0": entry}).encode()),
        (None, json.dumps({"z0": {**entry, "shape": [2**40, 0]}}).encode()),
        (None, json.dumps({"z0": {**entry, "dtype": "BF16", "shape": [0]}}).encode()),
        (None, (text[:-1] + ("," if len(text) > 2 else "") + text[1:]).encode()),
        (None, ("[" * 10**5).encode()),
        (None, header.replace(b"F64", b"I64")),
        (None, header.replace(b"F64", b"F32")),
        (None, header.replace(b"I32", b"F32")),
    ]
    length, chosen = dice.choice(made)
    files[name] = struct.pack("<Q", len(chosen) if length is None else length) + chosen + body
    files.update(sealed(manifest, files))


BYTES: tuple[Callable[[Files, random.Random], None], ...] = (
    flipped, truncated, missing, longer, resealed_bytes, resealed_bytes, repeated_key, odd_json,
    odd_arrays,
)  # fmt: skip


def mutate(
    files: Mapping[str, bytes], other: Mapping[str, bytes], seed: int
) -> tuple[str, Files] | None:
    """One mutant: what kind it is, and its files; None if there was nothing of its kind."""
    dice = random.Random(seed)
    if dice.random() < 0.18:
        change = dice.choice(BYTES)
        made = dict(files)
        change(made, dice)
        return change.__name__, made
    parts = Parts.of(files, dice, other)
    kinds = []
    for _ in range(1 if dice.random() < 0.85 else 2):
        meaning = dice.choice(MEANINGS)
        kinds.append(meaning.__name__)
        try:
            meaning(parts)
        except (Nothing, LookupError, TypeError, AttributeError, ValueError):
            return None
    try:
        return " + ".join(kinds), parts.seal()
    except (ValueError, TypeError, KeyError, OverflowError):
        return None
