# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A store that tells the hooks of ``observing`` about every operation. It changes nothing else."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Self, TypeVar

from gym_objstore.errors import ObjstoreError
from gym_objstore.observing import CANCELLED, OK, OTHER, Operation, hooks, tell
from gym_objstore.store import chunks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
    from types import TracebackType

    from gym_objstore.store import Body, Meta, Store

T = TypeVar("T")


class _Watch:
    """One operation from its start to its end, when the hooks are told."""

    def __init__(self, verb: str, key: str, *, size: int = 0, objects: int = 1) -> None:
        self._verb, self._key, self.bytes, self.objects = verb, key, size, objects
        self._start = time.perf_counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        seconds = time.perf_counter() - self._start
        sent = self.bytes if _outcome(error) == OK else 0
        tell(Operation(self._verb, self._key, seconds, _outcome(error), sent, self.objects))


def _outcome(error: BaseException | None) -> str:
    # A reader that leaves a listing early ends it, which is no failure.
    if error is None or isinstance(error, GeneratorExit):
        return OK
    if isinstance(error, ObjstoreError):
        return error.kind
    return CANCELLED if isinstance(error, asyncio.CancelledError) else OTHER


class ObservedStore:
    """The store given, with every operation told to the hooks.

    The async methods return the inner store's own coroutine while there is no hook, so that they cost nothing.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def url(self) -> str:
        """Say where the store is, without secrets."""
        return self._store.url

    def __repr__(self) -> str:
        return repr(self._store)

    def put(self, key: str, body: Body) -> None:  # noqa: D102 - the protocol documents these methods
        if not hooks:
            self._store.put(key, body)
            return
        with _Watch("put", key, size=_size(body)):
            self._store.put(key, body)

    def put_async(self, key: str, body: Body) -> Coroutine[Any, Any, None]:  # noqa: D102
        if not hooks:
            return self._store.put_async(key, body)
        return _watched(_Watch("put", key, size=_size(body)), self._store.put_async(key, body))

    def get(self, key: str) -> bytes:  # noqa: D102
        return self._store.get(key) if not hooks else _read(_Watch("get", key), self._store.get, key)

    def get_async(self, key: str) -> Coroutine[Any, Any, bytes]:  # noqa: D102
        read = self._store.get_async(key)
        return read if not hooks else _read_async(_Watch("get", key), read)

    def get_range(self, key: str, start: int, length: int) -> bytes:  # noqa: D102
        if not hooks:
            return self._store.get_range(key, start, length)
        return _read(_Watch("get", key), self._store.get_range, key, start, length)

    def get_range_async(self, key: str, start: int, length: int) -> Coroutine[Any, Any, bytes]:  # noqa: D102
        read = self._store.get_range_async(key, start, length)
        return read if not hooks else _read_async(_Watch("get", key), read)

    def head(self, key: str) -> Meta | None:  # noqa: D102
        if not hooks:
            return self._store.head(key)
        with _Watch("head", key):
            return self._store.head(key)

    def head_async(self, key: str) -> Coroutine[Any, Any, Meta | None]:  # noqa: D102
        asked = self._store.head_async(key)
        return asked if not hooks else _watched(_Watch("head", key), asked)

    def scan(self, prefix: str) -> Iterator[Meta]:  # noqa: D102
        listing = self._store.scan(prefix)
        return listing if not hooks else _listed(prefix, listing)

    def scan_async(self, prefix: str) -> AsyncIterator[Meta]:  # noqa: D102
        listing = self._store.scan_async(prefix)
        return listing if not hooks else _listed_async(prefix, listing)

    def folders(self, prefix: str) -> Iterator[str]:  # noqa: D102
        listing = self._store.folders(prefix)
        return listing if not hooks else _listed(prefix, listing)

    def folders_async(self, prefix: str) -> AsyncIterator[str]:  # noqa: D102
        listing = self._store.folders_async(prefix)
        return listing if not hooks else _listed_async(prefix, listing)

    def delete(self, keys: Sequence[str]) -> None:  # noqa: D102
        if not hooks or not keys:
            self._store.delete(keys)
            return
        with _Watch("delete", keys[0], objects=len(keys)):
            self._store.delete(keys)

    def delete_async(self, keys: Sequence[str]) -> Coroutine[Any, Any, None]:  # noqa: D102
        removal = self._store.delete_async(keys)
        return removal if not hooks or not keys else _watched(_Watch("delete", keys[0], objects=len(keys)), removal)

    def close(self) -> None:  # noqa: D102
        self._store.close()

    async def close_async(self) -> None:  # noqa: D102
        await self._store.close_async()


def _size(body: Body) -> int:
    return sum(memoryview(chunk).nbytes for chunk in chunks(body))


async def _watched(watch: _Watch, operation: Coroutine[Any, Any, T]) -> T:
    with watch:
        return await operation


def _read(watch: _Watch, read: Callable[..., bytes], *arguments: object) -> bytes:
    with watch:
        body = read(*arguments)
        watch.bytes = len(body)
        return body


async def _read_async(watch: _Watch, read: Coroutine[Any, Any, bytes]) -> bytes:
    with watch:
        body = await read
        watch.bytes = len(body)
        return body


def _listed(prefix: str, listing: Iterator[T]) -> Iterator[T]:
    with _Watch("list", prefix, objects=0) as watch:
        for item in listing:
            watch.objects += 1
            yield item


async def _listed_async(prefix: str, listing: AsyncIterator[T]) -> AsyncIterator[T]:
    with _Watch("list", prefix, objects=0) as watch:
        async for item in listing:
            watch.objects += 1
            yield item
