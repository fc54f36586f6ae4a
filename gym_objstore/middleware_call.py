# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""One observed call: its messages on their way, its bodies copied, its end held until the capture is durable."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gym_objstore.http_exchange import header
from gym_objstore.middleware_copies import Copy
from gym_objstore.middleware_recording import Seen
from gym_objstore.middleware_watch import Watch
from gym_objstore.sse import event_stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from gym_objstore.capture_record import Exchange
    from gym_objstore.control_routes import Asgi, Receive, Scope, Send
    from gym_objstore.middleware_recording import Recorder

    Finish = Callable[[Exchange], Exchange]

HELD_BYTES = 2**20
"""Bytes that wait with a terminal event; a server that says more has its call recorded as it is then."""

END_SECONDS = 1.0
"""How long a stream may stay open after its terminal event before its call is recorded as it is then."""


class Call:
    """Stands between one call's application and its client.

    The client gets the application's bytes, all of them and in order; only a call that is cancelled loses the
    ones that wait. The call is recorded once: when its response is complete, when the application ends without
    that, or when its end cannot be waited for any longer. ``begun`` is the exchange as it begins; ``finish``
    adds what is known only at its end.
    """

    def __init__(self, rollout_id: str, begun: Exchange, recorder: Recorder, finish: Finish) -> None:
        self._rollout_id, self._exchange = rollout_id, begun
        self._recorder, self._finish = recorder, finish
        self._begun = time.perf_counter()
        self._request, self._response = Copy(), Copy()
        self._watch = Watch(begun.dialect)
        self._length: int | None = None
        self._started = self._gone = False
        self._known: asyncio.Future[None] | None = None
        self._deadline: float | None = None
        self._passing = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._late: asyncio.Task[None] | None = None

    async def run(self, app: Asgi, scope: Scope, receive: Receive, send: Send) -> None:
        """Have the application answer, and see to it that the call is recorded. Raises what it raises."""
        self._receive, self._send = receive, send
        try:
            await app(scope, self._hear, self._say)
        except asyncio.CancelledError as cancelled:
            self._abandon(cancelled)
            raise
        except Exception as failure:
            await self._end(failure)
            raise
        await self._end(None)

    async def _hear(self) -> Any:
        """Pass a message to the application."""
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._gone = True
        elif self._known is None:
            self._request.add(message.get("body") or b"")
        return message

    async def _say(self, message: Any) -> None:
        """Pass a message to the client, now or when the capture is durable."""
        async with self._passing:
            if self._known is not None:
                await self._release()  # something waits still if the application was interrupted, and went on
                await self._forward(message)
            elif message["type"] == "http.response.body":
                await self._body(message)
            else:
                if message["type"] == "http.response.start" and not self._started:
                    self._start(message)
                await self._forward(message)

    def _start(self, message: Any) -> None:
        self._started = True
        headers = [(bytes(name).lower(), bytes(value)) for name, value in message.get("headers") or ()]
        encoding, length = header(headers, b"content-encoding"), header(headers, b"content-length")
        streamed = event_stream(header(headers, b"content-type").encode("latin-1"))
        self._watch = Watch(self._exchange.dialect, encoding, streamed=streamed)
        self._length = int(length) if length.isdecimal() else None
        self._exchange = replace(self._exchange, status=message.get("status"), response_encoding=encoding)

    async def _body(self, message: Any) -> None:
        chunk = bytes(message.get("body") or b"")
        ready = self._watch.push(chunk)
        self._response.add(chunk)
        if self._watch.speaking and self._exchange.ttft_ms is None:
            self._exchange = replace(self._exchange, ttft_ms=self._elapsed_ms())
        # With a known length, the client has the end as soon as it has the last byte, whatever follows.
        complete = not message.get("more_body", False) or self._response.size == self._length
        if complete or self._watch.waiting > HELD_BYTES:
            await self._last(message, ready)
            return
        if self._watch.holding:
            self._await_end()
        if ready or not chunk:
            await self._forward({**message, "body": ready})

    async def _last(self, message: Any, ready: bytes) -> None:
        """Forward the end of the response when it is recorded; of a stream, what is not its end goes first."""
        if ready and self._watch.streamed and self._length is None:
            await self._forward({**message, "body": ready, "more_body": True})
            ready = b""
        await self._settle(self._left() if self._watch.streamed else None)
        await self._forward({**message, "body": ready + self._watch.release()})

    def _await_end(self) -> None:
        """Give a stream whose terminal event has begun a limited time to end."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._deadline = loop.time() + self._recorder.within
            self._timer = loop.call_later(END_SECONDS, self._end_is_late)

    def _end_is_late(self) -> None:
        self._late = asyncio.get_running_loop().create_task(self._release_held())

    async def _release_held(self) -> None:
        async with self._passing:
            await self._release()

    async def _end(self, failure: Exception | None) -> None:
        """Record a call whose application ended without completing its response, and forward what waited."""
        async with self._passing:
            await self._settle(self._left() if self._gone else failure)
            await self._release()

    def _left(self) -> BaseException | None:
        """Return why a response without its end has none, if it is that its client left."""
        return asyncio.CancelledError() if self._gone and self._watch.terminal is None else None

    def _abandon(self, cancelled: asyncio.CancelledError) -> None:
        """Record a cancelled call without waiting for it. What was held is not sent: its capture is not durable."""
        self._record(cancelled)
        if self._late is not None:
            self._late.cancel()

    async def _settle(self, failure: BaseException | None) -> None:
        """Return when the call is recorded, or cannot be waited for any longer."""
        known, now = self._record(failure), asyncio.get_running_loop().time()
        if self._deadline is None:
            self._deadline = now + self._recorder.within
        await asyncio.wait({known}, timeout=max(self._deadline - now, 0))

    def _record(self, failure: BaseException | None) -> asyncio.Future[None]:
        """Begin to record the call as it is now, unless that was done before."""
        if self._timer is not None:
            self._timer.cancel()
        if self._known is None:
            ended = replace(self._exchange, failure=failure, latency_ms=self._elapsed_ms())
            self._known = self._recorder.begin(
                Seen(
                    self._rollout_id,
                    self._finish(ended),
                    self._request,
                    self._response,
                    self._watch.streamed,
                    self._watch.terminal,
                )
            )
        return self._known

    async def _forward(self, message: Any) -> None:
        try:
            await self._send(message)
        except OSError:  # as the ASGI specification has it for a client that left
            self._gone = True
            raise

    async def _release(self) -> None:
        """Forward what waits, if anything does, when the call is recorded. The client may have left."""
        if not self._watch.waiting:
            return
        await self._settle(None)
        with contextlib.suppress(Exception):
            held = {"type": "http.response.body", "body": self._watch.release(), "more_body": True}
            await self._forward(held)

    def _elapsed_ms(self) -> float:
        return (time.perf_counter() - self._begun) * 1000
