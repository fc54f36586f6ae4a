# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What a proxy counts: ``Metrics``, and where it is counted: around the application and around the store.

Names, labels and buckets are an interface that is only added to. No label holds what a client or an upstream
said, except an HTTP status. Needs prometheus-client, the extra ``proxy``.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from gym_objstore.correlation import DIALECTS, route_of
from gym_objstore.errors import Denied, ObjstoreError, Unavailable, Unusable
from gym_objstore.http_exchange import header
from gym_objstore.sse import begins_output, event_stream

try:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
    from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
except ModuleNotFoundError as missing:
    raise Unusable(
        "the proxy needs prometheus-client", kind="missing_extra", hint="pip install 'gym-objstore[proxy]'"
    ) from missing

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

    from gym_objstore.control_routes import Asgi, Receive, Scope, Send
    from gym_objstore.middleware_recording import Captures

CONTENT_TYPE = CONTENT_TYPE_LATEST.encode()

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500)
_NO_ANSWER = "none"


class Metrics:
    """The figures of one proxy, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        of_call = ("dialect",)
        self.requests = Counter(
            "gym_objstore_proxy_requests",
            f"Requests that ended, by API and HTTP status; {_NO_ANSWER}: the client left first.",
            (*of_call, "status"),
            registry=registry,
        )
        self.truncated = Counter(
            "gym_objstore_proxy_truncated", "Answers that began and broke off.", of_call, registry=registry
        )
        self.in_flight = Gauge("gym_objstore_proxy_in_flight", "Requests that have not ended.", registry=registry)
        self.received = Counter("gym_objstore_proxy_request_bytes", "Bytes of request bodies.", registry=registry)
        self.sent = Counter("gym_objstore_proxy_response_bytes", "Bytes of response bodies.", registry=registry)
        self.first_token = Histogram(
            "gym_objstore_proxy_time_to_first_token_seconds",
            "From the request to the first bytes of an event stream.",
            of_call,
            buckets=_SECONDS,
            registry=registry,
        )
        self.duration = Histogram(
            "gym_objstore_proxy_duration_seconds",
            "From the request to the end of its answer.",
            of_call,
            buckets=_SECONDS,
            registry=registry,
        )
        self.captures = Counter(
            "gym_objstore_proxy_captures",
            "Captures by outcome: recorded; spilled, kept on this machine's disk until the store takes them; lost.",
            ("outcome",),
            registry=registry,
        )
        for outcome in ("recorded", "spilled", "lost"):
            self.captures.labels(outcome)

        self.markers = Counter(
            "gym_objstore_proxy_incomplete_markers",
            "Rollouts marked incomplete, for captures that are spilled, lost or could not be kept whole.",
            registry=registry,
        )

    def exposition(self) -> bytes:
        """Return all figures as Prometheus text."""
        return generate_latest(self.registry)


class Counted:
    """Counts the requests that an application serves."""

    def __init__(self, app: Asgi, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        seen = _Seen(self._metrics, scope, receive, send)
        with self._metrics.in_flight.track_inprogress():
            try:
                await self._app(scope, seen.receive, seen.send)
            finally:
                seen.end()


class CountedCaptures:
    """Counts what becomes of the captures that a store is given. One that is given up goes on uncounted."""

    def __init__(self, store: Captures, metrics: Metrics) -> None:
        self._store, self._outcomes, self._markers = store, metrics.captures, metrics.markers

    async def record_async(self, rollout_id: str, exchange: Mapping[str, Any], *, within: float | None = None) -> None:
        """Store one exchange; see the store's."""
        try:
            await self._store.record_async(rollout_id, exchange, within=within)
        except ObjstoreError as error:
            kept = isinstance(error, Unavailable | Denied) and error.kind != "spill_failed"
            self._outcomes.labels("spilled" if kept else "lost").inc()
            raise
        self._outcomes.labels("recorded").inc()

    async def mark_incomplete_async(self, rollout_id: str, model_call_id: str = "", *, reason: str = "lost") -> None:
        """Record that a capture was lost; see the store's."""
        self._markers.inc()
        await self._store.mark_incomplete_async(rollout_id, model_call_id, reason=reason)

    def expect(self, rollout_id: str, task: asyncio.Task[Any]) -> None:
        """Have ``drain`` wait for a task; see the store's."""
        self._store.expect(rollout_id, task)

    async def drain(self, rollout_id: str | None = None, *, timeout: float) -> bool:  # noqa: ASYNC109 - the store's word
        """Wait for what was expected; see the store's."""
        return await self._store.drain(rollout_id, timeout=timeout)


class _Seen:
    """What was seen of one exchange."""

    def __init__(self, metrics: Metrics, scope: Scope, receive: Receive, send: Send) -> None:
        self._metrics, self._receive, self._send = metrics, receive, send
        route = route_of(scope)
        self._dialect = DIALECTS.get(route.path if route else scope["path"], "other")
        self._began = time.perf_counter()
        self._status = _NO_ANSWER
        self._streams = self._complete = False

    async def receive(self) -> Any:
        message = await self._receive()
        self._metrics.received.inc(len(message.get("body", b"")))
        return message

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self._status = str(message["status"])
            self._streams = event_stream(header(message["headers"], b"content-type").encode("latin-1"))
        elif message["type"] == "http.response.body":
            part = message.get("body", b"")
            self._metrics.sent.inc(len(part))
            self._complete = not message.get("more_body", False)
            if self._streams and begins_output(part):
                self._metrics.first_token.labels(self._dialect).observe(time.perf_counter() - self._began)
                self._streams = False
        await self._send(message)

    def end(self) -> None:
        self._metrics.requests.labels(self._dialect, self._status).inc()
        self._metrics.duration.labels(self._dialect).observe(time.perf_counter() - self._began)
        if self._status != _NO_ANSWER and not self._complete:
            self._metrics.truncated.labels(self._dialect).inc()
