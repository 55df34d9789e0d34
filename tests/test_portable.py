"""Trees as bytes and back: nothing is lost, nothing unknown gets through, nothing is executed."""

from __future__ import annotations

import json
import math
import types
from dataclasses import dataclass, field
from datetime import date
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from provable_circuits.errors import ArgumentError
from provable_circuits.portable import Portable

RUNS: list[str] = []
"""What classes did while they were read: nothing, it is hoped."""


@dataclass(frozen=True, slots=True)
class Leaf:
    name: str
    weight: Tensor | None = None


@dataclass(frozen=True)
class Branch:
    parts: tuple[Any, ...]
    counted: int = field(default=0, init=False)
    word: ClassVar[str] = "branch"

    def __init__(self, *parts: Any) -> None:
        RUNS.append("init")
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "counted", len(parts))


@dataclass
class Checked:
    number: float

    def __post_init__(self) -> None:
        RUNS.append("checked")

    def __setattr__(self, name: str, value: Any) -> None:
        RUNS.append("set")
        object.__setattr__(self, name, value)


@dataclass(frozen=True)
class Stranger:
    x: int


class Plain:
    """No data class, whoever names it."""


PORTABLE = Portable({"leaf": Leaf, "branch": Branch, "checked": Checked, "plain": Plain})


def there_and_back(value: Any) -> Any:
    return PORTABLE.unpack(PORTABLE.pack(value))


