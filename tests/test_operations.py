# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Listings in pages, as every driver plays them."""

from __future__ import annotations

import asyncio

import pytest

from gym_objstore.errors import Unavailable
from gym_objstore.flow import Listing, arun, delete, fold, page, put, run
from gym_objstore.store.memory import MemoryStore
from gym_objstore.testing.actors import Actor
from gym_objstore.testing.counting import CountingStore
from gym_objstore.testing.explorer import Bounds, explore
from gym_objstore.testing.wrapping import WrappedStore


def drive(flow, store):
    return run(flow, store)


def drive_async(flow, store):
    return asyncio.run(arun(flow, store))


both = pytest.mark.parametrize("play", [drive, drive_async])


@pytest.fixture
def store():
    found = MemoryStore()
    for number in range(2_500):
        found.put(f"a/{number:04d}", b"x")
    return found


def pages(prefix):
    listing, sizes = Listing(prefix), []
    while (metas := (yield from page(listing))) is not None:
        sizes.append(len(metas))
    return sizes


@both
def test_a_listing_comes_in_pages_of_a_thousand(store, play):
    assert play(pages("a/"), store) == [1000, 1000, 500]
    assert play(pages("b/"), store) == []


@both
def test_a_page_costs_one_request(store, play):
    counted = CountingStore(store)
    play(pages("a/"), counted)
    assert counted.costs.requests == {"LIST": 3}


@both
def test_a_fold_sees_every_object_once(store, play):
    keys = []
    play(fold("a/", lambda metas: keys.extend(meta.key for meta in metas)), store)
    assert sorted(keys) == [f"a/{number:04d}" for number in range(2_500)]


@both
def test_a_flow_may_remove_what_it_reads(store, play):
    def empty():
        listing = Listing("a/")
        while (metas := (yield from page(listing))) is not None:
            yield from delete(meta.key for meta in metas)

    play(empty(), store)
    assert list(store.scan("")) == []


class Breaking(WrappedStore):
    def scan(self, prefix):
        for number, meta in enumerate(super().scan(prefix)):
            if number == 1_500:
                raise Unavailable("the storage is down")
            yield meta

    async def scan_async(self, prefix):
        for meta in self.scan(prefix):
            yield meta


@both
def test_a_listing_that_broke_never_looks_whole(store, play):
    def stubborn():
        listing, seen = Listing("a/"), 0
        for _ in range(4):
            try:
                metas = yield from page(listing)
            except Unavailable:
                continue
            assert metas is not None
            seen += len(metas)
        return seen

    assert play(stubborn(), Breaking(store)) == 1_000


def test_the_explorer_lets_others_act_between_two_pages():
    def stage(log, _):
        listing, seen = Listing("a/"), []
        while (metas := (yield from page(listing))) is not None:
            seen += [meta.key for meta in metas]
        log.answered("saw", tuple(seen))

    def write(log, _):
        yield from put("a/1", b"x")
        yield from put("a/9", b"x")

    seen = set()

    def note(world):
        seen.update(event.value for event in world.log if event.what == "saw")

    bounds = Bounds(crashes=0, lost=0, second_page=lambda key: key > "a/5")
    result = explore([Actor("reader", (stage,)), Actor("writer", (write,))], {"a/5": b"x"}, [note], bounds)
    assert not result.violations
    assert seen == {("a/5",), ("a/1", "a/5"), ("a/5", "a/9"), ("a/1", "a/5", "a/9")}
