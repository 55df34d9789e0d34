"""Modules of every style become graphs that agree with PyTorch, or one clear error."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from provable_circuits.errors import (
    ArgumentError,
    ModelError,
    UnsupportedOperationError,
    WeightsError,
)
from provable_circuits.network import ops
from provable_circuits.network.graph import Graph


class Function(nn.Module):
    """A module whose forward is a function of its input and its sub-modules, by name."""

    def __init__(self, forward: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        for name, part in parts.items():
            if isinstance(part, Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)
        self.function = forward

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)


class Normalise(nn.Module):
    """A layer in front of the network, with its statistics in buffers."""

    mean: Tensor
    std: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.4, 0.5, 0.6]).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor([0.2, 0.25, 0.3]).view(3, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std


class Block(nn.Module):
    """A residual block with normalisation, in-place ReLUs and a projection where shapes change."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        found: Tensor = self.relu(out)
        return found


class ResNet(nn.Module):
    """Normalisation, a stem, two blocks and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.normalise = Normalise()
        self.conv1 = nn.Conv2d(3, 4, 3, padding=1)
        self.layer1 = nn.Sequential(Block(4, 4, 1), Block(4, 6, 2))
        self.fc = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv1(self.normalise(x)), inplace=True)
        x = self.layer1(x)
        x = F.adaptive_avg_pool2d(x, 1)
        found: Tensor = self.fc(torch.flatten(x, 1))
        return found


def _functional(m: Any, x: Tensor) -> Any:
    x = x.view(x.size(0), -1)
    x = F.relu_(F.linear(x, m.w1, m.b1))
    x = F.linear(x, m.w2).relu_()
    return x @ m.w3 + m.b3


def _shapes(m: Any, x: Tensor) -> Any:
    x = x.reshape(len(x), 3, -1, 4)
    x = x.permute(0, 2, 3, 1).contiguous().transpose(1, -1)
    x = x.unsqueeze(1).squeeze(1).flatten(2)
    x = torch.unflatten(x, 2, (2, -1))
    x = x.flatten(start_dim=1).view(-1, 24)[:, None].squeeze(dim=1)
    return m.fc(m.unflatten(x).reshape(x.shape[0], -1))


def _arithmetic(m: Any, x: Tensor) -> Any:
    x = 2 * x + 1
    x = 1 - x / 3
    x = m.scale * (x - m.shift)
    x = -x + torch.ones(4)
    x = 3.5 - x
    x = x * 0.1
    x = torch.div(x, torch.tensor([1.0, 2.0, 4.0, 8.0]))
    return m.fc(x + m.shift - x)


def _branches(m: Any, x: Tensor) -> Any:
    left, right = torch.relu(m.left(x)), torch.tanh(m.right(x))
    both = torch.cat([left, right, x], dim=1)
    maps = torch.cat((both, both), 1)
    return m.head(maps.mean((2, 3)))


def _pools(m: Any, x: Tensor) -> Any:
    x = F.max_pool2d(m.conv(x), 3, stride=2, padding=1, ceil_mode=True)
    x = F.avg_pool2d(x, 2, stride=1, padding=1, count_include_pad=False)
    x = m.uneven(m.ceil(x))
    return m.fc(x.flatten(1))


def _activations(m: Any, x: Tensor) -> Any:
    x = m.leaky(m.fc1(x))
    x = torch.sigmoid(m.fc1(x))
    x = m.hard(F.relu6(4 * m.fc1(x)))
    x = torch.clamp(m.fc1(x), -0.5, 0.75).clamp(min=-0.4).clamp_max(0.5)
    x = F.hardtanh(m.fc1(x), -0.3, 0.9)
    x = torch.clamp_min(x, 0.0)
    return F.leaky_relu(x + m.fc1(x), 0.3)


def _means(m: Any, x: Tensor) -> Any:
    x = m.conv(x)
    rows = x.mean(3, keepdim=True).mean(-2)
    return m.fc(rows.flatten(1) + x.mean(dim=[2, 3]) + x.flatten(2).mean(-1))


def _odd_convs(m: Any, x: Tensor) -> Any:
    x = m.same(x)
    x = m.grouped(F.pad(x, (1, 2, 0, 1)))
    x = m.dilated(x)
    x = m.depthwise(m.valid(x))
    return x.flatten(1)


def _parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(shape) / 2)


ARCHITECTURES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "sequential": (
        lambda: nn.Sequential(
            nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)
        ),
        (6,),
    ),
    "sequential convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 5, stride=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4, 3)
        ),
        (1, 9, 9),
    ),
    "functional, in place": (
        lambda: Function(
            _functional,
            w1=_parameter(7, 6),
            b1=_parameter(7),
            w2=_parameter(5, 7),
            w3=_parameter(5, 4),
            b3=_parameter(4),
        ),
        (2, 3),
    ),
    "residual, normalised": (ResNet, (3, 8, 8)),
    "reshaping": (
        lambda: Function(_shapes, fc=nn.Linear(24, 3), unflatten=nn.Unflatten(1, (4, 6))),
        (24,),
    ),
    "dropout and identity": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 3, 3),
            nn.Dropout2d(0.5),
            nn.Identity(),
            nn.ReLU(),
            nn.Flatten(),
            nn.Dropout(0.5),
            nn.Linear(12, 2),
            nn.AlphaDropout(0.2),
        ),
        (2, 4, 4),
    ),
    "concatenation": (
        lambda: Function(
            _branches,
            left=nn.Conv2d(2, 3, 3, padding=1),
            right=nn.Conv2d(2, 1, 1),
            head=nn.Linear(12, 4),
        ),
        (2, 5, 4),
    ),
    "pooling of every kind": (
        lambda: Function(
            _pools,
            conv=nn.Conv2d(1, 3, 2),
            ceil=nn.AvgPool2d((2, 3), stride=(2, 2), ceil_mode=True),
            uneven=nn.AdaptiveAvgPool2d((3, 2)),
            fc=nn.Linear(18, 2),
        ),
        (1, 10, 9),
    ),
    "adaptive pooling that keeps a side": (
        lambda: nn.Sequential(nn.AdaptiveAvgPool2d((None, 2)), nn.Flatten(), nn.Linear(10, 2)),
        (1, 5, 4),
    ),
    "convolutions of every kind": (
        lambda: Function(
            _odd_convs,
            same=nn.Conv2d(2, 4, (2, 4), padding="same", dilation=(1, 2)),
            grouped=nn.Conv2d(4, 6, 3, stride=(1, 2), groups=2),
            dilated=nn.Conv2d(6, 4, 2, dilation=(2, 1), padding=(2, 0)),
            valid=nn.Conv2d(4, 4, 2, padding="valid"),
            depthwise=nn.Conv2d(4, 4, 1, groups=4, bias=False),
        ),
        (2, 6, 7),
    ),
    "activations of every kind": (
        lambda: Function(
            _activations, fc1=nn.Linear(5, 5), leaky=nn.LeakyReLU(0.2), hard=nn.Hardtanh()
        ),
        (5,),
    ),
    "normalised vectors": (
        lambda: nn.Sequential(
            nn.Linear(4, 6),
            nn.BatchNorm1d(6),
            nn.ReLU(),
            nn.Linear(6, 3),
            nn.BatchNorm1d(3, affine=False),
        ),
        (4,),
    ),
    "means": (lambda: Function(_means, conv=nn.Conv2d(1, 3, 2), fc=nn.Linear(3, 2)), (1, 4, 5)),
    "arithmetic with constants": (
        lambda: Function(
            _arithmetic,
            scale=torch.tensor([1.0, -2.0, 0.5, 3.0]),
            shift=torch.rand(1, 4),
            fc=nn.Linear(4, 2),
        ),
        (4,),
    ),
    "matrix parameters": (
        lambda: Function(
            lambda m, x: torch.relu(x @ m.w1) @ m.w2.T,
            w1=_parameter(4, 5),
            w2=_parameter(3, 5),
        ),
        (4,),
    ),
    "one module called twice": (
        lambda: Function(
            lambda m, x: m.fc(torch.relu(m.fc(x))) + m.fc(x) + m.fc(x), fc=nn.Linear(4, 4)
        ),
        (4,),
    ),
    "linear on the last of two dimensions": (
        lambda: Function(
            lambda m, x: m.end(torch.relu(m.fc(x)).permute(0, 2, 1).flatten(1)),
            fc=nn.Linear(3, 2),
            end=nn.Linear(8, 2),
        ),
        (4, 3),
    ),
    "reparametrised weights": (
        lambda: nn.Sequential(
            nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)),
            nn.ReLU(),
            nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2)),
        ),
        (4,),
    ),
    "casts": (
        lambda: Function(
            lambda m, x: m.fc(x.to(m.fc.weight.dtype).contiguous()).clone(), fc=nn.Linear(4, 2)
        ),
        (4,),
    ),
}


def randomise(module: nn.Module) -> nn.Module:
    """Statistics and scales of normalisation that are not those of a fresh module."""
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            for value in [part.running_mean, part.weight, part.bias]:
                if value is not None:
                    nn.init.normal_(value)
            assert part.running_var is not None
            nn.init.uniform_(part.running_var, 0.5, 2.0)
    return module


def build(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    torch.manual_seed(0)
    make, shape = ARCHITECTURES[name]
    return randomise(make()).eval(), shape


@functools.cache
def captured(name: str) -> Graph:
    """The graph of an architecture, captured with another batch size from one to the next."""
    module, shape = build(name)
    example = 1 + list(ARCHITECTURES).index(name) % 3
    return Graph.from_torch(module, torch.randn(example, *shape))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_graphs_agree_with_pytorch(name: str) -> None:
    (module, shape), graph = build(name), captured(name)
    assert graph.input_shape == shape
    precise = copy.deepcopy(module).double()
    # Folding a reparametrised weight rounds it to float32 once.
    close = 1e-5 if name == "reparametrised weights" else 1e-9
    torch.manual_seed(1)
    for batch in (1, 2, 5):
        x = torch.randn(batch, *shape) * 2
        with torch.no_grad():
            single, double = module(x), precise(x.double())
        torch.testing.assert_close(graph.run(x), single, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(graph.run(x.double()), double, rtol=close, atol=close)


@pytest.mark.parametrize("name", ["residual, normalised", "dropout and identity"])
def test_the_module_is_left_as_it_was(name: str) -> None:
    module, shape = build(name)
    module.train()
    first = next(part for part in module.modules() if part is not module)
    first.eval()
    before = copy.deepcopy(module.state_dict())
    modes = [part.training for part in module.modules()]
    trained = Graph.from_torch(module, torch.randn(2, *shape))
    assert [part.training for part in module.modules()] == modes
    for key, value in module.state_dict().items():
        assert torch.equal(value, before[key])
    assert trained.digest == Graph.from_torch(module.eval(), torch.randn(1, *shape)).digest


def test_the_graph_is_its_own() -> None:
    """Training the module further, or changing its weights in place, does not reach the graph."""
    module = nn.Linear(3, 2)
    graph = Graph.from_torch(module, torch.zeros(1, 3))
    before = graph.run(torch.ones(1, 3))
    with torch.no_grad():
        module.weight.fill_(9.0)
    assert torch.equal(graph.run(torch.ones(1, 3)), before)


def test_weights_are_kept_exactly() -> None:
    module = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 2).double().float())
    graph = Graph.from_torch(module, torch.zeros(1, 3))
    weights = [n.op.weight for n in graph.nodes if isinstance(n.op, ops.Linear)]
    assert torch.equal(weights[0], module.state_dict()["0.weight"])
    assert weights[0].dtype == torch.float32
    double = Graph.from_torch(nn.Linear(3, 2).double(), torch.zeros(1, 3).double())
    assert double.nodes[1].op.parameters()["weight"].dtype == torch.float64


def layer_names(graph: Graph) -> list[str]:
    return [node.layer for node in graph.nodes if node.layer is not None]


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("sequential", ["0", "2", "4"]),
        ("functional, in place", ["w1", "w2", "w3"]),
        (
            "residual, normalised",
            [
                "conv1",
                "layer1.0.conv1",
                "layer1.0.conv2",
                "layer1.1.conv1",
                "layer1.1.conv2",
                "layer1.1.shortcut.0",
                "fc",
            ],
        ),
        ("matrix parameters", ["w1", "w2"]),
        ("reparametrised weights", ["0", "2"]),
        ("one module called twice", ["fc", "fc"]),
        ("concatenation", ["left", "right", "head"]),
    ],
)
def test_layers_are_named_as_the_model_names_them(name: str, layers: list[str]) -> None:
    assert layer_names(captured(name)) == layers


def test_components_are_named_and_cut_as_promised() -> None:
    components = captured("residual, normalised").components()
    assert "layer1.0.conv2/3" in components.names
    assert repr(components) == (
        "Components(24: conv1 4, layer1.0.conv1 4, layer1.0.conv2 4, layer1.1.conv1 6, "
        "layer1.1.conv2 6)"
    )
    kinds = [type(components.graph[site.tensor].op) for site in components.sites]
    assert kinds == [ops.ReLU, ops.ReLU, ops.BatchNorm, ops.ReLU, ops.BatchNorm]
    assert captured("sequential").components().names[0] == "0/0"


def test_a_module_called_twice_is_two_layers_and_shared_where_equal() -> None:
    assert repr(captured("one module called twice").components()) == "Components(8: fc 4, fc:2 4)"


def test_a_clamp_at_zero_is_a_relu() -> None:
    module = Function(lambda m, x: torch.clamp(x, min=0))
    graph = Graph.from_torch(module, torch.zeros(1, 2))
    assert isinstance(graph.nodes[-1].op, ops.ReLU)


def test_identity_is_a_graph_of_its_input() -> None:
    graph = Graph.from_torch(nn.Identity(), torch.zeros(1, 2))
    assert len(graph) == 1
    assert graph.run(torch.tensor([[1.0, 2.0]])).tolist() == [[1.0, 2.0]]


# --- errors --------------------------------------------------------------------------------------


def fails(module: Any, example: Any) -> str:
    """The text of the one error that comes."""
    with pytest.raises((ModelError, ArgumentError)) as error:
        Graph.from_torch(module, example)
    return str(error.value)


UNSUPPORTED: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], str]] = {
    "gelu": (
        lambda: nn.Sequential(nn.Linear(3, 3), nn.GELU()),
        (3,),
        "The operation gelu in module '1' is not supported. Supported are linear, conv2d",
    ),
    "softmax": (
        lambda: Function(lambda m, x: torch.softmax(m.fc(x), 1), fc=nn.Linear(3, 3)),
        (3,),
        "in the model's own forward ('softmax') is not supported. Remove it and study the logits",
    ),
    "log softmax": (lambda: nn.LogSoftmax(1), (3,), "study the logits"),
    "lstm": (
        lambda: Function(lambda m, x: m.rnn(x)[0][:, 0], rnn=nn.LSTM(3, 2, batch_first=True)),
        (2, 3),
        "in module 'rnn' is not supported",
    ),
    "transposed": (
        lambda: nn.Sequential(nn.ConvTranspose2d(1, 1, 2)),
        (1, 3, 3),
        "in module '0' is not supported",
    ),
    "steep leaky relu": (lambda: nn.LeakyReLU(2.0), (3,), "LeakyReLU takes a slope from 0 to 1"),
    "product of tensors": (
        lambda: Function(lambda m, x: x * m.fc(x), fc=nn.Linear(3, 3)),
        (3,),
        "The operation mul in the model's own forward ('mul') is not supported in this form: "
        "only multiplication by a constant is.",
    ),
    "division by a tensor": (lambda: Function(lambda m, x: 1 / x), (3,), "not supported"),
    "reflecting padding": (
        lambda: nn.Conv2d(1, 1, 3, padding=1, padding_mode="reflect"),
        (1, 4, 4),
        "only padding with zeros is",
    ),
    "statistics of the batch": (
        lambda: nn.Sequential(nn.BatchNorm1d(3, track_running_stats=False)),
        (3,),
        "uses the statistics of the batch; track running statistics instead",
    ),
    "ends per unit": (
        lambda: Function(lambda m, x: torch.clamp(x, max=m.top), top=torch.ones(3)),
        (3,),
        "The operation clamp in the model's own forward ('clamp') is not supported in this form",
    ),
    "unequal shapes": (
        lambda: Function(lambda m, x: x + x.mean((2, 3), keepdim=True)),
        (2, 3, 3),
        "takes two tensors of one shape. Got (2, 3, 3) and (2, 1, 1)",
    ),
    "scaled sum": (
        lambda: Function(lambda m, x: torch.add(x, torch.relu(x), alpha=2)),
        (3,),
        "alpha must be 1",
    ),
    "weights from the input": (
        lambda: Function(lambda m, x: F.linear(m.w, x), w=torch.ones(2, 3)),
        (3,),
        "its weight depends on the network's input",
    ),
    "integers": (
        lambda: Function(lambda m, x: x.long() + 1),
        (3,),
        "changes the number type from torch.float32 to torch.int64",
    ),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_is_not_supported_is_named_with_its_place(name: str) -> None:
    make, shape, says = UNSUPPORTED[name]
    with pytest.raises(UnsupportedOperationError) as error:
        Graph.from_torch(make(), torch.ones(2, *shape))
    assert says in str(error.value)


BATCH_MIXING: dict[str, Callable[[Tensor], Tensor]] = {
    "mean over the batch": lambda x: x - x.mean(0, keepdim=True),
    "mean over everything": lambda x: x - x.mean(),
    "transposed batch": lambda x: x.transpose(0, 1).reshape(2, 3),
    "permuted batch": lambda x: x.permute(1, 0).permute(1, 0),
    "joined along the batch": lambda x: torch.cat([x, x])[:2],
    "folded batch": lambda x: x.reshape(1, 6).reshape(2, 3),
    "flattened batch": lambda x: x.flatten().unflatten(0, (2, 3)),
    "constant that differs by sample": lambda x: x + torch.tensor([[1.0], [2.0]]),
}


@pytest.mark.parametrize("name", BATCH_MIXING)
def test_samples_must_be_kept_apart(name: str) -> None:
    text = fails(Function(lambda m, x: BATCH_MIXING[name](x)), torch.ones(2, 3))
    assert "batch" in text
    assert "in the model's own forward" in text


@pytest.mark.parametrize(
    ("module", "example", "says"),
    [
        (lambda x: x, torch.zeros(1, 3), "must be a torch.nn.Module. Got function instead"),
        (nn.Linear, torch.zeros(1, 3), "must be a torch.nn.Module. Got the class Linear instead"),
        (nn.Linear(3, 2), torch.zeros(3), "leading batch dimension.* Got a tensor of shape [3]"),
        (nn.Linear(3, 2), [[0.0, 0.0, 0.0]], "Got list instead"),
        (nn.Linear(3, 2), torch.zeros(1, 3, dtype=torch.int64), "Got 1, in torch.int64, instead"),
        (nn.Linear(3, 2).half(), torch.zeros(1, 3).half(), "float32 or float64"),
        (nn.Linear(3, 2), torch.zeros(0, 3), "at least one input"),
        (nn.Linear(3, 2), torch.full((1, 3), math.nan), "must be finite"),
        (
            nn.Linear(3, 2),
            torch.zeros(2, 4),
            "does not take the example input of shape [2, 4] and torch.float32: mat1 and mat2",
        ),
        (nn.Linear(3, 2), torch.zeros(2, 3).double(), "and torch.float64"),
    ],
)
def test_wrong_calls(module: Any, example: Any, says: str) -> None:
    text = fails(module, example)
    for part in says.split(".*"):
        assert part in text


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda m, x: (x, x), "must return one tensor. Got tuple instead; wrap it"),
        (lambda m, x: {"logits": x}, "Got dict instead"),
        (lambda m, x: x.sum(), "must keep the batch dimension first"),
        (lambda m, x: x[:1], "for a batch of 2 it returned shape [1, 3]"),
        (lambda m, x: x if x.sum() > 0 else -x, "depends on the values of tensors"),
        (lambda m, x: torch.ones(2, 3), "does not depend on its input"),
    ],
)
def test_modules_that_are_no_fixed_function_of_one_tensor(function: Any, says: str) -> None:
    assert says in fails(Function(function), torch.ones(2, 3))


def test_pytorch_prints_nothing_beside_the_error(capfd: pytest.CaptureFixture[str]) -> None:
    fails(Function(lambda m, x: x if x.sum() > 0 else -x), torch.ones(2, 3))
    assert capfd.readouterr() == ("", "")


def test_a_module_that_changes_itself_is_refused_and_left_as_it_was() -> None:
    class Counting(nn.Module):
        calls: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return x + self.calls

    module = Counting()
    assert "changes its buffer 'calls' when it runs" in fails(module, torch.ones(1, 2))
    assert float(module.calls) == 0


def test_a_random_module_is_refused() -> None:
    module = Function(lambda m, x: x + torch.randn(3))
    assert "disagrees with the module on the example input" in fails(module, torch.ones(1, 3))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("0.weight", "The model's '0.weight' has NaN or infinite values"),
        ("1.running_var", "The model's '1.running_var' has NaN or infinite values"),
    ],
)
def test_weights_that_are_not_finite_are_named(bad: float, place: str, says: str) -> None:
    module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    with torch.no_grad():
        module.state_dict()[place][0] = bad
    with pytest.raises(WeightsError) as error:
        Graph.from_torch(module, torch.ones(1, 3))
    assert says in str(error.value)
