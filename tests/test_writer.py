# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A write that began is finished, whatever becomes of whoever awaits it."""

from __future__ import annotations

import asyncio
import inspect
import threading

import pytest

from gym_objstore.writer import Writer


async def test_a_cancelled_caller_does_not_stop_its_write():
    writer, gate, landed = Writer(4), asyncio.Event(), []

    async def write():
        await gate.wait()
        landed.append("r1")

    caller = asyncio.create_task(writer.finish("r1", write()))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    gate.set()
    assert await writer.drain("r1", timeout=5)
    assert landed == ["r1"]


async def test_a_task_that_is_expected_is_waited_for():
    writer, gate = Writer(1), asyncio.Event()
    task = asyncio.create_task(gate.wait())
    writer.expect("r1", task)
    assert not await writer.drain("r1", timeout=0.01)
    assert await writer.drain("r2", timeout=0.01)
    gate.set()
    assert await writer.drain("r1", timeout=5)


async def test_the_result_and_the_error_reach_the_caller():
    writer = Writer(1)

    async def fail():
        raise KeyError("x")

    assert await writer.finish("r", asyncio.sleep(0, "done")) == "done"
    with pytest.raises(KeyError):
        await writer.finish("r", fail())


async def test_a_write_that_fails_unawaited_leaves_a_trace():
    writer, gate, traces = Writer(1), asyncio.Event(), []

    async def fail():
        await gate.wait()
        raise ConnectionError("gone")

    async def lost():
        traces.append("r1")

    caller = asyncio.create_task(writer.finish("r1", fail(), lost=lost))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    gate.set()
    assert await writer.drain("r1", timeout=5)
    assert traces == ["r1"]


async def test_a_write_that_fails_while_awaited_is_its_callers_business():
    writer, traces = Writer(1), []

    async def fail():
        raise ConnectionError("gone")

    async def lost():
        traces.append("r1")

    with pytest.raises(ConnectionError):
        await writer.finish("r1", fail(), lost=lost)
    assert await writer.drain(timeout=5)
    assert traces == []


async def test_no_more_than_the_limit_run_at_a_time():
    writer, running, most = Writer(3), 0, 0

    async def write():
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1

    await asyncio.gather(*(writer.finish("r", write()) for _ in range(20)))
    assert most == 3


async def test_drain_says_when_a_write_is_still_pending():
    writer, gate = Writer(1), asyncio.Event()
    caller = asyncio.create_task(writer.finish("slow", gate.wait()))
    await asyncio.sleep(0)
    assert not await writer.drain("slow", timeout=0.01)
    assert await writer.drain("another", timeout=0.01)
    gate.set()
    assert await writer.drain(timeout=5)
    await caller


def test_one_writer_serves_loops_in_several_threads_and_drains_them_all():
    writer, landed, started = Writer(2), [], threading.Event()

    async def slow():
        started.set()
        await asyncio.sleep(0.05)
        landed.append("other loop")

    other = threading.Thread(target=lambda: asyncio.run(writer.finish("r", slow())))
    other.start()
    started.wait(5)
    assert asyncio.run(writer.drain("r", timeout=5))
    other.join(5)
    assert landed == ["other loop"]


def test_a_loop_after_a_loop_is_served():
    writer = Writer(1)
    for _ in range(3):
        assert asyncio.run(writer.finish("r", asyncio.sleep(0, 7))) == 7


def test_a_write_that_a_closed_loop_left_behind_is_pending_and_nobody_waits_for_it():
    writer = Writer(4)

    async def begin():
        await asyncio.wait([asyncio.ensure_future(writer.finish("r1", asyncio.sleep(1000)))], timeout=0.01)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(begin())
    loop.close()
    assert not asyncio.run(asyncio.wait_for(writer.drain("r1", timeout=1000), 30))
    assert not asyncio.run(asyncio.wait_for(writer.drain(timeout=1000), 30))
    assert not writer.wait("r1", 1000)
    assert writer.wait("r2", 0)


def test_a_loop_that_ends_ends_the_writes_that_wait_for_their_turn_in_silence():
    writer = Writer(1)
    writes = [asyncio.sleep(1000) for _ in range(3)]

    async def begin():
        await asyncio.wait([asyncio.ensure_future(writer.finish("r1", one)) for one in writes], timeout=0.01)

    asyncio.run(begin())
    assert [inspect.getcoroutinestate(one) for one in writes] == [inspect.CORO_CLOSED] * 3
