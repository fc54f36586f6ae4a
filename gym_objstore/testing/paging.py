# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A store that lists as a bucket does: page by page, each page showing the moment it was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from gym_objstore.testing.wrapping import WrappedStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from gym_objstore.store import Meta, Store

T = TypeVar("T", "Meta", str)


class PagedStore(WrappedStore):
    """A store whose listings have more than one page without a thousand objects, and change in between.

    A listing takes pages of ``page`` keys in key order and yields each page backwards, because no caller may
    rely on an order. ``between`` is called before every page but the first: what it writes behind the last
    key of the page before is listed, what it writes in front is not.
    """

    def __init__(self, store: Store, *, page: int, between: Callable[[], object]) -> None:
        super().__init__(store)
        self._page, self._between = page, between

    def scan(self, prefix: str) -> Iterator[Meta]:  # noqa: D102 - the protocol documents these
        yield from self._pages(lambda: self.store.scan(prefix))

    def folders(self, prefix: str) -> Iterator[str]:  # noqa: D102
        yield from self._pages(lambda: self.store.folders(prefix))

    async def scan_async(self, prefix: str) -> AsyncIterator[Meta]:  # noqa: D102
        for meta in self.scan(prefix):
            yield meta

    async def folders_async(self, prefix: str) -> AsyncIterator[str]:  # noqa: D102
        for name in self.folders(prefix):
            yield name

    def _pages(self, listing: Callable[[], Iterator[T]]) -> Iterator[T]:
        rest = sorted(listing())
        while len(rest) > self._page:
            page = rest[: self._page]
            yield from reversed(page)
            self._between()
            rest = sorted(one for one in listing() if _name(one) > _name(page[-1]))
        yield from reversed(rest)


def _name(one: Meta | str) -> str:
    return one if isinstance(one, str) else one.key
