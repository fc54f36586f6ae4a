# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from array import array

import pytest

from gym_objstore.store.parts import flat, parts, size_of


@pytest.mark.parametrize(
    ("body", "pieces"),
    [
        (b"", []),
        ([], []),
        ([b"", b""], []),
        (b"abc", [b"abc"]),
        (b"abcd", [b"abcd"]),
        (b"abcdefghi", [b"abcd", b"efgh", b"i"]),
        ([b"ab", b"c", bytearray(b"defg"), memoryview(b"hi")], [b"abcd", b"efgh", b"i"]),
        ([b"abcd", b"efgh"], [b"abcd", b"efgh"]),
        (memoryview(array("h", [1, 2, 3])), [array("h", [1, 2]).tobytes(), array("h", [3]).tobytes()]),
        (memoryview(b"a.b.c.")[::2], [b"abc"]),
    ],
)
def test_parts_are_full_but_the_last_and_keep_the_order(body, pieces):
    assert list(parts(body, 4)) == pieces
    assert size_of(body) == sum(map(len, pieces))


def test_a_body_in_one_buffer_is_not_copied():
    body = b"x" * 100
    assert flat(body) is body


def test_several_buffers_stay_several_and_one_is_one():
    assert flat([b"a", b"b"]) == [b"a", b"b"]
    assert flat([b"a"]) == b"a"
    assert flat([]) == b""


def test_wide_items_become_bytes():
    wide = memoryview(array("d", [0.5]))
    assert bytes(flat([wide, b"x"])[0]) == array("d", [0.5]).tobytes()
    assert size_of(wide) == 8
