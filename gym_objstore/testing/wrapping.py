# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A store that hands every call to another one: what decorators for tests override in part. It adds nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from gym_objstore.store import Body, Meta, Store


class WrappedStore:
    """The store given, unchanged; closing it closes that store."""

    def __init__(self, store: Store) -> None:
        self.store = store

    @property
    def url(self) -> str:
        """Say where the wrapped store is."""
        return self.store.url

    def put(self, key: str, body: Body) -> None:  # noqa: D102 - the protocol documents these
        self.store.put(key, body)

    def get(self, key: str) -> bytes:  # noqa: D102
        return self.store.get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:  # noqa: D102
        return self.store.get_range(key, start, length)

    def head(self, key: str) -> Meta | None:  # noqa: D102
        return self.store.head(key)

    def scan(self, prefix: str) -> Iterator[Meta]:  # noqa: D102
        return self.store.scan(prefix)

    def folders(self, prefix: str) -> Iterator[str]:  # noqa: D102
        return self.store.folders(prefix)

    def delete(self, keys: Sequence[str]) -> None:  # noqa: D102
        self.store.delete(keys)

    def close(self) -> None:  # noqa: D102
        self.store.close()

    async def put_async(self, key: str, body: Body) -> None:  # noqa: D102
        await self.store.put_async(key, body)

    async def get_async(self, key: str) -> bytes:  # noqa: D102
        return await self.store.get_async(key)

    async def get_range_async(self, key: str, start: int, length: int) -> bytes:  # noqa: D102
        return await self.store.get_range_async(key, start, length)

    async def head_async(self, key: str) -> Meta | None:  # noqa: D102
        return await self.store.head_async(key)

    def scan_async(self, prefix: str) -> AsyncIterator[Meta]:  # noqa: D102
        return self.store.scan_async(prefix)

    def folders_async(self, prefix: str) -> AsyncIterator[str]:  # noqa: D102
        return self.store.folders_async(prefix)

    async def delete_async(self, keys: Sequence[str]) -> None:  # noqa: D102
        await self.store.delete_async(keys)

    async def close_async(self) -> None:  # noqa: D102
        await self.store.close_async()
