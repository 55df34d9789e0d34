"""Grad-CAM against its definition: gradients by finite differences, from a forward of its own; and
what a row of pictures is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import provable_circuits as pc
from provable_circuits.experiments import rows
from provable_circuits.experiments.qualitative import _panels, grad_cam, qualitative_row
from provable_circuits.experiments.rows import Bench, Job
from provable_circuits.network.layers import layers_of
from provable_circuits.zoo.benchmarks import Batch, Benchmark

STEP = 1e-6


@dataclass
class Case:
    """A network as what comes before the last convolution's maps, and what comes behind."""

    before: nn.Sequential
    behind: nn.Sequential

    def __post_init__(self) -> None:
        for weight in [*self.before.parameters(), *self.behind.parameters()]:
            nn.init.normal_(weight, std=0.5)

    @property
    def graph(self) -> pc.Graph:
        whole = nn.Sequential(*self.before, *self.behind).eval()
        return pc.Graph.from_torch(whole, torch.zeros(1, 2, 6, 6))

    def cam(self, x: Tensor, target: int, keep: Tensor) -> Tensor:
        """The definition, each derivative by a difference of two outputs."""
        maps = self.before.double().eval()(x.double().unsqueeze(0)).detach()
        maps = maps * keep.reshape(1, -1, 1, 1)
        behind = self.behind.double().eval()
        total = torch.zeros(maps.shape[2:], dtype=torch.float64)
        for channel in range(maps.shape[1]):
            slopes = []
            for place in range(maps[0, channel].numel()):
                ends = []
                for sign in (1, -1):
                    moved = maps.clone()
                    moved[0, channel].view(-1)[place] += sign * STEP
                    ends.append(float(behind(moved)[0, target].detach()))
                slopes.append((ends[0] - ends[1]) / (2 * STEP))
            total += sum(slopes) / len(slopes) * maps[0, channel]
        return total.clamp_min(0)


def plain() -> Case:
    return Case(
        nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU()), nn.Sequential(nn.Flatten(), nn.Linear(48, 3))
    )


def deep() -> Case:
    """Behind the maps there are pooling, a hidden layer and a curved activation."""
    normal = nn.BatchNorm2d(4)
    normal.running_mean, normal.running_var = torch.rand(4), torch.rand(4) + 0.5
    before = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.Conv2d(3, 4, 3), normal)
    behind = [nn.AvgPool2d(2), nn.Flatten(), nn.Linear(16, 5), nn.Tanh(), nn.Linear(5, 3)]
    return Case(nn.Sequential(*before, nn.ReLU()), nn.Sequential(*behind))


@pytest.mark.parametrize("make", [plain, deep])
@pytest.mark.parametrize("seed", range(3))
def test_grad_cam_against_its_definition(make: Callable[[], Case], seed: int) -> None:
    torch.manual_seed(seed)
    case = make()
    graph = case.graph
    components = graph.components("filter")
    layer = [found for found in layers_of(graph) if found.kind == "conv"][-1]
    own = [c.name for c in components if c.layer == layer.name]
    x = torch.rand(2, 6, 6)
    largest = {}
    for removed in ([], *([name] for name in own)):
        circuit = components.full().remove(*removed)
        keep = torch.tensor([float(name in circuit) for name in own])
        for target in range(3):
            expected = case.cam(x, target, keep)
            most = largest[*removed, target] = float(expected.max())
            found = grad_cam(circuit, layer, x, target)
            assert torch.allclose(found, expected / most if most > 0 else expected, atol=1e-5)
    assert max(most for (*removed, _), most in largest.items() if not removed) > 0.01
    assert sum(most > 0.01 for (*removed, _), most in largest.items() if removed) > 2


def test_removing_every_filter_leaves_no_map() -> None:
    torch.manual_seed(0)
    graph = plain().graph
    components = graph.components("filter")
    (layer,) = (found for found in layers_of(graph) if found.kind == "conv")
    none = components.full().remove(*(c.name for c in components if c.layer == layer.name))
    assert not grad_cam(none, layer, torch.rand(2, 6, 6), 0).any()


