# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Which bytes of a response may be forwarded at once, and which wait for its capture. Keeps no others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gym_objstore.bodies import Inflater
from gym_objstore.sse import EventStream, begins_output

if TYPE_CHECKING:
    from gym_objstore.correlation import Dialect
    from gym_objstore.sse import Terminal


class Watch:
    """Follow one response; ``streamed`` says whether it is server-sent events, in this ``Content-Encoding``.

    Of events, all from the terminal one on wait: to the byte in plain text, in whole chunks where they are
    compressed. Of anything else, nothing does. ``waiting`` counts the bytes that were pushed and not yet
    returned; ``speaking`` is true from the first byte on that is more than a comment.
    """

    def __init__(self, dialect: Dialect, encoding: str = "", *, streamed: bool = False) -> None:
        self.streamed, self.encoding = streamed, encoding
        self.waiting = 0
        self.speaking = False
        # Watched only: what the stream was is found out later, from its copy, beside the event loop.
        self._stream = EventStream(dialect, limit=0)
        self._inflater = Inflater(encoding)
        self._chunks = bytearray()
        self._released = not streamed
        self._plain = encoding.strip().lower() in {"", "identity"}
        if not self._plain:
            self._stream.release()

    @property
    def holding(self) -> bool:
        """Whether the terminal event has begun and waits."""
        return self._stream.holding and not self._released

    @property
    def terminal(self) -> Terminal | None:
        """How the stream ended, once its terminal event is complete."""
        return self._stream.terminal

    def push(self, chunk: bytes) -> bytes:
        """Take the next bytes; return those that may be forwarded now."""
        text = self._inflater.push(chunk) if self.streamed else chunk
        self.speaking = self.speaking or begins_output(chunk if self._inflater.broken else text)
        if not self.streamed:
            return chunk
        ready = self._stream.push(text)
        if not self._plain:
            ready = self._kept(chunk)
        self.waiting += len(chunk) - len(ready)
        return ready

    def release(self) -> bytes:
        """Return what waits, and hold nothing back from now on."""
        self._released, self.waiting = True, 0
        held = self._stream.release() + self._chunks
        self._chunks.clear()
        return held

    def _kept(self, chunk: bytes) -> bytes:
        if not self.holding:
            return chunk
        self._chunks += chunk
        return b""
