# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The operations that a flow may ask for, as values, and the typed helper of each.

Inside a flow: ``body = yield from get(key)``. Who does them is for ``flow`` and for the explorer.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from gym_objstore.store import Body, Meta, Store

T = TypeVar("T")

PAGE = 1000
"""Objects that a flow is given at a time of a listing that it reads in pages."""


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


class Listing:
    """A listing that is read in pages: where it is, and how many pages were asked for.

    What the driver has of it is between the two of them. A listing that broke stays broken, so that no flow
    takes its beginning for the whole.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.asked = 0
        self._found: Iterator[Meta] | None = None
        self._found_async: AsyncIterator[Meta] | None = None
        self._broken: Exception | None = None

    def take(self, store: Store) -> tuple[Meta, ...] | None:
        """Return the next page, None after the last."""
        self._require_whole()
        try:
            self._found = self._found or iter(store.scan(self.prefix))
            return tuple(islice(self._found, PAGE)) or None
        except Exception as error:
            self._broken = error
            raise

    async def take_async(self, store: Store) -> tuple[Meta, ...] | None:
        """Return the next page; see ``take``."""
        self._require_whole()
        page: list[Meta] = []
        try:
            self._found_async = self._found_async or aiter(store.scan_async(self.prefix))
            while len(page) < PAGE and (meta := await anext(self._found_async, None)) is not None:
                page.append(meta)
        except Exception as error:
            self._broken = error
            raise
        return tuple(page) or None

    def _require_whole(self) -> None:
        if self._broken is not None:
            raise self._broken


@dataclass(frozen=True, slots=True)
class Page:
    """Read on in a listing; answers a tuple of ``Meta`` in no order, None after the last. ``number`` counts from 0."""

    listing: Listing
    number: int


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
Operation: TypeAlias = Single | Page | All
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


def page(listing: Listing) -> Flow[tuple[Meta, ...] | None]:
    """Return the next page of a listing, None after the last: memory for one page, whatever the bucket holds.

    The pages are of different times. What the flow removes in between may still be listed or not.
    """
    number, listing.asked = listing.asked, listing.asked + 1
    return (yield Page(listing, number))  # type: ignore[no-any-return]


def fold(prefix: str, take: Callable[[tuple[Meta, ...]], object]) -> Flow[None]:
    """Give every page of a listing to ``take``, which is a part of the flow: pure but for what the flow made."""
    listing = Listing(prefix)
    while (metas := (yield from page(listing))) is not None:
        take(metas)


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
