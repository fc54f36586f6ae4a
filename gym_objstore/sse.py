# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A response stream of server-sent events, watched as its bytes pass.

``EventStream`` answers the two questions a forwarding middleware has: which bytes may go on at once and
which must wait (the terminal event, until the capture is durable), and what the response was. It keeps no
raw bytes beyond those that wait; keeping them all, in memory or spooled, is the caller's business. Any
bytes are taken without an error, and the result does not depend on how they were cut.

Lines end as the SSE standard says, so that a U+2028 or U+0085 inside a text is part of it. An event ends at
an empty line (LF or CRLF); what follows the last one is read for the response, but ends no stream. Of a
compressed stream, push what ``bodies.Inflater`` makes of it, and hold whole chunks once ``holding`` is true.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from gym_objstore.portable import loads, portable
from gym_objstore.reassembly import FOLDS, MALFORMED, Fold

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gym_objstore.correlation import Dialect

Terminal = Literal["complete", "incomplete", "error"]

LIMIT = 256 * 2**20
"""Bytes of one stream that are reassembled; a longer one is watched for its end, and has no response."""

_MARKERS: Mapping[Dialect, Mapping[bytes, Terminal]] = {
    "responses": {
        b"event: response.completed": "complete",
        b"event: response.incomplete": "incomplete",
        b"event: response.failed": "error",
        b"event: error": "error",
    },
    "chat": {b"data: [DONE]": "complete", b"event: error": "error"},
    "messages": {b"event: message_stop": "complete", b"event: error": "error"},
}
_WORDS: Mapping[Dialect, tuple[bytes, ...]] = {
    "responses": (b"response.completed", b"response.incomplete", b"response.failed", b"error"),
    "chat": (b"[DONE]", b"error", b"\\u"),  # an error object's name may be escaped
    "messages": (b"message_stop", b"error"),
}
"""What the lines that end a stream contain."""
_LONGEST_PART = 64
"""Bytes of an unfinished line that may still turn out to be a marker; each has fewer, blanks included."""
_LONGEST_LINE = 4096
"""Bytes kept of a line once the stream is no longer reassembled: enough for any marker or error message."""
_BLANK = (b"", b"\r")
_DONE = "[DONE]"
_IDLE = re.compile(rb"(?::[^\r\n]*+|[\r\n])*+")


class Reassembly(NamedTuple):
    """What a finished stream was: its response (``None`` if there is none to be made) and how it ended.

    ``terminal`` is ``None`` for a stream that closed without its dialect's terminal event.
    """

    response: dict[str, Any] | None
    terminal: Terminal | None


