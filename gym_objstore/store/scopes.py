# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Things of which there is one in each process, or one on each event loop: clients, pools, semaphores.

They are made at first use, exactly once however many threads or tasks ask, and never cross a fork.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Generic, TypeAlias, TypeVar

T = TypeVar("T")

Opener: TypeAlias = Callable[[AsyncExitStack], Awaitable[T]]
"""Opens an async resource and leaves on the stack how it is closed. No async generator may be entered there: a
loop that ends would close it at the same time as the one that holds the stack."""


class PerProcess(Generic[T]):
    """A value of each process that uses it. A forked child makes its own and lets the parent's be."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: dict[int, T] = {}
        self._locks: dict[int, threading.Lock] = {}

    def __call__(self) -> T:
        """Return this process's value, made now if need be."""
        pid = os.getpid()
        try:
            return self._made[pid]
        except KeyError:
            # A lock of this process alone: one that was held while the parent forked is never released.
            with self._locks.setdefault(pid, threading.Lock()):
                if pid not in self._made:
                    self._made[pid] = self._make()
                return self._made[pid]

    def forget(self, only: T | None = None) -> T | None:
        """Give up this process's value, so that the next call makes another; return it.

        With ``only``, another value, which somebody else has renewed meanwhile, is kept.
        """
        pid = os.getpid()
        if only is not None and self._made.get(pid) is not only:
            return None
        return self._made.pop(pid, None)


class PerLoop(Generic[T]):
    """A value of each event loop that uses it, forgotten when the loop has ended."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: dict[asyncio.AbstractEventLoop, T] = {}

    def __call__(self) -> T:
        """Return the running loop's value, made now if need be."""
        loop = asyncio.get_running_loop()
        try:
            return self._made[loop]
        except KeyError:
            for ended in [one for one in list(self._made) if one.is_closed()]:
                self._made.pop(ended, None)
            return self._made.setdefault(loop, self._make())

    def forget(self) -> T | None:
        """Give up the running loop's value, so that the next call makes another; return it."""
        return self._made.pop(asyncio.get_running_loop(), None)


class _Lifetime(Generic[T]):
    """One opened resource of one loop.

    It is held open by an async generator on purpose: a loop that ends closes its generators while it still
    runs, so the resource is closed even where nobody awaited ``close``.
    """

    def __init__(self, open_resource: Opener[T]) -> None:
        self._resources = _hold(open_resource)
        self._opening = asyncio.ensure_future(self._open())

    async def _open(self) -> T:
        return await anext(self._resources)

    async def get(self) -> T:
        """Return the opened resource. One caller's cancellation does not disturb the others."""
        return await asyncio.shield(self._opening)

    @property
    def failed(self) -> bool:
        """Whether opening ended in an error or was cancelled."""
        return self._opening.done() and (self._opening.cancelled() or self._opening.exception() is not None)

    async def close(self) -> None:
        """Close the resource, after it has been opened."""
        await asyncio.wait([self._opening])
        await self._resources.aclose()


async def _hold(open_resource: Opener[T]) -> AsyncGenerator[T, None]:
    async with AsyncExitStack() as stack:
        yield await open_resource(stack)


class LoopResource(Generic[T]):
    """An async resource of each event loop, opened once at first use and closed no later than its loop."""

    def __init__(self, open_resource: Opener[T]) -> None:
        self._current = PerLoop(lambda: _Lifetime(open_resource))
        self._retired = PerLoop(list[_Lifetime[T]])

    async def __call__(self) -> T:
        """Return the running loop's resource, opened now if need be."""
        if self._current().failed:
            self._current.forget()
        return await self._current().get()

    async def renew(self, used: T) -> None:
        """See to it that the next call opens another resource, unless ``used`` has been replaced already.

        The replaced one stays open for those who are using it, until ``close`` or the end of the loop.
        """
        if await self() is used and (lifetime := self._current.forget()) is not None:
            self._retired().append(lifetime)

    async def close(self) -> None:
        """Close the running loop's resource. Idempotent; the next call opens another."""
        lifetimes = [self._current.forget(), *(self._retired.forget() or [])]
        for lifetime in lifetimes:
            if lifetime is not None:
                await lifetime.close()
