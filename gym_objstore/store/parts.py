# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A body as clients take it: plain bytes in one buffer or several, or cut into the parts of a large upload."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gym_objstore.store import chunks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gym_objstore.store import Body, Chunk

PART_BYTES = 8 << 20
"""Bytes of one part of a large upload; the last one may be shorter."""

SINGLE_PUT_BYTES = 2 * PART_BYTES
"""Up to here a body goes in one request, which leaves nothing behind when it is cut off."""


def buffers(body: Body) -> list[Chunk]:
    """Return a body in buffers of single bytes, copying only those that do not lie in one piece of memory."""
    return [_bytewise(one) for one in chunks(body)]


def flat(body: Body) -> Chunk | list[Chunk]:
    """Return a body as one buffer where it is one already, else as ``buffers`` does."""
    if isinstance(body, bytes):
        return body
    found = buffers(body)
    return found if len(found) > 1 else b"".join(found)


def size_of(body: Body) -> int:
    """Return the bytes of a body, whatever the items of its buffers are."""
    if isinstance(body, bytes):
        return len(body)
    return sum(one.nbytes if isinstance(one, memoryview) else len(one) for one in chunks(body))


def parts(body: Body, size: int = PART_BYTES) -> Iterator[bytes]:
    """Yield a body's bytes in pieces of ``size``, joining no more than one piece at a time."""
    piece: list[memoryview] = []
    room = size
    for buffer in chunks(body):
        view = memoryview(_bytewise(buffer))
        while len(view) >= room:
            piece.append(view[:room])
            yield b"".join(piece)
            piece, view, room = [], view[room:], size
        piece.append(view)
        room -= len(view)
    if room < size:
        yield b"".join(piece)


def _bytewise(buffer: Chunk) -> Chunk:
    if not isinstance(buffer, memoryview):
        return buffer
    return buffer.cast("B") if buffer.c_contiguous else buffer.tobytes()
