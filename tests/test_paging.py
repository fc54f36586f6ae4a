# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What a paged listing shows of writes between its pages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

import pytest

from gym_objstore.store.memory import MemoryStore
from gym_objstore.testing.paging import PagedStore
from gym_objstore.testing.store_suite import BehindMemory, ListingLaws, Target

T = TypeVar("T")


class TestSuite(ListingLaws):
    """Paging changes nothing that a listing promises."""

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls) -> Target:
        inner = MemoryStore.named("paging")
        return Target(open=lambda: PagedStore(inner, page=50, between=lambda: None), behind=BehindMemory(inner))


def stocked(*keys: str) -> MemoryStore:
    store = MemoryStore()
    for key in keys:
        store.put(key, b"x")
    return store


async def gathered(listing: AsyncIterator[T]) -> list[T]:
    return [one async for one in listing]


def test_pages_are_whole_and_each_comes_backwards() -> None:
    turns: list[int] = []
    store = PagedStore(stocked("a/1", "a/2", "a/3", "a/4", "a/5", "b/1"), page=2, between=lambda: turns.append(1))
    assert [meta.key for meta in store.scan("a/")] == ["a/2", "a/1", "a/4", "a/3", "a/5"]
    assert len(turns) == 2


def test_a_last_page_that_is_full_is_the_last() -> None:
    turns: list[int] = []
    store = PagedStore(stocked("1", "2", "3", "4"), page=2, between=lambda: turns.append(1))
    assert [meta.key for meta in store.scan("")] == ["2", "1", "4", "3"]
    assert len(turns) == 1
    assert list(store.scan("none/")) == []
    assert len(turns) == 1


def test_a_write_between_pages_is_seen_behind_and_missed_in_front_of_the_last_key() -> None:
    inner = stocked("2", "4", "6")
    store = PagedStore(inner, page=2, between=lambda: [inner.put(key, b"x") for key in ("1", "3", "5")])
    assert [meta.key for meta in store.scan("")] == ["4", "2", "6", "5"]


def test_a_removal_between_pages_is_seen() -> None:
    inner = stocked("1", "2", "3", "4")
    store = PagedStore(inner, page=2, between=lambda: inner.delete(["1", "3"]))
    assert [meta.key for meta in store.scan("")] == ["2", "1", "4"]


def test_folders_are_paged_too() -> None:
    inner = stocked("r1/a", "r1/b", "r2/a", "r3/a")
    store = PagedStore(inner, page=2, between=lambda: inner.put("r4/a", b"x"))
    assert list(store.folders("")) == ["r2", "r1", "r4", "r3"]


def test_the_async_forms_page_alike() -> None:
    store = PagedStore(stocked("a/1", "b/1", "c/1"), page=2, between=lambda: None)
    assert [meta.key for meta in asyncio.run(gathered(store.scan_async("")))] == ["b/1", "a/1", "c/1"]
    assert asyncio.run(gathered(store.folders_async(""))) == ["b", "a", "c"]


def test_all_else_is_the_wrapped_store() -> None:
    inner = stocked("a/1")
    store = PagedStore(inner, page=1, between=lambda: None)
    assert store.url == "memory://"
    store.put("a/2", b"yy")
    assert inner.get("a/2") == store.get("a/2") == b"yy"
