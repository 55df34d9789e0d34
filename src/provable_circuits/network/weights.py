"""Reading weights from files, without executing anything that is in them.

``load_weights`` fills a module of yours from a ``.safetensors`` file, or from a ``.pt`` / ``.pth``
file that holds a ``state_dict``. Names and shapes must match exactly; the module is changed only
when everything fits.

    >>> import tempfile, torch
    >>> from pathlib import Path
    >>> from safetensors.torch import save_file
    >>> net = torch.nn.Linear(2, 1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "net.safetensors"
    ...     save_file({"weight": torch.tensor([[1.0, 2.0]]), "bias": torch.zeros(1)}, path)
    ...     load_weights(net, path)(torch.ones(1, 2)).tolist()
    [[3.0]]
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TypeVar

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from provable_circuits.errors import ModelFileError, WeightsError

ModuleType = TypeVar("ModuleType", bound=nn.Module)

CHECKPOINT_STARTS = (b"PK\x03\x04", b"\x80\x02")
"""How files written by ``torch.save`` begin: today's zip archives and the older plain format."""


def load_weights(module: ModuleType, path: str | PathLike[str]) -> ModuleType:
    """Fill ``module`` with the weights in a file and return it.

    Args:
        module: a module whose ``state_dict`` has the names and shapes that the file has.
        path: a ``.safetensors`` file (preferred), or a ``.pt`` or ``.pth`` file with a state_dict.

    Raises:
        ModelFileError: the file is missing, cut short, of another kind, or holds more than tensors.
        WeightsError: names or shapes do not match, the module's dtype cannot hold a value, or a
            value is NaN or infinite. The module is then unchanged.
    """
    weights = read_weights(path)
    expected = module.state_dict()
    for name, own in expected.items():
        if not isinstance(own, Tensor):
            raise WeightsError(
                f"The module keeps '{name}', a {type(own).__name__}, beside its tensors; "
                f"load_weights fills tensors alone. Call load_state_dict yourself."
            )
    check_weights(weights, expected, path)
    module.load_state_dict(weights)
    return module


def read_weights(path: str | PathLike[str]) -> dict[str, Tensor]:
    """The tensors in a ``.safetensors``, ``.pt`` or ``.pth`` file, by name, on the CPU.

    Raises:
        ModelFileError: the file is missing, cut short, of another kind, or holds more than tensors.
    """
    path = _existing(path)
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    if path.suffix in (".pt", ".pth"):
        return _read_checkpoint(path)
    raise ModelFileError(
        f"The weights file must end in .safetensors, .pt or .pth. Got '{path}' instead; "
        f"write one with safetensors.torch.save_file(model.state_dict(), 'model.safetensors')."
    )


def read_metadata(path: str | PathLike[str]) -> dict[str, str]:
    """The text entries that a ``.safetensors`` file carries beside its tensors.

    Raises:
        ModelFileError: the file is missing, cut short or not safetensors.
    """
    path = _existing(path)
    try:
        with safe_open(path, framework="pt") as file:
            return dict(file.metadata() or {})
    except (SafetensorError, OSError) as error:
        raise _not_safetensors(path, error) from None


def check_weights(
    weights: Mapping[str, Tensor],
    expected: Mapping[str, Tensor],
    path: str | PathLike[str],
) -> None:
    """Refuse weights that do not fit: names, shapes, dtypes that would round, NaN, infinity.

    Args:
        weights: what a file holds.
        expected: tensors of the names, shapes and dtypes wanted.
        path: the file, for the error.

    Raises:
        WeightsError: the first thing that does not fit.
    """
    missing = [name for name in expected if name not in weights]
    surplus = [name for name in weights if name not in expected]
    if missing or surplus:
        parts = [f"lacks {_listed(missing)}"] if missing else []
        parts += [f"has {_listed(surplus)}, which the model has not"] if surplus else []
        raise WeightsError(
            f"The weights in '{path}' do not match the model: the file {' and '.join(parts)}. "
            f"Use the state_dict of this very architecture."
        )
    for name, own in expected.items():
        value = weights[name]
        if value.shape != own.shape:
            raise WeightsError(
                f"The tensor '{name}' in '{path}' must have shape {list(own.shape)}, as in the "
                f"model. Got {list(value.shape)} instead."
            )
        if not bool(torch.isfinite(value).all()):
            raise WeightsError(
                f"The tensor '{name}' in '{path}' has NaN or infinite values; nothing can be "
                f"proved about such a network."
            )
        if not torch.equal(value.to(own.dtype).to(value.dtype), value):
            raise WeightsError(
                f"The tensor '{name}' in '{path}' is {_word(value.dtype)} and would be rounded to "
                f"the model's {_word(own.dtype)}: call model.to(torch.{_word(value.dtype)}) first, "
                f"or save rounded weights."
            )


def _existing(path: str | PathLike[str]) -> Path:
    path = Path(path)
    if not path.exists():
        raise ModelFileError(f"The weights file '{path}' does not exist.")
    if not path.is_file():
        raise ModelFileError(f"The weights file '{path}' must be a file. Got a folder instead.")
    return path


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise _not_safetensors(path, error) from None


def _not_safetensors(path: Path, error: Exception) -> ModelFileError:
    return ModelFileError(
        f"The file '{path}' is not a whole safetensors file: {error}. Download or write it again."
    )


def _read_checkpoint(path: Path) -> dict[str, Tensor]:
    with path.open("rb") as file:
        start = file.read(4)
    if not start.startswith(CHECKPOINT_STARTS):
        raise ModelFileError(
            f"The file '{path}' is not a PyTorch checkpoint: torch.save did not write it. "
            f"{_advice()}"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch warns of what is refused just below
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise ModelFileError(
            f"The file '{path}' holds more than tensors; to load it, code from the file would have "
            f"to run, which is never done. {_advice()}"
        ) from None
    except Exception as error:  # a damaged archive fails in many ways inside PyTorch
        raise ModelFileError(
            f"The file '{path}' is not a whole PyTorch checkpoint: it is cut short, damaged, or an "
            f"archive of another kind. {_advice()}"
        ) from error
    return _state_dict(content, path)


def _state_dict(content: object, path: Path) -> dict[str, Tensor]:
    """``content`` as names and plain tensors."""
    if not isinstance(content, Mapping):
        raise ModelFileError(
            f"The file '{path}' must hold a state_dict. Got {type(content).__name__} instead. "
            f"{_advice()}"
        )
    for name, value in content.items():
        plain = isinstance(value, Tensor) and value.layout == torch.strided and not value.is_meta
        if not isinstance(name, str) or not plain:
            raise ModelFileError(
                f"The file '{path}' must hold a state_dict of names and dense tensors. Its entry "
                f"{name!r} is of type {type(value).__name__} instead. {_advice()}"
            )
    return dict(content)


def _advice() -> str:
    return (
        "Where the model was made, run torch.save(model.state_dict(), 'model.pt'), or better "
        "safetensors.torch.save_file(model.state_dict(), 'model.safetensors')."
    )


def _listed(names: list[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
