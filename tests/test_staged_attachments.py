# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The attachments of a row as a safetensors file: any tree of names, every byte covered, nothing copied."""

from __future__ import annotations

import hashlib
import struct
import tracemalloc

import ml_dtypes
import numpy as np
import orjson
import pytest
import safetensors
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from gym_objstore.errors import Corrupt, Invalid
from gym_objstore.staged_attachments import pack, unpack

TREE = {
    "pixel_values": np.arange(6, dtype=np.float32).reshape(2, 3),
    "image": b"\x89PNG",
    "grid": {"thw": np.array([[1, 2, 3]]), "odd/name~": {"": np.array(True)}, "nothing": {}},
    "__metadata__": np.zeros((0, 2), dtype=np.int8),
}


def body_of(container) -> bytes:
    return container.header + b"".join(container.buffers)


def back(attachments):
    container = pack(attachments)
    return unpack(body_of(container), len(container.header), container.digest)


def test_a_tree_comes_back_with_its_names_and_its_order():
    found = back(TREE)
    assert list(found) == ["pixel_values", "image", "grid", "__metadata__"]
    assert found["image"] == b"\x89PNG"
    assert found["pixel_values"].tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert list(found["grid"]) == ["thw", "odd/name~", "nothing"]
    assert found["grid"]["odd/name~"][""].item() is True
    assert found["grid"]["nothing"] == {}
    assert found["__metadata__"].shape == (0, 2)


def test_the_safetensors_library_reads_the_same_file():
    found = safetensors.numpy.load(body_of(pack(TREE)))
    assert sorted(found) == ["/__metadata__", "/grid/odd~1name~0/", "/grid/thw", "/image", "/pixel_values"]
    assert found["/pixel_values"].dtype == np.float32
    assert np.array_equal(found["/pixel_values"], TREE["pixel_values"])
    assert found["/image"].tobytes() == b"\x89PNG"


def test_the_safetensors_library_reads_short_floats():
    attachments = {"bf": np.ones(3, ml_dtypes.bfloat16), "f8": np.ones(3, ml_dtypes.float8_e5m2)}
    found = dict(safetensors.deserialize(body_of(pack(attachments))))
    assert {name: one["dtype"] for name, one in found.items()} == {"/bf": "BF16", "/f8": "F8_E5M2"}


def test_buffers_begin_aligned_for_their_items():
    attachments = {"a": b"abc", "b": np.zeros(1, np.int16), "c": np.zeros(3, np.complex64), "d": np.zeros(1)}
    container = pack(attachments)
    assert len(container.header) % 64 == 0
    found = unpack(body_of(container), len(container.header), container.digest)
    assert all(found[name].flags.aligned for name in "bcd")


def test_the_digest_of_the_header_covers_every_byte():
    container = pack({"a": b"abc", "b": np.arange(3)})
    body = body_of(container)
    for position in range(len(body)):
        damaged = bytearray(body)
        damaged[position] ^= 1
        with pytest.raises(Corrupt, match="damaged"):
            unpack(bytes(damaged), len(container.header), container.digest)


def test_a_damaged_attachment_is_named():
    container = pack({"a": b"abc", "b": {"c": b"xyz"}})
    with pytest.raises(Corrupt, match="the bytes of the attachment '/b/c' are damaged"):
        unpack(body_of(container)[:-1], len(container.header), container.digest)


@pytest.mark.parametrize(
    "header",
    [
        b"[]",
        b"{}",
        b'{"__metadata__":{"gym_objstore":"7"}}',
        b'{"__metadata__":{"gym_objstore":"[{}]"}}',
        b'{"__metadata__":{"gym_objstore":"[{\\"path\\":\\"/a\\",\\"kind\\":\\"bytes\\"}]"}}',
        b"not json",
    ],
)
def test_a_header_of_other_contents_is_corrupt(header):
    whole = struct.pack("<Q", len(header)) + header
    with pytest.raises(Corrupt):
        unpack(whole, len(whole), hashlib.sha256(whole).hexdigest())


@pytest.mark.parametrize(
    ("attachments", "named"),
    [
        ({"a": b"fine", "media": {"x": None}}, "'/media/x'"),
        ({"a": [b"list"]}, "'/a'"),
        ({"a": {1: b"x"}}, "'/a' have a key that is no text, type=int"),
        ({b"a": b"x"}, "'/' have a key that is no text, type=bytes"),
        ({"bad \ud800 name": b"x"}, "cannot be written as JSON"),
    ],
)
def test_what_cannot_be_stored_is_named(attachments, named):
    with pytest.raises(Invalid, match=named):
        pack(attachments)


def test_a_mapping_that_contains_itself_is_refused():
    endless: dict = {}
    endless["again"] = endless
    with pytest.raises(Invalid, match="nested too deeply or contain themselves"):
        pack(endless)


def test_equal_attachments_give_equal_files():
    assert body_of(pack(TREE)) == body_of(pack(dict(TREE)))


def test_names_that_would_collide_when_joined_do_not():
    assert {
        name: bytes(one) if isinstance(one, memoryview) else one
        for name, one in back({"a/b": b"1", "a~1b": b"2"}).items()
    } == {
        "a/b": b"1",
        "a~1b": b"2",
    }
    found = back({"a/b": b"1", "a": {"b": b"2"}})
    assert (bytes(found["a/b"]), bytes(found["a"]["b"])) == (b"1", b"2")


trees = st.recursive(
    st.binary(max_size=9),
    lambda inner: st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=4), inner, max_size=4),
    max_leaves=9,
)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=4), trees, min_size=1, max_size=4))
def test_any_tree_of_names_comes_back(tree):
    assert back(tree) == tree


def test_packing_and_reading_large_arrays_copies_nothing():
    large = {f"t{n}": np.ones(5 << 20, dtype=np.float32) for n in range(3)}
    container = pack(large)
    body = body_of(container)
    tracemalloc.start()
    try:
        pack(large)
        found = unpack(body, len(container.header), container.digest)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20
    assert np.shares_memory(found["t1"], np.frombuffer(body, np.uint8))


def test_the_file_is_the_one_of_the_format():
    container = pack({"a": np.array([1, 2], dtype=np.int16)})
    size = struct.unpack("<Q", container.header[:8])[0]
    assert size == len(container.header) - 8
    header = orjson.loads(container.header[8:])
    assert header["/a"] == {"dtype": "I16", "shape": [2], "data_offsets": [0, 4]}
    assert orjson.loads(header["__metadata__"]["gym_objstore"]) == [
        {
            "path": "/a",
            "kind": "numpy",
            "dtype": "<i2",
            "shape": [2],
            "sha256": hashlib.sha256(b"\x01\x00\x02\x00").hexdigest(),
        }
    ]
