# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Compressed HTTP bodies made readable for a capture, with a bound on what they may grow to.

gzip and deflate, the encodings HTTP clients and servers use unasked, are read whole or piece by piece.
Bodies in any other encoding, damaged ones and ones that unpack to more than the limit are not guessed at:
the caller keeps the bytes as they came.
"""

from __future__ import annotations

import zlib

LIMIT = 256 * 2**20
"""Bytes one body may unpack to."""

_PLAIN = ("", "identity")
_GZIP, _ZLIB, _BARE = 31, 15, -15
_WINDOWS = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": _ZLIB}


def inflate(body: bytes, encoding: str, *, limit: int = LIMIT) -> bytes | None:
    """Return the body without its ``Content-Encoding``; ``None`` if it cannot be undone completely."""
    inflater = Inflater(encoding, limit=limit)
    plain = inflater.push(body)
    return plain if inflater.complete else None


class Inflater:
    """Undo one ``Content-Encoding`` as the bytes arrive.

    ``push`` never raises: once the bytes are damaged, in an unknown encoding or over ``limit``, ``broken`` is
    true and it returns nothing more. Not thread-safe; one per body.
    """

    def __init__(self, encoding: str, *, limit: int = LIMIT) -> None:
        name = encoding.strip().lower()
        self.broken = name not in _PLAIN and name not in _WINDOWS
        self._plain = name in _PLAIN
        self._window = _WINDOWS.get(name, 0)
        self._left = limit
        self._member: zlib._Decompress | None = None

    @property
    def complete(self) -> bool:
        """Whether everything pushed so far was undone up to a proper end."""
        return not self.broken and (self._member is None or self._member.eof)

    def push(self, chunk: bytes) -> bytes:
        """Return what these bytes unpack to."""
        if self._plain or self.broken:
            return chunk if self._plain else b""
        try:
            plain = self._unpack(chunk)
        except zlib.error:
            self.broken = True
            return b""
        self._left -= len(plain)
        self.broken = self._left < 0
        return b"" if self.broken else plain

    def _unpack(self, chunk: bytes) -> bytes:
        plain = bytearray()
        while chunk and len(plain) <= self._left:
            if self._member is None or self._member.eof:
                self._member = zlib.decompressobj(self._window_for(chunk))
            plain += self._member.decompress(chunk, self._left + 1 - len(plain))
            chunk = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
        return bytes(plain)

    def _window_for(self, chunk: bytes) -> int:
        """Tell deflate as the standard has it, in a zlib envelope, from the bare one some servers send."""
        enveloped = chunk[0] & 0x0F == zlib.DEFLATED
        return self._window if enveloped or self._window != _ZLIB else _BARE
