# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A store that counts what a conversation costs: requests by verb, and how many it waited for in sequence.

Owns: ``CountingStore`` and ``Costs``. Does not own: which costs are right; tests and the benchmark say that.

A *round trip* is a set of requests that are under way at the same time. So that it depends on what waits for
what, and not on how fast a store happens to be, requests are played in rounds: one that starts joins the open
round, and a round is let go when the one before has finished and for ``TURNS`` turns of an event loop or
thread nothing joined or finished. What needs an answer first is therefore in a later round, everything else
is in the same. A request that hangs holds up the next round.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from gym_objstore.store import DELETE_LIMIT, Body, Meta, Store
from gym_objstore.testing.wrapping import WrappedStore

T = TypeVar("T")

TURNS = 8
TURN_SECONDS = 0.005
PAGE = 1000
"""Keys of one page of a listing."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What was paid since the last ``reset``: round trips in sequence, and requests by verb."""

    round_trips: int = 0
    requests: dict[str, int] = field(default_factory=dict)


class CountingStore(WrappedStore):
    """A store that counts ``PUT GET HEAD LIST DELETE`` requests and sequential round trips.

    A listing costs one ``LIST`` and one round trip per page of ``page`` keys that was read; a removal costs
    one ``DELETE`` per thousand keys, all in one round trip. A request that fails costs what one that
    succeeds does. Usable from all threads and loops at once; the costs are of all of them together.
    """

    def __init__(self, store: Store, *, page: int = PAGE) -> None:
        super().__init__(store)
        self._page = page
        self._lock = threading.Lock()
        self._requests: Counter[str] = Counter()
        self._rounds = _Rounds()

    @property
    def costs(self) -> Costs:
        """Return what all requests that were sent since the last reset cost."""
        with self._lock:
            return Costs(self._rounds.count, dict(self._requests))

    def reset(self) -> None:
        """Start from nothing. Call it between conversations, not within one."""
        with self._lock:
            self._requests.clear()
            self._rounds.count = 0

    def put(self, key: str, body: Body) -> None:  # noqa: D102 - the protocol documents these
        with self._request("PUT"):
            super().put(key, body)

    def get(self, key: str) -> bytes:  # noqa: D102
        with self._request("GET"):
            return super().get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:  # noqa: D102
        with self._request("GET"):
            return super().get_range(key, start, length)

    def head(self, key: str) -> Meta | None:  # noqa: D102
        with self._request("HEAD"):
            return super().head(key)

    def scan(self, prefix: str) -> Iterator[Meta]:  # noqa: D102
        return self._paged(super().scan(prefix))

    def folders(self, prefix: str) -> Iterator[str]:  # noqa: D102
        return self._paged(super().folders(prefix))

    def delete(self, keys: Sequence[str]) -> None:  # noqa: D102
        if keys:
            with self._request("DELETE", _bulks(keys)):
                super().delete(keys)

    async def put_async(self, key: str, body: Body) -> None:  # noqa: D102
        async with self._request_async("PUT"):
            await super().put_async(key, body)

    async def get_async(self, key: str) -> bytes:  # noqa: D102
        async with self._request_async("GET"):
            return await super().get_async(key)

    async def get_range_async(self, key: str, start: int, length: int) -> bytes:  # noqa: D102
        async with self._request_async("GET"):
            return await super().get_range_async(key, start, length)

    async def head_async(self, key: str) -> Meta | None:  # noqa: D102
        async with self._request_async("HEAD"):
            return await super().head_async(key)

    def scan_async(self, prefix: str) -> AsyncIterator[Meta]:  # noqa: D102
        return self._paged_async(super().scan_async(prefix))

    def folders_async(self, prefix: str) -> AsyncIterator[str]:  # noqa: D102
        return self._paged_async(super().folders_async(prefix))

    async def delete_async(self, keys: Sequence[str]) -> None:  # noqa: D102
        if keys:
            async with self._request_async("DELETE", _bulks(keys)):
                await super().delete_async(keys)

    @contextmanager
    def _request(self, verb: str, count: int = 1) -> Iterator[None]:
        with self._rounds.joined() as turns:
            for _ in turns:
                time.sleep(TURN_SECONDS)
            self._sent(verb, count)
            yield

    @asynccontextmanager
    async def _request_async(self, verb: str, count: int = 1) -> AsyncIterator[None]:
        with self._rounds.joined() as turns:
            for _ in turns:
                await asyncio.sleep(TURN_SECONDS)
            self._sent(verb, count)
            yield

    def _sent(self, verb: str, count: int) -> None:
        with self._lock:
            self._requests[verb] += count

    def _paged(self, listing: Iterator[T]) -> Iterator[T]:
        held: list[T] = []
        more = True
        while more:
            with self._request("LIST"):
                held += islice(listing, self._page + 1 - len(held))
            yield from held[: self._page]
            held = held[self._page :]
            more = bool(held)

    async def _paged_async(self, listing: AsyncIterator[T]) -> AsyncIterator[T]:
        held: list[T] = []
        more = True
        while more:
            async with self._request_async("LIST"):
                async for one in listing:
                    held.append(one)
                    if len(held) > self._page:
                        break
            for one in held[: self._page]:
                yield one
            held = held[self._page :]
            more = bool(held)


def _bulks(keys: Sequence[str]) -> int:
    return -(-len(keys) // DELETE_LIMIT)


@dataclass(eq=False, slots=True)
class _Round:
    members: int = 0
    let_go: bool = False


class _Rounds:
    """Rounds of requests, one after another: how many there were, and when the next one may go."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()
        self._open = _Round()
        self._under_way = 0
        self._events = 0

    @contextmanager
    def joined(self) -> Iterator[Iterator[None]]:
        """Be a member of the open round; yields turns to wait for, which end when the round is let go."""
        with self._lock:
            mine = self._open
            mine.members += 1
            self._events += 1
        try:
            yield self._turns(mine)
        finally:
            with self._lock:
                self._events += 1
                if mine.let_go:
                    self._under_way -= 1
                else:
                    mine.members -= 1

    def _turns(self, mine: _Round) -> Iterator[None]:
        quiet, events = 0, -1
        while not mine.let_go:
            yield
            with self._lock:
                still = self._under_way == 0 and events == self._events
                quiet, events = (quiet + 1 if still else 0), self._events
                if quiet >= TURNS and not mine.let_go:
                    self._let_go(mine)

    def _let_go(self, mine: _Round) -> None:
        mine.let_go = True
        self._under_way = mine.members
        self._open = _Round()
        self.count += 1
