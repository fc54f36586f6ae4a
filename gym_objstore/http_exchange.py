# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""One HTTP exchange with an inner ASGI application, request and response whole instead of in pieces.

For a middleware that must read both before it passes them on. What they mean is the middleware's business.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from gym_objstore.bodies import LIMIT, inflate
from gym_objstore.correlation import SCOPE_KEY
from gym_objstore.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gym_objstore.control_routes import Asgi, Receive, Scope, Send
    from gym_objstore.correlation import Route

Headers = list[tuple[bytes, bytes]]

_OF_A_BODY = {b"content-length", b"content-encoding", b"transfer-encoding"}
_COMPRESSION = b"accept-encoding"


class Request(NamedTuple):
    """A whole request."""

    headers: Headers
    body: bytes


class Answer(NamedTuple):
    """A whole response. Headers are lower case."""

    status: int
    headers: Headers
    body: bytes

    @property
    def succeeded(self) -> bool:
        """Whether the status is a 2xx."""
        return self.status // 100 == 2  # noqa: PLR2004 - the class of a status is its first digit


async def read_body(receive: Receive, limit: int) -> bytes | None:
    """Return the whole body as it came; ``None`` if the client left before its end.

    Raises ``Invalid`` (kind ``too_large``) as soon as it is longer than ``limit``.
    """
    body, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > limit:
            raise Invalid(f"the request body is too large, limit={limit}", kind="too_large")
    return bytes(body)


def header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str:
    """Return a header's value; empty if there is none."""
    return next((value.decode("latin-1") for key, value in headers if key.lower() == name), "")


def plain_body(headers: Iterable[tuple[bytes, bytes]], body: bytes, limit: int = LIMIT) -> bytes | None:
    """Return a body without its ``Content-Encoding``; ``None`` if it cannot be undone."""
    return inflate(body, header(headers, b"content-encoding"), limit=limit)


def without_prefix(scope: Scope, route: Route) -> Scope:
    """Return a scope whose path is the one behind the rollout prefix, with the route left for those within."""
    if SCOPE_KEY in scope:
        return scope
    raw = scope.get("raw_path") or scope["path"].encode("utf-8", "surrogatepass")
    return {**scope, "path": route.path, "raw_path": route.raw_path(raw), SCOPE_KEY: route}


def redirecting(send: Send, route: Route, scope: Scope) -> Send:
    """Return a ``send`` that puts the rollout prefix back into redirects. ``scope`` is the request's."""
    host = header(scope["headers"], b"host")

    async def send_back(message: Any) -> None:
        if message["type"] == "http.response.start":
            headers = [
                (name, route.location(value.decode("latin-1"), host).encode("latin-1"))
                if name.lower() == b"location"
                else (name, value)
                for name, value in message.get("headers", ())
            ]
            message = {**message, "headers": headers}
        await send(message)

    return send_back


def with_body(scope: Scope, body: bytes) -> Scope:
    """Return a scope for another, plain body, to be answered plainly in ordinary messages."""
    kept = [pair for pair in scope["headers"] if pair[0].lower() not in {*_OF_A_BODY, _COMPRESSION}]
    return {**scope, "headers": [*kept, (b"content-length", str(len(body)).encode())], "extensions": {}}


def other_body(headers: Headers, body: bytes, *replaced: tuple[bytes, bytes]) -> Headers:
    """Return a response's headers for another body, with some of them replaced."""
    gone = {*_OF_A_BODY, *(name for name, _ in replaced)}
    kept = [pair for pair in headers if pair[0] not in gone]
    return [*kept, *replaced, (b"content-length", str(len(body)).encode())]


class Asked:
    """A request that an inner application is answering, in a task of its own.

    The application hears of a client that leaves, and may stop. ``close`` ends it, or waits for what it does
    after its answer.
    """

    def __init__(self, app: Asgi, scope: Scope, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive
        self._start: dict[str, Any] = {}
        self._parts = bytearray()
        self._answer: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.get_running_loop().create_task(self._run(app, scope))

    async def answered(self, seconds: float) -> bool:
        """Wait that long for the answer; say whether there is one, or there will be none."""
        done, _ = await asyncio.wait({self._answer}, timeout=seconds)
        return bool(done)

    def answer(self) -> Answer | None:
        """Return the answer; ``None`` if the application ended without one. Raises what it raised instead."""
        return self._answer.result()

    async def close(self) -> None:
        """Return when the application has ended; it is cancelled unless it answered.

        Raises what it raised after its answer.
        """
        if not self._answer.done():
            self._task.cancel()
        await asyncio.wait({self._task})
        if not self._answer.cancelled():
            self._answer.exception()  # seen by now, or nobody wants it any more
        if not self._task.cancelled() and (late := self._task.exception()) is not None:
            raise late

    async def _run(self, app: Asgi, scope: Scope) -> None:
        try:
            await app(scope, self._hear, self._take)
        except (Exception, asyncio.CancelledError) as error:
            if self._answer.done():
                raise
            if isinstance(error, asyncio.CancelledError):
                self._answer.cancel()
                raise
            self._answer.set_exception(error)
        else:
            if not self._answer.done():
                self._answer.set_result(None)

    async def _hear(self) -> Any:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def _take(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self._start = dict(message)
        elif message["type"] == "http.response.body":
            self._parts += message.get("body", b"")
            if not message.get("more_body", False) and not self._answer.done():
                headers = [(bytes(name).lower(), bytes(value)) for name, value in self._start.get("headers", ())]
                self._answer.set_result(Answer(self._start["status"], headers, bytes(self._parts)))
