"""From a PyTorch module to a Graph.

The module is captured by ``torch.export``, which runs it once on shapes alone and records the
tensor operations it performs, however it is written; in-place operations come out functional. Each
recorded operation is then read by ``torch_readers``. What depends on parameters alone is folded to
a constant; everything else must keep the batch as dimension 0. Before the graph is returned it is
run beside the module on the example input, and a disagreement is an error.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from provable_circuits.arguments import instance
from provable_circuits.errors import (
    ArgumentError,
    ModelError,
    ProvableCircuitsError,
    UnsupportedOperationError,
    WeightsError,
)
from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.ops import ShapeError, as_parameter
from provable_circuits.network.torch.layout import BatchPlace
from provable_circuits.network.torch.readers import READERS, Reading, supported_operations
from provable_circuits.network.torch.transformers import TRANSFORMER_READERS, WITHOUT_VALUES

AGREEMENT = 1e-3
"""How far, relative to the largest output, float32 outputs may lie apart before it is an error:
rounding stays orders of magnitude below, a wrong reading does not."""


def graph_from_torch(module: nn.Module, example_input: Tensor) -> Graph:
    """Capture ``module`` in evaluation mode; see ``Graph.from_torch``."""
    instance("module", module, nn.Module, "a torch.nn.Module", "Graph.from_torch")
    if not isinstance(example_input, Tensor) or example_input.ndim < 2:
        got = (
            f"a tensor of shape {list(example_input.shape)}"
            if isinstance(example_input, Tensor)
            else type(example_input).__name__
        )
        raise ArgumentError(
            "The 'example_input' parameter of Graph.from_torch must be a tensor with a leading "
            f"batch dimension, such as torch.zeros(1, 784). Got {got} instead."
        )
    kinds = (torch.float32, torch.float64, torch.int64, torch.int32)
    if example_input.dtype not in kinds or len(example_input) == 0:
        raise ArgumentError(
            "The 'example_input' parameter of Graph.from_torch must hold at least one input, in "
            f"float32 or float64, or tokens in int64. Got {len(example_input)}, in "
            f"{example_input.dtype}, instead."
        )
    if example_input.is_floating_point() and not bool(torch.isfinite(example_input).all()):
        raise ArgumentError(
            "The 'example_input' parameter of Graph.from_torch must be finite. "
            "Got NaN or infinity instead."
        )
    example = example_input.detach()
    with _evaluation_mode(module), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return _captured(module, example)
        except UnsupportedOperationError:
            # In a batch of one, dimensions of length one cannot be told from the batch.
            if len(example) > 1:
                raise
            try:
                return _captured(module, example.repeat(2, *([1] * (example.ndim - 1))))
            except ProvableCircuitsError:
                pass
            raise


def _captured(module: nn.Module, example: Tensor) -> Graph:
    """The graph of a module in evaluation mode, checked beside it on an example."""
    expected = _try_out(module, example)
    graph = _ModuleWalk(_capture(module, example), example).graph()
    _check_agreement(graph, example, expected)
    return graph


@contextlib.contextmanager
def _evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Put every sub-module in evaluation mode, and all modes and buffers back as they were."""
    modes = [(part, part.training) for part in module.modules()]
    buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training
        for buffer, before in buffers:
            buffer.copy_(before)


def _reason(error: Exception) -> str:
    """The first line of what a foreign error says."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _try_out(module: nn.Module, example: Tensor) -> Tensor:
    try:
        output = module(example)
    except Exception as error:  # whatever a user's forward raises
        raise ArgumentError(
            f"The module does not take the example input of shape {list(example.shape)} and "
            f"{example.dtype}: {_reason(error)}"
        ) from error
    if not isinstance(output, Tensor):
        raise ModelError(
            f"The module must return one tensor. Got {type(output).__name__} instead; "
            "wrap it in a module that returns the one you study."
        )
    if output.ndim < 2 or output.shape[0] != example.shape[0]:
        raise ModelError(
            "The module's output must keep the batch dimension first: for a batch of "
            f"{example.shape[0]} it returned shape {list(output.shape)}."
        )
    return output


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep what PyTorch prints beside an error to itself; the error says enough."""
    logger = logging.getLogger("torch.fx.experimental.symbolic_shapes")
    disabled, logger.disabled = logger.disabled, True
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logger.disabled = disabled


