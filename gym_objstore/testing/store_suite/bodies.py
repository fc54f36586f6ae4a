# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Laws of one object: what was put is what is read, whole, at once and by everybody."""

from __future__ import annotations

import hashlib
import random
import time
from array import array
from contextlib import closing

import pytest

from gym_objstore.errors import Invalid, NotFound
from gym_objstore.store import Body, Store
from gym_objstore.testing.store_suite.playing import Colour, sizes
from gym_objstore.testing.store_suite.target import Laws, Target, opened

MB = 1 << 20
CLOCK_TOLERANCE = 60.0
"""Seconds by which the store's clock may differ from this machine's."""


class BodyLaws(Laws):
    """put, get, get_range and head of single objects."""

    @pytest.mark.parametrize("size", [0, 1, 5 * MB - 1, 5 * MB, 5 * MB + 1])
    def test_a_put_body_is_visible_byte_exact_to_everybody(
        self, target: Target, store: Store, folder: str, size: int
    ) -> None:
        """5 MB is what S3 asks of the parts of an upload at least."""
        key = f"{folder}sub/object"
        body = noise(size)
        store.put(key, body)
        with opened(target) as fresh:
            head = fresh.head(key)
            assert head is not None
            assert (head.key, head.size) == (key, size)
            assert digest(fresh.get(key)) == digest(body)
            assert sizes(fresh.scan(folder)) == {key: size}
            assert list(fresh.folders(folder)) == ["sub"]
        assert digest(target.behind.read(key)) == digest(body)
        assert target.behind.keys(folder) == {key}

    @pytest.mark.parametrize(
        ("body", "stored"),
        [
            ([b"head", bytearray(b"-middle-"), memoryview(b"tail")], b"head-middle-tail"),
            ((b"", b"a", memoryview(b""), b"b", memoryview(array("d"))), b"ab"),
            (memoryview(b""), b""),
            ([], b""),
            (bytearray(b"one bytearray"), b"one bytearray"),
            (memoryview(b"one view"), b"one view"),
            ([b"int32:", memoryview(array("i", [1, 2, 3]))], b"int32:" + array("i", [1, 2, 3]).tobytes()),
            (memoryview(array("d", [0.5])), array("d", [0.5]).tobytes()),
        ],
        ids=["three kinds", "empty buffers", "empty view", "no buffer", "bytearray", "view", "wide items", "wide view"],
    )
    def test_the_buffers_of_a_body_are_stored_one_after_another(
        self, target: Target, store: Store, folder: str, body: Body, stored: bytes
    ) -> None:
        key = f"{folder}object"
        store.put(key, body)
        assert store.get(key) == stored
        assert sizes(store.scan(folder)) == {key: len(stored)}
        assert target.behind.read(key) == stored

    def test_a_buffer_changed_after_put_returned_changes_nothing(self, store: Store, folder: str) -> None:
        buffer = bytearray(b"as it was")
        store.put(f"{folder}one", buffer)
        store.put(f"{folder}many", [buffer, buffer])
        buffer[:] = b"different"
        assert store.get(f"{folder}one") == b"as it was"
        assert store.get(f"{folder}many") == b"as it wasas it was"

    def test_an_identical_put_changes_nothing(self, target: Target, store: Store, folder: str) -> None:
        for _ in range(3):
            store.put(f"{folder}object", b"the same bytes")
        assert store.get(f"{folder}object") == b"the same bytes"
        assert sizes(store.scan(folder)) == {f"{folder}object": 14}
        assert target.behind.keys(folder) == {f"{folder}object"}

    def test_what_another_program_wrote_is_read_as_it_is(self, target: Target, store: Store, folder: str) -> None:
        key = f"{folder}sub/object"
        target.behind.write(key, b"not by us")
        head = store.head(key)
        assert head is not None
        assert head.size == 9
        assert store.get(key) == b"not by us"
        assert sizes(store.scan(folder)) == {key: 9}
        target.behind.delete(key)
        assert store.head(key) is None

    def test_a_missing_object_is_not_found_and_has_no_head(self, store: Store, folder: str) -> None:
        store.put(f"{folder}object", b"x")
        for key in (f"{folder}objec", f"{folder}object2", f"{folder}object/below", f"{folder}missing/object"):
            assert store.head(key) is None
            with pytest.raises(NotFound) as caught:
                store.get(key)
            assert caught.value.key == key
            with pytest.raises(NotFound) as caught:
                store.get_range(key, 0, 1)
            assert caught.value.key == key

    def test_a_folder_is_not_an_object(self, store: Store, folder: str) -> None:
        store.put(f"{folder}sub/object", b"x")
        assert store.head(f"{folder}sub") is None
        with pytest.raises(NotFound):
            store.get(f"{folder}sub")
        with pytest.raises(NotFound):
            store.get_range(f"{folder}sub", 0, 1)

    def test_a_range_ends_where_the_object_ends(self, store: Store, folder: str) -> None:
        store.put(f"{folder}object", b"0123456789")
        parts = {
            (0, 10): b"0123456789",
            (0, 1): b"0",
            (9, 1): b"9",
            (3, 4): b"3456",
            (7, 3): b"789",
            (7, 100): b"789",
            (0, 1 << 40): b"0123456789",
            (10, 1): b"",
            (11, 5): b"",
            (1 << 40, 5): b"",
            (0, 0): b"",
            (10, 0): b"",
        }
        assert {span: store.get_range(f"{folder}object", *span) for span in parts} == parts

    def test_a_range_of_an_empty_object_is_empty(self, store: Store, folder: str) -> None:
        store.put(f"{folder}empty", b"")
        assert store.get_range(f"{folder}empty", 0, 10) == b""
        assert store.get_range(f"{folder}empty", 3, 10) == b""

    def test_a_range_of_no_bytes_still_tells_a_missing_object(self, store: Store, folder: str) -> None:
        with pytest.raises(NotFound):
            store.get_range(f"{folder}missing", 0, 0)

    @pytest.mark.parametrize("span", [(-1, 5), (0, -1), (-5, -1)])
    def test_a_negative_range_is_refused(self, store: Store, folder: str, span: tuple[int, int]) -> None:
        store.put(f"{folder}object", b"0123456789")
        with pytest.raises(Invalid) as caught:
            store.get_range(f"{folder}object", *span)
        assert caught.value.kind == "bad_range"

    def test_head_and_listing_agree_and_their_clock_is_unix_time(self, store: Store, folder: str) -> None:
        key = f"{folder}object"
        store.put(key, b"x")
        now = time.time()
        head = store.head(key)
        (listed,) = store.scan(folder)
        assert head is not None
        assert (head.key, head.size) == (listed.key, listed.size) == (key, 1)
        assert abs(head.modified - now) < CLOCK_TOLERANCE
        assert abs(listed.modified - head.modified) <= 1.0  # a HEAD answers in whole seconds


