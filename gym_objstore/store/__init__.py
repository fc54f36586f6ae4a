# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What the package asks of an object store, and nothing more.

Seven operations, each in a blocking and an async form. There is no rename, no append and no conditional
write: everything above is built so that none is needed. Backends live one to a file beside this one and
translate their client's exceptions to ``gym_objstore.errors`` there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

from gym_objstore.errors import Invalid

Chunk: TypeAlias = bytes | bytearray | memoryview
Body: TypeAlias = Chunk | Sequence[Chunk]
"""The bytes of an object: one buffer, or several that are stored one after another without joining."""

KEY_LIMIT = 1000
"""Bytes of a key, below every store's own limit."""

DELETE_LIMIT = 1000
"""Keys of one bulk delete request."""


class Meta(NamedTuple):
    """What a listing or a head says of an object. ``modified`` is the store's clock, in Unix seconds."""

    key: str
    size: int
    modified: float


@runtime_checkable
class Store(Protocol):
    """An object store below one root. Keys are relative to it and never begin with ``/``.

    All methods may be called from any thread and, in the async form, from any event loop. They raise only
    this package's errors: ``Unavailable`` when no answer came (repeating is safe), ``Denied`` when the
    store refused, ``Invalid`` for wrong settings (bucket, region, clock), ``Unusable`` after ``close`` or
    in a forked child. ``Denied`` is never reported as absence.
    """

    @property
    def url(self) -> str:
        """Say where the store is, without secrets."""
        ...

    def put(self, key: str, body: Body) -> None:
        """Store an object whole.

        Returns when: the object is durable and visible to every reader and every listing.
        Repeating: the same bytes again change nothing. Other bytes replace; nothing here does that.
        Raises: ``Unavailable``, ``Denied``. No reader ever sees a part of a body.
        """
        ...

    async def put_async(self, key: str, body: Body) -> None:
        """Store an object whole; see ``put``."""
        ...

    def get(self, key: str) -> bytes:
        """Return the whole body, or raise ``NotFound``. A short body is ``Unavailable``, never returned."""
        ...

    async def get_async(self, key: str) -> bytes:
        """Return the whole body; see ``get``."""
        ...

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return up to ``length`` bytes from ``start``; fewer only where the object ends before."""
        ...

    async def get_range_async(self, key: str, start: int, length: int) -> bytes:
        """Return a part of the body; see ``get_range``."""
        ...

    def head(self, key: str) -> Meta | None:
        """Return the object's meta data, ``None`` if it certainly does not exist."""
        ...

    async def head_async(self, key: str) -> Meta | None:
        """Return the object's meta data; see ``head``."""
        ...

    def scan(self, prefix: str) -> Iterator[Meta]:
        """Yield every object below ``prefix``, in no order, page by page, never from a cache."""
        ...

    def scan_async(self, prefix: str) -> AsyncIterator[Meta]:
        """Yield every object below ``prefix``; see ``scan``."""
        ...

    def folders(self, prefix: str) -> Iterator[str]:
        """Yield the names that follow ``prefix`` up to the next ``/``, each once, without that ``/``.

        Some servers go on showing a folder for a while after its last object was removed.
        """
        ...

    def folders_async(self, prefix: str) -> AsyncIterator[str]:
        """Yield the folder names below ``prefix``; see ``folders``."""
        ...

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; absent ones are no error.

        Returns when: no listing shows them. Repeating: changes nothing.
        Raises: ``Denied`` with the first key the store refused to remove; the others are removed.
        """
        ...

    async def delete_async(self, keys: Sequence[str]) -> None:
        """Remove objects; see ``delete``."""
        ...

    def close(self) -> None:
        """Release connections of the blocking form. Idempotent; there is never anything to flush."""
        ...

    async def close_async(self) -> None:
        """Release connections of the running loop. Idempotent."""
        ...


def check_key(key: str) -> str:
    """Return an object key that is safe in every backend, or raise ``Invalid``."""
    if not key or len(key) > KEY_LIMIT or key[0] == "/" or key[-1] == "/" or _leaves(key):
        raise Invalid("not a usable object key", kind="bad_key", key=key)
    return key


def check_prefix(prefix: str) -> str:
    """Return a listing prefix, ``""`` or ending in ``/``, or raise ``Invalid``."""
    if prefix and (prefix[-1] != "/" or prefix[0] == "/" or _leaves(prefix[:-1])):
        raise Invalid("a listed prefix must be a whole folder and end in '/'", kind="bad_key", key=prefix)
    return prefix


def _leaves(path: str) -> bool:
    return not (path.isascii() and path.isprintable()) or any(part in ("", ".", "..") for part in path.split("/"))


def chunks(body: Body) -> Sequence[Chunk]:
    """Return a body's buffers without copying them."""
    return (body,) if isinstance(body, (bytes, bytearray, memoryview)) else body


def joined(body: Body) -> bytes:
    """Return a body as one ``bytes``, copying only where it is not one already."""
    return body if isinstance(body, bytes) else b"".join(chunks(body))


def batches(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the keys in groups that one bulk delete takes."""
    for start in range(0, len(keys), DELETE_LIMIT):
        yield keys[start : start + DELETE_LIMIT]
