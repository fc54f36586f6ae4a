# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The one retry policy, and the limit of requests in flight, around a store that is reached over a network.

Only ``Unavailable`` is repeated: every operation of a store may be, because objects never change. A full
disk is not waited for. Expired credentials are worth one more attempt, for which the backend reads them
again. The clients' own retries are switched off, so that the budget here is the whole budget.

The loop is written here and not taken from tenacity: that costs 60 us for every async operation, most of
which never fail, against the 0.5 us of the ``try`` below.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar

from gym_objstore.errors import Denied, ObjstoreError, Unavailable
from gym_objstore.observing import Retry, tell
from gym_objstore.store.answers import EXPIRED, FULL
from gym_objstore.store.marks import Marks
from gym_objstore.store.scopes import PerLoop, PerProcess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

    from gym_objstore.store import Body, Meta, Store

T = TypeVar("T")

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 5.0


class Patience:
    """How long one operation may go on failing: a budget of seconds since its first failure or last progress."""

    def __init__(self, operation: str, key: str, seconds: float, asked: Callable[[BaseException], float]) -> None:
        self._operation, self._key, self._seconds, self._asked = operation, key, seconds, asked
        self._attempts, self._start = 0, 0.0
        self._renewed = False

    def progress(self) -> None:
        """Begin a new budget, because the operation got on."""
        self._attempts = 0

    def pause(self, error: ObjstoreError) -> float:
        """Return the seconds to wait before the next attempt, or raise the error that ends the operation."""
        if self._attempts == 0:
            self._start = time.monotonic()
        self._attempts += 1
        if error.kind == EXPIRED and not self._renewed:
            self._renewed = True
            tell(Retry(self._operation, self._key, error.kind, 0.0))
            return 0.0
        if not isinstance(error, Unavailable) or error.kind == FULL:
            raise error
        jitter = random.uniform(0.5, 1.0)  # noqa: S311 - no secret, only out of step with the others
        pause = max(jitter * min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(self._attempts, 16)), self._asked(error))
        spent = time.monotonic() - self._start
        if spent + pause > self._seconds:
            raise self._given_up(error, spent) from error
        tell(Retry(self._operation, self._key, error.kind, pause))
        return pause

    def _given_up(self, error: ObjstoreError, spent: float) -> Unavailable:
        message = (
            f"{error.message}, operation={self._operation}, attempts={self._attempts}, "
            f"seconds={spent:.1f}, budget={self._seconds:g}"
        )
        return Unavailable(message, kind=error.kind, key=error.key or self._key, hint=error.hint)


def _nothing_asked(_: BaseException) -> float:
    return 0.0


