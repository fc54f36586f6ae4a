# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Storage conversations as values, and the two drivers that play them.

A *flow* is a generator that yields operations and receives their answers; what it returns is the
conversation's result. It does no I/O, reads no clock and takes no lock, so the same code serves blocking
callers (``run``), event loops (``arun``) and the explorer in ``gym_objstore.testing``, which plays every
interleaving and crash. Inside a flow: ``body = yield from get(key)``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from gym_objstore.errors import NotFound
from gym_objstore.threads import Threads

if TYPE_CHECKING:
    from gym_objstore.store import Body, Meta, Store

T = TypeVar("T")

CONCURRENCY = 64
"""Operations of one flow in flight at a time, unless the driver is told otherwise."""

INLINE_BYTES = 16_384
"""A computation over fewer bytes than this stays on the event loop: a thread costs more than it saves."""

_cpu_threads = Threads("cpu", 1)  # they share one interpreter lock, and two already stall the event loop for 49 ms
_io_threads = Threads("io", 32)


@dataclass(frozen=True, slots=True)
class Put:
    """Store an object whole; answers None."""

    key: str
    body: Body


@dataclass(frozen=True, slots=True)
class Get:
    """Read an object whole; answers its bytes or raises ``NotFound``."""

    key: str


@dataclass(frozen=True, slots=True)
class Head:
    """Ask for an object's meta data; answers ``Meta`` or None."""

    key: str


@dataclass(frozen=True, slots=True)
class Scan:
    """List a prefix whole; answers a tuple of ``Meta`` sorted by key."""

    prefix: str


@dataclass(frozen=True, slots=True)
class Folders:
    """List the names one level below a prefix that hold objects; answers a sorted tuple."""

    prefix: str


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove objects in one or more bulk requests; answers None."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Find:
    """Read an object that may be absent and decode it; answers None or what ``decode`` returns.

    ``decode`` is pure and runs beside the event loop for large bodies.
    """

    key: str
    decode: Callable[[bytes], Any]


@dataclass(frozen=True, slots=True)
class GetRange:
    """Read up to ``length`` bytes of an object and decode them; answers what ``decode`` returns.

    ``decode`` as in ``Find``. Raises ``NotFound`` for an absent object.
    """

    key: str
    start: int
    length: int
    decode: Callable[[bytes], Any]


@dataclass(frozen=True, slots=True)
class Compute:
    """Call a pure function over about ``size`` bytes; answers what it returns."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    size: int


@dataclass(frozen=True, slots=True)
class All:
    """Do operations at the same time; answers a tuple in their order. All end before the first error is raised."""

    operations: tuple[Single, ...]


Single: TypeAlias = Put | Get | Find | GetRange | Head | Scan | Folders | Delete | Compute
Operation: TypeAlias = Single | All
Flow: TypeAlias = Generator[Operation, Any, T]


def put(key: str, body: Body) -> Flow[None]:
    """Store an object whole."""
    yield Put(key, body)


def get(key: str) -> Flow[bytes]:
    """Read an object whole, or raise ``NotFound``."""
    return (yield Get(key))  # type: ignore[no-any-return]


def head(key: str) -> Flow[Meta | None]:
    """Ask whether an object exists."""
    return (yield Head(key))  # type: ignore[no-any-return]


def scan(prefix: str) -> Flow[tuple[Meta, ...]]:
    """List a prefix, sorted by key."""
    return (yield Scan(prefix))  # type: ignore[no-any-return]


def folders(prefix: str) -> Flow[tuple[str, ...]]:
    """List the folder names below a prefix, sorted."""
    return (yield Folders(prefix))  # type: ignore[no-any-return]


def delete(keys: Iterable[str]) -> Flow[None]:
    """Remove objects; none at all costs no request."""
    if doomed := tuple(keys):
        yield Delete(doomed)


def find(key: str, decode: Callable[[bytes], T]) -> Flow[T | None]:
    """Read and decode an object; None if it is absent."""
    return (yield Find(key, decode))  # type: ignore[no-any-return]


def compute(function: Callable[..., T], *arguments: Any, size: int) -> Flow[T]:
    """Call a pure function, off the event loop when it is over many bytes."""
    return (yield Compute(function, arguments, size))  # type: ignore[no-any-return]


def together(operations: Iterable[Single]) -> Flow[tuple[Any, ...]]:
    """Do operations at the same time, in one round trip."""
    return (yield All(tuple(operations)))  # type: ignore[no-any-return]


def run(flow: Flow[T], store: Store) -> T:
    """Play a flow with blocking calls; callable from many threads at once."""
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
        case Scan(prefix):
            return tuple(sorted(store.scan(prefix)))
        case Folders(prefix):
            return tuple(sorted(store.folders(prefix)))
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
        case Scan(prefix):
            return tuple(sorted([meta async for meta in store.scan_async(prefix)]))
        case Folders(prefix):
            return tuple(sorted([name async for name in store.folders_async(prefix)]))
        case Delete(keys):
            return await store.delete_async(keys)
        case Compute(function, arguments, size):
            return await _compute(function, arguments, size)
        case All(operations):
            return await _all_async(operations, store, limit)


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
    return await asyncio.get_running_loop().run_in_executor(_cpu_threads(), function, *arguments)


def _all(operations: tuple[Single, ...], store: Store) -> tuple[Any, ...]:
    if len(operations) < 2:  # noqa: PLR2004 - nothing to overlap
        return tuple(perform(one, store) for one in operations)
    futures = [_io_threads().submit(perform, one, store) for one in operations]
    failures = [failure for future in futures if (failure := future.exception())]
    if failures:
        raise failures[0]
    return tuple(future.result() for future in futures)


async def _all_async(operations: tuple[Single, ...], store: Store, limit: int) -> tuple[Any, ...]:
    answers: list[Any] = [None] * len(operations)
    failures: dict[int, Exception] = {}
    waiting = iter(enumerate(operations))

    async def work() -> None:
        for index, operation in waiting:
            try:
                answers[index] = await perform_async(operation, store, limit)
            except Exception as error:  # noqa: BLE001 - raised below, after all have finished
                failures[index] = error

    await asyncio.gather(*(work() for _ in range(min(max(limit, 1), len(operations)))))
    if failures:
        raise failures[min(failures)]
    return tuple(answers)
