# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Laws of one store object in many hands: threads, event loops, both forms at once, cancelled tasks, forks."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import pytest

from gym_objstore.store import Store
from gym_objstore.testing.store_suite.bodies import MB, noise
from gym_objstore.testing.store_suite.playing import in_threads, on_a_loop, sizes
from gym_objstore.testing.store_suite.target import Laws, Target, opened

FORK_SECONDS = 30.0


class SharingLaws(Laws):
    """What a store object owes to those who use it at the same time or one after another."""

    def test_eight_threads_share_one_store(self, store: Store, folder: str) -> None:
        def live(thread: int) -> dict[str, int]:
            mine = f"{folder}{thread}/"
            for index in range(5):
                store.put(f"{mine}{index}", b"." * index)
                assert store.get(f"{mine}{index}") == b"." * index
            store.delete([f"{mine}0", f"{mine}4"])
            assert store.head(f"{mine}0") is None
            return sizes(store.scan(mine))

        kept = in_threads(8, live, range(8))
        assert kept == [{f"{folder}{thread}/{index}": index for index in (1, 2, 3)} for thread in range(8)]
        assert sorted(store.folders(folder)) == [str(thread) for thread in range(8)]

    def test_loops_one_after_another_share_one_store(self, store: Store, folder: str) -> None:
        for loop in range(3):
            assert on_a_loop(store, partial(live_on_a_loop, store, f"{folder}{loop}/")) == {"1": 1, "2": 2}

    def test_loops_beside_each_other_share_one_store(self, store: Store, folder: str) -> None:
        together = threading.Barrier(3)

        async def conversation(loop: int) -> dict[str, int]:
            await asyncio.to_thread(together.wait, 30)
            return await live_on_a_loop(store, f"{folder}{loop}/")

        kept = in_threads(3, lambda loop: on_a_loop(store, partial(conversation, loop)), range(3))
        assert kept == [{"1": 1, "2": 2}] * 3
        assert len(list(store.scan(folder))) == 6

    def test_both_forms_are_usable_at_the_same_time(self, store: Store, folder: str) -> None:
        async def conversation() -> list[Any]:
            blocking = (asyncio.to_thread(store.put, f"{folder}blocking{index}", b"x") for index in range(8))
            waiting = (store.put_async(f"{folder}async{index}", b"x") for index in range(8))
            return await asyncio.gather(*blocking, *waiting)

        assert on_a_loop(store, conversation) == [None] * 16
        assert len(list(store.scan(folder))) == 16

    def test_a_cancelled_put_is_whole_or_absent_and_the_store_goes_on(self, store: Store, folder: str) -> None:
        body = noise(MB)

        async def conversation() -> None:
            puts = [asyncio.create_task(store.put_async(f"{folder}{index}", body)) for index in range(8)]
            for index, put in enumerate(puts):
                await asyncio.sleep(0.001 * index)
                put.cancel()
            await asyncio.gather(*puts, return_exceptions=True)
            await store.put_async(f"{folder}after", body)
            assert await store.get_async(f"{folder}after") == body

        on_a_loop(store, conversation)
        found = sizes(store.scan(folder))
        assert f"{folder}after" in found
        assert set(found.values()) == {MB}
        assert all(store.get(key) == body for key in found)

    @pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
    def test_a_forked_child_is_served_or_refused_but_never_hangs(self, target: Target, folder: str) -> None:
        with opened(target) as store:
            store.put(f"{folder}object", b"from the parent")
            assert forked_answer(store, f"{folder}object") in (b"from the parent", "Unusable")
            assert store.get(f"{folder}object") == b"from the parent"


async def live_on_a_loop(store: Store, mine: str) -> dict[str, int]:
    """Put, read, list and remove in one folder; return the names and sizes that remain."""
    await asyncio.gather(*(store.put_async(f"{mine}{index}", b"." * index) for index in range(4)))
    assert [await store.get_async(f"{mine}{index}") for index in range(4)] == [b"", b".", b"..", b"..."]
    await store.delete_async([f"{mine}0", f"{mine}3"])
    assert await store.head_async(f"{mine}0") is None
    return {meta.key.removeprefix(mine): meta.size async for meta in store.scan_async(mine)}


def forked_answer(store: Store, key: str) -> bytes | str:
    """Read in a forked child; return the bytes, the class of the refusal, or "hangs"."""
    fork = multiprocessing.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)
    child = fork.Process(target=_answer, args=(store, key, sender), daemon=True)
    child.start()
    sender.close()
    try:
        return receiver.recv() if receiver.poll(FORK_SECONDS) else "hangs"
    except EOFError:
        return "died"
    finally:
        child.kill()
        child.join()
        receiver.close()


def _answer(store: Store, key: str, sender: Connection) -> None:
    try:
        sender.send(store.get(key))
    except Exception as error:  # noqa: BLE001 - its name is the answer
        sender.send(type(error).__name__)
