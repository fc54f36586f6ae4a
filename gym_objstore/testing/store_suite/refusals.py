# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Laws of bad input: what is no key or prefix is refused before anything is read or written."""

from __future__ import annotations

import asyncio

import pytest

from gym_objstore.errors import Invalid
from gym_objstore.store import Store
from gym_objstore.testing.store_suite.playing import on_a_loop
from gym_objstore.testing.store_suite.target import Laws, Target

BAD_KEYS = (
    "",
    "/",
    "/absolute",
    "folder/",
    "a//b",
    ".",
    "..",
    "./a",
    "../a",
    "a/.",
    "a/..",
    "a/../b",
    "a/./b",
    "ünïcödé",
    "a/🙂",
    "\ud800",
    "a\x00b",
    "a\nb",
    "x" * 1001,
)
BAD_PREFIXES = ("folder", "/", "/absolute/", "a//", "../", "a/../", "./", "a/./b/", "ünïcödé/", "a\x00b/")


class RefusalLaws(Laws):
    """Keys and prefixes that must not be, in both forms."""

    @pytest.mark.parametrize("key", BAD_KEYS, ids=ascii)
    def test_a_bad_key_is_refused_before_anything_happens(
        self, target: Target, store: Store, folder: str, key: str
    ) -> None:
        store.put(f"{folder}good", b"x")
        bad = key if key in ("", "/absolute") else f"{folder}{key}"
        for attempt in (
            lambda: store.put(bad, b"x"),
            lambda: store.get(bad),
            lambda: store.get_range(bad, 0, 1),
            lambda: store.head(bad),
            lambda: store.delete([f"{folder}good", bad]),
        ):
            with pytest.raises(Invalid) as caught:
                attempt()
            assert caught.value.kind == "bad_key"
        assert target.behind.keys(folder) == {f"{folder}good"}

    @pytest.mark.parametrize("key", BAD_KEYS, ids=ascii)
    def test_a_bad_key_is_refused_by_the_async_form_too(
        self, target: Target, store: Store, folder: str, key: str
    ) -> None:
        target.behind.write(f"{folder}good", b"x")
        bad = key if key in ("", "/absolute") else f"{folder}{key}"

        async def conversation() -> list[object]:
            return await asyncio.gather(
                store.put_async(bad, b"x"),
                store.get_async(bad),
                store.get_range_async(bad, 0, 1),
                store.head_async(bad),
                store.delete_async([f"{folder}good", bad]),
                return_exceptions=True,
            )

        assert [type(answer) for answer in on_a_loop(store, conversation)] == [Invalid] * 5
        assert target.behind.keys(folder) == {f"{folder}good"}

    @pytest.mark.parametrize("prefix", BAD_PREFIXES, ids=ascii)
    def test_a_bad_prefix_is_refused(self, store: Store, prefix: str) -> None:
        for listing in (store.scan, store.folders):
            with pytest.raises(Invalid) as caught:
                list(listing(prefix))
            assert caught.value.kind == "bad_key"
