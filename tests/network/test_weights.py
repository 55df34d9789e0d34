"""Weights from files: what is loaded, what is refused, and that nothing is executed."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from provable_circuits.errors import ModelFileError, WeightsError
from provable_circuits.network.weights import load_weights, read_metadata, read_weights


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))


def write(path: Path, weights: Any) -> Path:
    if path.suffix == ".safetensors":
        save_file(weights, path)
    else:
        torch.save(weights, path)
    return path


class CreatesAFile:
    """Unpickling this object would create a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (open, (str(self.path), "w"))


class WithExtraState(nn.Linear):
    def get_extra_state(self) -> dict[str, int]:
        return {"version": 1}

    def set_extra_state(self, state: Any) -> None: ...


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".pth"])
class TestEveryFormat:
    def test_weights_arrive_exactly(self, tmp_path: Path, suffix: str) -> None:
        source, target = network(), network()
        path = write(tmp_path / f"net{suffix}", source.state_dict())
        assert load_weights(target, str(path)) is target
        for name, value in source.state_dict().items():
            assert torch.equal(target.state_dict()[name], value)

    def test_missing_file(self, tmp_path: Path, suffix: str) -> None:
        with pytest.raises(ModelFileError, match=rf"net\{suffix}' does not exist"):
            load_weights(network(), tmp_path / f"net{suffix}")

    def test_folder(self, tmp_path: Path, suffix: str) -> None:
        (tmp_path / f"net{suffix}").mkdir()
        with pytest.raises(ModelFileError, match="Got a folder instead"):
            load_weights(network(), tmp_path / f"net{suffix}")

    @pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.7, 0.999])
    def test_file_cut_short(self, tmp_path: Path, suffix: str, share: float) -> None:
        path = write(tmp_path / f"net{suffix}", network().state_dict())
        whole = path.read_bytes()
        path.write_bytes(whole[: int(len(whole) * share)])
        with pytest.raises(ModelFileError, match=r"is not a(| whole) (safetensors|PyTorch)"):
            load_weights(network(), path)

    def test_another_kind_of_file(self, tmp_path: Path, suffix: str) -> None:
        path = tmp_path / f"net{suffix}"
        path.write_text("These are no weights, whatever the name says.")
        with pytest.raises(ModelFileError, match=r"is not a(| whole) (safetensors|PyTorch)"):
            load_weights(network(), path)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda w: w.pop("0.bias"), r"the file lacks '0\.bias'\. Use the state_dict"),
            (lambda w: w.update(extra=torch.zeros(1)), "has 'extra', which the model has not"),
            (
                lambda w: w.update({"0.weight": torch.zeros(4, 5)}),
                r"'0\.weight' .* must have shape \[4, 3\].* Got \[4, 5\]",
            ),
            (
                lambda w: w.update({"3.bias": torch.tensor([0.0, float("nan")])}),
                r"'3\.bias' .* NaN or infinite",
            ),
            (
                lambda w: w.update({"3.bias": torch.tensor([0.0, float("inf")])}),
                r"'3\.bias' .* NaN or infinite",
            ),
            (
                lambda w: w.update({"3.bias": torch.tensor([0.0, 0.1], dtype=torch.float64)}),
                r"'3\.bias' .* float64 and would be rounded .* float32: call model\.to",
            ),
        ],
    )
    def test_weights_that_do_not_fit(
        self, tmp_path: Path, suffix: str, change: Any, message: str
    ) -> None:
        weights = {name: value.clone() for name, value in network().state_dict().items()}
        change(weights)
        path = write(tmp_path / f"net{suffix}", weights)
        target = network()
        before = {name: value.clone() for name, value in target.state_dict().items()}
        with pytest.raises(WeightsError, match=message):
            load_weights(target, path)
        assert all(torch.equal(target.state_dict()[name], value) for name, value in before.items())

    def test_many_wrong_names_are_counted(self, tmp_path: Path, suffix: str) -> None:
        path = write(tmp_path / f"net{suffix}", {"weight": torch.zeros(1)})
        with pytest.raises(
            WeightsError, match=r"lacks '0\.weight', '0\.bias', '1\.weight' and 6 more"
        ):
            load_weights(network(), path)

    def test_a_wider_model_takes_narrower_weights(self, tmp_path: Path, suffix: str) -> None:
        weights = nn.Linear(3, 2).half().state_dict()
        path = write(tmp_path / f"net{suffix}", weights)
        loaded = load_weights(nn.Linear(3, 2).double(), path)
        assert torch.equal(loaded.weight.detach(), weights["weight"].double())


