# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``proxy_app``: capture in front of a model server that knows nothing of rollouts.

Owns what stands around the capture middleware and the forwarder: who may ask, the routes of its own
(``/healthz``, ``/readyz``, ``/metrics``, which the upstream's are hidden by), and the end. Captures hold
bodies, never headers, so no credential is stored.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import orjson

from gym_objstore.captures import FAMILY
from gym_objstore.control_wire import is_secret
from gym_objstore.errors import Invalid, ObjstoreError, Unavailable
from gym_objstore.flow import head
from gym_objstore.keys import writer_key
from gym_objstore.middleware import CaptureMiddleware
from gym_objstore.proxy_answers import answer, refuse
from gym_objstore.proxy_forwarding import Forwarder
from gym_objstore.proxy_metrics import CONTENT_TYPE, Counted, CountedCaptures, Metrics
from gym_objstore.proxy_upstream import Upstream

if TYPE_CHECKING:
    from gym_objstore.capture_store import CaptureStore
    from gym_objstore.control_routes import Asgi, Receive, Scope, Send

PROBE_SECONDS = 2.0
"""How long ``/readyz`` waits for the store and the upstream."""

DRAIN_SECONDS = 8.0
"""How long the end of the application waits for captures that are still being written."""

_KEY_HEADERS = (b"proxy-authorization", b"authorization", b"x-api-key")

_log = logging.getLogger("gym_objstore")


def proxy_app(
    upstream: str | Upstream, store: CaptureStore, *, model_server_name: str | None = None, api_key: str | None = None
) -> Asgi:
    """Return an ASGI application that captures the calls of rollouts into ``store`` and relays all to ``upstream``.

    With ``api_key``, clients must present it, as a bearer token in ``Proxy-Authorization`` or ``Authorization``
    or in ``X-Api-Key``; that header is not sent on, all other credentials are. The routes of its own need none.
    The application's lifespan ends with the store drained; close it afterwards. Raises ``Invalid`` for bad settings.
    """
    where = Upstream(upstream) if isinstance(upstream, str) else upstream
    return _Proxy(where, store, model_server_name, None if api_key is None else _require_key(api_key))


class _Proxy:
    def __init__(self, upstream: Upstream, store: CaptureStore, name: str | None, api_key: bytes | None) -> None:
        self._store, self._api_key = store, api_key
        self._metrics = Metrics()
        self._forwarder = Forwarder(upstream)
        captured = CaptureMiddleware(self._forwarder, CountedCaptures(store, self._metrics), model_server_name=name)
        self._app = Counted(captured, self._metrics)
        self._own = {"/healthz": self._healthz, "/readyz": self._readyz, "/metrics": self._metrics_text}
        self._probe: asyncio.Task[dict[str, bool]] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
        elif (own := self._own.get(scope["path"])) is not None:
            await own(send)
        else:
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        admitted = self._admitted(scope)
        if admitted is None:
            await refuse(scope, send, 401, "bad_api_key", "the proxy's API key is missing or wrong")
            return
        try:
            await self._app(admitted, receive, send)
        except Unavailable as error:
            _log.warning("an answer was left incomplete: %s", error)

    def _admitted(self, scope: Scope) -> Scope | None:
        """Return the request without the key to this proxy; ``None`` if it lacks it."""
        if self._api_key is None:
            return scope
        kept = [pair for pair in scope["headers"] if not self._is_key(*pair)]
        return None if len(kept) == len(scope["headers"]) else {**scope, "headers": kept}

    def _is_key(self, name: bytes, value: bytes) -> bool:
        if name.lower() not in _KEY_HEADERS:
            return False
        scheme, _, credentials = value.partition(b" ")
        given = credentials.strip() if scheme.lower() == b"bearer" else value
        return is_secret(given, self._api_key or b"")

    async def _healthz(self, send: Send) -> None:
        await answer(send, 200, b'{"alive":true}', b"application/json")

    async def _readyz(self, send: Send) -> None:
        """Ask store and upstream, once for all who want to know it meanwhile."""
        if self._probe is None or self._probe.done():
            self._probe = asyncio.ensure_future(self._parts_ready())
        parts = await asyncio.shield(self._probe)
        await answer(send, 200 if all(parts.values()) else 503, orjson.dumps(parts), b"application/json")

    async def _parts_ready(self) -> dict[str, bool]:
        store, upstream = await asyncio.gather(_in_time(self._store_answers()), _in_time(self._forwarder.reachable()))
        return {"store": store, "upstream": upstream}

    async def _store_answers(self) -> bool:
        try:
            await ask(self._store)
        except ObjstoreError as error:
            _log.warning("the store is not ready, error=%s", error)
            return False
        return True

    async def _metrics_text(self, send: Send) -> None:
        await answer(send, 200, self._metrics.exposition(), CONTENT_TYPE)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._forwarder.close()
        if not await self._store.drain(timeout=DRAIN_SECONDS):
            run_id = self._store.settings.run_id
            _log.error("captures were still being written at the end, and may be lost, run_id=%s", run_id)
        await send({"type": "lifespan.shutdown.complete"})


async def ask(store: CaptureStore) -> None:
    """Return if the store can be asked for what a capture needs. Raises storage errors."""
    await store.connection.play(head(writer_key(FAMILY, store.settings.run_id)))


async def _in_time(asked: Any) -> bool:
    try:
        return bool(await asyncio.wait_for(asked, PROBE_SECONDS))
    except TimeoutError:
        return False


def _require_key(api_key: str) -> bytes:
    if not api_key or not api_key.isascii() or not api_key.isprintable() or " " in api_key:
        raise Invalid("the API key must be printable ASCII without spaces, and not empty", kind="bad_api_key")
    return api_key.encode()
