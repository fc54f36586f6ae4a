# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The two drivers that play flows on a store: what they answer, raise, overlap and leave behind."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from gym_objstore.computing import SHARED_BYTES
from gym_objstore.errors import Denied, NotFound, Unavailable
from gym_objstore.flow import (
    CONCURRENCY,
    INLINE_BYTES,
    Compute,
    Delete,
    Find,
    Folders,
    Get,
    GetRange,
    Head,
    Put,
    arun,
    compute,
    delete,
    find,
    folders,
    get,
    head,
    put,
    run,
    scan,
    together,
)
from gym_objstore.store.memory import MemoryStore
from gym_objstore.testing.wrapping import WrappedStore


def play_blocking(flow, store):
    return run(flow, store)


def play_on_a_loop(flow, store):
    return asyncio.run(arun(flow, store))


@pytest.fixture(params=[play_blocking, play_on_a_loop])
def play(request):
    return request.param


@pytest.fixture
def store():
    found = MemoryStore()
    for key in ("d/b", "d/a", "d/e/c", "other"):
        found.put(key, key.encode())
    return found


def names(metas):
    return [meta.key for meta in metas]


@pytest.mark.parametrize(
    ("operation", "answer"),
    [
        (Put("new", b"x"), None),
        (Get("other"), b"other"),
        (Find("other", len), 5),
        (Find("absent", len), None),
        (GetRange("other", 1, 3, bytes.upper), b"THE"),
        (Head("absent"), None),
        (Folders("d/"), ("e",)),
        (Delete(("other", "absent")), None),
        (Compute(max, (1, 2), 0), 2),
        (Compute(max, (1, 2), INLINE_BYTES), 2),
    ],
)
def test_each_operation_is_answered_alone_and_among_others(play, store, operation, answer):
    def alone():
        return (yield operation)

    assert play(alone(), store) == answer
    store.put("other", b"other")
    assert play(together([operation, Get("d/a"), operation]), store)[:2] == (answer, b"d/a")


def test_a_listing_is_sorted_whatever_the_order_of_the_store(play, store):
    assert names(store.scan("d/")) != ["d/a", "d/b", "d/e/c"]
    assert names(play(scan("d/"), store)) == ["d/a", "d/b", "d/e/c"]


def test_the_short_forms_ask_for_the_same(play, store):
    def conversation():
        yield from put("d/f/g", [b"two", b"parts"])
        meta = yield from head("d/f/g")
        body = yield from get("d/f/g")
        size = yield from find("d/f/g", len)
        below = yield from folders("d/")
        yield from delete(["d/f/g", "d/a"])
        yield from delete([])
        total = yield from compute(sum, [size, 1], size=0)
        return meta.size, body, below, total

    assert play(conversation(), store) == (8, b"twoparts", ("e", "f"), 9)
    assert names(play(scan("d/"), store)) == ["d/b", "d/e/c"]


def test_operations_that_are_none_are_answered_at_once(play, store):
    assert play(together([]), store) == ()


def test_an_error_is_raised_inside_the_flow_which_may_go_on(play, store):
    def conversation():
        try:
            yield Get("absent")
        except NotFound as error:
            yield Put("why", str(error).encode())
        return (yield Get("why"))

    assert play(conversation(), store) == b"no such object, key=absent"


def test_an_error_that_the_flow_does_not_take_is_the_callers(play, store):
    with pytest.raises(NotFound, match="key=absent"):
        play(get("absent"), store)


def test_an_error_of_a_computation_or_a_decoder_is_raised_inside_the_flow_too(play, store):
    def refuse(*_):
        raise ZeroDivisionError

    def conversation(operation):
        with pytest.raises(ZeroDivisionError):
            yield operation
        return "went on"

    for size in (0, INLINE_BYTES):
        assert play(conversation(Compute(refuse, (1,), size)), store) == "went on"
    assert play(conversation(Find("other", refuse)), store) == "went on"
    assert play(conversation(GetRange("other", 0, 1, refuse)), store) == "went on"


def test_a_decoder_that_finds_nothing_is_not_an_absent_object(play, store):
    def lost(_):
        raise NotFound("inside")

    with pytest.raises(NotFound, match="inside"):
        play(find("other", lost), store)


class FailingStore(WrappedStore):
    """Fails for keys that say so, the first of them last."""

    def __init__(self, store):
        super().__init__(store)
        self.second_failed = threading.Event()
        self.second_failed_here = asyncio.Event()

    def put(self, key, body):
        if key == "first":
            assert self.second_failed.wait(60)
            raise Denied("first")
        if key == "second":
            self.second_failed.set()
            raise Unavailable("second")
        self.store.put(key, body)

    async def put_async(self, key, body):
        if key == "first":
            await self.second_failed_here.wait()
            raise Denied("first")
        if key == "second":
            self.second_failed_here.set()
            raise Unavailable("second")
        self.store.put(key, body)


