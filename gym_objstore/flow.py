# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Storage conversations as values, and the two drivers that play them.

A *flow* is a generator that yields operations and receives their answers; what it returns is the
conversation's result. It does no I/O, reads no clock and takes no lock, so the same code serves blocking
callers (``run``), event loops (``arun``) and the explorer in ``gym_objstore.testing``, which plays every
interleaving and crash. Inside a flow: ``body = yield from get(key)``. The operations are ``operations``' own and
found here too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from gym_objstore.errors import NotFound
from gym_objstore.operations import (
    PAGE,
    All,
    Compute,
    Delete,
    Find,
    Flow,
    Folders,
    Get,
    GetRange,
    Head,
    Listing,
    Operation,
    Page,
    Put,
    Scan,
    Single,
    compute,
    delete,
    find,
    fold,
    folders,
    get,
    head,
    page,
    put,
    scan,
    together,
)
from gym_objstore.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable

    from gym_objstore.store import Store

__all__ = [
    "CONCURRENCY",
    "INLINE_BYTES",
    "PAGE",
    "All",
    "Compute",
    "Delete",
    "Find",
    "Flow",
    "Folders",
    "Get",
    "GetRange",
    "Head",
    "Listing",
    "Operation",
    "Page",
    "Put",
    "Scan",
    "Single",
    "arun",
    "compute",
    "delete",
    "find",
    "fold",
    "folders",
    "get",
    "head",
    "page",
    "perform",
    "perform_async",
    "put",
    "run",
    "scan",
    "together",
]

T = TypeVar("T")

CONCURRENCY = 64
"""Operations of one flow in flight at a time, unless the driver is told otherwise."""

INLINE_BYTES = 16_384
"""A computation over fewer bytes than this is done at once; ``computing`` says where all others run."""

_io_threads = Threads("io", 32)


def run(flow: Flow[T], store: Store, *, seen: Callable[[Operation, Any], None] | None = None) -> T:
    """Play a flow with blocking calls; callable from many threads at once.

    ``seen`` is told each operation when it has ended, with its answer or, if it failed, None.
    """
    answer, error = None, None
    while True:
        try:
            operation = flow.send(answer) if error is None else flow.throw(error)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        answer, error = None, None
        try:
            answer = perform(operation, store)
        except Exception as caught:  # noqa: BLE001 - the flow decides what to do with it
            error = caught
        if seen is not None:
            seen(operation, answer)


async def arun(flow: Flow[T], store: Store, *, limit: int = CONCURRENCY) -> T:
    """Play a flow on the running loop with at most ``limit`` operations in flight."""
    answer, error = None, None
    while True:
        try:
            operation = flow.send(answer) if error is None else flow.throw(error)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        answer, error = None, None
        try:
            answer = await perform_async(operation, store, limit)
        except Exception as caught:  # noqa: BLE001 - the flow decides what to do with it
            error = caught


def perform(operation: Operation, store: Store) -> Any:
    """Do one operation with blocking calls."""
    match operation:
        case Put(key, body):
            return store.put(key, body)
        case Get(key):
            return store.get(key)
        case Find(key, decode):
            return _find(key, decode, store)
        case GetRange(key, start, length, decode):
            return decode(store.get_range(key, start, length))
        case Head(key):
            return store.head(key)
        case Scan() | Page() | Folders():
            return _list(operation, store)
        case Delete(keys):
            return store.delete(keys)
        case Compute(function, arguments):
            return function(*arguments)
        case All(operations):
            return _all(operations, store)


async def perform_async(operation: Operation, store: Store, limit: int = CONCURRENCY) -> Any:
    """Do one operation on the running loop."""
    match operation:
        case Put(key, body):
            return await store.put_async(key, body)
        case Get(key):
            return await store.get_async(key)
        case Find(key, decode):
            return await _find_async(key, decode, store)
        case GetRange(key, start, length, decode):
            body = await store.get_range_async(key, start, length)
            return await _compute(decode, (body,), len(body))
        case Head(key):
            return await store.head_async(key)
        case Scan() | Page() | Folders():
            return await _list_async(operation, store)
        case Delete(keys):
            return await store.delete_async(keys)
        case Compute(function, arguments, size):
            return await _compute(function, arguments, size)
        case All(operations):
            return await _all_async(operations, store, limit)


def _list(operation: Scan | Page | Folders, store: Store) -> tuple[Any, ...] | None:
    match operation:
        case Scan(prefix):
            return tuple(sorted(store.scan(prefix)))
        case Folders(prefix):
            return tuple(sorted(store.folders(prefix)))
        case Page(listing):
            return listing.take(store)


async def _list_async(operation: Scan | Page | Folders, store: Store) -> tuple[Any, ...] | None:
    match operation:
        case Scan(prefix):
            return tuple(sorted([meta async for meta in store.scan_async(prefix)]))
        case Folders(prefix):
            return tuple(sorted([name async for name in store.folders_async(prefix)]))
        case Page(listing):
            return await listing.take_async(store)


def _find(key: str, decode: Callable[[bytes], Any], store: Store) -> Any:
    try:
        body = store.get(key)
    except NotFound:
        return None
    return decode(body)


async def _find_async(key: str, decode: Callable[[bytes], Any], store: Store) -> Any:
    try:
        body = await store.get_async(key)
    except NotFound:
        return None
    return await _compute(decode, (body,), len(body))


async def _compute(function: Callable[..., Any], arguments: tuple[Any, ...], size: int) -> Any:
    if size < INLINE_BYTES:
        return function(*arguments)
    from gym_objstore.computing import computed

    return await computed(function, arguments, size)


def _all(operations: tuple[Single, ...], store: Store) -> tuple[Any, ...]:
    if len(operations) < 2:  # noqa: PLR2004 - nothing to overlap
        return tuple(perform(one, store) for one in operations)
    futures = [_io_threads().submit(perform, one, store) for one in operations]
    failures = [failure for future in futures if (failure := future.exception())]
    if failures:
        raise failures[0]
    return tuple(future.result() for future in futures)


async def _all_async(operations: tuple[Single, ...], store: Store, limit: int) -> tuple[Any, ...]:
    import asyncio

    answers: list[Any] = [None] * len(operations)
    failures: dict[int, Exception] = {}
    waiting = iter(enumerate(operations))

    async def work() -> None:
        for index, operation in waiting:
            try:
                answers[index] = await perform_async(operation, store, limit)
            except Exception as error:  # noqa: BLE001 - raised below, after all have finished
                failures[index] = error

    others = [asyncio.create_task(work()) for _ in range(min(limit, len(operations)) - 1)]
    try:
        await work()  # here: a task of its own costs more than the rest of this function
        for one in others:
            await one
    except asyncio.CancelledError:
        for one in others:
            one.cancel()
        raise
    if failures:
        raise failures[min(failures)]
    return tuple(answers)
