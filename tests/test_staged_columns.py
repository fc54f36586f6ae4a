# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Numbers become arrays and digests' bytes without a loss, with numpy and without, or are refused."""

from __future__ import annotations

import math
import struct
import subprocess
import sys
from array import array
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_objstore.errors import Invalid
from gym_objstore.staged_columns import (
    PackedColumns,
    encode_floats,
    encode_ids,
    pack_columns,
    pack_floats,
    pack_ids,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


@pytest.fixture(autouse=True, params=["numpy", "no numpy"])
def _numbers(request: pytest.FixtureRequest) -> object:
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "no numpy":
            patch.setattr("gym_objstore.staged_columns._numpy", lambda: None)
        yield


@pytest.mark.parametrize(
    ("ids", "code"), [([], "I"), ([0, 2**32 - 1], "I"), ([2**32], "Q"), ((1, 2**64 - 1), "Q"), (range(3), "I")]
)
def test_ids_have_as_many_bits_as_they_need(ids: Sequence[int], code: str) -> None:
    column = pack_ids(ids)
    assert (column.typecode, column.tolist()) == (code, list(ids))
    assert encode_ids(column) == struct.pack(f">{len(ids)}Q", *ids)


@pytest.mark.parametrize("ids", [[-1], [2**64], [True], [1.0], ["1"], [None]])
def test_what_is_no_token_id_is_refused(ids: list[int]) -> None:
    with pytest.raises(Invalid, match="token id at position 0"):
        pack_ids(ids)


@pytest.mark.parametrize(
    ("floats", "code"),
    [([], "f"), ([0.0, -0.5], "f"), ([-0.1], "d"), ([1e39], "d"), ([2.0**127], "f"), ([5e-324], "d"), ([-0.0], "f")],
)
def test_floats_have_as_many_bits_as_they_need(floats: list[float], code: str) -> None:
    column = pack_floats(floats, "column")
    assert (column.typecode, list(map(str, column))) == (code, list(map(str, floats)))


@pytest.mark.parametrize("floats", [[0], [True], ["0.0"], [None], [0.0, 1]])
def test_what_is_no_float_is_refused(floats: list[float]) -> None:
    with pytest.raises(Invalid, match="column must hold finite floats only"):
        pack_floats(floats, "column")


@pytest.mark.parametrize("code", ["f", "d"])
@pytest.mark.parametrize("one", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_has_no_bytes(code: str, one: float) -> None:
    with pytest.raises(Invalid, match="column must hold finite floats only"):
        encode_floats(array(code, [0.0, one, 1.0]), "column")


def test_what_binary32_cannot_hold_has_no_bytes() -> None:
    with pytest.raises(Invalid, match="column must hold floats within the range of 32 bits"):
        encode_floats(array("d", [1e39]), "column")


@given(st.lists(st.floats(min_value=-3.4e38, max_value=3.4e38)))
def test_floats_are_hashed_as_binary32(floats: list[float]) -> None:
    encoded = struct.pack(f">{len(floats)}f", *floats)
    assert encode_floats(pack_floats(floats, "column"), "column") == encoded
    assert encode_floats(array("d", floats), "column") == encoded


def test_encoding_leaves_the_column_as_it_was() -> None:
    column = array("f", [1.0, -0.5])
    ids = array("Q", [1, 2**40])
    assert encode_floats(column, "column") == encode_floats(column, "column")
    assert encode_ids(ids) == encode_ids(ids)
    assert (column.tolist(), ids.tolist()) == ([1.0, -0.5], [1, 2**40])


@pytest.mark.parametrize(
    ("mask", "log_probs", "carried"),
    [
        ([0.0, 0.0, 1.0], [0.0, 0.0, -0.5], 2),
        ([0.0, 0.0, 1.0], [0.0, 0.0, -0.1], 2),
        ([0.0, 0.0, 1.0], [0.0, 0.0, -0.0], 2),
        ([1.0, 1.0, 1.0], [-0.5, -0.5, -0.5], 0),
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0], 3),
        ([0.0, 1.0, 0.0], [0.0, -0.5, 0.0], None),
        ([0.0, -0.0, 1.0], [0.0, 0.0, -0.5], None),
        ([0.0, 0.0, 1.0], [0.0, -0.0, -0.5], None),
        ([0.0, 0.0, 1.0], [0.0, -0.5, -0.5], None),
        ([0.0, 0.0, 0.5], [0.0, 0.0, -0.5], None),
        ([0.0, 0.0, 0.1], [0.0, 0.0, -0.5], None),
        ([0.7470588] * 3, [0.0, 0.0, -0.5], None),
    ],
)
def test_the_carried_tokens_are_seen_and_columns_come_back(
    mask: list[float], log_probs: list[float], carried: int | None
) -> None:
    packed = pack_columns([1, 2, 3], mask, log_probs)
    assert packed.carried == carried
    found = packed.unpacked()
    assert tuple(found) == ("token_ids_delta", "token_mask_delta", "generation_log_probs_delta")
    assert [list(map(repr, column)) for column in found.values()] == [
        ["1", "2", "3"],
        list(map(repr, mask)),
        list(map(repr, log_probs)),
    ]


def test_bytes_that_look_like_many_ones_are_none() -> None:
    odd = array("f", b"\x3f" * 12)
    packed = PackedColumns(array("I", [1, 2, 3]), odd, array("f", [0.0] * 3))
    assert packed.carried is None
    assert packed.unpacked()["token_mask_delta"] == tuple(odd)


def test_numpy_is_not_loaded_for_this() -> None:
    code = (
        "import sys; from gym_objstore.staged_columns import pack_floats; pack_floats([0.5], ''); print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "numpy" not in loaded
