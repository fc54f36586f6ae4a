# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Several stores as one, each below a folder of its own, so that one conversation can be about all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gym_objstore.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from gym_objstore.store import Body, Meta, Store


class JoinedStore:
    """Stores by the name of their folder. Closing it closes all of them."""

    def __init__(self, stores: Mapping[str, Store]) -> None:
        self._stores = dict(stores)

    @property
    def url(self) -> str:
        """Say where the stores are."""
        return ", ".join(f"{name}={store.url}" for name, store in self._stores.items())

    def put(self, key: str, body: Body) -> None:  # noqa: D102 - the protocol documents these methods
        store, rest = self._of(key)
        store.put(rest, body)

    async def put_async(self, key: str, body: Body) -> None:  # noqa: D102
        store, rest = self._of(key)
        await store.put_async(rest, body)

    def get(self, key: str) -> bytes:  # noqa: D102
        store, rest = self._of(key)
        return store.get(rest)

    async def get_async(self, key: str) -> bytes:  # noqa: D102
        store, rest = self._of(key)
        return await store.get_async(rest)

    def get_range(self, key: str, start: int, length: int) -> bytes:  # noqa: D102
        store, rest = self._of(key)
        return store.get_range(rest, start, length)

    async def get_range_async(self, key: str, start: int, length: int) -> bytes:  # noqa: D102
        store, rest = self._of(key)
        return await store.get_range_async(rest, start, length)

    def head(self, key: str) -> Meta | None:  # noqa: D102
        store, rest = self._of(key)
        found = store.head(rest)
        return found and found._replace(key=key)

    async def head_async(self, key: str) -> Meta | None:  # noqa: D102
        store, rest = self._of(key)
        found = await store.head_async(rest)
        return found and found._replace(key=key)

    def scan(self, prefix: str) -> Iterator[Meta]:  # noqa: D102
        store, rest = self._of(prefix)
        start = prefix[: len(prefix) - len(rest)]
        return (meta._replace(key=start + meta.key) for meta in store.scan(rest))

    async def scan_async(self, prefix: str) -> AsyncIterator[Meta]:  # noqa: D102
        store, rest = self._of(prefix)
        start = prefix[: len(prefix) - len(rest)]
        async for meta in store.scan_async(rest):
            yield meta._replace(key=start + meta.key)

    def folders(self, prefix: str) -> Iterator[str]:  # noqa: D102
        store, rest = self._of(prefix)
        return store.folders(rest)

    async def folders_async(self, prefix: str) -> AsyncIterator[str]:  # noqa: D102
        store, rest = self._of(prefix)
        async for name in store.folders_async(rest):
            yield name

    def delete(self, keys: Sequence[str]) -> None:  # noqa: D102
        for store, rests in self._grouped(keys):
            store.delete(rests)

    async def delete_async(self, keys: Sequence[str]) -> None:  # noqa: D102
        for store, rests in self._grouped(keys):
            await store.delete_async(rests)

    def close(self) -> None:  # noqa: D102
        for store in self._stores.values():
            store.close()

    async def close_async(self) -> None:  # noqa: D102
        for store in self._stores.values():
            await store.close_async()

    def _of(self, key: str) -> tuple[Store, str]:
        name, _, rest = key.partition("/")
        if name not in self._stores:
            raise Invalid("no store has this folder", kind="bad_key", key=key)
        return self._stores[name], rest

    def _grouped(self, keys: Sequence[str]) -> list[tuple[Store, list[str]]]:
        grouped: dict[str, list[str]] = {}
        for key in keys:
            grouped.setdefault(key.partition("/")[0], []).append(key)
        return [(self._of(some[0])[0], [self._of(key)[1] for key in some]) for some in grouped.values()]
