"""The data sets' own distributions, made up at a tiny scale, and networks trained from them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from training.images import main

import provable_circuits as pc
from provable_circuits.errors import DataError
from provable_circuits.zoo.benchmarks import load_benchmark
from provable_circuits.zoo.official import cifar10_images, gtsrb_images, taxinet_images

CHANCE = np.random.default_rng(0)


def write_cifar(folder: Path) -> np.ndarray:
    (folder / "cifar-10-batches-bin").mkdir()
    records = CHANCE.integers(0, 256, (12, 3073)).astype(np.uint8)
    records[:, 0] = np.arange(12) % 10
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        (folder / "cifar-10-batches-bin" / f"{name}.bin").write_bytes(records.tobytes())
    return records


def write_image(path: Path, size: tuple[int, int], mode: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (size[1], size[0], 3) if mode == "RGB" else (size[1], size[0])
    Image.fromarray(CHANCE.integers(0, 256, shape).astype(np.uint8), mode).save(path)


def write_gtsrb(folder: Path) -> None:
    for label in range(43):
        own = folder / "GTSRB" / "Final_Training" / "Images" / f"{label:05d}"
        write_image(own / "00000.ppm", (40, 36), "RGB")
        (own / f"GT-{label:05d}.csv").write_text(
            f"Filename;Width;Height;ClassId\n00000.ppm;40;36;{label}\n"
        )
    test = folder / "GTSRB" / "Final_Test" / "Images"
    for i in range(3):
        write_image(test / f"{i:05d}.ppm", (30, 33), "RGB")
    lines = "".join(f"{i:05d}.ppm;30;33;{i + 5}\n" for i in range(3))
    (test / "GT-final_test.csv").write_text("Filename;Width;Height;ClassId\n" + lines)


def write_taxinet(folder: Path) -> None:
    for i in range(4):
        write_image(folder / f"{i}.png", (360, 200), "L")
    lines = "".join(f"{i}.png,{0.5 * i}\n" for i in range(4))
    (folder / "labels.csv").write_text("filename,cte\n" + lines)


def test_cifar10(tmp_path: Path) -> None:
    records = write_cifar(tmp_path)
    test, train = cifar10_images(tmp_path, "test"), cifar10_images(tmp_path, "train")
    assert test.images.shape == (12, 3, 32, 32)
    assert len(train.images) == 60
    assert test.labels.tolist() == [i % 10 for i in range(12)]
    assert np.array_equal(test.images[3].ravel(), records[3, 1:])
    with pytest.raises(DataError, match=r"cifar-10-batches-bin/test_batch\.bin"):
        cifar10_images(tmp_path / "elsewhere", "test")
    (tmp_path / "cifar-10-batches-bin" / "test_batch.bin").write_bytes(b"123")
    with pytest.raises(DataError, match="is not a batch of CIFAR-10: 3 bytes"):
        cifar10_images(tmp_path, "test")


def test_gtsrb(tmp_path: Path) -> None:
    write_gtsrb(tmp_path)
    test, train = gtsrb_images(tmp_path, "test"), gtsrb_images(tmp_path, "train")
    assert test.images.shape == (3, 3, 32, 32)
    assert test.labels.tolist() == [5, 6, 7]
    assert train.labels.tolist() == list(range(43))
    with pytest.raises(DataError, match="GTSRB needs"):
        gtsrb_images(tmp_path / "elsewhere", "train")
    (tmp_path / "GTSRB/Final_Test/Images/00001.ppm").unlink()
    with pytest.raises(DataError, match="in the list, but not in the folder"):
        gtsrb_images(tmp_path, "test")
    (tmp_path / "GTSRB/Final_Test/Images/00001.ppm").write_text("no image")
    with pytest.raises(DataError, match="is not an image"):
        gtsrb_images(tmp_path, "test")


def test_taxinet(tmp_path: Path) -> None:
    write_taxinet(tmp_path)
    found = taxinet_images(tmp_path)
    assert found.images.shape == (4, 1, 27, 54)
    assert found.labels.tolist() == [0.0, 0.5, 1.0, 1.5]
    (tmp_path / "labels.csv").write_text("filename,angle\n0.png,1\n")
    with pytest.raises(DataError, match="has no column 'cte'"):
        taxinet_images(tmp_path)
    (tmp_path / "labels.csv").write_text("filename,cte\n")
    with pytest.raises(DataError, match="is empty"):
        taxinet_images(tmp_path)


@pytest.mark.parametrize(
    ("name", "write", "components", "file"),
    [
        ("cifar10", write_cifar, 72, "cifar10_resnet_2b.onnx"),
        ("gtsrb", write_gtsrb, 48, "gtsrb_cnn.onnx"),
        ("taxinet", write_taxinet, 8, "taxinet_cnn.onnx"),
    ],
)
def test_a_network_is_trained_and_loaded_from_a_distribution_alone(
    name: str, write: object, components: int, file: str, tmp_path: Path
) -> None:
    assert callable(write)
    write(tmp_path)
    assert main([name, "--data", str(tmp_path), "--epochs", "1"]) == 0
    first = (tmp_path / file).read_bytes()
    found = load_benchmark(name, tmp_path)
    assert len(found.graph.components(found.granularity)) == components
    assert "not the paper's" in found.origin
    assert main([name, "--data", str(tmp_path), "--epochs", "1"]) == 0
    again = pc.Graph.from_onnx(tmp_path / file)
    assert (tmp_path / file).read_bytes() == first or again.digest == found.graph.digest


def test_missing_images_end_with_an_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gtsrb", "--data", str(tmp_path)]) == 2
    assert "GTSRB needs" in capsys.readouterr().err
