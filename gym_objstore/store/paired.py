# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Both forms of every store method from one conversation with a client.

A backend writes each conversation once, as a generator of ``Step`` values, and says how a step is done in
the blocking and in the async form. Owns: the checks of keys and ranges, closing, and the two forms. Does
not own: any client.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from gym_objstore.errors import Invalid, NotFound, Unusable
from gym_objstore.store import Body, Meta, check_key, check_prefix
from gym_objstore.store.answers import Call, no_answer
from gym_objstore.store.parts import SINGLE_PUT_BYTES, size_of

if TYPE_CHECKING:
    from gym_objstore.store.options import StoreOptions

T = TypeVar("T")

_NOTHING: Mapping[str, Any] = {}


class Step(NamedTuple):
    """One call in a conversation: a method of the client, or of ``on``, with its arguments.

    ``key`` is the object or prefix concerned, for errors. The answer of a step is what the call returns.
    """

    name: str
    key: str
    arguments: tuple[Any, ...] = ()
    options: Mapping[str, Any] = _NOTHING
    on: Any = None


Conversation: TypeAlias = Generator[Step, Any, T]


class Page(NamedTuple):
    """A part of a listing, and from where the next part is asked for; ``None`` after the last."""

    items: Sequence[Any]
    cursor: Any


class PairedStore(ABC):
    """A store whose conversations are written once. Making one does no I/O and imports no client."""

    PUTS_CUT_OFF = SINGLE_PUT_BYTES
    """A put of at most so many bytes may be cut off when its caller is cancelled; a larger one is finished."""

    def __init__(self, options: StoreOptions) -> None:
        self._options = options
        self.url = options.location.url
        self._closed = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._options,)

    def _call(self, operation: str, key: str) -> Call:
        endpoint = f", endpoint={self._options.endpoint}" if self._options.endpoint else ""
        return Call(operation, key, f"store={self.url}{endpoint}")

    # What a backend says ----------------------------------------------------------------------------

    @abstractmethod
    def _put(self, key: str, body: Body) -> Conversation[None]: ...

    @abstractmethod
    def _get(self, key: str) -> Conversation[bytes]: ...

    @abstractmethod
    def _get_range(self, key: str, start: int, length: int) -> Conversation[bytes]:
        """Read a range of at least one byte."""

    @abstractmethod
    def _head(self, key: str) -> Conversation[Meta | None]: ...

    @abstractmethod
    def _scan_page(self, prefix: str, cursor: Any) -> Conversation[Page]:
        """List objects; the first cursor is None."""

    @abstractmethod
    def _folders_page(self, prefix: str, cursor: Any) -> Conversation[Page]:
        """List folder names; the first cursor is None."""

    @abstractmethod
    def _delete(self, keys: Sequence[str]) -> Conversation[None]: ...

    @abstractmethod
    def _perform(self, step: Step) -> Any:
        """Do a step and return its answer; raise only this package's errors."""

    @abstractmethod
    async def _perform_async(self, step: Step) -> Any:
        """Do a step on the running loop; see ``_perform``."""

    # The two drivers ---------------------------------------------------------------------------------

    def _play(self, conversation: Conversation[T]) -> T:
        answer, error = None, None
        self._check_open()
        while True:
            try:
                step = conversation.send(answer) if error is None else conversation.throw(error)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            finally:
                answer, error = None, None  # an error that leaves must not keep this frame, and the body in it
            try:
                answer = self._perform(step)
            except Exception as caught:  # noqa: BLE001 - the conversation decides what to do with it
                error = caught

    async def _play_async(self, conversation: Conversation[T]) -> T:
        answer, error = None, None
        self._check_open()
        while True:
            try:
                step = conversation.send(answer) if error is None else conversation.throw(error)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            finally:
                answer, error = None, None  # an error that leaves must not keep this frame, and the body in it
            try:
                answer = await self._perform_async(step)
            except Exception as caught:  # noqa: BLE001 - the conversation decides what to do with it
                error = caught

    def _check_open(self) -> None:
        if self._closed:
            raise Unusable(f"the store is closed, store={self.url}", kind="closed", hint="open another")

    # The protocol ------------------------------------------------------------------------------------

    def put(self, key: str, body: Body) -> None:  # noqa: D102 - the protocol documents these methods
        self._play(self._put(check_key(key), body))

    async def put_async(self, key: str, body: Body) -> None:  # noqa: D102
        playing = self._play_async(self._put(check_key(key), body))
        await (playing if size_of(body) <= self.PUTS_CUT_OFF else _to_the_end(playing))

    def get(self, key: str) -> bytes:  # noqa: D102
        return self._play(self._get(check_key(key)))

    async def get_async(self, key: str) -> bytes:  # noqa: D102
        return await self._play_async(self._get(check_key(key)))

    def get_range(self, key: str, start: int, length: int) -> bytes:  # noqa: D102
        return self._play(self._read_range(check_key(key), start, length))

    async def get_range_async(self, key: str, start: int, length: int) -> bytes:  # noqa: D102
        return await self._play_async(self._read_range(check_key(key), start, length))

    def head(self, key: str) -> Meta | None:  # noqa: D102
        return self._play(self._head(check_key(key)))

    async def head_async(self, key: str) -> Meta | None:  # noqa: D102
        return await self._play_async(self._head(check_key(key)))

    def scan(self, prefix: str) -> Iterator[Meta]:  # noqa: D102
        return self._list(self._scan_page, prefix)

    def scan_async(self, prefix: str) -> AsyncIterator[Meta]:  # noqa: D102
        return self._list_async(self._scan_page, prefix)

    def folders(self, prefix: str) -> Iterator[str]:  # noqa: D102
        return self._list(self._folders_page, prefix)

    def folders_async(self, prefix: str) -> AsyncIterator[str]:  # noqa: D102
        return self._list_async(self._folders_page, prefix)

    def delete(self, keys: Sequence[str]) -> None:  # noqa: D102
        self._play(self._delete([check_key(key) for key in keys]))

    async def delete_async(self, keys: Sequence[str]) -> None:  # noqa: D102
        await self._play_async(self._delete([check_key(key) for key in keys]))

    def close(self) -> None:  # noqa: D102
        self._closed = True

    @abstractmethod
    async def close_async(self) -> None:
        """Release what the running loop holds."""

    def _list(self, page: _Pages, prefix: str) -> Iterator[Any]:
        check_prefix(prefix)
        before: Sequence[Any] = ()
        cursor = None
        while True:
            items, cursor = self._play(page(prefix, cursor))
            before = self._require_progress(before, items, prefix)
            yield from filter(_usable, items)
            if cursor is None:
                return

    async def _list_async(self, page: _Pages, prefix: str) -> AsyncIterator[Any]:
        check_prefix(prefix)
        before: Sequence[Any] = ()
        cursor = None
        while True:
            items, cursor = await self._play_async(page(prefix, cursor))
            before = self._require_progress(before, items, prefix)
            for item in filter(_usable, items):
                yield item
            if cursor is None:
                return

    def _require_progress(self, before: Sequence[Any], items: Sequence[Any], prefix: str) -> Sequence[Any]:
        """Return a page, or raise where it shows again what the page before began with: it would go on for ever."""
        if before and (items == before or (len(before) > 1 and before[0] in items)):
            raise no_answer("bad_answer", self._call("list", prefix), "the listing goes in a circle")
        return items

    def _read_range(self, key: str, start: int, length: int) -> Conversation[bytes]:
        if start < 0 or length < 0:
            raise Invalid(f"a range must not be negative, start={start}, length={length}", kind="bad_range", key=key)
        if length:
            return (yield from self._get_range(key, start, length))
        if (yield from self._head(key)) is None:
            raise NotFound("no such object", key=key)
        return b""


def _to_the_end(upload: Coroutine[Any, Any, None]) -> Awaitable[None]:
    """Let an upload go on when its caller is cancelled: only its end leaves nothing behind."""
    going_on = asyncio.ensure_future(upload)
    going_on.add_done_callback(lambda done: done.cancelled() or done.exception())
    return asyncio.shield(going_on)


_Pages: TypeAlias = Callable[[str, Any], Conversation[Page]]


def _usable(item: Meta | str) -> bool:
    """Leave out foreign objects and folders that no caller of this store could have named."""
    try:
        return bool(check_key(item if isinstance(item, str) else item.key))
    except Invalid:
        return False
