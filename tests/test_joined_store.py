# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio

import pytest

from gym_objstore.errors import Invalid
from gym_objstore.flow import Delete, Find, GetRange, Head, Scan, arun, folders, put, run, together
from gym_objstore.store import Store
from gym_objstore.store.joined_store import JoinedStore
from gym_objstore.store.memory import MemoryStore

both = pytest.mark.parametrize("play", [run, lambda flow, store: asyncio.run(arun(flow, store))])


@both
def test_each_store_has_its_folder(play):
    one, other = MemoryStore("one"), MemoryStore("other")
    joined = JoinedStore({"a": one, "b": other})
    assert isinstance(joined, Store)
    assert joined.url == "a=memory://one, b=memory://other"

    def conversation():
        yield from put("a/x/1", b"one")
        yield from put("b/x/1", b"other")
        names = yield from folders("b/")
        answers = yield from together(
            [Find("a/x/1", bytes), GetRange("b/x/1", 1, 2, bytes), Head("a/x/1"), Head("a/x/2"), Scan("b/x/")]
        )
        yield Delete(("a/x/1", "b/x/1"))
        return names, answers

    names, (body, part, head, absent, listed) = play(conversation(), joined)
    assert (names, body, part, absent) == (("x",), b"one", b"th", None)
    assert (head.key, [meta.key for meta in listed]) == ("a/x/1", ["b/x/1"])
    assert [*one.scan(""), *other.scan("")] == []


def test_another_folder_is_refused():
    joined = JoinedStore({"a": MemoryStore()})
    with pytest.raises(Invalid, match="no store has this folder"):
        joined.put("c/x", b"x")


async def test_closing_closes_all():
    class Closing(MemoryStore):
        closed = 0

        def close(self):
            self.closed += 1

    stores = {"a": Closing(), "b": Closing()}
    JoinedStore(stores).close()
    await JoinedStore(stores).close_async()
    assert [one.closed for one in stores.values()] == [1, 1]