def test_all_are_finished_before_the_first_error_in_their_order_is_raised(play, store):
    writes = [Put("first", b""), Put("second", b""), *(Put(f"d/{n}", b"x") for n in range(100))]
    with pytest.raises(Denied, match="first"):
        play(together(writes), FailingStore(store))
    assert len(names(store.scan("d/"))) == 103


class BusyStore(WrappedStore):
    """Counts what is under way at the same time, and holds it until it is told otherwise."""

    def __init__(self, store):
        super().__init__(store)
        self.open = asyncio.Event()
        self.begun = self.under_way = self.most = 0

    async def put_async(self, key, body):
        self.begun += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await self.open.wait()
        finally:
            self.under_way -= 1
        self.store.put(key, body)


async def begin(store, **limits):
    """Start a hundred writes and return their task once no more of them begin."""
    task = asyncio.create_task(arun(together(Put(f"k{n}", b"x") for n in range(100)), store, **limits))
    begun = -1
    while begun != store.begun:
        begun = store.begun
        for _ in range(10):
            await asyncio.sleep(0)
    return task


@pytest.mark.parametrize(("limits", "most"), [({"limit": 3}, 3), ({}, CONCURRENCY), ({"limit": 1000}, 100)])
async def test_no_more_operations_are_under_way_than_the_limit_allows(limits, most):
    store = BusyStore(MemoryStore())
    task = await begin(store, **limits)
    assert store.under_way == most
    store.open.set()
    await task
    assert (store.begun, store.most) == (100, most)


async def test_cancelling_stops_what_is_under_way_and_begins_nothing_more():
    store = BusyStore(MemoryStore())
    task = await begin(store, limit=3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (store.begun, store.under_way) == (3, 0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert list(store.scan("")) == []


async def test_a_small_computation_stays_on_the_loop_and_a_large_one_does_not():
    here = threading.get_ident()
    for size in (INLINE_BYTES - 1, INLINE_BYTES, SHARED_BYTES - 1):
        assert await arun(compute(threading.get_ident, size=size), MemoryStore()) == here
    assert await arun(compute(threading.get_ident, size=SHARED_BYTES), MemoryStore()) != here


async def test_everybody_else_has_a_turn_between_two_computations_of_a_burst():
    log = []
    burst = [arun(compute(log.append, "computed", size=INLINE_BYTES), MemoryStore()) for _ in range(20)]
    tasks = [asyncio.create_task(one) for one in burst]
    while not all(task.done() for task in tasks):
        log.append("turn")
        await asyncio.sleep(0)
    assert log.count("computed") == 20
    assert all(pair != ("computed", "computed") for pair in pairwise(log))


@pytest.mark.parametrize("read", [lambda f: Find("k", f), lambda f: GetRange("k", 0, SHARED_BYTES, f)])
async def test_a_large_body_is_decoded_beside_the_loop(read):
    def conversation():
        return (yield read(lambda _: threading.get_ident()))

    store, here = MemoryStore(), threading.get_ident()
    store.put("k", b"x" * (SHARED_BYTES - 1))
    assert await arun(conversation(), store) == here
    store.put("k", b"x" * SHARED_BYTES)
    assert await arun(conversation(), store) != here


async def test_the_loop_goes_on_while_a_large_computation_runs():
    done = threading.Event()
    task = asyncio.create_task(arun(compute(done.wait, 60, size=SHARED_BYTES), MemoryStore()))
    await asyncio.sleep(0)
    done.set()
    assert await task is True


def test_many_threads_play_at_once(store):
    def conversation(number):
        yield from together(Put(f"t{number}/{n}", b"x") for n in range(20))
        return len((yield from scan(f"t{number}/")))

    with ThreadPoolExecutor(40) as threads:
        assert list(threads.map(lambda number: run(conversation(number), store), range(80))) == [20] * 80


def test_many_loops_in_many_threads_play_at_once(store):
    def conversation(number):
        yield from together(Put(f"t{number}/{n}", b"x") for n in range(20))
        return (yield from compute(max, number, -1, size=SHARED_BYTES))

    with ThreadPoolExecutor(8) as threads:
        played = threads.map(lambda number: asyncio.run(arun(conversation(number), store)), range(24))
        assert list(played) == list(range(24))


FORKING = """
import asyncio, os, sys
from gym_objstore.computing import SHARED_BYTES
from gym_objstore.flow import Get, Put, arun, compute, run, together
from gym_objstore.store.memory import MemoryStore

store = MemoryStore()
writes = [Put("a", b"1"), Put("b", b"2")]

def play():
    run(together(writes), store)
    assert run(together([Get("a"), Get("b")]), store) == (b"1", b"2")
    assert asyncio.run(arun(compute(max, 1, 2, size=SHARED_BYTES), store)) == 2

play()
child = os.fork()
if not child:
    play()
    sys.exit(7)
_, status = os.waitpid(child, 0)
play()
print(os.waitstatus_to_exitcode(status))
"""


def test_a_forked_child_plays_with_threads_of_its_own():
    command = [sys.executable, "-W", "ignore", "-c", FORKING]
    played = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (played.returncode, played.stdout.strip(), played.stderr) == (0, "7", "")