def test_a_row_shows_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of the pictures, each computed again by plain means; none of them is empty."""
    checks = []

    def check(*arguments: Any, **limits: Any) -> pc.Verdict:
        checks.append((arguments[3:], limits))
        return pc.verify(*arguments, **limits)

    monkeypatch.setattr(rows, "verify", check)
    torch.manual_seed(2)
    case = plain()
    inputs = torch.rand(2, 2, 6, 6, dtype=torch.float64)
    benchmark = Benchmark(
        "own", "own", "own", case.graph, "filter", inputs, torch.zeros(2), torch.ones(2)
    )
    components = benchmark.graph.components("filter", outputs=False)
    bench = Bench(benchmark, components, [Batch(1, (0, 1), inputs)], None, 1.0, 1.0, max_nodes=64)
    row = next(
        found
        for delta in torch.linspace(0.2, 4, 20).tolist()
        if "witness" in (found := qualitative_row(bench, Job(0, "logit-difference", 0.05, delta)))
        and len(found["provable"]["components"]) < len(components)
        and found["sampling"]["components"]
    )
    assert checks
    assert all(limits == ((), {"max_nodes": 64, "certify": False}) for limits in checks)
    witness = row["witness"]
    clean = inputs[witness["input"]]
    moved = torch.tensor(witness["moved"], dtype=torch.float64)
    assert torch.allclose(torch.tensor(witness["clean"]).double(), clean, atol=1e-4)
    assert 0.01 < float((moved - clean).abs().max()) <= 0.05 + 1e-4
    kept = {name: row[name]["components"] for name in ("provable", "sampling")}
    kept["network"] = list(components.names)
    maps = nn.Sequential(*case.before)[:1].double()
    (layer,) = (found for found in layers_of(benchmark.graph) if found.kind == "conv")
    for name, names in kept.items():
        circuit = components.circuit(names)
        keep = torch.tensor([float(component in names) for component in components.names])
        for place, z in enumerate((clean, moved)):
            expected = case.cam(z, 1, keep)
            expected = expected / expected.max() if float(expected.max()) > 0 else expected
            cam = torch.tensor(witness["cam"][name][place], dtype=torch.float64)
            assert torch.allclose(cam, expected, atol=5e-3)
            output = float(circuit.run(z, pc.Zero())[0, 1])
            assert witness["outputs"][name][place] == pytest.approx(output, abs=1e-2)
        assert torch.tensor(witness["cam"]["network"]).any()
    shared = set(kept["provable"]) & set(kept["sampling"])
    alone = set(kept["provable"]) - set(kept["sampling"])
    assert shared
    assert alone
    for kind, names in (("shared", shared), ("provable only", alone)):
        assert set(witness["maps"][kind]) == names
        for name, pair in witness["maps"][kind].items():
            for z, found in zip((clean, moved), pair, strict=True):
                wanted = maps(z.unsqueeze(0))[0, int(name.split("/")[1])]
                assert torch.allclose(torch.tensor(found).double(), wanted, atol=1e-2)
    assert layer.name == next(iter(shared)).split("/")[0]


def test_the_panels_of_a_row() -> None:
    """Inputs and their difference, then every map at its own place, clean before moved."""
    pair = [[[1.0]], [[2.0]]]
    told = {
        "clean": [[0.25]],
        "moved": [[0.75]],
        "cam": {"network": pair, "provable": [[[3.0]], [[4.0]]]},
        "maps": {"shared": {"a/0": [[[5.0]], [[6.0]]]}, "provable only": {}},
    }
    lines = [[(title, float(np.array(v).item()), s) for title, v, s in p] for p in _panels(told)]
    assert lines == [
        [("clean", 0.25, "image"), ("moved", 0.75, "image"), ("difference", 0.5, "signed")],
        [("network, clean", 1.0, "heat"), ("provable, clean", 3.0, "heat")],
        [("network, moved", 2.0, "heat"), ("provable, moved", 4.0, "heat")],
        [("a/0, clean\n(shared)", 5.0, "signed"), ("a/0, moved\n(shared)", 6.0, "signed")],
    ]