@contextlib.contextmanager
def _plain_attention() -> Iterator[None]:
    """Have attention modules compute step by step, and not by one fused operation."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _capture(module: nn.Module, example: Tensor) -> ExportedProgram:
    try:
        with _quiet():
            with _plain_attention():
                program: ExportedProgram = torch.export.export(module, (example,), strict=False)
            program = program.run_decompositions({})
    except Exception as error:  # torch.export raises many unrelated types
        raise ModelError(
            "PyTorch could not capture the module as a graph, most often because its forward "
            f"depends on the values of tensors: {_reason(error)}"
        ) from error
    changed = list(program.graph_signature.buffers_to_mutate.values())
    if changed:
        raise ModelError(
            f"The module changes its buffer '{changed[0]}' when it runs, so it is no fixed "
            "function of its input."
        )
    return program


def _check_agreement(graph: Graph, example: Tensor, expected: Tensor) -> None:
    actual = graph.run(example.cpu(), torch.float64)
    wanted = expected.detach().cpu().double()
    gap = float((actual - wanted).abs().max()) if wanted.numel() else 0.0
    scale = max(1.0, float(wanted.abs().max()) if wanted.numel() else 1.0)
    if not gap <= AGREEMENT * scale:
        raise ModelError(
            f"The captured graph disagrees with the module on the example input by {gap:.3g}; "
            "the module is not a fixed function of its input in evaluation mode."
        )


class _ModuleWalk:
    """Reads the captured nodes one by one into a builder."""

    def __init__(self, program: ExportedProgram, example: Tensor) -> None:
        self.program = program
        self.batch = example.shape[0]
        self.builder = GraphBuilder()
        self.constants: dict[fx.Node, Any] = {}
        self.tensors: dict[fx.Node, str] = {}
        self.origins: dict[fx.Node, str] = {}
        self.layouts: dict[fx.Node, BatchPlace] = {}
        self.parts: dict[fx.Node, tuple[str, ...]] = {}
        self.example = example

    def graph(self) -> Graph:
        """The finished graph."""
        self._placeholders()
        for node in self.program.graph.nodes:
            if node.op in ("call_function", "get_attr"):
                self._read(node)
        (output,) = next(iter(self.program.graph.find_nodes(op="output"))).args[0]
        if output not in self.tensors:
            raise ModelError("The module's output does not depend on its input.")
        if not self.layouts[output].plain:
            raise ModelError("The module's output does not have the batch as its first dimension.")
        return self.builder.build([self.tensors[output]])

    def _placeholders(self) -> None:
        nodes = {node.name: node for node in self.program.graph.find_nodes(op="placeholder")}
        stored = {**dict(self.program.named_buffers()), **self.program.constants}
        stored.update(self.program.state_dict)
        for spec in self.program.graph_signature.input_specs:
            name = getattr(spec.arg, "name", "")
            if spec.kind is InputKind.USER_INPUT:
                shape = tuple(self.example.shape[1:])
                integer = not self.example.is_floating_point()
                self.tensors[nodes[name]] = self.builder.input(name, shape, integer=integer)
                self.layouts[nodes[name]] = BatchPlace()
            elif spec.target is not None:
                value = as_parameter(stored[spec.target].cpu())
                named = spec.kind in (InputKind.PARAMETER, InputKind.BUFFER)
                finite = torch.isfinite(value)
                if spec.kind is InputKind.BUFFER:  # minus infinity in a buffer is a mask
                    finite |= value == -torch.inf
                if named and nodes[name].users and not bool(finite.all()):
                    raise WeightsError(
                        f"The model's '{spec.target}' has NaN or infinite values; nothing can be "
                        "proved about such a network."
                    )
                self.constants[nodes[name]] = value
                self.origins[nodes[name]] = spec.target

    def _read(self, node: fx.Node) -> None:
        sources = node.all_input_nodes
        if all(source in self.constants for source in sources):
            arguments = fx.map_arg((node.args, node.kwargs), lambda source: self.constants[source])
            if node.op == "get_attr":
                self.constants[node] = getattr(self.program.graph_module, str(node.target)).cpu()
            else:
                self.constants[node] = node.target(*arguments[0], **arguments[1])  # type: ignore[operator]
            for source in sources:
                if source in self.origins:
                    self.origins.setdefault(node, self.origins[source])
            return
        if _target_name(node) == "_assert_tensor_metadata":
            return
        name = _target_name(node)
        if name in WITHOUT_VALUES:
            self.constants[node] = _from_shape(node)
            return
        reader = TRANSFORMER_READERS.get(name) or READERS.get(name)
        if reader is None:
            raise UnsupportedOperationError(
                f"The operation {_target_name(node)} {self._place(node)} is not supported. "
                f"{self._hint(node)}Supported are {supported_operations()}."
            )
        reading = Reading(
            node=node,
            name=self._name(node),
            layer=self._layer(node),
            builder=self.builder,
            tensors=self.tensors,
            constants=self.constants,
            layouts=self.layouts,
            parts=self.parts,
            batch=self.batch,
        )
        layouts = [self.layouts[source] for source in sources if source in self.layouts]
        try:
            if name not in TRANSFORMER_READERS and not all(layout.plain for layout in layouts):
                raise ShapeError("it takes the batch as its first dimension.")
            self.tensors[node] = reader(reading)
            self.layouts.setdefault(node, layouts[0])
        except ShapeError as error:
            raise self._unsupported(node, str(error)) from error
        except ProvableCircuitsError:
            raise
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise self._unsupported(node, _reason(error)) from error
        self._check_shape(node)

    def _unsupported(self, node: fx.Node, reason: str) -> UnsupportedOperationError:
        return UnsupportedOperationError(
            f"The operation {_target_name(node)} {self._place(node)} is not supported in this "
            f"form: {reason}"
        )

    def _check_shape(self, node: fx.Node) -> None:
        value = node.meta["val"]
        value = value[0] if isinstance(value, tuple | list) else value
        expected = tuple(int(length) for length in value.shape)
        ours = self.builder[self.tensors[node]].shape
        try:
            fits = self.layouts[node].sample(expected, self.batch) == ours
        except ShapeError:
            fits = False
        if not fits:
            raise UnsupportedOperationError(
                f"The operation {_target_name(node)} {self._place(node)} does not keep the batch "
                f"as its first dimension: its output has shape {list(expected)} for a batch of "
                f"{self.batch}. Keep samples apart, for instance with x.flatten(1)."
            )

    def _module_path(self, node: fx.Node) -> str:
        stack = node.meta.get("nn_module_stack") or {}
        return str(list(stack.values())[-1][0]) if stack else ""

    def _place(self, node: fx.Node) -> str:
        path = self._module_path(node)
        return f"in module '{path}'" if path else f"in the model's own forward ('{node.name}')"

    def _layer(self, node: fx.Node) -> str:
        """The name of the parameter's owner, else of the module, else of the captured node."""
        for source in node.all_input_nodes[1:]:
            target = self.origins.get(source)
            if target is None:
                continue
            module, parametrized, _ = target.partition(".parametrizations.")
            if parametrized:
                return module
            owner, _, leaf = target.rpartition(".")
            return owner if owner and leaf.startswith(("weight", "bias")) else target
        return self._module_path(node) or node.name

    def _name(self, node: fx.Node) -> str:
        return self._module_path(node) or node.name

    def _hint(self, node: fx.Node) -> str:
        if "log_softmax" in _target_name(node):
            return "Remove it and study the logits: it does not change which output is largest. "
        return ""


def _from_shape(node: fx.Node) -> Any:
    """What an operation gives that looks at the shape of its first argument alone."""
    value = node.args[0].meta["val"]  # type: ignore[union-attr]
    blank = torch.zeros(tuple(value.shape), dtype=value.dtype)
    return node.target(blank, *node.args[1:], **node.kwargs)  # type: ignore[operator]


def _target_name(node: fx.Node) -> str:
    """``conv2d`` for ``aten.conv2d.default``."""
    packet = getattr(node.target, "overloadpacket", node.target)
    return str(getattr(packet, "__name__", packet))
