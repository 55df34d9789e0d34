"""Small files that hold too much are refused before they are unpacked."""

from __future__ import annotations

import gzip
import io
import random
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from provable_circuits.archives import VARIABLE, read_arrays, unpack_gzip
from provable_circuits.errors import DataError


def header(shape: tuple[int, ...], dtype: str = "<f8") -> bytes:
    data = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        data, {"descr": dtype, "fortran_order": False, "shape": shape}
    )
    return data.getvalue()


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_are_read_as_numpy_reads_them(tmp_path: Path, order: str) -> None:
    values = np.asarray(np.arange(24.0).reshape(2, 3, 4), order=order)  # type: ignore[call-overload]
    np.savez_compressed(tmp_path / "a.npz", x=values, y=np.array(3), e=np.zeros((0, 2)))
    found = read_arrays(tmp_path / "a.npz")
    np.testing.assert_array_equal(found["x"], values)
    assert int(found["y"]) == 3
    assert found["e"].shape == (0, 2)
    assert set(read_arrays(tmp_path / "a.npz", ["y"])) == {"y"}
    np.save(tmp_path / "b.npy", values)
    np.testing.assert_array_equal(read_arrays(tmp_path / "b.npy")[""], values)


def test_bombs_are_refused_before_memory_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(2**20))
    np.savez_compressed(tmp_path / "honest.npz", x=np.zeros(2**20))
    with zipfile.ZipFile(tmp_path / "lying.npz", "w") as archive:
        archive.writestr("x.npy", header((2**40,)))
    (tmp_path / "c.npy").write_bytes(header((2**50,)))
    with zipfile.ZipFile(tmp_path / "many.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for i in range(3):
            archive.writestr(f"a{i}.npy", header((2**16,)) + bytes(2**19))
    packed = gzip.compress(bytes(2**24))
    tracemalloc.start()
    for name in ("honest.npz", "lying.npz", "c.npy", "many.npz"):
        with pytest.raises(DataError, match=r"unpacks to more than 1,048,576 bytes.*set PROVABLE"):
            read_arrays(tmp_path / name)
    with pytest.raises(DataError, match="unpacks to more than"):
        unpack_gzip(packed, tmp_path)
    assert tracemalloc.get_traced_memory()[1] < 2**23
    tracemalloc.stop()
    monkeypatch.setenv(VARIABLE, str(2**25))
    assert len(unpack_gzip(packed, tmp_path)) == 2**24
    assert len(read_arrays(tmp_path / "honest.npz")["x"]) == 2**20


def test_mutants_are_read_or_refused(tmp_path: Path) -> None:
    drawn = random.Random(0)
    np.savez_compressed(tmp_path / "a.npz", x=np.arange(6.0), y=np.arange(3))
    np.save(tmp_path / "a.npy", np.arange(6.0))
    refused = 0
    for i in range(600):
        data = bytearray((tmp_path / ("a.npz" if i % 2 else "a.npy")).read_bytes())
        for _ in range(drawn.choice([1, 4, 16])):
            data[drawn.randrange(len(data))] = drawn.randrange(256)
        path = tmp_path / "mutant"
        path.write_bytes(data[: drawn.randrange(len(data))] if i % 7 == 0 else data)
        try:
            read_arrays(path)
        except (DataError, ValueError):
            refused += 1
    assert 100 < refused < 600
