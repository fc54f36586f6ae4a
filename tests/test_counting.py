# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What a conversation costs is counted by what waits for what, not by how fast anything happens to be."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from gym_objstore.errors import NotFound
from gym_objstore.flow import All, Delete, Flow, Get, Head, Put, Scan, arun, run
from gym_objstore.store import Store
from gym_objstore.store.memory import MemoryStore
from gym_objstore.testing.counting import Costs, CountingStore
from gym_objstore.testing.store_suite import BehindMemory, ColourLaws, Target


class TestSuite(ColourLaws):
    """Counting changes nothing that a store promises."""

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls) -> Target:
        inner = MemoryStore.named("counting")
        return Target(open=lambda: CountingStore(inner), behind=BehindMemory(inner))


@pytest.fixture
def store() -> CountingStore:
    return CountingStore(MemoryStore())


def test_nothing_costs_nothing(store: CountingStore) -> None:
    store.delete([])
    asyncio.run(store.delete_async([]))
    store.scan("a/")  # a listing that nobody reads asks for no page
    assert store.costs == Costs(round_trips=0, requests={})


def test_requests_in_sequence_are_as_many_round_trips(store: CountingStore) -> None:
    store.put("a", b"x")
    store.head("a")
    store.get("a")
    store.get_range("a", 0, 1)
    store.delete(["a"])
    assert store.costs == Costs(5, {"PUT": 1, "HEAD": 1, "GET": 2, "DELETE": 1})


def test_async_requests_in_sequence_are_as_many_round_trips(store: CountingStore) -> None:
    async def conversation() -> None:
        await store.put_async("a", b"x")
        await store.head_async("a")
        await store.get_async("a")
        await store.get_range_async("a", 0, 1)
        await store.delete_async(["a"])

    asyncio.run(conversation())
    assert store.costs == Costs(5, {"PUT": 1, "HEAD": 1, "GET": 2, "DELETE": 1})


@pytest.mark.parametrize("play", [run, lambda flow, store: asyncio.run(arun(flow, store))], ids=["run", "arun"])
def test_operations_of_one_all_are_one_round_trip(
    store: CountingStore, play: Callable[[Flow[object], Store], object]
) -> None:
    def flow() -> Flow[object]:
        yield All((Put("a", b"x"), Head("b"), Scan("c/")))
        return (yield All((Get("a"), Delete(("b", "c")))))

    play(flow(), store)
    assert store.costs == Costs(2, {"PUT": 1, "HEAD": 1, "LIST": 1, "GET": 1, "DELETE": 1})


def test_chains_beside_each_other_cost_the_longest(store: CountingStore) -> None:
    async def chain(name: str, length: int) -> None:
        for index in range(length):
            await store.put_async(f"{name}/{index}", b"x")

    async def conversation() -> None:
        await asyncio.gather(chain("a", 4), chain("b", 2), chain("c", 3), chain("d", 4))

    asyncio.run(conversation())
    assert store.costs == Costs(4, {"PUT": 13})


@pytest.mark.parametrize(("requests", "limit", "round_trips"), [(64, 64, 1), (65, 64, 2), (100, 10, 10)])
def test_a_limit_of_concurrency_divides_into_round_trips(
    store: CountingStore, requests: int, limit: int, round_trips: int
) -> None:
    def flow() -> Flow[object]:
        return (yield All(tuple(Head(str(index)) for index in range(requests))))

    asyncio.run(arun(flow(), store, limit=limit))
    assert store.costs == Costs(round_trips, {"HEAD": requests})


def test_threads_beside_each_other_are_one_round_trip(store: CountingStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda index: store.put(str(index), b"x"), range(8)))
    assert store.costs == Costs(1, {"PUT": 8})


def test_loops_and_threads_share_a_round_trip(store: CountingStore) -> None:
    async def conversation() -> None:
        blocking = [asyncio.to_thread(store.head, "a"), asyncio.to_thread(asyncio.run, store.head_async("b"))]
        await asyncio.gather(store.put_async("c", b"x"), *blocking)

    asyncio.run(conversation())
    assert store.costs == Costs(1, {"PUT": 1, "HEAD": 2})


@pytest.mark.parametrize(("objects", "pages"), [(0, 1), (1, 1), (3, 1), (4, 2), (6, 2), (7, 3)])
def test_a_listing_costs_its_pages_one_after_another(objects: int, pages: int) -> None:
    store = CountingStore(MemoryStore(), page=3)
    for index in range(objects):
        store.put(f"a/{index}/object", b"x")
    for listing in (store.scan, store.folders):
        store.reset()
        assert len(list(listing("a/"))) == objects
        assert store.costs == Costs(pages, {"LIST": pages})

    async def conversation() -> int:
        return len([one async for one in store.scan_async("a/")]) + len([n async for n in store.folders_async("a/")])

    store.reset()
    assert asyncio.run(conversation()) == 2 * objects
    assert store.costs == Costs(2 * pages, {"LIST": 2 * pages})


def test_a_listing_costs_only_the_pages_that_were_read() -> None:
    store = CountingStore(MemoryStore(), page=3)
    for index in range(7):
        store.put(f"a/{index}", b"x")
    store.reset()
    listing: Iterator[object] = store.scan("a/")
    assert [next(listing) for _ in range(3)]
    assert store.costs == Costs(1, {"LIST": 1})
    assert next(listing)
    assert store.costs == Costs(2, {"LIST": 2})


@pytest.mark.parametrize(("keys", "requests"), [(1, 1), (1_000, 1), (1_001, 2), (2_001, 3)])
def test_a_removal_costs_a_request_for_every_thousand_keys(store: CountingStore, keys: int, requests: int) -> None:
    store.delete([str(index) for index in range(keys)])
    assert store.costs == Costs(1, {"DELETE": requests})


def test_a_request_that_fails_costs_too(store: CountingStore) -> None:
    with pytest.raises(NotFound):
        store.get("missing")
    with pytest.raises(NotFound):
        asyncio.run(store.get_async("missing"))
    assert store.costs == Costs(2, {"GET": 2})


def test_a_request_that_was_cancelled_before_it_went_out_costs_nothing(store: CountingStore) -> None:
    async def conversation() -> None:
        task = asyncio.create_task(store.put_async("a", b"x"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await store.put_async("b", b"x")

    asyncio.run(conversation())
    assert store.costs == Costs(1, {"PUT": 1})


def test_reset_starts_from_nothing(store: CountingStore) -> None:
    store.put("a", b"x")
    store.reset()
    assert store.costs == Costs()
    store.head("a")
    assert store.costs == Costs(1, {"HEAD": 1})


def test_work_between_requests_is_no_round_trip(store: CountingStore) -> None:
    """A worker thread that computes before its request still joins the requests it does not wait for."""

    async def conversation(first: Callable[[], Awaitable[object]]) -> None:
        async def computed() -> None:
            await first()
            await store.head_async("b")

        await asyncio.gather(store.put_async("a", b"x"), computed())

    asyncio.run(conversation(lambda: asyncio.to_thread(sum, range(10))))
    assert store.costs == Costs(1, {"PUT": 1, "HEAD": 1})
