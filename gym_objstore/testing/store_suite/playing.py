# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Ways to use one store from event loops and threads that the laws share. No law is here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from gym_objstore.store import Meta, Store

T = TypeVar("T")
S = TypeVar("S")


def on_a_loop(store: Store, conversation: Callable[[], Awaitable[T]]) -> T:
    """Run one conversation on an event loop of its own and close the store's part of that loop."""

    async def whole() -> T:
        try:
            return await conversation()
        finally:
            await store.close_async()

    return asyncio.run(whole())


def in_threads(count: int, work: Callable[[S], T], items: Iterable[S]) -> list[T]:
    """Call ``work`` on every item from ``count`` threads; answers keep the items' order."""
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, items))


class Colour:
    """One form of a store's methods, called as if it were blocking: what the parity laws compare.

    The async form keeps one event loop until ``close``, which closes the store's part of that loop too.
    """

    def __init__(self, store: Store, *, waits: bool) -> None:
        self._store = store
        self._runner = asyncio.Runner() if waits else None

    def call(self, method: str, *arguments: Any) -> Any:
        """Call one method in this form; a listing comes as a sorted list."""
        if self._runner is None:
            answer = getattr(self._store, method)(*arguments)
            return sorted(answer) if method in LISTINGS else answer
        answer = getattr(self._store, f"{method}_async")(*arguments)
        return self._runner.run(_sorted(answer) if method in LISTINGS else answer)

    def close(self) -> None:
        """Close the loop. Idempotent; the store stays open."""
        if self._runner is not None:
            with self._runner as runner:
                runner.run(self._store.close_async())


async def _sorted(listing: AsyncIterator[Any]) -> list[Any]:
    return sorted([one async for one in listing])


LISTINGS = ("scan", "folders")


def sizes(found: Iterable[Meta]) -> dict[str, int]:
    """Return the keys and sizes of a listing; a key that came twice is an error."""
    listed = list(found)
    by_key = {meta.key: meta.size for meta in listed}
    assert len(by_key) == len(listed), f"a listing named a key twice: {sorted(listed)}"
    return by_key
