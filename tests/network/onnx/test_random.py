"""Random models: read as ONNX Runtime computes them or refused, and written so that it agrees.

``ONNX_MODELS`` and ``ONNX_FIRST`` in the environment make it as many models of each kind as one has
time for, from any seed on: ``ONNX_MODELS=20000 ONNX_FIRST=1000 pytest -k onnx_random``.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnxruntime.capi.onnxruntime_pybind11_state import Fail
from tests.network.onnx_constants import random_constant
from tests.network.onnx_graphs import random_graph
from tests.network.onnx_models import Array, Draft, session_of
from tests.network.onnx_steps import random_model

from provable_circuits.errors import ModelError
from provable_circuits.network.execution import evaluate
from provable_circuits.network.graph import Graph
from provable_circuits.network.onnx.folding import FOLDERS
from provable_circuits.network.onnx.readers import READERS
from provable_circuits.network.onnx.transformers import TRANSFORMER_READERS

MODELS = int(os.environ.get("ONNX_MODELS", "500"))
FIRST = int(os.environ.get("ONNX_FIRST", "0"))


def assert_close(result: Array, expected: Array, about: object) -> None:
    """Equal up to the rounding of a few operations in float32."""
    assert result.shape == expected.shape, about
    scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5 * scale, err_msg=str(about))


def graph_or_refusal(model: onnx.ModelProto, folder: Path) -> Graph | None:
    """What is read from a model, or None for a refusal in a sentence; nothing else is raised."""
    path = folder / "random.onnx"
    path.write_bytes(model.SerializeToString())
    try:
        return Graph.from_onnx(path)
    except ModelError as error:
        sentence = str(error)
    assert sentence.startswith(("The operation ", "The model", "The ends ", "The slope "))
    assert sentence.endswith(".")
    return None


def compare_three_samples(draft: Draft, graph: Graph) -> None:
    """A model of a free batch size, on more samples than one, unless it is made for one."""
    x = np.concatenate([draft.x, 1 - draft.x, 2 * draft.x])
    try:
        (expected,) = session_of(draft.model().SerializeToString()).run(None, {"x": x})
    except Fail:
        return  # it joins samples with a constant that has one row
    assert_close(graph.run(torch.from_numpy(x)).numpy(), expected, f"three samples: {draft}")


@pytest.mark.parametrize(
    ("draw", "table", "least"),
    [(random_model, READERS, 0.5), (random_constant, FOLDERS, 0.85)],
    ids=["tensors", "constants"],
)
def test_models_are_read_as_the_runtime_computes_them_or_refused(
    draw: Callable[[int], Draft],
    table: dict[str, object],
    least: float,
    tmp_path: Path,
) -> None:
    read: Counter[str] = Counter()
    models = 0
    for seed in range(FIRST, FIRST + MODELS):
        draft = draw(seed)
        for refused in draft.refused:
            assert graph_or_refusal(refused, tmp_path) is None, (seed, refused)
        graph = graph_or_refusal(draft.model(), tmp_path)
        if graph is None:
            continue
        result = graph.run(torch.from_numpy(draft.x)).numpy()
        expected = draft.result
        if draw is random_constant and len(expected) == 1:
            expected = np.broadcast_to(expected, (len(result), *expected.shape[1:]))
        assert_close(result, expected, f"seed {seed}: {draft}")
        kinds = {node.op_type for node in draft.nodes}
        if draw is random_model and draft.shape[0] == "N" and "Reshape" not in kinds:
            compare_three_samples(draft, graph)
        models += 1
        read.update(kinds)
    assert models >= least * MODELS
    if MODELS >= 500:
        others = set(TRANSFORMER_READERS)  # in test_transformers.py
        assert not [name for name in table if name not in read and name not in others]


def test_graphs_are_written_as_the_runtime_computes_them_at_its_default_settings(
    tmp_path: Path,
) -> None:
    path = tmp_path / "random.onnx"
    for seed in range(FIRST, FIRST + MODELS):
        graph = random_graph(seed)
        x = np.random.default_rng(seed).normal(size=(3, *graph.input_shape)).astype(np.float32)
        graph.to_onnx(path)
        session = session_of(path.read_bytes(), optimised=True)
        names = [value.name for value in session.get_outputs()]
        results = dict(zip(names, session.run(names, {"x": x}), strict=True))
        for name, expected in evaluate(graph, {"x": torch.from_numpy(x)}).items():
            assert_close(results[name], expected.numpy(), f"seed {seed}: {graph.summary()}")
            if len(graph.outputs) == 1:
                again = Graph.from_onnx(path).run(torch.from_numpy(x))
                assert_close(again.numpy(), expected.numpy(), f"seed {seed}: {graph.summary()}")