class EventStream:
    """Follow one response stream of a dialect.

    ``holding`` is true from the terminal event's first line on, ``terminal`` says how the stream ended once
    that event is complete. ``held`` are the bytes that were pushed and not yet returned: forward them when
    the capture is durable. All bytes returned by ``push`` and then ``held`` are exactly the bytes pushed.
    Not thread-safe; one per response.
    """

    def __init__(self, dialect: Dialect, *, limit: int = LIMIT) -> None:
        self.holding = False
        self.terminal: Terminal | None = None
        self._dialect = dialect
        self._left = limit
        self._released = False
        self._held = bytearray()
        self._fold: Fold | None = FOLDS[dialect]() if limit else None
        self._line = bytearray()
        self._data: list[str] = []
        self._marked: Terminal | None = None
        self._error = False

    @property
    def held(self) -> bytes:
        """The bytes that wait."""
        return bytes(self._held)

    def push(self, chunk: bytes) -> bytes:
        """Take the stream's next bytes; return those that may be forwarded now.

        Held back are the terminal event with all that follows, and the few bytes of an unfinished line that
        may become its first.
        """
        held = self.holding
        start = self._scan(chunk)
        if self._released:
            return chunk
        if held or start == 0:
            self._held += chunk
            return b""
        ready = bytes(self._held) + chunk[:start] if self._held else chunk[:start]
        self._held[:] = chunk[start:]
        return ready

    def release(self) -> bytes:
        """Return what waits and hold nothing back from now on; the stream's response and end are still watched.

        For a caller that cannot wait any longer: a server may say anything, without end, after its last event.
        """
        held = self.held
        self._held.clear()
        self._released = True
        return held

    def finish(self) -> Reassembly:
        """Return what the stream was, after its last byte. Repeating it returns the same."""
        self._take(bytes(self._line))
        self._line.clear()
        self._feed()
        try:
            response, _ = portable(self._fold.response() if self._fold else None)
        except MALFORMED:
            response = None
        return Reassembly(response, self.terminal)

    def _scan(self, chunk: bytes) -> int:
        """Read the chunk's lines; return where in it the part to hold begins."""
        if self._fold is None and self._ends_nothing(chunk):
            return len(chunk)
        *ended, rest = chunk.split(b"\n")
        hold: int | None = None
        position = 0
        for piece in ended:
            self._extend(piece)
            self._end_line()
            if self.holding and hold is None:
                hold = position
            position += len(piece) + 1
        self._extend(rest)
        if hold is None:
            hold = position if self._may_end() else len(chunk)
        return hold

    def _ends_nothing(self, chunk: bytes) -> bool:
        """Whether these are whole lines that say nothing about the end, seen at a tenth of the cost of reading them."""
        pending = self._line or self._marked or self._error or self.holding
        return not pending and chunk.endswith(b"\n") and not any(word in chunk for word in _WORDS[self._dialect])

    def _extend(self, piece: bytes) -> None:
        """Lengthen the current line; give the response of a stream over the limit up, so memory stays bounded."""
        self._left -= len(piece)
        if self._left < 0:
            self._fold = None
            self._data.clear()
        self._line += piece
        if self._fold is None:
            del self._line[_LONGEST_LINE:]

    def _end_line(self) -> None:
        line = bytes(self._line)
        self._line.clear()
        if line not in _BLANK:
            self._take(line)
            self.holding = self.holding or self._marked is not None or self._error
            return
        self.terminal = self.terminal or self._marked or ("error" if self._error else None)
        self._marked, self._error = None, False
        self._feed()

    def _take(self, line: bytes) -> None:
        """Note what a line of the current event says: its data, and whether it ends the stream."""
        for part in line.splitlines():
            self._marked = self._marked or _MARKERS[self._dialect].get(_normal(part))
            if part.startswith(b"data:"):
                text = part[5:].decode("utf-8", "replace").lstrip()
                self._error = self._error or (self._dialect == "chat" and _tells_error(text))
                if self._fold is not None:
                    self._data.append(text)

    def _may_end(self) -> bool:
        """Whether the unfinished line may still become a marker."""
        part = bytes(self._line[:_LONGEST_PART]).rstrip(b"\r")
        if not part or len(self._line) > _LONGEST_PART:
            return False
        return any(marker.startswith(_normal(part)) for marker in _MARKERS[self._dialect])

    def _feed(self) -> None:
        """Give the event that just ended to the fold; a malformed one ends the reassembly."""
        payload = "\n".join(self._data)
        self._data.clear()
        if self._fold is None or payload in ("", _DONE):
            return
        try:
            event = loads(payload)
        except ValueError:
            return
        try:
            if isinstance(event, dict):
                self._fold.add(event)
        except MALFORMED:
            self._fold = None


def event_stream(content_type: bytes) -> bool:
    """Whether a Content-Type header announces server-sent events."""
    return content_type.strip().lower().startswith(b"text/event-stream")


def begins_output(chunk: bytes) -> bool:
    """Whether the time to the first token ends with this chunk: the first with more than SSE comments.

    Servers send comments (``: keep-alive``) while the model has not said anything yet.
    """
    return _IDLE.fullmatch(chunk) is None


def _normal(line: bytes) -> bytes:
    """Return a line with exactly one blank behind its field name."""
    field, colon, value = line.partition(b":")
    return field + b": " + value.lstrip() if colon else line


def _tells_error(data: str) -> bool:
    """Whether a chat chunk carries an error object, which ends the stream without ``[DONE]``."""
    if "error" not in data and "\\u" not in data:
        return False
    try:
        event = loads(data)
    except ValueError:
        return False
    return isinstance(event, dict) and event.get("error") is not None
