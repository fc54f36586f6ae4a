# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Laws of keys: whatever an id contains, its segment round-trips; what no key may be is refused untouched."""

from __future__ import annotations

import asyncio

import pytest

from gym_objstore.errors import Invalid
from gym_objstore.ids import segment
from gym_objstore.store import Store
from gym_objstore.testing.store_suite.playing import on_a_loop, sizes
from gym_objstore.testing.store_suite.target import Laws, Target

HOSTILE_IDS = (
    "",
    " ",
    "a b",
    " leading and trailing ",
    "tab\tnew\nline\r",
    "a+b",
    "a b=c&d",
    "a%b",
    "a%2Fb",
    "100%",
    "%",
    "a!b",
    "!",
    "!run",
    "~",
    "#1",
    "a#b?c=d",
    "a/b",
    "/",
    "/leading",
    "trailing/",
    "a//b",
    ".",
    "..",
    "../..",
    "../../etc/passwd",
    ".hidden",
    "trailing.",
    "a\\b",
    "..\\..",
    "C:\\x",
    "con",
    "NUL",
    "Case",
    "case",
    "CASE",
    "caSe",
    "nul\x00inside",
    "\x00",
    "\x7f",
    "\x1b[31m",
    "ünïcödé",
    "e\u0301",
    "\u00e9",
    "日本語",
    "🙂",
    "\ud800",
    "a\udfffb",
    "\u202eright to left",
    "\ufeff",
    "'\"`$(id);|<>*",
    "{}[]^",
    "@:,",
    "-",
    "--help",
    "s3://bucket/key",
    "x" * 95,
    "x" * 96,
    "x" * 97,
    "x" * 300,
    "X" * 300,
    "x" * 299 + "y",
    "é" * 300,
    "/" * 300,
)
"""Ids that users send, each of which has broken some store client or file system. No two are equal."""

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


class NamingLaws(Laws):
    """Keys made of ids, and keys that must not be."""

    def test_every_id_names_one_object_below_its_prefix(self, target: Target, store: Store, folder: str) -> None:
        bodies = {f"{folder}{segment(one)}": one.encode("utf-8", "surrogatepass") for one in HOSTILE_IDS}
        put_together(store, bodies)
        assert len(bodies) == len(HOSTILE_IDS)
        assert sizes(store.scan(folder)) == {key: len(body) for key, body in bodies.items()}
        assert target.behind.keys(folder) == set(bodies)
        for key, body in bodies.items():
            assert store.get(key) == body
            assert target.behind.read(key) == body
        store.delete(list(bodies))
        assert list(store.scan(folder)) == []

    def test_every_id_names_one_folder(self, store: Store, folder: str) -> None:
        names = {segment(one) for one in HOSTILE_IDS}
        put_together(store, {f"{folder}{name}/object": name.encode() for name in names})
        assert sorted(store.folders(folder)) == sorted(names)
        for name in names:
            assert sizes(store.scan(f"{folder}{name}/")) == {f"{folder}{name}/object": len(name)}

    def test_the_longest_key_of_the_format_is_usable(self, target: Target, store: Store, folder: str) -> None:
        """Five segments of 195 bytes below the folder's 17: a thousand with what joins them, less four."""
        key = folder + "/".join(digit * 195 for digit in "12345")
        assert len(key) == 996
        store.put(key, b"x")
        assert store.get(key) == b"x"
        assert sizes(store.scan(folder)) == {key: 1}
        assert target.behind.read(key) == b"x"
        store.delete([key])
        assert store.head(key) is None

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


def put_together(store: Store, bodies: dict[str, bytes]) -> None:
    """Put all objects at the same time."""

    async def conversation() -> None:
        await asyncio.gather(*(store.put_async(key, body) for key, body in bodies.items()))

    on_a_loop(store, conversation)
