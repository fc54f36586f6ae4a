# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``CaptureMiddleware``: an ASGI middleware that records the model calls of rollouts, whatever server it is put on.

Owns which requests are recorded, and that the prefix of a rollout never reaches the server's routing. What
becomes of one observed call is in ``middleware_call``, of its record in ``middleware_recording``.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gym_objstore.capture_record import Exchange, client_session
from gym_objstore.correlation import CALL_KEY, route_of
from gym_objstore.http_exchange import header, redirecting, without_prefix
from gym_objstore.middleware_call import Call
from gym_objstore.middleware_recording import CAPTURE_SECONDS, Recorder

if TYPE_CHECKING:
    from gym_objstore.control_routes import Asgi, Receive, Scope, Send
    from gym_objstore.correlation import Dialect, Route
    from gym_objstore.middleware_recording import Captures

EXECUTION = "nemo_gym_model_execution"
"""Where in a request's state a model server notes what became of its upstream call."""

DRAIN_SECONDS = 30.0
"""How long a server that stops waits for records that are still under way."""

_FILES = ("http.response.pathsend", "http.response.zerocopysend")


class CaptureMiddleware:
    """Serves ``app`` and records its calls below ``/ng-rollout/<id>`` in ``store``.

    Recorded are requests for ``/v1/responses``, ``/v1/chat/completions`` and ``/v1/messages`` behind that
    prefix, whatever their method; all other requests pass, without the prefix if they had one. The bytes of a
    response are never changed, and pass at once but for its end: the terminal event of a stream, the last bytes
    of any other response. The end passes when the record is durable, or after ``within`` seconds. A record that
    cannot be stored leaves an incomplete marker, and never fails its call.
    """

    def __init__(  # noqa: PLR0913 - a clock and a source of ids are components
        self,
        app: Asgi,
        store: Captures,
        *,
        model_server_name: str | None = None,
        within: float = CAPTURE_SECONDS,
        clock: Callable[[], float] = time.time,
        call_ids: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self._app, self._store, self._model_server_name = app, store, model_server_name
        self._recorder = Recorder(store, within=within)
        self._clock, self._call_ids = clock, call_ids

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, self._draining(send))
            return
        route = route_of(scope) if scope["type"] == "http" else None
        if route is None:
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})  # shared with the application, which gets another scope
        inner, back = without_prefix(scope, route), redirecting(send, route, scope)
        if route.dialect is None or CALL_KEY in scope:  # a capture middleware further outside has the call
            await self._app(inner, receive, back)
        else:
            call_id = self._call_ids()
            call = self._call(route, route.dialect, scope, call_id=call_id)
            await call.run(self._app, _without_files(inner) | {CALL_KEY: call_id}, receive, back)

    def _call(self, route: Route, dialect: Dialect, scope: Scope, *, call_id: str) -> Call:
        begun = Exchange(
            model_call_id=call_id,
            dialect=dialect,
            started_at=self._clock(),
            completed_at=0,
            latency_ms=0,
            request_encoding=header(scope["headers"], b"content-encoding"),
            model_server=self._model_server_name,
            client_session_id=client_session(scope["headers"]),
        )

        def finish(exchange: Exchange) -> Exchange:
            state = scope["state"]
            noted = state.get(EXECUTION) if isinstance(state, Mapping) else None
            execution = noted if isinstance(noted, Mapping) else None
            return replace(exchange, completed_at=self._clock(), execution=execution)

        return Call(route.rollout_id, begun, self._recorder, finish)

    def _draining(self, send: Send) -> Send:
        """Return a ``send`` that lets a server stop when what it recorded is durable."""

        async def send_on(message: Any) -> None:
            if message["type"].startswith("lifespan.shutdown."):
                with contextlib.suppress(Exception):  # the application may have closed the store, which drains it
                    await self._store.drain(timeout=DRAIN_SECONDS)
            await send(message)

        return send_on


def _without_files(scope: Scope) -> dict[str, Any]:
    """Return a scope in which the server does not offer to send files by itself: their bytes would not be seen."""
    offered = scope.get("extensions") or {}
    return {**scope, "extensions": {name: offered[name] for name in offered if name not in _FILES}}
