# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import gc
import os
import threading
import weakref
from contextlib import AsyncExitStack

import pytest

from gym_objstore.store.scopes import LoopResource, PerLoop, PerProcess


class Resource:
    """Counts its openings and closings; ``loop`` is where it was opened."""

    opened: list[Resource]

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.closed_on: list[asyncio.AbstractEventLoop] = []

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.closed_on.append(asyncio.get_running_loop())


class Opener:
    def __init__(self) -> None:
        self.made: list[Resource] = []
        self.failing = 0

    async def __call__(self, stack: AsyncExitStack) -> Resource:
        await asyncio.sleep(0)
        if self.failing:
            self.failing -= 1
            raise ValueError("not yet")
        self.made.append(Resource())
        stack.push_async_callback(self.made[-1].close)
        return self.made[-1]


def test_a_value_is_made_once_however_many_threads_ask():
    together, made = threading.Barrier(16), []

    def make() -> object:
        made.append(object())
        return made[-1]

    value = PerProcess(make)
    found = []

    def ask() -> None:
        together.wait(10)
        found.append(value())

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert found == made * 16


def test_only_the_value_that_was_used_is_forgotten():
    value = PerProcess(object)
    old = value()
    assert value.forget(old) is old
    new = value()
    assert new is not old
    assert value.forget(old) is None
    assert value() is new
    assert value.forget() is new
    assert value.forget() is None


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_makes_its_own_value_even_if_the_parent_was_making_one():
    making, go_on = threading.Event(), threading.Event()

    def make() -> int:
        if os.getpid() == parent:
            making.set()
            go_on.wait(10)
        return os.getpid()

    parent = os.getpid()
    value = PerProcess(make)
    thread = threading.Thread(target=value)
    thread.start()
    making.wait(10)
    if (child := os.fork()) == 0:
        os._exit(7 if value() == os.getpid() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    go_on.set()
    thread.join()
    assert value() == parent


def test_each_loop_has_its_value_and_ended_loops_are_let_go():
    value = PerLoop(object)

    async def ask() -> tuple[object, weakref.ref[asyncio.AbstractEventLoop]]:
        assert value() is value()
        return value(), weakref.ref(asyncio.get_running_loop())

    answers = [asyncio.run(ask()) for _ in range(3)]
    assert len({id(one) for one, _ in answers}) == 3
    gc.collect()
    assert [loop() is None for _, loop in answers] == [True, True, False]


async def test_a_resource_is_opened_once_however_many_tasks_ask():
    opener = Opener()
    resource = LoopResource(opener)
    found = await asyncio.gather(*(resource() for _ in range(20)))
    assert found == opener.made * 20
    await resource.close()
    await resource.close()
    assert opener.made[0].closed_on == [asyncio.get_running_loop()]
    assert await resource() is not opener.made[0]
    await resource.close()


async def test_a_caller_that_is_cancelled_does_not_disturb_the_others():
    opener = Opener()
    resource = LoopResource(opener)
    hasty, patient = asyncio.create_task(resource()), asyncio.create_task(resource())
    await asyncio.sleep(0)
    hasty.cancel()
    assert await patient is opener.made[0]
    assert hasty.cancelled()
    await resource.close()


async def test_an_opening_that_failed_is_tried_again():
    opener = Opener()
    opener.failing = 1
    resource = LoopResource(opener)
    with pytest.raises(ValueError, match="not yet"):
        await resource()
    assert await resource() is opener.made[0]
    await resource.close()


def test_a_loop_that_ends_closes_its_resource_while_it_still_runs():
    opener = Opener()
    resource = LoopResource(opener)
    loops = []

    async def use() -> None:
        loops.append(asyncio.get_running_loop())
        await resource()

    for _ in range(3):
        asyncio.run(use())
    assert [one.loop for one in opener.made] == loops
    assert [one.closed_on for one in opener.made] == [[loop] for loop in loops]


async def test_a_renewed_resource_stays_open_for_those_who_use_it():
    opener = Opener()
    resource = LoopResource(opener)
    old = await resource()
    await resource.renew(old)
    new = await resource()
    assert new is not old
    await resource.renew(old)
    assert await resource() is new
    assert (old.closed_on, new.closed_on) == ([], [])
    await resource.close()
    assert len(old.closed_on) == len(new.closed_on) == 1
