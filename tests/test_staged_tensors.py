# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""One attachment's bytes: exact in type, shape and content, never a copy that is not needed, never a guess."""

from __future__ import annotations

import mmap
import sys
from array import array

import ml_dtypes
import numpy as np
import pytest

from gym_objstore.errors import Corrupt, Invalid, Unusable
from gym_objstore.staged_tensors import CODES, tensor_of, value_of

BITS = np.arange(48, dtype=np.uint8)
# Python, safetensors code; any bits are a value of these types.
PLAIN = {
    "<u1": "U8",
    "<i1": "I8",
    "<u2": "U16",
    "<i2": "I16",
    "<u4": "U32",
    "<i4": "I32",
    "<u8": "U64",
    "<i8": "I64",
    "<f2": "F16",
    "<f4": "F32",
    "<f8": "F64",
    "<c8": "C64",
}


def same(found, given) -> bool:
    return (
        type(found) is np.ndarray
        and found.dtype == given.dtype
        and found.dtype.byteorder == given.dtype.byteorder
        and found.shape == given.shape
        and found.tobytes() == given.tobytes()
    )


@pytest.mark.parametrize(("dtype", "code"), PLAIN.items())
def test_every_number_type_of_numpy_has_its_code_and_comes_back_exactly(dtype, code):
    given = BITS.view(dtype).reshape(2, -1)
    stored = tensor_of(given, "/a")
    assert (stored.code, stored.shape, bytes(stored.data)) == (code, given.shape, given.tobytes())
    assert same(value_of(stored), given)


@pytest.mark.parametrize(
    ("dtype", "code"),
    [(ml_dtypes.bfloat16, "BF16"), (ml_dtypes.float8_e4m3fn, "F8_E4M3"), (ml_dtypes.float8_e5m2, "F8_E5M2")],
)
def test_the_short_floats_of_ml_dtypes_come_back_exactly(dtype, code):
    given = BITS.view(dtype)
    stored = tensor_of(given, "/a")
    assert stored.code == code
    assert same(value_of(stored), given)


@pytest.mark.parametrize(
    "given",
    [
        np.array([[True, False], [False, True]]),
        np.array(2.5, dtype=np.float32),
        np.array([np.nan, -0.0, np.inf, 5e-324]),
        np.zeros((0, 3), dtype=np.int16),
        np.zeros((2, 0, 4), dtype=np.float64),
        np.arange(12.0).reshape(3, 4).T,
        np.arange(12)[::-2],
        np.arange(12)[::12],
        np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
        np.broadcast_to(np.float32(1.5), (3, 4)),
        np.array([1 + 2j, 3 - 4j]),
        np.array(["2020-01-01", "NaT"], dtype="M8[s]"),
        np.array([1, 2], dtype="m8[ns]"),
        np.array(["añb", ""]),
        np.array([b"ab", b"c"]),
    ],
    ids=lambda given: f"{given.dtype}-{given.shape}",
)
def test_odd_shapes_orders_and_types_come_back_exactly(given):
    assert same(value_of(tensor_of(given, "/a")), given)


def test_big_endian_arrays_are_stored_little_endian_and_come_back_big_endian():
    given = np.array([1.5, -2.0], dtype=">f4")
    stored = tensor_of(given, "/a")
    assert (stored.code, bytes(stored.data)) == ("F32", b"\x00\x00\xc0\x3f\x00\x00\x00\xc0")
    assert same(value_of(stored), given)


@pytest.mark.parametrize("given", [b"abc", bytearray(b"abc"), memoryview(b"abc"), b""])
def test_bytes_come_back_as_a_read_only_view(given):
    found = value_of(tensor_of(given, "/a"))
    assert (type(found), found.readonly, bytes(found)) == (memoryview, True, bytes(given))


def test_a_mapped_file_is_bytes(tmp_path):
    (tmp_path / "media").write_bytes(b"frame")
    with (tmp_path / "media").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert bytes(tensor_of(mapped, "/a").data) == b"frame"


def test_an_array_in_one_piece_is_not_copied():
    given = np.zeros(1000, dtype=np.int64)
    stored = tensor_of(given, "/a")
    given[0] = 7
    assert stored.data[0] == 7
    assert stored.data.readonly


def test_what_comes_back_is_a_view_of_the_bytes_that_were_read():
    stored = tensor_of(np.arange(4, dtype=np.int32), "/a")
    body = bytes(stored.data)
    found = value_of(stored._replace(data=memoryview(body)))
    assert np.shares_memory(found, np.frombuffer(body, np.uint8))
    assert not found.flags.writeable


@pytest.mark.parametrize(
    "given",
    [
        None,
        "text",
        1,
        2.5,
        True,
        [1, 2],
        (b"a",),
        {1, 2},
        np.float32(1.5),
        array("d", [1.0]),
        memoryview(array("d", [1.0])),
        memoryview(b"abcdef")[::2],
        np.array([None, "a"], dtype=object),
        np.zeros(2, dtype=[("x", "<f4"), ("y", "<i2")]),
        np.zeros(2, dtype="V3"),
        np.zeros(2, dtype=np.longdouble),
        np.zeros(2, dtype=np.clongdouble),
        np.ndarray((2,), dtype="S0"),
        np.ma.masked_array([1, 2], mask=[True, False]),
        np.rec.array([(1, 2.0)], dtype=[("x", "<i4"), ("y", "<f8")]),
    ],
    ids=lambda given: f"{type(given).__name__}-{getattr(given, 'dtype', '')}",
)
def test_what_could_not_come_back_exactly_is_refused_by_name(given):
    with pytest.raises(Invalid, match="the attachment '/media/0' cannot be stored, type=") as caught:
        tensor_of(given, "/media/0")
    assert caught.value.kind == "bad_attachment"


def test_a_missing_library_is_named(monkeypatch):
    stored = tensor_of(np.zeros(2, dtype=ml_dtypes.bfloat16), "/a")
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(Unusable, match="package=ml_dtypes; install ml_dtypes"):
        value_of(stored)


@pytest.mark.parametrize(
    "change",
    [{"origin_shape": (3,)}, {"origin_shape": (-1,)}, {"dtype": "<q9"}, {"dtype": "|O"}, {"kind": "tensorflow"}],
)
def test_bytes_that_do_not_fit_their_description_are_corrupt(change):
    stored = tensor_of(np.arange(4, dtype=np.int32), "/a")
    with pytest.raises(Corrupt):
        value_of(stored._replace(**change))


def test_the_codes_are_those_of_the_format():
    assert set(CODES.values()) == {*PLAIN.values(), "BOOL", "BF16", "F8_E4M3", "F8_E5M2"}
