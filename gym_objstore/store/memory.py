# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The reference backend: a dictionary. Other backends must be indistinguishable from it.

Its listings come in a scrambled order on purpose, because no caller may rely on one.
"""

from __future__ import annotations

import threading
import time
import zlib
from typing import TYPE_CHECKING

from gym_objstore.errors import Invalid, NotFound
from gym_objstore.store import Body, Meta, check_key, check_prefix, joined

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

_named: dict[str, MemoryStore] = {}
_naming = threading.Lock()


class MemoryStore:
    """A store in this process's memory. ``MemoryStore.named`` gives every caller of a name the same one."""

    def __init__(self, name: str = "") -> None:
        self.url = f"memory://{name}"
        self._objects: dict[str, tuple[bytes, float]] = {}
        self._lock = threading.Lock()

    @classmethod
    def named(cls, name: str) -> MemoryStore:
        """Return the process's store of this name, the same object every time."""
        with _naming:
            return _named.setdefault(name, cls(name))

    def put(self, key: str, body: Body) -> None:  # noqa: D102 - the protocol documents it
        data = joined(body)
        with self._lock:
            self._objects[check_key(key)] = (data, time.time())

    def get(self, key: str) -> bytes:  # noqa: D102
        with self._lock:
            found = self._objects.get(check_key(key))
        if found is None:
            raise NotFound("no such object", key=key)
        return found[0]

    def get_range(self, key: str, start: int, length: int) -> bytes:  # noqa: D102
        if start < 0 or length < 0:
            raise Invalid(f"a range must not be negative, start={start}, length={length}", kind="bad_range", key=key)
        return self.get(key)[start : start + length]

    def head(self, key: str) -> Meta | None:  # noqa: D102
        with self._lock:
            found = self._objects.get(check_key(key))
        return Meta(key, len(found[0]), found[1]) if found else None

    def scan(self, prefix: str) -> Iterator[Meta]:  # noqa: D102
        check_prefix(prefix)
        with self._lock:
            found = [
                Meta(k, len(v[0]), v[1]) for k, v in self._objects.items() if k.startswith(prefix) and k[-1] != "/"
            ]
        yield from sorted(found, key=lambda meta: zlib.crc32(meta.key.encode()))

    def folders(self, prefix: str) -> Iterator[str]:  # noqa: D102
        rests = (meta.key[len(prefix) :] for meta in self.scan(prefix))
        yield from dict.fromkeys(rest.split("/", 1)[0] for rest in rests if "/" in rest)

    def delete(self, keys: Sequence[str]) -> None:  # noqa: D102
        with self._lock:
            for key in [check_key(key) for key in keys]:
                self._objects.pop(key, None)

    def close(self) -> None:
        """Do nothing: the objects live as long as the store."""

    async def put_async(self, key: str, body: Body) -> None:  # noqa: D102
        self.put(key, body)

    async def get_async(self, key: str) -> bytes:  # noqa: D102
        return self.get(key)

    async def get_range_async(self, key: str, start: int, length: int) -> bytes:  # noqa: D102
        return self.get_range(key, start, length)

    async def head_async(self, key: str) -> Meta | None:  # noqa: D102
        return self.head(key)

    async def scan_async(self, prefix: str) -> AsyncIterator[Meta]:  # noqa: D102
        for meta in self.scan(prefix):
            yield meta

    async def folders_async(self, prefix: str) -> AsyncIterator[str]:  # noqa: D102
        for name in self.folders(prefix):
            yield name

    async def delete_async(self, keys: Sequence[str]) -> None:  # noqa: D102
        self.delete(keys)

    async def close_async(self) -> None:
        """Do nothing; see ``close``."""