class RetryingStore:
    """A store that repeats what got no answer, within ``seconds``, with at most ``limit`` requests in flight.

    The limit holds for each event loop and for all threads of the blocking form together. A request waits
    for its turn before it is signed. ``asked`` reads from an error how long the server asked to wait.
    """

    def __init__(
        self, store: Store, *, seconds: float, limit: int, asked: Callable[[BaseException], float] = _nothing_asked
    ) -> None:
        self._store, self._seconds, self._limit, self._asked = store, seconds, limit, asked
        self._turns = PerProcess(lambda: threading.BoundedSemaphore(limit))
        self._turns_async = PerLoop(lambda: asyncio.Semaphore(limit))

    @property
    def url(self) -> str:
        """Say where the store is, without secrets."""
        return self._store.url

    def __repr__(self) -> str:
        return repr(self._store)

    def __reduce__(self) -> tuple[Any, ...]:
        return _retrying, (self._store, self._seconds, self._limit, self._asked)

    def put(self, key: str, body: Body) -> None:  # noqa: D102 - the protocol documents these methods
        self._repeat("put", self._store.put, key, body)

    async def put_async(self, key: str, body: Body) -> None:  # noqa: D102
        await self._repeat_async("put", self._store.put_async, key, body)

    def get(self, key: str) -> bytes:  # noqa: D102
        return self._repeat("get", self._store.get, key)

    async def get_async(self, key: str) -> bytes:  # noqa: D102
        return await self._repeat_async("get", self._store.get_async, key)

    def get_range(self, key: str, start: int, length: int) -> bytes:  # noqa: D102
        return self._repeat("get", self._store.get_range, key, start, length)

    async def get_range_async(self, key: str, start: int, length: int) -> bytes:  # noqa: D102
        return await self._repeat_async("get", self._store.get_range_async, key, start, length)

    def head(self, key: str) -> Meta | None:  # noqa: D102
        return self._repeat("head", self._store.head, key)

    async def head_async(self, key: str) -> Meta | None:  # noqa: D102
        return await self._repeat_async("head", self._store.head_async, key)

    def scan(self, prefix: str) -> Iterator[Meta]:  # noqa: D102
        return self._list(self._store.scan, prefix)

    def scan_async(self, prefix: str) -> AsyncIterator[Meta]:  # noqa: D102
        return self._list_async(self._store.scan_async, prefix)

    def folders(self, prefix: str) -> Iterator[str]:  # noqa: D102
        return self._list(self._store.folders, prefix)

    def folders_async(self, prefix: str) -> AsyncIterator[str]:  # noqa: D102
        return self._list_async(self._store.folders_async, prefix)

    def delete(self, keys: Sequence[str]) -> None:  # noqa: D102
        self._repeat("delete", self._store.delete, keys)

    async def delete_async(self, keys: Sequence[str]) -> None:  # noqa: D102
        await self._repeat_async("delete", self._store.delete_async, keys)

    def close(self) -> None:  # noqa: D102
        self._store.close()

    async def close_async(self) -> None:  # noqa: D102
        await self._store.close_async()

    def _patience(self, operation: str, first: object) -> Patience:
        return Patience(operation, first if isinstance(first, str) else "", self._seconds, self._asked)

    def _repeat(self, operation: str, function: Callable[..., T], *arguments: Any) -> T:
        patience = self._patience(operation, arguments[0])
        while True:
            try:
                with self._turns():
                    return function(*arguments)
            except (Unavailable, Denied) as error:
                pause = patience.pause(error)
            time.sleep(pause)

    async def _repeat_async(self, operation: str, function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        patience = self._patience(operation, arguments[0])
        while True:
            try:
                async with self._turns_async():
                    return await function(*arguments)
            except (Unavailable, Denied) as error:
                pause = patience.pause(error)
            await asyncio.sleep(pause)

    def _list(self, listing: Callable[[str], Iterator[T]], prefix: str) -> Iterator[T]:
        """List again from the start after a failure, because pages have no order, but yield nothing twice."""
        patience, seen = self._patience("list", prefix), Marks()
        while True:
            try:
                for item in listing(prefix):
                    if _new(item, seen):
                        yield item
                        patience.progress()
            except (Unavailable, Denied) as error:
                pause = patience.pause(error)
            else:
                return
            time.sleep(pause)

    async def _list_async(self, listing: Callable[[str], AsyncIterator[T]], prefix: str) -> AsyncIterator[T]:
        """List again from the start after a failure; see ``_list``."""
        patience, seen = self._patience("list", prefix), Marks()
        while True:
            try:
                async for item in listing(prefix):
                    if _new(item, seen):
                        yield item
                        patience.progress()
            except (Unavailable, Denied) as error:
                pause = patience.pause(error)
            else:
                return
            await asyncio.sleep(pause)


def _new(item: Any, seen: Marks) -> bool:
    """Say whether a key or name comes for the first time, and remember it.

    Also where no listing failed: servers were seen that give one page twice. That keys ascend would not do for
    memory: a key that does not may be of a store without an order, or of a page that comes again.
    """
    return seen.add(getattr(item, "key", item))


def _retrying(store: Store, seconds: float, limit: int, asked: Callable[[BaseException], float]) -> RetryingStore:
    return RetryingStore(store, seconds=seconds, limit=limit, asked=asked)
