# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Laws of names: whatever an id contains, its segment is a key that round-trips and stays where it belongs."""

from __future__ import annotations

import asyncio

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


class NamingLaws(Laws):
    """Keys made of ids."""

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


def put_together(store: Store, bodies: dict[str, bytes]) -> None:
    """Put all objects at the same time."""

    async def conversation() -> None:
        await asyncio.gather(*(store.put_async(key, body) for key, body in bodies.items()))

    on_a_loop(store, conversation)
