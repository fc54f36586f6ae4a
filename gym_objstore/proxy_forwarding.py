# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``Forwarder``: an ASGI application that relays every request to one upstream, both bodies as they arrive.

Owns the course of one exchange and what becomes of its failures. Nothing is kept, decompressed, repeated or
followed: memory is bounded by the buffers of two sockets for each exchange. Captures are taken by the
middleware in front.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack, aclosing
from typing import TYPE_CHECKING

import httpx

from gym_objstore.errors import Invalid, Unavailable
from gym_objstore.http_exchange import header
from gym_objstore.proxy_answers import refuse
from gym_objstore.proxy_headers import end_to_end, redirects, request_headers, target
from gym_objstore.proxy_upstream import Pools, Upstream
from gym_objstore.sse import event_stream

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from gym_objstore.control_routes import Receive, Scope, Send

_BUFFER_BYTES = 64 * 1024
"""Bytes of an answer that are read before the client has taken those that came earlier."""

_log = logging.getLogger("gym_objstore")


class Forwarder:
    """Relays requests to an upstream, on any number of event loops. Web sockets are refused."""

    def __init__(self, upstream: Upstream) -> None:
        self._root = upstream.root
        self._pools = Pools(upstream)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Relay one request; a client that leaves ends it.

        Where the upstream's answer breaks off, the client's is left incomplete, so that the server breaks it off
        too: of a stream with a line in the log, of anything else by raising ``Unavailable``.
        """
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
            return
        body = _ClientBody(receive)
        relaying = asyncio.ensure_future(self._relay(scope, body, send))
        leaving = asyncio.ensure_future(body.client_left())
        try:
            await asyncio.wait({relaying, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended = relaying.done() and not relaying.cancelled()
            relaying.cancel()
            leaving.cancel()
            await asyncio.gather(relaying, leaving, return_exceptions=True)
        if ended:
            relaying.result()

    async def reachable(self) -> bool:
        """Say whether the upstream answers, be it with a refusal of this very request."""
        where, headers = f"{self._root.path}/v1/models".encode(), [(b"host", self._pools.url.netloc)]
        try:
            async with self._pools.exchange("GET", where, headers, httpx.ByteStream(b"")) as response:
                return not httpx.codes.is_server_error(response.status_code)
        except httpx.HTTPError as error:
            _log.warning("the upstream cannot be reached, upstream=%s, error=%s", self._pools.url, _said(error))
            return False

    async def close(self) -> None:
        """Close the running loop's connections. Idempotent."""
        await self._pools.close()

    async def _relay(self, scope: Scope, body: _ClientBody, send: Send) -> None:
        async with AsyncExitStack() as stack:
            try:
                where = target(scope, self._root.path)
                headers = request_headers(scope["headers"], self._pools.url.netloc)
                exchange = self._pools.exchange(scope["method"], where, headers, body)
                response = await stack.enter_async_context(exchange)
            except (Invalid, httpx.LocalProtocolError) as error:
                await refuse(scope, send, 400, "bad_request", f"the request cannot be sent on: {error}")
                return
            except httpx.HTTPError as error:
                _log.warning("an upstream request failed, upstream=%s, error=%s", self._pools.url, _said(error))
                await refuse(scope, send, *_refusal(error))
                return
            body.stop()
            await self._pass_on(response, send)

    async def _pass_on(self, response: httpx.Response, send: Send) -> None:
        headers = redirects(end_to_end(response.headers.raw), self._root)
        streamed = event_stream(header(headers, b"content-type").encode("latin-1"))
        await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
        try:
            async with aclosing(_as_arrived(response.aiter_raw())) as parts:
                async for part in parts:
                    await send({"type": "http.response.body", "body": part, "more_body": True})
        except httpx.HTTPError as error:
            message = f"the upstream's answer broke off, error={_said(error)}"
            if not streamed:
                raise Unavailable(message, kind="upstream_lost") from error
            # To a capture a failure has no response, but the part of a stream that came is one.
            _log.warning("%s", message)
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class _ClientBody(httpx.AsyncByteStream):
    """The client's side of an exchange: first its body, from then on only the news that it left."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._ended = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise asyncio.CancelledError("the client left before its body ended")
            more = message.get("more_body", False)
            if not more:
                self.stop()
            if part := message.get("body", b""):
                yield part

    def stop(self) -> None:
        """Read no more of the body: it has ended, or the upstream answered without it."""
        self._ended.set()

    async def client_left(self) -> None:
        """Return when the client has left, be it at the end of its body."""
        await self._ended.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass


async def _as_arrived(parts: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield a body's parts without delay, those that came together as one.

    httpx gives each chunk of a chunked body by itself, and to pass each on by itself is most of the work of a
    proxy under load.
    """
    arrived, news, room = bytearray(), asyncio.Event(), asyncio.Event()

    async def read() -> None:
        async for part in parts:
            arrived.extend(part)
            news.set()
            if len(arrived) >= _BUFFER_BYTES:
                room.clear()
                await room.wait()

    reading = asyncio.ensure_future(read())
    reading.add_done_callback(lambda _: news.set())
    try:
        while arrived or not reading.done():
            await news.wait()
            news.clear()
            if together := bytes(arrived):
                arrived.clear()
                room.set()
                yield together
        reading.result()
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


def _refusal(error: httpx.HTTPError) -> tuple[int, str, str]:
    if isinstance(error, httpx.TimeoutException):
        return 504, "upstream_timeout", f"the upstream did not answer in time, error={type(error).__name__}"
    if isinstance(error, httpx.ConnectError):
        return 502, "upstream_unreachable", f"the upstream cannot be reached, error={_said(error)}"
    return 502, "upstream_failed", f"the upstream did not answer, error={_said(error)}"


def _said(error: httpx.HTTPError) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
