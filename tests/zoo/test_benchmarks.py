"""The benchmarks: which inputs, which batches, what is said when files are missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from provable_circuits.errors import ArgumentError, DataError
from provable_circuits.zoo.benchmarks import BENCHMARKS, Benchmark, load_benchmark


@pytest.fixture(scope="module")
def mnist() -> Benchmark:
    return load_benchmark("mnist")


def test_mnist_needs_no_folder(mnist: Benchmark) -> None:
    assert len(mnist.graph.components(mnist.granularity)) == 34
    assert mnist.inputs.dtype == torch.float64
    assert 0.9 < float(mnist.right.double().mean()) < 1.0


def test_batches_are_disjoint_of_one_class_right_and_even(mnist: Benchmark) -> None:
    batches = mnist.batches(100)
    places = [place for batch in batches for place in batch.places]
    assert len(batches) == 100
    assert len(set(places)) == 300
    for batch in batches:
        assert {int(mnist.classes[i]) for i in batch.places} == {batch.label}
        assert bool(mnist.right[list(batch.places)].all())
        assert torch.equal(batch.inputs, mnist.inputs[list(batch.places)])
    counts = np.bincount([batch.label for batch in batches])
    assert counts.min() == counts.max() == 10


def test_fewer_batches_than_classes_are_spread(mnist: Benchmark) -> None:
    assert [batch.label for batch in mnist.batches(5)] == [0, 2, 4, 6, 8]
    assert [batch.label for batch in mnist.batches(13)][:10] == list(range(10))


def test_the_seed_chooses_the_batches(mnist: Benchmark) -> None:
    first = [batch.places for batch in mnist.batches(20, seed=0)]
    assert first == [batch.places for batch in mnist.batches(20, seed=0)]
    assert first != [batch.places for batch in mnist.batches(20, seed=1)]
    assert first[:7] != [batch.places for batch in mnist.batches(7)]
    single = mnist.batches(3, size=1)
    assert [len(batch.places) for batch in single] == [1, 1, 1]


def test_all_batches_there_are(mnist: Benchmark) -> None:
    every = mnist.batches()
    per_class = [int(((mnist.classes == c) & mnist.right).sum()) // 3 for c in range(10)]
    assert len(every) == sum(per_class)


def test_means_come_from_training_inputs_or_from_outside_the_batches(mnist: Benchmark) -> None:
    samples, source = mnist.means_from(mnist.batches(10))
    assert (len(samples), source) == (100, "100 training inputs")
    bare = Benchmark(
        *("x", "X", "test", mnist.graph, "neuron", mnist.inputs, mnist.classes, mnist.right)
    )
    batches = bare.batches(10)
    samples, source = bare.means_from(batches)
    assert source == "100 test inputs outside the batches"
    used = torch.cat([batch.inputs for batch in batches])
    assert not bool((samples.unsqueeze(1) == used.unsqueeze(0)).all(2).any())


@pytest.mark.parametrize("name", [name for name in BENCHMARKS if name != "mnist"])
def test_without_files_the_error_says_what_to_put_where(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"needs a folder with '.*\.onnx' and '.*\.npz'.*--data"):
        load_benchmark(name)
    with pytest.raises(DataError, match="it is not there"):
        load_benchmark(name, tmp_path)


def test_a_malformed_archive_is_named(tmp_path: Path) -> None:
    (tmp_path / "gtsrb_cnn.onnx").write_bytes(b"")
    np.savez(tmp_path / "gtsrb_test.npz", x=np.zeros((1, 3, 32, 32), np.uint8))
    with pytest.raises(DataError, match=r"must be an \.npz file with x, y"):
        load_benchmark("gtsrb", tmp_path)


def test_unknown_benchmarks_are_refused() -> None:
    with pytest.raises(ArgumentError, match="must be one of mnist, cifar10"):
        load_benchmark("imagenet")


@pytest.mark.parametrize(
    ("name", "components", "batches"),
    [("cifar10", 72, 230), ("gtsrb", 48, 272), ("taxinet", 8, 60), ("tinytaxinet", 34, 7)],
)
def test_the_benchmarks_of_the_folder(
    name: str, components: int, batches: int, shared_data: Path
) -> None:
    found = load_benchmark(name, shared_data)
    assert len(found.graph.components(found.granularity)) == components
    assert len(found.batches()) == batches
    assert "paper" in found.origin
