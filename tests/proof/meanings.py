"""Changes of what a certificate states, and of the network that it is about."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from tests.proof.parts import ARRAYS, Nothing, Parts, factor

# --- what is stated -----------------------------------------------------------------------------


def tolerance(p: Parts) -> None:
    metric = p.manifest["claim"]["metric"]
    for key in ("tolerance", "fraction"):
        if key in metric:
            metric[key] *= factor(p)
    if "margins" in metric:
        share = factor(p)
        metric["margins"] = [m * share for m in metric["margins"]]


def metric_kind(p: Parts) -> None:
    metric = p.manifest["claim"]["metric"]
    allowed = metric.get("tolerance", metric.get("margins", [0.1])[0])
    outputs = 3
    p.manifest["claim"]["metric"] = p.dice.choice(
        [
            {"kind": "max-abs", "tolerance": allowed},
            {"kind": "norm", "tolerance": allowed, "p": p.dice.choice([0, 1, 2])},
            {
                "kind": "logit-difference",
                "tolerance": allowed,
                "targets": [p.dice.randrange(-1, outputs) for _ in p.manifest["claim"]["inputs"]],
            },
            {"kind": "winner-margin", "fraction": 0, "against": "all", "margins": [0.0, 0.0]},
        ]
    )


def targets(p: Parts) -> None:
    metric = p.manifest["claim"]["metric"]
    if "targets" in metric:
        metric["targets"] = [t + p.dice.choice([-1, 0, 1, 2]) for t in metric["targets"]]
    elif "against" in metric:
        metric["against"] = {"all": "runner-up", "runner-up": "all"}[metric["against"]]
    elif "p" in metric:
        metric["p"] = 3 - metric["p"]
    else:
        Nothing.give()


def radius(p: Parts) -> None:
    domain = p.domain()
    if isinstance(domain.get("eps"), float):
        domain["eps"] *= factor(p)
    elif "lower" in domain:
        end = p.dice.choice(["lower", "upper"])
        array = p.arrays[ARRAYS[0]][domain[end]]
        array += p.dice.choice([-1, 1]) * 10.0 ** p.dice.randrange(-9, 1)
    else:
        domain.update(
            kind="ball", eps=p.dice.choice([0.0, 0.1, 1.0]), p=p.dice.choice([1, 2, "inf"])
        )


def ball(p: Parts) -> None:
    domain = p.domain()
    change = p.dice.choice(["p", "clip", "mask", "kind", "key"])
    if change == "p" and "p" in domain:
        domain["p"] = p.dice.choice([1, 2, "inf", 0, 3, -1, 1.0, "1", True])
    elif change == "clip":
        domain["clip"] = p.dice.choice([[-9.0, 9.0], [0.0, 1.0], [0.4, 0.6], [1.0, 0.0], [], [0.0]])
    elif change == "mask":
        domain.pop("mask", None)
        domain.pop("clip", None)
    elif change == "kind":
        domain["kind"] = p.dice.choice(["point", "box", "ball", "all", ""])
    else:
        domain.pop(p.dice.choice(list(domain)))


def centre(p: Parts) -> None:
    array = p.array(0, "f")
    spot = p.dice.randrange(array.size)
    array.reshape(-1)[spot] += p.dice.choice([1e-16, 1e-9, 1e-3, 0.1, -0.1, 1.0, -3.0, 1e6, 1e300])


def inputs(p: Parts) -> None:
    found = p.manifest["claim"]["inputs"]
    change = p.dice.choice(["drop", "double", "turn", "none"])
    if change == "drop":
        found.pop(p.dice.randrange(len(found)))
    elif change == "double":
        found.append(copy.deepcopy(p.dice.choice(found)))
    elif change == "turn":
        found.reverse()
    else:
        found.clear()
        p.manifest["proof"].clear()


def patching(p: Parts) -> None:
    data = p.manifest["claim"]["patching"]
    change = p.dice.choice(["kind", "boxes", "drop", "copy"])
    if change == "kind":
        data["kind"] = p.dice.choice(["zero", "constant", "reachable", "hull", "mean"])
        data.setdefault("domains", p.manifest["claim"]["inputs"])
    elif change == "boxes" and "boxes" in data:
        name = p.dice.choice(list(data["boxes"][0].values()))
        low, high = (p.arrays[ARRAYS[0]][end] for end in name)
        share = p.dice.choice([0.5, 1e-6, 1e-12, -0.5, -1.0])
        width = np.maximum(high - low, 1e-9)
        low += share * width
        high -= share * width
    elif change == "copy":
        p.manifest["claim"]["patching"] = json.loads(p.other["certificate.json"])["claim"][
            "patching"
        ]
    else:
        data.pop(p.dice.choice(list(data)))


def circuit(p: Parts) -> None:
    kept, parts = p.manifest["circuit"], p.manifest["components"]
    every = [name for site in parts for name in site["names"]]
    change = p.dice.choice(["drop", "drop", "add", "double", "unknown", "all", "none"])
    if change == "drop" and kept:
        kept.pop(p.dice.randrange(len(kept)))
    elif change == "add" and set(every) - set(kept):
        kept.append(p.dice.choice(sorted(set(every) - set(kept))))
    elif change == "double" and kept:
        kept.append(kept[0])
    elif change == "all":
        p.manifest["circuit"] = every
    elif change == "none":
        p.manifest["circuit"] = []
    else:
        kept.append(p.dice.choice(["nothing", "a\nb", "\ud800", "x" * 10_000]))


def components(p: Parts) -> None:
    parts = p.manifest["components"]
    site = p.dice.choice(parts)
    change = p.dice.choice(["labels", "labels", "names", "drop", "tensor", "double", "inner"])
    if change == "labels":
        labels = p.arrays[ARRAYS[0]][site["labels"]]
        labels.reshape(-1)[p.dice.randrange(labels.size)] = p.dice.choice([-2, -1, 0, 1, 2, 99])
    elif change == "names":
        p.dice.shuffle(site["names"])
    elif change == "drop":
        parts.remove(site)
    elif change == "double":
        parts.append(copy.deepcopy(site))
    else:
        tensors = [name for node in p.model.graph.node for name in node.output]
        inner = [f"{name}~{part}" for name in tensors for part in ("gain0", "gain", "over0", "low")]
        site["tensor"] = p.dice.choice(inner if change == "inner" else [*tensors, "x", "nothing"])


def flip(p: Parts) -> None:
    """Another statement than the one that is proved."""
    statement = p.dice.choice(p.manifest["statements"])
    change = p.dice.choice(["kind", "component", "double", "none", "faithful", "unfaithful"])
    if change == "kind":
        statement["kind"] = p.dice.choice(["faithful", "unfaithful", "necessary", "minimal"])
    elif change == "component":
        every = [name for site in p.manifest["components"] for name in site["names"]]
        statement["component"] = p.dice.choice([*every, "a\nb", "x" * 10_000, "\ud800"])
        statement["kind"] = "necessary"
    elif change == "double":
        p.manifest["statements"].append(copy.deepcopy(statement))
    elif change == "none":
        p.manifest["statements"].clear()
    elif change == "faithful":
        p.manifest["statements"].append({"kind": "faithful"})
    else:
        witness = statement.get("witness", {"input": 0, "z": {"values": "z0"}})
        p.manifest["statements"].append({"kind": "unfaithful", "witness": witness})


def invented(p: Parts) -> None:
    """A witness made up: a point of the domain, for a claim that holds there."""
    x = p.arrays[ARRAYS[0]][p.manifest["claim"]["inputs"][0].get("x", "x")].astype(np.float64)
    p.arrays[ARRAYS[2]]["made"] = x + p.dice.choice([0.0, 0.01, 0.1])
    point = {"values": "made"}
    witness: dict[str, Any] = {"input": 0, "z": point}
    kind = p.manifest["claim"]["patching"]["kind"]
    if kind == "reachable":
        witness["source"] = point
    elif kind == "hull":
        witness["patches"] = {}
    p.manifest["statements"] = [{"kind": "unfaithful", "witness": witness}]
    every = p.manifest["circuit"]
    if every and p.dice.random() < 0.5:
        component = p.dice.choice(every)
        p.manifest["statements"] = [
            {"kind": "necessary", "component": component, "witness": witness}
        ]


# --- the network --------------------------------------------------------------------------------


def weights(p: Parts) -> None:
    tensor = p.weight()
    values = np.array(numpy_helper.to_array(tensor))
    flat = values.reshape(-1)
    change = p.dice.choice(["one", "all", "sign", "bad", "zero"])
    if not flat.size:
        Nothing.give()
    if change == "one":
        flat[p.dice.randrange(flat.size)] += p.dice.choice([1e-9, 0.01, 0.3, -1.0, 5.0])
    elif change == "all":
        flat *= factor(p)
    elif change == "sign":
        flat[p.dice.randrange(flat.size)] *= -1
    elif change == "bad":
        flat[p.dice.randrange(flat.size)] = p.dice.choice([np.nan, np.inf, -np.inf, 1e38])
    else:
        flat[:] = 0
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def shape_of_weight(p: Parts) -> None:
    tensor = p.dice.choice(list(p.model.graph.initializer))
    change = p.dice.choice(["turn", "huge", "negative", "cut", "type", "outside", "floats"])
    if change == "turn":
        dims = list(reversed(tensor.dims))
        del tensor.dims[:]
        tensor.dims.extend(dims)
    elif change in ("huge", "negative"):
        tensor.dims.append(2**40 if change == "huge" else -1)
    elif change == "cut":
        tensor.raw_data = tensor.raw_data[: -p.dice.randrange(1, 9)]
    elif change == "type":
        tensor.data_type = p.dice.choice([0, 1, 6, 7, 8, 10, 11, 16, 99])
    elif change == "outside":
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="../../../etc/passwd")
    else:
        tensor.float_data.append(1.0)


def operation(p: Parts) -> None:
    node = p.dice.choice(list(p.model.graph.node))
    swaps = {
        "Relu": ["LeakyRelu", "Identity", "Sigmoid", "Tanh", "Abs"],
        "LeakyRelu": ["Relu", "Elu"],
        "Sigmoid": ["Tanh", "Relu"],
        "Tanh": ["Sigmoid", "Identity"],
        "Add": ["Sub", "Mul", "Div"],
        "Sub": ["Add"],
        "MaxPool": ["AveragePool"],
        "AveragePool": ["MaxPool"],
        "Flatten": ["Identity"],
        "Clip": ["Relu"],
    }
    node.op_type = p.dice.choice(swaps.get(node.op_type, ["If", "Loop", "Constant", "Gemm", ""]))


def attribute(p: Parts) -> None:
    found = [a for node in p.model.graph.node for a in node.attribute]
    if not found or p.dice.random() < 0.3:
        node = p.dice.choice(list(p.model.graph.node))
        name, value = p.dice.choice(
            [("alpha", 0.5), ("axis", 1), ("auto_pad", "SAME_UPPER"), ("pads", [1, 1, 1, 1])]
        )
        node.attribute.append(helper.make_attribute(name, value))
        return
    chosen = p.dice.choice(found)
    if chosen.ints:
        spot = p.dice.randrange(len(chosen.ints))
        chosen.ints[spot] = p.dice.choice([0, 1, 2, 3, -1, 2**20, 2**40, 2**62, -(2**63)])
        if p.dice.random() < 0.2:
            chosen.ints.append(1)
    elif chosen.type == onnx.AttributeProto.FLOAT:
        chosen.f = p.dice.choice([0.0, 0.5, 1.0, 1.5, -0.1, float("nan"), float("inf"), 1e-5])
    else:
        chosen.i = p.dice.choice([0, 1, 2, -1, 2**40, -(2**63)])
    if p.dice.random() < 0.15:
        chosen.type = p.dice.choice([0, 1, 2, 3, 6, 7, 8])


def wiring(p: Parts) -> None:
    graph = p.model.graph
    node = p.dice.choice(list(graph.node))
    tensors = [graph.input[0].name, *(name for n in graph.node for name in n.output)]
    change = p.dice.choice(["input", "output", "drop", "double", "end", "swap", "empty"])
    if change == "input":
        node.input[p.dice.randrange(len(node.input))] = p.dice.choice(tensors)
    elif change == "output":
        node.output[0] = p.dice.choice(tensors)
    elif change == "drop":
        graph.node.remove(node)
    elif change == "double":
        graph.node.append(node)
    elif change == "end":
        graph.output[0].name = p.dice.choice(tensors)
    elif change == "swap" and len(node.input) > 1:
        first = node.input[0]
        node.input[0] = node.input[1]
        node.input[1] = first
    else:
        node.input.append("")


def model(p: Parts) -> None:
    graph, found = p.model.graph, p.model
    change = p.dice.choice(
        ["opset", "two", "domain", "function", "sparse", "batch", "input", "big"]
    )
    if change == "opset":
        found.opset_import[0].version = p.dice.choice([1, 7, 21, 23, 0, 2**40])
    elif change == "two":
        found.opset_import.add(domain=p.dice.choice(["", "ai.onnx", "ai.onnx.ml"]), version=22)
    elif change == "domain":
        p.dice.choice(list(graph.node)).domain = "com.microsoft"
    elif change == "function":
        body = [helper.make_node("Neg", ["a"], ["b"])]
        found.functions.append(
            helper.make_function("", "Relu", ["a"], ["b"], body, found.opset_import)
        )
    elif change == "sparse":
        values = helper.make_tensor(graph.input[0].name, 1, [1], [1.0])
        places = helper.make_tensor("places", 7, [1], [0])
        graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [4]))
    elif change == "batch":
        graph.input[0].type.tensor_type.shape.dim[0].dim_value = p.dice.choice([1, 2, 0, -1, 2**40])
    elif change == "input":
        graph.input.append(helper.make_tensor_value_info(graph.initializer[0].name, 1, [1, 2]))
    else:
        dim = p.dice.choice(list(graph.input[0].type.tensor_type.shape.dim)[1:])
        dim.dim_value = p.dice.choice([2**22, 2**31, 2**62, 0, -1])
