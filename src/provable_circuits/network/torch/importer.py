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
from provable_circuits.network.torch.readers import READERS, Reading, supported_operations

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
    if example_input.dtype not in (torch.float32, torch.float64) or len(example_input) == 0:
        raise ArgumentError(
            "The 'example_input' parameter of Graph.from_torch must hold at least one input, in "
            f"float32 or float64. Got {len(example_input)}, in {example_input.dtype}, instead."
        )
    if not bool(torch.isfinite(example_input).all()):
        raise ArgumentError(
            "The 'example_input' parameter of Graph.from_torch must be finite. "
            "Got NaN or infinity instead."
        )
    example = example_input.detach()
    with _evaluation_mode(module), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = _try_out(module, example)
        program = _capture(module, example)
        graph = _ModuleWalk(program, example).graph()
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


def _capture(module: nn.Module, example: Tensor) -> ExportedProgram:
    try:
        with _quiet():
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
    actual = graph.run(example.cpu().double())
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
        return self.builder.build([self.tensors[output]])

    def _placeholders(self) -> None:
        nodes = {node.name: node for node in self.program.graph.find_nodes(op="placeholder")}
        stored = {**dict(self.program.named_buffers()), **self.program.constants}
        stored.update(self.program.state_dict)
        for spec in self.program.graph_signature.input_specs:
            name = getattr(spec.arg, "name", "")
            if spec.kind is InputKind.USER_INPUT:
                shape = tuple(self.example.shape[1:])
                self.tensors[nodes[name]] = self.builder.input(name, shape)
            elif spec.target is not None:
                value = as_parameter(stored[spec.target].cpu())
                named = spec.kind in (InputKind.PARAMETER, InputKind.BUFFER)
                if named and nodes[name].users and not bool(torch.isfinite(value).all()):
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
        reader = READERS.get(_target_name(node))
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
        )
        try:
            self.tensors[node] = reader(reading)
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
        if expected != (self.batch, *ours):
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
        if "softmax" in _target_name(node):
            return "Remove it and study the logits: it does not change which output is largest. "
        return ""


def _target_name(node: fx.Node) -> str:
    """``conv2d`` for ``aten.conv2d.default``."""
    packet = getattr(node.target, "overloadpacket", node.target)
    return str(getattr(packet, "__name__", packet))