def same(a: Any, b: Any) -> bool:
    """Equal, of the same kinds, down to the sign of zero."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (
            a == b and math.copysign(1, a) == math.copysign(1, b)
        )
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    return bool(a == b)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        False,
        0,
        -7,
        2**53 - 1,
        2**53,
        -(2**53) - 1,
        3**500,
        0.1,
        -0.0,
        0.0,
        5e-324,
        1.7976931348623157e308,
        math.inf,
        -math.inf,
        math.nan,
        "",
        "tensor",
        "línea\n\x00\ud7ff",
        [],
        (),
        {},
        [1, [2.5, [None]], (True, ("a",), [])],
        {"a": 1, "b": {"c": (1, 2)}, "": []},
        {1: "one", (2, "x"): [3], None: None, 0.5: "half", False: True},
        {"tensor": "0", "tuple": [1]},
        [{"float": "inf"}, {"mapping": []}],
    ],
    ids=repr,
)
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    assert same(there_and_back(value), value)


leaves = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec="utf-8"))
)
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text(st.characters(codec="utf-8")), inner)
    ),
    max_leaves=12,
)


@given(trees)
def test_any_tree_of_plain_values_comes_back_as_it_was(tree: Any) -> None:
    assert same(there_and_back(tree), tree)


def test_a_mapping_of_any_kind_comes_back_as_a_plain_one_in_its_order() -> None:
    read_only = types.MappingProxyType({"b": 1, "a": (2,)})
    assert same(there_and_back(read_only), {"b": 1, "a": (2,)})


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int8,
        torch.uint8,
        torch.bool,
    ],
    ids=str,
)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0,), (2, 0, 3), (1, 1)], ids=str)
def test_tensors_keep_dtype_shape_and_every_bit(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 5
    tensor = values.to(dtype)
    back = there_and_back(tensor)
    assert back.dtype == dtype
    assert back.shape == tensor.shape
    assert torch.equal(back, tensor)


def test_numbers_that_are_none_keep_their_places_and_signs() -> None:
    tensor = torch.tensor([math.inf, -math.inf, math.nan, -0.0, 5e-324], dtype=torch.float64)
    back = there_and_back(tensor)
    assert torch.equal(back.view(torch.int64), tensor.view(torch.int64))


def test_tensors_of_any_layout_come_back_in_order() -> None:
    base = torch.arange(24.0).reshape(2, 3, 4)
    for tensor in [
        base.transpose(0, 2),
        base[:, ::2, 1:3],
        base[0, 0, 0].expand(5, 2),
        torch.randn(1, 2, 3, 4).to(memory_format=torch.channels_last),
    ]:
        back = there_and_back(tensor)
        assert torch.equal(back, tensor)
        assert back.is_contiguous()


def test_a_tensor_that_learns_comes_back_as_numbers() -> None:
    back = there_and_back(torch.nn.Parameter(torch.ones(2)))
    assert type(back) is Tensor
    assert not back.requires_grad


def test_what_was_packed_does_not_change_with_its_source() -> None:
    tensor = torch.ones(2)
    packed = PORTABLE.pack(tensor)
    tensor.zero_()
    back = PORTABLE.unpack(packed)
    assert torch.equal(back, torch.ones(2))
    back.add_(1)
    assert torch.equal(PORTABLE.unpack(packed), torch.ones(2))


@pytest.mark.parametrize(
    "array",
    [
        np.array(2.5),
        np.arange(6, dtype=np.int32).reshape(2, 3),
        np.array([True, False]),
        np.zeros((0, 2), dtype=np.float32),
        np.arange(6.0).reshape(2, 3).T,
        np.arange(6.0)[::-1],
        np.arange(3).astype(">i4"),
        np.broadcast_to(np.float32(0.1), (3,)),
    ],
    ids=["0-dim", "int32", "bool", "empty", "transposed", "reversed", "big-endian", "read-only"],
)
def test_arrays_come_back_as_tensors_of_the_same_numbers(array: np.ndarray[Any, Any]) -> None:
    back = there_and_back(array)
    assert isinstance(back, Tensor)
    assert back.numpy().dtype == array.dtype.newbyteorder("=")
    assert np.array_equal(back.numpy(), array)
    assert back.shape == array.shape


@pytest.mark.parametrize(
    ("number", "plain"),
    [
        (np.float32(0.1), float(np.float32(0.1))),
        (np.float64(-0.0), -0.0),
        (np.float16(np.inf), math.inf),
        (np.int64(2**60), 2**60),
        (np.uint8(3), 3),
        (np.bool_(True), True),
    ],
)
def test_numbers_of_numpy_come_back_as_plain_ones(number: Any, plain: Any) -> None:
    assert same(there_and_back(number), plain)


def test_one_tensor_in_two_places_stays_one_and_travels_once() -> None:
    tensor, twin = torch.ones(1000), torch.ones(1000)
    packed = PORTABLE.pack([tensor, {"again": Leaf("x", tensor)}, twin])
    first, again, other = PORTABLE.unpack(packed)
    assert first is again["again"].weight
    assert other is not first
    assert 2 * 4000 < len(packed) < 3 * 4000


def test_tensors_made_while_a_tree_is_read_off_do_not_take_each_others_place() -> None:
    class Fresh(dict[str, Tensor]):
        """Makes its tensors as they are asked for: they may live at the same address."""

        def items(self) -> Any:
            return ((str(i), torch.full((2,), float(i))) for i in range(50))

    back = there_and_back(Fresh())
    assert [float(back[str(i)][0]) for i in range(50)] == [float(i) for i in range(50)]


def test_data_classes_come_back_without_running_anything_of_theirs() -> None:
    value = Branch(Leaf("a", torch.ones(2)), Leaf("b"), Checked(0.5), Branch())
    RUNS.clear()
    back = there_and_back(value)
    assert RUNS == []
    assert type(back) is Branch
    first, second, checked, inner = back.parts
    assert (first.name, second) == ("a", Leaf("b"))
    assert torch.equal(first.weight, torch.ones(2))
    assert type(checked) is Checked
    assert checked.number == 0.5
    assert (back.counted, inner) == (4, Branch())
    with pytest.raises(AttributeError):
        first.name = "frozen still"


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (Stranger(1), "A Stranger cannot be written down"),
        (Plain(), "A Plain cannot be written down"),
        ([{"x": Stranger(1)}], "A Stranger cannot be written down"),
        (Branch(Stranger(1)), "A Stranger cannot be written down"),
        (date(2024, 1, 1), "A date cannot be written down"),
        ({1, 2}, "A set cannot be written down"),
        (b"bytes", "A bytes cannot be written down"),
        (print, "cannot be written down, and so cannot be sent to other processes"),
        (Leaf, "A type cannot be written down"),
        (1j, "A complex cannot be written down"),
        (np.array(["word"]), "An array of <U4 cannot be written down"),
        (np.array([None]), "An array of object cannot be written down"),
        (torch.ones(2, dtype=torch.complex128), "An array of torch.complex128 cannot be"),
        (torch.ones(2).to_sparse(), "An array of torch.float32 cannot be written down"),
    ],
    ids=lambda value: value[:12] if isinstance(value, str) else type(value).__name__,
)
def test_what_is_unknown_is_refused_by_name_when_it_is_written(value: Any, named: str) -> None:
    with pytest.raises(ArgumentError, match=named):
        PORTABLE.pack(value)


def test_what_is_unknown_is_refused_by_name_when_it_is_read() -> None:
    packed = Portable({"stranger": Stranger}).pack([Stranger(1)])
    with pytest.raises(ArgumentError, match=r"not what was packed: KeyError\('stranger'\)"):
        PORTABLE.unpack(packed)


def parts_of(packed: bytes) -> tuple[dict[str, Any], bytes]:
    """The header of some bytes and what comes after it."""
    length = int.from_bytes(packed[:8], "little")
    return json.loads(packed[8 : 8 + length]), packed[8 + length :]


def with_header(header: Any, rest: bytes) -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + rest


def with_tree(packed: bytes, tree: str) -> bytes:
    header, rest = parts_of(packed)
    return with_header({**header, "__metadata__": {"tree": tree}}, rest)


SAMPLE = PORTABLE.pack([Branch(Leaf("a", torch.ones(2)), 2**60, math.inf), {"k": torch.zeros(3)}])


@pytest.mark.parametrize("length", [*range(0, len(SAMPLE), 7), len(SAMPLE) - 1])
def test_bytes_that_were_cut_short_are_refused(length: int) -> None:
    with pytest.raises(ArgumentError, match="The data is not what was packed"):
        PORTABLE.unpack(SAMPLE[:length])


@pytest.mark.parametrize(
    "data",
    [b"", b"\x00" * 8, b"\xff" * 100, b"cos\nsystem\n(S'true'\ntR.", SAMPLE + b"x", None, "text"],
)
def test_other_bytes_are_refused(data: Any) -> None:
    with pytest.raises(ArgumentError, match="The data is not what was packed"):
        PORTABLE.unpack(data)


@pytest.mark.parametrize(
    "tree",
    [
        "",
        "no JSON",
        "[" * 100_000,
        '{"tensor": "9"}',
        '{"tensor": ["0"]}',
        '{"tensor": "0", "tuple": []}',
        "{}",
        '{"float": "much"}',
        '{"float": 1' + 400 * "0" + "}",
        '{"float": {}}',
        '{"integer": 12}',
        '{"integer": "0xyz"}',
        '{"tuple": 3}',
        '{"mapping": [[1]]}',
        '{"mapping": [[[1], 2]]}',
        "1" * 5000,
        '{"os.system": {"command": "true"}}',
        '{"builtins.print": {}}',
        '{"plain": {}}',
        '{"leaf": "a"}',
        '{"leaf": ["name", "weight"]}',
        '{"leaf": {}}',
        '{"leaf": {"name": "a"}}',
        '{"leaf": {"name": "a", "weight": null, "__class__": 1}}',
        '{"leaf": {"name": "a", "weights": null}}',
    ],
    ids=lambda tree: tree[:40],
)
def test_a_tree_that_was_changed_is_refused(tree: str) -> None:
    with pytest.raises(ArgumentError, match="The data is not what was packed"):
        PORTABLE.unpack(with_tree(SAMPLE, tree))


@pytest.mark.parametrize(
    "change",
    [
        {"__metadata__": {}},
        {"__metadata__": {"tree": 3}},
        {"__metadata__": None},
        {"0": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}},
        {"0": {"dtype": "F32", "shape": [2], "data_offsets": [0, 80]}},
        {"0": {"dtype": "OBJ", "shape": [2], "data_offsets": [0, 8]}},
        {"0": None},
    ],
    ids=str,
)
def test_a_header_that_was_changed_is_refused(change: dict[str, Any]) -> None:
    header, rest = parts_of(SAMPLE)
    with pytest.raises(ArgumentError, match="The data is not what was packed"):
        PORTABLE.unpack(with_header({**header, **change}, rest))


@given(st.data())
def test_whatever_is_changed_nothing_runs_and_no_other_error_is_raised(data: st.DataObject) -> None:
    changed = bytearray(SAMPLE)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(changed) - 1))
        changed[place] = data.draw(st.sampled_from(b'0123456789[]{}":,\\aefx\x00\xff'))
    RUNS.clear()
    try:
        PORTABLE.unpack(bytes(changed))
    except ArgumentError as error:
        assert "The data is not what was packed" in str(error)  # noqa: PT017
    assert RUNS == []
