"""A judge of certificates that shares nothing with the checker.

It reads the network with the ``onnx`` package, runs it in torch, in float64 and operation by
operation, and looks for a point at which a statement is false: at random, at corners and along
gradients. Networks here have few inputs, so little is missed. A statement that rests on a witness
is true if the circuit breaks the claim there.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import numpy_helper
from safetensors.numpy import load
from torch import Tensor

CLOSE = 1e-8
"""What float64 may be off by, relative to the numbers at hand."""

POINTS, STEPS = 384, 30

Values = dict[str, Tensor]
Patch = Callable[[str, Tensor], Tensor]


class Network:
    """A network as its file says, for a batch of inputs."""

    def __init__(self, data: bytes) -> None:
        model = onnx.load_from_string(data)
        onnx.checker.check_model(model, full_check=True)
        self.graph = model.graph
        self.constants = {
            t.name: torch.from_numpy(np.array(numpy_helper.to_array(t)))
            for t in model.graph.initializer
        }
        self.input, self.output = model.graph.input[0].name, model.graph.output[0].name

    def run(self, z: Tensor, patch: Patch | None = None) -> Values:
        """Every tensor at some inputs; ``patch`` may replace units of any."""

        def patched(name: str, value: Tensor) -> Tensor:
            return value if patch is None else patch(name, value)

        values = {self.input: patched(self.input, z)}
        for node in self.graph.node:
            known = [values.get(n, self.constants.get(n)) if n else None for n in node.input]
            read = [v.double() if v is not None and v.is_floating_point() else v for v in known]
            attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
            (output,) = node.output
            values[output] = patched(output, compute(node.op_type, read, attributes))
        return values


def compute(kind: str, x: list[Any], a: Mapping[str, Any]) -> Tensor:
    """One operation of ONNX."""
    plain: dict[str, Callable[[], Tensor]] = {
        "Add": lambda: x[0] + x[1],
        "Sub": lambda: x[0] - x[1],
        "Mul": lambda: x[0] * x[1],
        "Div": lambda: x[0] / x[1],
        "MatMul": lambda: x[0] @ x[1],
        "Relu": lambda: F.relu(x[0]),
        "LeakyRelu": lambda: F.leaky_relu(x[0], a.get("alpha", 0.01)),
        "Sigmoid": lambda: torch.sigmoid(x[0]),
        "Tanh": lambda: torch.tanh(x[0]),
        "Identity": lambda: x[0],
        "Flatten": lambda: x[0].flatten(a.get("axis", 1)),
        "Reshape": lambda: x[0].reshape([len(x[0]), *x[1].tolist()[1:]]),
        "Transpose": lambda: x[0].permute(list(a["perm"])),
        "Concat": lambda: torch.cat(x, a["axis"]),
        "ReduceMean": lambda: x[0].mean(x[1].tolist(), keepdim=bool(a.get("keepdims", 1))),
    }
    if kind in plain:
        return plain[kind]()
    if kind == "Gather":
        picked = x[0].index_select(a["axis"], x[1].reshape(-1))
        shape = [*x[0].shape[: a["axis"]], *x[1].shape, *x[0].shape[a["axis"] + 1 :]]
        gathered: Tensor = picked.reshape(shape)
        return gathered
    if kind == "Clip":
        ends = [end if end is None else float(end) for end in (*x[1:], None)[:2]]
        return torch.clamp(x[0], *ends)
    if kind == "BatchNormalization":
        return F.batch_norm(x[0], x[3], x[4], x[1], x[2], eps=a["epsilon"])
    if kind == "Pad":
        pads = x[1].tolist()
        half = len(pads) // 2
        return F.pad(x[0], [n for i in reversed(range(half)) for n in (pads[i], pads[half + i])])
    stride, pads = a.get("strides", [1, 1]), a.get("pads", [0] * 4)
    dilation = a.get("dilations", [1, 1])
    if kind == "Conv":
        bias = x[2] if len(x) > 2 else None
        return F.conv2d(x[0], x[1], bias, stride, pads[:2], dilation, a.get("group", 1))
    if kind == "MaxPool":
        fill = F.pad(x[0], (pads[1], pads[3], pads[0], pads[2]), value=-math.inf)
        ceil = bool(a.get("ceil_mode", 0))
        return F.max_pool2d(fill, a["kernel_shape"], stride, 0, dilation, ceil)
    if kind == "AveragePool" and dilation == [1, 1]:
        return F.avg_pool2d(
            x[0],
            a["kernel_shape"],
            stride,
            pads[:2],
            bool(a.get("ceil_mode", 0)),
            bool(a.get("count_include_pad", 0)),
        )
    raise ValueError(f"the judge does not know {kind}")


@dataclass
class Domain:
    """A box, cut with a ball about its centre."""

    centre: Tensor
    lower: Tensor
    upper: Tensor
    p: float = 0.0
    eps: float = 0.0

    def project(self, z: Tensor) -> Tensor:
        """Points of the domain, near some points."""
        z = torch.minimum(torch.maximum(z, self.lower), self.upper)
        if not self.p:
            return z
        moved = z - self.centre
        norm = moved.flatten(1).norm(self.p, dim=1).clamp(min=1e-300)
        share = (self.eps / norm).clamp(max=1.0).reshape(-1, *[1] * (z.ndim - 1))
        return self.centre + torch.mul(moved, share)

    def farthest(self, direction: Tensor) -> Tensor:
        """Points of the domain that are far along some directions."""
        if not self.p:
            return torch.where(direction > 0, self.upper, self.lower)
        free = (self.lower < self.upper) * direction
        flat = free.flatten(1)
        if self.p == 1:
            best = flat.abs().argmax(dim=1, keepdim=True)
            flat = torch.zeros_like(flat).scatter(1, best, flat.gather(1, best).sign())
        else:
            flat = flat / flat.norm(dim=1, keepdim=True).clamp(min=1e-300)
        return self.project(self.centre + self.eps * flat.reshape(direction.shape))

    def sample(self, dice: torch.Generator) -> Tensor:
        """Points of the domain, the centre and corners among them."""
        shape = (POINTS, *self.centre.shape)
        share = torch.rand(shape, generator=dice, dtype=torch.float64)
        share[: POINTS // 2] = share[: POINTS // 2].round()
        z = self.lower + share * (self.upper - self.lower)
        if self.p == 1:
            z[::3] = self.farthest(torch.randn(shape, generator=dice, dtype=torch.float64))[::3]
        z[-1] = self.centre
        return self.project(z)

    def holds(self, z: Tensor) -> bool:
        """Whether a point lies in the domain, as far as float64 can tell."""
        slack = CLOSE * (1 + float(z.abs().max()))
        inside = bool(((z >= self.lower - slack) & (z <= self.upper + slack)).all())
        if not inside or not self.p:
            return inside
        return float((z - self.centre).flatten().norm(self.p)) <= self.eps + slack


class Judge:
    """The statements of a certificate."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.manifest = json.loads(files["certificate.json"])
        self.arrays = {
            name: {key: torch.from_numpy(np.array(v)) for key, v in load(data).items()}
            for name, data in files.items()
            if name.endswith(".safetensors")
        }
        self.network = Network(files["network.onnx"])
        self.claim = self.manifest["claim"]
        self.dice = torch.Generator().manual_seed(0)
        self.shapes = {
            name: value.shape[1:]
            for name, value in self.network.run(
                self.domain(self.claim["inputs"][0]).centre[None]
            ).items()
        }

    def array(self, name: str, file: str = "claim") -> Tensor:
        """An array of a file."""
        return self.arrays[f"{file}.safetensors"][name]

    def _spread(self, value: Any, like: Tensor) -> Tensor:
        if isinstance(value, str):
            return self.array(value).double()
        return torch.full_like(like, float(value))

    def domain(self, data: Mapping[str, Any]) -> Domain:
        """A domain of the claim."""
        if data["kind"] == "point":
            x = self.array(data["x"]).double()
            return Domain(x, x, x)
        if data["kind"] == "box":
            lower, upper, centre = (
                self.array(data[k]).double() for k in ("lower", "upper", "centre")
            )
            return Domain(centre, lower, upper)
        x = self.array(data["x"]).double()
        eps = self._spread(data["eps"], x)
        lower, upper = x - eps, x + eps
        if "clip" in data:
            lower = torch.maximum(lower, self._spread(data["clip"][0], x))
            upper = torch.minimum(upper, self._spread(data["clip"][1], x))
        if "mask" in data:
            free = self.array(data["mask"]).double() != 0
            lower, upper = torch.where(free, lower, x), torch.where(free, upper, x)
        p = 0.0 if data["p"] == "inf" else float(data["p"])
        return Domain(x, lower, upper, p, float(eps.flatten()[0]))

    def source(self, place: int) -> Domain:
        """Where the patches of an input come from."""
        return self.domain(self.claim["patching"]["domains"][place])

    def removed(self, circuit: set[str]) -> dict[str, Tensor]:
        """The units that a circuit lacks."""
        masks: dict[str, Tensor] = {}
        for site in self.manifest["components"]:
            labels = self.array(site["labels"]).long()
            cut = torch.zeros(labels.shape, dtype=torch.bool)
            for i, name in enumerate(site["names"]):
                if name not in circuit:
                    cut |= labels == i
            before = masks.get(site["tensor"])
            masks[site["tensor"]] = cut if before is None else before | cut
        return masks

    def boxes(self, place: int) -> dict[str, tuple[Tensor, Tensor]]:
        """The boxes of interval-hull patching."""
        pairs = self.claim["patching"]["boxes"][place]
        return {
            name: (self.array(pair[0]).double(), self.array(pair[1]).double())
            for name, pair in pairs.items()
        }

    def excess(
        self, place: int, circuit: set[str], z: Tensor, source: Tensor | None, patches: Values
    ) -> Tensor:
        """By how much the claim is broken at some points; below zero where it holds."""
        return self.metric(place, *self.outputs(place, circuit, z, source, patches))

    def outputs(
        self, place: int, circuit: set[str], z: Tensor, source: Tensor | None, patches: Values
    ) -> tuple[Tensor, Tensor]:
        """The outputs of network and circuit at some points."""
        kind = self.claim["patching"]["kind"]
        values: Mapping[str, Any] = patches
        if kind == "reachable":
            if source is None:
                raise ValueError("a patch source is needed")
            values = self.network.run(source)
        elif kind == "constant":
            names = self.claim["patching"]["values"]
            values = {tensor: self.array(name).double() for tensor, name in names.items()}
        masks = self.removed(circuit)

        def patch(name: str, value: Tensor) -> Tensor:
            cut = masks.get(name)
            if cut is None or not cut.any():
                return value
            new = torch.zeros_like(value) if kind == "zero" else values[name].expand(value.shape)
            return torch.where(cut, new, value)

        full = self.network.run(z)[self.network.output]
        return full, self.network.run(z, patch)[self.network.output]

    def metric(self, place: int, full: Tensor, output: Tensor) -> Tensor:
        """The claim's metric, less what it allows."""
        metric = self.claim["metric"]
        difference = (output - full).abs()
        if metric["kind"] == "winner-margin":
            centre = self.domain(self.claim["inputs"][place]).centre[None]
            anchor = self.network.run(centre)[self.network.output][0]
            order = anchor.argsort(descending=True)
            margin: Tensor = metric["fraction"] * (anchor[order[0]] - anchor[order[1]])
            others = order[1:2] if metric["against"] == "runner-up" else order[1:]
            lead = (output[:, order[:1]] - output[:, others]).min(dim=1).values
            return margin - lead
        if metric["kind"] == "logit-difference":
            reached = difference[:, metric["targets"][place]]
        elif metric["kind"] == "max-abs":
            reached = difference.max(dim=1).values
        else:
            reached = difference.norm(metric["p"], dim=1)
        return reached - float(metric["tolerance"])

    def false(self) -> list[str]:
        """Statements that are false, each with why."""
        found = []
        circuit = set(self.manifest["circuit"])
        if self.claim["patching"]["kind"] == "hull":
            found += [f"boxes of {i}" for i in range(len(self.claim["inputs"])) if self._leaves(i)]
        for statement in self.manifest["statements"]:
            if statement["kind"] == "faithful":
                for place in range(len(self.claim["inputs"])):
                    most = self.attack(place, circuit)
                    if most > 0:
                        found.append(f"faithful at {place}: exceeded by {most:.3g}")
            elif statement["kind"] == "lower-bound":
                found += self._bound(statement)
            elif statement["kind"] == "minimal":
                found += self._minimal(statement, circuit)
            else:
                kept = circuit - {statement.get("component", "")}
                if not self._breaks(statement["witness"], kept):
                    found.append(f"{statement['kind']}: no witness")
        return found

    def _bound(self, statement: Mapping[str, Any]) -> list[str]:
        """What is wrong with a lower bound: a witness, its boxes, or its arithmetic."""
        every = {name for site in self.manifest["components"] for name in site["names"]}
        sets = [set(item["removed"]) for item in statement["blocking"]]
        found = [
            f"blocking set {i}: no witness"
            for i, item in enumerate(statement["blocking"])
            if not self._breaks(item["witness"], every - sets[i])
        ]
        if statement["monotone"] == "shown":
            hull = self.claim["patching"]["kind"] == "hull"
            count = len(self.claim["inputs"])
            if not hull or any(self._open(i) for i in range(count)):
                found.append("not monotone")
        few = range(min(int(statement["size"]), len(every) + 1))
        if any(
            all(one & set(chosen) for one in sets)
            for size in few
            for chosen in itertools.combinations(sorted(every), size)
        ):
            found.append("fewer components hit all blocking sets")
        return found

    def _open(self, place: int) -> bool:
        """Whether a component can leave its box while others take values of theirs."""
        z = self.domain(self.claim["inputs"][place]).sample(self.dice)
        boxes, units = self.boxes(place), self.removed(set())
        for tensor in boxes:

            def patch(name: str, value: Tensor, own: str = tensor) -> Tensor:
                if name == own or name not in boxes:
                    return value
                low, high = boxes[name]
                ends = torch.rand(value.shape, generator=self.dice, dtype=torch.float64).round()
                return torch.where(units[name], low + ends * (high - low), value)

            value, (low, high) = self.network.run(z, patch)[tensor], boxes[tensor]
            if bool((((value < low - CLOSE) | (value > high + CLOSE)) & units[tensor]).any()):
                return True
        return False

    def _minimal(self, statement: Mapping[str, Any], circuit: set[str]) -> list[str]:
        """What is wrong with a notion of minimality, by what is stated besides it."""
        kinds: dict[str, list[Any]] = {}
        for other in self.manifest["statements"]:
            kinds.setdefault(other["kind"], []).append(other)
        necessary = {s["component"] for s in kinds.get("necessary", [])}
        local = necessary >= circuit
        bounds = {s["size"] for s in kinds.get("lower-bound", [])}
        monotone = "monotone" in statement or len(circuit) < 2
        implied = {
            "quasi": bool(necessary),
            "local": local,
            "subset": local and monotone,
            "cardinal": (local and len(circuit) < 2) or (len(circuit) in bounds and monotone),
        }[statement["notion"]]
        return [] if implied and "faithful" in kinds else [f"not {statement['notion']}-minimal"]

    def _leaves(self, place: int) -> bool:
        values = self.network.run(self.source(place).sample(self.dice))
        return any(
            bool(((values[name] < low - CLOSE) | (values[name] > high + CLOSE)).any())
            for name, (low, high) in self.boxes(place).items()
        )

    def attack(self, place: int, circuit: set[str]) -> float:
        """The most by which the claim is seen broken, less what rounding explains."""
        domain = self.domain(self.claim["inputs"][place])
        kind = self.claim["patching"]["kind"]
        parts: dict[str, tuple[Tensor, Domain]] = {"z": (domain.sample(self.dice), domain)}
        if kind == "reachable":
            source = self.source(place)
            parts["source"] = (source.sample(self.dice), source)
        elif kind == "hull":
            for name, (low, high) in self.boxes(place).items():
                box = Domain((low + high) / 2, low, high)
                parts[f"patch:{name}"] = (box.sample(self.dice), box)
        most = -math.inf
        # Differences have signs: each point first goes for signs of its own, then for the metric.
        count = math.prod(self.shapes[self.network.output])
        signs = torch.randint(-1, 2, (POINTS, count), generator=self.dice).double()
        for step in range(STEPS):
            points = {name: z.detach().requires_grad_(True) for name, (z, _) in parts.items()}
            patches = {name[6:]: z for name, z in points.items() if name.startswith("patch:")}
            full, output = self.outputs(place, circuit, points["z"], points.get("source"), patches)
            excess = self.metric(place, full, output)
            slack = CLOSE * (1 + float(excess.detach().abs().max()))
            most = max(most, float(excess.detach().max()) - slack)
            grads: tuple[Any, ...] = (None,) * len(points)
            goal = excess.sum() if step >= STEPS // 2 else (signs * (output - full)).sum()
            if goal.requires_grad:
                grads = torch.autograd.grad(goal, list(points.values()), allow_unused=True)
            best = excess.detach().argsort(descending=True)[: POINTS // 8].repeat(4)
            for (name, z), grad in zip(points.items(), grads, strict=True):
                domain = parts[name][1]
                parts[name] = (self._moved(z.detach(), grad, domain, step, best), domain)
        return most

    def _moved(
        self, z: Tensor, grad: Tensor | None, domain: Domain, step: int, best: Tensor
    ) -> Tensor:
        """Points further along their gradients; now and then, half of them around the best."""
        width = (domain.upper - domain.lower) * 0.5 * 0.85 ** (step % (STEPS // 2))
        if step >= STEPS // 2 and step % 5 == 4:
            noise = 2 * torch.rand(len(best), *z.shape[1:], generator=self.dice).double() - 1
            z = torch.cat([z[best] + width * noise, z[best]])
            return domain.project(z)
        if grad is None:
            return z
        near = domain.project(z + width * grad.sign())
        far = z + 2 / (step % (STEPS // 2) + 2) * (domain.farthest(grad) - z)
        near[::2] = torch.where(grad != 0, far, z)[::2] if not domain.p else far[::2]
        still = (grad == 0).flatten(1).all(dim=1)
        near[still] = z[still]
        return near

    def _point(self, data: Mapping[str, str], domain: Domain) -> Tensor:
        if "values" in data:
            return self.array(data["values"], "witnesses").double()
        bits = np.unpackbits(self.array(data["corner"], "witnesses").numpy())
        high = torch.from_numpy(bits[: domain.centre.numel()] != 0).reshape(domain.centre.shape)
        return torch.where(high, domain.upper, domain.lower)

    def _breaks(self, witness: Mapping[str, Any], circuit: set[str]) -> bool:
        place = witness["input"]
        domain = self.domain(self.claim["inputs"][place])
        z, source, patches = self._point(witness["z"], domain), None, {}
        good = domain.holds(z)
        kind = self.claim["patching"]["kind"]
        if kind == "reachable":
            source = self._point(witness["source"], self.source(place))
            good = good and self.source(place).holds(source)
            source = source[None]
        elif kind == "hull":
            for name, (low, high) in self.boxes(place).items():
                patches[name] = (low + high) / 2
                if name in witness["patches"]:
                    patches[name] = self.array(witness["patches"][name], "witnesses").double()
                good = good and Domain(patches[name], low, high).holds(patches[name])
        excess = float(self.excess(place, circuit, z[None], source, patches)[0])
        return good and excess > -CLOSE


def false_statements(files: Mapping[str, bytes]) -> list[str]:
    """Statements of a certificate that are false."""
    return Judge(files).false()
