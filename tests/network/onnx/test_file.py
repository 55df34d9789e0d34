"""Files that cannot be read: each fault has its own sentence, and nothing outside is touched."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from provable_circuits.errors import ArgumentError, ModelFileError
from provable_circuits.network.graph import Graph

WEIGHT = np.random.default_rng(5).normal(size=(5, 6)).astype(np.float32)


def small_model() -> onnx.ModelProto:
    """``y = relu(x W^T + b)``."""
    weights = [
        numpy_helper.from_array(WEIGHT, "fc1.weight"),
        numpy_helper.from_array(np.ones(5, np.float32), "fc1.bias"),
    ]
    nodes = [
        helper.make_node("Gemm", ["x", "fc1.weight", "fc1.bias"], ["h"], transB=1),
        helper.make_node("Relu", ["h"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 6])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 5])]
    graph = helper.make_graph(nodes, "net", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def assert_right(graph: Graph) -> None:
    expected = torch.relu(torch.ones(1, 6) @ torch.from_numpy(WEIGHT).T + 1)
    torch.testing.assert_close(graph.run(torch.ones(1, 6)), expected)


def refusal(path: Path) -> str:
    with pytest.raises(ModelFileError) as caught:
        Graph.from_onnx(path)
    return str(caught.value)


def test_a_path_that_is_none() -> None:
    with pytest.raises(ArgumentError, match="'path' parameter must be the name of an ONNX file"):
        Graph.from_onnx(7)  # type: ignore[arg-type]


def test_files_that_are_no_models(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none.onnx") == (
        f"There is no file '{tmp_path}/none.onnx'; give the path of an ONNX model."
    )
    assert "is a folder; give the path of the ONNX file" in refusal(tmp_path)
    path = tmp_path / "file.onnx"
    path.write_bytes(b"")
    assert "is empty; an ONNX model was expected" in refusal(path)
    path.write_bytes(np.random.default_rng(0).bytes(4096))
    assert "is not an ONNX model; give a file that an ONNX exporter wrote" in refusal(path)
    path.write_text("not a model")
    assert "is not an ONNX model" in refusal(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"weights")
    assert "is a zip archive, as torch.save writes it" in refusal(path)
    assert "use Graph.from_torch" in refusal(path)


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    data = small_model().SerializeToString()
    path = tmp_path / "net.onnx"
    for length in range(1, len(data)):
        path.write_bytes(data[:length])
        assert "begins like an ONNX model but is cut short or damaged" in refusal(path)


def test_damaged_weights_are_refused(tmp_path: Path) -> None:
    model = small_model()
    model.graph.initializer[0].raw_data = model.graph.initializer[0].raw_data[:-4]
    onnx.save_model(model, tmp_path / "net.onnx")
    assert "The weights 'fc1.weight' of shape [5, 6] are damaged" in refusal(tmp_path / "net.onnx")


def external_model(folder: Path) -> Path:
    folder.mkdir()
    path = folder / "net.onnx"
    onnx.save_model(
        small_model(), path, save_as_external_data=True, location="net.data", size_threshold=0
    )
    return path


def relocate(path: Path, location: str) -> None:
    model = onnx.load_model(path, load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = location
    path.write_bytes(model.SerializeToString())


def test_weights_in_a_file_of_their_own(tmp_path: Path) -> None:
    path = external_model(tmp_path / "model")
    assert_right(Graph.from_onnx(path))
    data = path.with_name("net.data")
    data.write_bytes(data.read_bytes()[:-4])
    assert "is cut short" in refusal(path)
    data.unlink()
    message = refusal(path)
    assert "The weights 'fc1.weight'" in message
    assert "are kept in 'net.data', which is missing; put that file next to the model." in message


def test_weights_outside_the_models_folder_are_never_read(tmp_path: Path) -> None:
    path = external_model(tmp_path / "model")
    data = path.with_name("net.data").rename(tmp_path / "net.data")
    for location in ("../net.data", str(data)):
        relocate(path, location)
        assert f"'{location}', outside the model's folder" in refusal(path)
    relocate(path, "link.data")
    path.with_name("link.data").symlink_to(data)
    assert "outside the model's folder" in refusal(path)
    relocate(path, "a\0b")
    assert "which is not a valid place" in refusal(path)
