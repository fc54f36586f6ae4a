# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Finishes every write that began, whatever becomes of whoever awaits it.

Servers cancel a request when its client goes away; the record of what the model said must land all the
same. A write runs as a task of its own, a bounded number of them at a time in each loop, and ``drain``
waits for those of a rollout.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from gym_objstore.observing import Event, report

T = TypeVar("T")


class Gate:
    """Lets ``limit`` holders through at a time, in each event loop: ``async with gate():``."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._semaphores: dict[asyncio.AbstractEventLoop, asyncio.Semaphore] = {}
        self._lock = threading.Lock()

    def __call__(self) -> asyncio.Semaphore:
        """Return the running loop's semaphore."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if loop not in self._semaphores:
                for ended in [one for one in self._semaphores if one.is_closed()]:
                    del self._semaphores[ended]
                self._semaphores[loop] = asyncio.Semaphore(self._limit)
            return self._semaphores[loop]


class Writer:
    """Runs writes shielded from cancellation, at most ``limit`` at a time in each event loop."""

    def __init__(self, limit: int) -> None:
        self._gate = Gate(limit)
        self._pending: defaultdict[str, dict[Future[None], asyncio.AbstractEventLoop]] = defaultdict(dict)
        self._lock = threading.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def finish(
        self, rollout_id: str, write: Coroutine[Any, Any, T], *, lost: Callable[[], Awaitable[None]] | None = None
    ) -> T:
        """Await a write that goes on if the caller is cancelled.

        ``lost`` is called if the write fails after its caller was cancelled, when nobody else can leave a
        trace of the loss.
        """
        return await self.finish_at_once(rollout_id, self._bounded(write), lost=lost)

    async def finish_at_once(
        self, rollout_id: str, write: Coroutine[Any, Any, T], *, lost: Callable[[], Awaitable[None]] | None = None
    ) -> T:
        """Await a write that waits for no other, as a marker must not while the store hangs; else as ``finish``."""
        task = asyncio.get_running_loop().create_task(write)
        self.expect(rollout_id, task)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done() or not task.cancelled():
                self.expect(rollout_id, asyncio.get_running_loop().create_task(_abandoned(rollout_id, task, lost)))
            raise

    def expect(self, rollout_id: str, task: asyncio.Task[Any]) -> None:
        """Have ``drain`` wait for a task that writes to a rollout, and keep the task from being collected."""
        finished: Future[None] = Future()
        with self._lock:
            self._pending[rollout_id][finished] = task.get_loop()
            self._tasks.add(task)

        def done(task: asyncio.Task[Any]) -> None:
            with self._lock:
                self._tasks.discard(task)
                del self._pending[rollout_id][finished]
                if not self._pending[rollout_id]:
                    del self._pending[rollout_id]
            finished.set_result(None)

        task.add_done_callback(done)

    async def drain(self, rollout_id: str | None = None, *, timeout: float) -> bool:  # noqa: ASYNC109 - the seed's word
        """Wait for the writes of a rollout, or of all, in every loop; False if some are still pending.

        A write whose loop was closed stays pending and is not waited for: it will never end.
        """
        going_on, left_behind = self._of(rollout_id)
        pending = [asyncio.wrap_future(one) for one in going_on]
        return not (pending and (await asyncio.wait(pending, timeout=timeout))[1]) and not left_behind

    def wait(self, rollout_id: str | None, seconds: float) -> bool:
        """Wait for writes with a blocking call, from a thread without a loop; see ``drain``."""
        going_on, left_behind = self._of(rollout_id)
        return not wait(going_on, seconds).not_done and not left_behind

    def _of(self, rollout_id: str | None) -> tuple[list[Future[None]], bool]:
        """Return the writes that can be waited for, and whether there are others, left behind by a closed loop."""
        with self._lock:
            rollouts = list(self._pending) if rollout_id is None else [rollout_id]
            found = [pair for one in rollouts for pair in self._pending.get(one, {}).items()]
        going_on = [future for future, loop in found if not loop.is_closed()]
        return going_on, len(going_on) < len(found)

    async def _bounded(self, write: Coroutine[Any, Any, T]) -> T:
        try:
            async with self._gate():
                return await write
        finally:
            write.close()  # one whose turn had not come when its loop ended was never begun, which Python warns of


async def _abandoned(rollout_id: str, task: asyncio.Task[Any], lost: Callable[[], Awaitable[None]] | None) -> None:
    """Leave a trace of a write that failed when nobody awaited it any more."""
    try:
        await task
    except Exception as error:  # noqa: BLE001 - whatever it was, the write is lost
        # Where nobody marks the loss it is one all the same.
        event = Event("write_failed" if lost else "loss", rollout_id, kind="abandoned", detail=str(error))
        report(event, "a write of a cancelled call failed, rollout_id=%s, error=%s", rollout_id, error)
        if lost is not None:
            await lost()