class TestNothingIsExecuted:
    def test_pickled_code_does_not_run(self, tmp_path: Path) -> None:
        trap = tmp_path / "trap"
        path = write(tmp_path / "evil.pt", {"0.weight": CreatesAFile(trap)})
        with pytest.raises(ModelFileError, match=r"code from the file .* never done.*state_dict"):
            load_weights(network(), path)
        assert not trap.exists()

    @pytest.mark.parametrize("protocol", [0, 2, 4])
    @pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
    def test_a_bare_pickle_does_not_run(self, tmp_path: Path, suffix: str, protocol: int) -> None:
        trap = tmp_path / "trap"
        path = tmp_path / f"evil{suffix}"
        path.write_bytes(pickle.dumps(CreatesAFile(trap), protocol=protocol))
        with pytest.raises(ModelFileError):
            load_weights(network(), path)
        assert not trap.exists()

    def test_the_trap_works(self, tmp_path: Path) -> None:
        """Else the tests above would show nothing."""
        trap = tmp_path / "trap"
        pickle.loads(pickle.dumps(CreatesAFile(trap))).close()  # noqa: S301
        assert trap.exists()

    def test_a_whole_module_is_refused(self, tmp_path: Path) -> None:
        path = write(tmp_path / "module.pt", network())
        with pytest.raises(
            ModelFileError, match=r"torch\.save\(model\.state_dict\(\), 'model\.pt'\)"
        ):
            load_weights(network(), path)


class TestCheckpoints:
    def test_the_older_format(self, tmp_path: Path) -> None:
        source = network()
        torch.save(source.state_dict(), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
        assert read_weights(tmp_path / "old.pt").keys() == source.state_dict().keys()

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ([torch.zeros(1)], "must hold a state_dict. Got list instead"),
            (
                {"state_dict": {"a": torch.zeros(1)}, "epoch": 3},
                "entry 'state_dict' is of type dict",
            ),
            ({1: torch.zeros(1)}, "entry 1 is of type Tensor"),
            ({"a": torch.eye(2).to_sparse()}, "dense tensors"),
        ],
    )
    def test_no_state_dict(self, tmp_path: Path, content: Any, message: str) -> None:
        path = write(tmp_path / "net.pt", content)
        with pytest.raises(ModelFileError, match=message):
            load_weights(network(), path)

    def test_another_archive(self, tmp_path: Path) -> None:
        with zipfile.ZipFile(tmp_path / "net.pt", "w") as archive:
            archive.writestr("read.me", "not a checkpoint")
        with pytest.raises(ModelFileError, match="archive of another kind"):
            load_weights(network(), tmp_path / "net.pt")


def test_unknown_suffix(tmp_path: Path) -> None:
    path = tmp_path / "net.bin"
    path.write_bytes(b"")
    with pytest.raises(ModelFileError, match=r"must end in \.safetensors, \.pt or \.pth\. Got"):
        load_weights(network(), path)


def test_extra_state(tmp_path: Path) -> None:
    path = write(tmp_path / "net.safetensors", nn.Linear(1, 1).state_dict())
    with pytest.raises(WeightsError, match="'_extra_state', a dict, beside its tensors"):
        load_weights(WithExtraState(1, 1), path)


def test_metadata(tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    weights: dict[str, Tensor] = {"weight": torch.zeros(1)}
    save_file(weights, path, metadata={"made": "here"})
    assert read_metadata(path) == {"made": "here"}
    save_file(weights, path)
    assert read_metadata(path) == {}
    path.write_bytes(b"text")
    with pytest.raises(ModelFileError, match="not a whole safetensors file"):
        read_metadata(path)