class LargeBodyLaws(Laws):
    """Bodies that clients upload in parts."""

    def test_64_megabytes_are_whole_in_both_forms(self, target: Target, store: Store, folder: str) -> None:
        key, body = f"{folder}object", noise(64 * MB)
        with closing(Colour(store, waits=True)) as waiting:
            waiting.call("put", key, body)
            assert waiting.call("get_range", key, 64 * MB - 3, 99) == body[-3:]
        assert digest(store.get(key)) == digest(body)
        assert sizes(store.scan(folder)) == {key: 64 * MB}
        assert digest(target.behind.read(key)) == digest(body)

    def test_24_megabytes_in_many_buffers_are_one_object_without_parts(
        self, target: Target, store: Store, folder: str
    ) -> None:
        key = f"{folder}object"
        buffers = [noise(3 * MB + index) for index in range(8)]
        store.put(key, buffers)
        assert digest(store.get(key)) == digest(b"".join(buffers))
        assert target.behind.keys(folder) == {key}


def noise(size: int) -> bytes:
    """Return ``size`` bytes that no compression shortens and no offset repeats, the same every time."""
    return random.Random(size).randbytes(size)  # noqa: S311 - test data, not a secret


def digest(body: bytes | None) -> tuple[int, str]:
    """Return a body's length and SHA-256: two large bodies are compared without printing either."""
    assert body is not None, "nothing is stored under the key"
    return len(body), hashlib.sha256(body).hexdigest()
