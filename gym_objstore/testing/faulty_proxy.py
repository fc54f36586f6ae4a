# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A proxy in front of a real S3 server in which things go wrong at random, the same again for the same seed.

Clients are pointed at ``endpoint``. Requests are forwarded as they came, their ``Host`` included, so that
signatures stay valid: SeaweedFS and the MinIO gateway verify the host that came, not the one they listen on. Each
message is read whole before it is passed on. Owns: the faults, the delay each way, and the counts. Does not own:
HTTP beyond what S3 clients and servers say, and TLS.
"""

from __future__ import annotations

import asyncio
import random
import re
import socket
import struct
import threading
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Self
from urllib.parse import parse_qs, urlsplit

from gym_objstore.errors import Invalid, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

HANG_SECONDS = 30.0
"""How long a connection hangs, unless the client gives up or the proxy is closed before."""

_REFUSALS = {
    "500": (500, "InternalError", ""),
    "502": (502, "", ""),
    "503": (503, "SlowDown", "Retry-After: 0\r\n"),
    "429": (429, "TooManyRequests", "Retry-After: 0\r\n"),
    "skew": (403, "RequestTimeTooSkewed", ""),
    "expired": (400, "ExpiredToken", ""),
    "denied": (403, "AccessDenied", ""),
    "full": (507, "XMinioStorageFull", ""),
}
FAULTS = (*_REFUSALS, "reset", "lost", "cut", "truncated", "corrupted", "hang", "short", "repeat")
"""What can happen to a request.

A number or a name of S3: refused with it and not forwarded. ``reset``: the connection breaks before. ``lost``: done,
and the connection breaks before the answer. ``cut`` and ``truncated``: half of the answer's body, then a reset or
an end. ``corrupted``: one bit of a GET's body is changed. ``hang``: done, no answer. ``short``: a listing without
its second half that says it is whole. ``repeat``: a listing that names the token again by which it was asked for.
"""

_CHUNK = 1 << 16
_NO_BODY = (204, 304)
_CONTENTS = re.compile(rb"<Contents>.*?</Contents>", re.DOTALL)
_NEXT = re.compile(rb"<NextContinuationToken>.*?</NextContinuationToken>", re.DOTALL)


class Message(NamedTuple):
    """A request or an answer as it came: ``start`` is its first line, ``head`` the lines after it."""

    start: bytes
    head: tuple[bytes, ...]
    body: bytes

    def header(self, name: bytes) -> bytes:
        """Return a header's value, empty without one."""
        start = name.lower() + b":"
        return next((line[len(start) :].strip() for line in self.head if line.lower().startswith(start)), b"")

    @property
    def wire(self) -> bytes:
        """The message as it is sent."""
        return b"\r\n".join((self.start, *self.head, b"", self.body))

    def instead(self, body: bytes) -> Message:
        """Return the message with another body, and the length of it."""
        kept = tuple(line for line in self.head if not line.lower().startswith((b"content-length:", b"transfer-enc")))
        return Message(self.start, (*kept, b"Content-Length: %d" % len(body)), body)


class FaultyProxy:
    """A running proxy while its context is open. ``faults`` says how likely each fault is for a request, 0 to 1.

    ``latency_ms`` is the delay each way; it and ``faults`` may be changed at any time. ``choose``, if set, names the
    fault of a request (or ``""``) instead of chance. ``counts`` has the requests by method, ``happened`` by fault.
    """

    def __init__(
        self, target: str, *, seed: int = 0, faults: Mapping[str, float] | None = None, latency_ms: float = 0.0
    ) -> None:
        self.target, self.seed, self.latency_ms = target, seed, latency_ms
        self.faults = dict(faults or {})
        if unknown := self.faults.keys() - set(FAULTS):
            raise Invalid(f"unknown fault, fault={', '.join(sorted(unknown))}", hint=f"there are {', '.join(FAULTS)}")
        self.choose: Callable[[Message], str] | None = None
        self.counts: Counter[str] = Counter()
        self.happened: Counter[str] = Counter()
        self.endpoint = ""
        self._asked: Counter[bytes] = Counter()
        self._started = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="faulty-proxy", daemon=True)

    def __repr__(self) -> str:
        return f"FaultyProxy({self.target!r}, seed={self.seed}, faults={self.faults}, latency_ms={self.latency_ms})"

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join()

    def heal(self) -> None:
        """End every fault and delay."""
        self.faults, self.choose, self.latency_ms = {}, None, 0.0

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=_CHUNK, backlog=1024)
        self.endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._started.set()
        await self._closing.wait()
        server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client's connection over one of its own to the server."""
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        try:
            while (request := await _read_request(reader, writer)) is not None:
                self.counts[request.start.split(b" ", 1)[0].decode()] += 1
                fault = self._fault(request)
                await asyncio.sleep(self.latency_ms / 1000)
                if fault in _REFUSALS:
                    answer = _refused(fault, request)
                elif fault == "reset":
                    break
                else:
                    server = server or await self._connect()
                    answer = await _ask(*server, request)
                await asyncio.sleep(self.latency_ms / 1000)
                if not await self._answer(writer, request, answer, fault):
                    break
        except (OSError, asyncio.IncompleteReadError, ValueError):  # one side went away; so does the other
            pass
        finally:
            _reset(writer)
            if server is not None:
                server[1].close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        place = urlsplit(self.target)
        reader, writer = await asyncio.open_connection(place.hostname, place.port, limit=_CHUNK)
        _without_delay(writer)
        return reader, writer

    def _fault(self, request: Message) -> str:
        fault = ""
        if self.choose is not None:
            fault = self.choose(request)
        elif self.faults:
            self._asked[request.start] += 1
            draw = random.Random(f"{self.seed} {request.start!r} {self._asked[request.start]}")  # noqa: S311
            fault = next((one for one in FAULTS if draw.random() < self.faults.get(one, 0.0)), "")
        if fault:
            self.happened[fault] += 1
        return fault

    async def _answer(self, writer: asyncio.StreamWriter, request: Message, answer: Message, fault: str) -> bool:
        """Send an answer, or what the fault leaves of it; say whether the connection lives on."""
        match fault:
            case "lost":
                return False
            case "hang":
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), HANG_SECONDS)
                return False
            case "cut" | "truncated":
                writer.write(answer.wire[: len(answer.wire) - (len(answer.body) + 1) // 2])
                await writer.drain()
                if fault == "truncated":
                    writer.close()
                    await writer.wait_closed()
                return False
            case "corrupted" if request.start.startswith(b"GET") and answer.body:
                answer = answer._replace(body=_with_one_bit_changed(answer.body))
            case "short" | "repeat" if b"<ListBucketResult" in answer.body:
                answer = _listing(fault, request, answer)
        writer.write(answer.wire)
        await writer.drain()
        return answer.header(b"connection").lower() != b"close"


async def _read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Message | None:
    """Return the next request, None at the end; the client is told to go on if it waits for that with its body."""
    _without_delay(writer)
    head = await _read_head(reader)
    if head is None:
        return None
    if head.header(b"expect"):
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await writer.drain()
        head = head._replace(head=tuple(line for line in head.head if not line.lower().startswith(b"expect:")))
    return head._replace(body=await _read_body(reader, head))


async def _read_head(reader: asyncio.StreamReader) -> Message | None:
    try:
        text = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if not error.partial:
            return None
        raise
    start, *head = text[:-4].split(b"\r\n")
    return Message(start, tuple(head), b"")


async def _read_body(reader: asyncio.StreamReader, head: Message) -> bytes:
    """Return a body as it is on the wire, its chunks included."""
    if head.header(b"transfer-encoding").lower() != b"chunked":
        return await reader.readexactly(int(head.header(b"content-length") or 0))
    parts = []
    while True:
        parts.append(await reader.readuntil(b"\r\n"))
        size = int(parts[-1].split(b";")[0], 16)
        parts.append(await reader.readexactly(size + 2))
        if not size:
            return b"".join(parts)


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: Message) -> Message:
    writer.write(request.wire)
    await writer.drain()
    while (head := await _read_head(reader)) is not None:
        status = int(head.start.split(b" ")[1])
        if status == 100:  # noqa: PLR2004 - the server goes on reading
            continue
        if request.start.startswith(b"HEAD") or status in _NO_BODY:
            return head
        body = await _read_body(reader, head)
        if head.header(b"transfer-encoding"):
            return head.instead(_joined(body))
        return head._replace(body=body)
    raise Unavailable("the server closed the connection", kind="connection_lost")


def _joined(chunked: bytes) -> bytes:
    parts: list[bytes] = []
    rest = chunked
    while True:
        line, _, rest = rest.partition(b"\r\n")
        size = int(line.split(b";")[0], 16)
        if not size:
            return b"".join(parts)
        parts.append(rest[:size])
        rest = rest[size + 2 :]


def _refused(fault: str, request: Message) -> Message:
    status, code, headers = _REFUSALS[fault]
    said = (
        f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>as the test wants</Message></Error>" if code else ""
    )
    body = b"" if request.start.startswith(b"HEAD") else said.encode()
    lines = f"{headers}Content-Type: application/xml\r\nContent-Length: {len(body)}".encode().split(b"\r\n")
    return Message(b"HTTP/1.1 %d Refused" % status, tuple(lines), body)


def _listing(fault: str, request: Message, answer: Message) -> Message:
    if fault == "short":
        found = _CONTENTS.findall(answer.body)
        body = answer.body
        for one in found[(len(found) + 1) // 2 :]:
            body = body.replace(one, b"")
        return answer.instead(_NEXT.sub(b"", body).replace(b"<IsTruncated>true", b"<IsTruncated>false"))
    token = parse_qs(urlsplit(request.start.split(b" ")[1]).query).get(b"continuation-token", [b""])[0]
    again = b"<NextContinuationToken>" + token + b"</NextContinuationToken>"
    return answer.instead(_NEXT.sub(lambda _: again, answer.body)) if token else answer


def _with_one_bit_changed(body: bytes) -> bytes:
    place = len(body) // 2
    return body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :]


def _without_delay(writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with a reset, so that a client that waits for more learns at once that nothing comes."""
    with suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
