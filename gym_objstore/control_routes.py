# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The control routes: a trainer reads a rollout's manifest over HTTP, retires and deletes its ledger.

A face, in plain ASGI: it owns what is asked and answered, and who may ask. What the ledger does is the
ledger's business; it is not closed here. Errors are JSON: ``detail`` for people, ``error`` and ``kind`` as
in ``errors``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any, NamedTuple, Protocol, TypeAlias

import orjson

from gym_objstore.control_wire import (
    BATCH_LIMIT,
    DELETE,
    MANIFEST,
    PREFIX,
    RETIRE,
    is_secret,
    require_token,
    require_wire_id,
    require_wire_ids,
)
from gym_objstore.errors import Conflict, Denied, Invalid, ObjstoreError, Retired, Unavailable
from gym_objstore.observing import Event, report

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Asgi: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Refuse: TypeAlias = Callable[[], "str | Awaitable[str | None] | None"]

BODY_LIMIT = 8 * 1024 * 1024
"""Bytes of a request body; a full batch of the longest ids needs half of it."""

_METHODS = {MANIFEST: "GET", RETIRE: "POST", DELETE: "POST"}
_ROUTES = ("/rollouts/retire", "/rollouts/delete", "/rollouts/{rollout_id:path}/manifest")
_PATH = re.compile(r"/rollouts/(?:(retire|delete)|(.*)/manifest)", re.DOTALL)

_STATUS_OF_KIND = {"bad_token": 401, "bad_body": 422, "too_large": 413}
_STATUS_OF_CLASS: dict[type[ObjstoreError], int] = {Invalid: 400, Conflict: 409, Retired: 410, Unavailable: 503}
_FAILED = 500
_HEADERS_OF = {503: (b"retry-after", b"1"), 401: (b"www-authenticate", b"Bearer"), 413: (b"connection", b"close")}


class Ledger(Protocol):
    """What the routes need of a capture ledger."""

    async def manifest(self, rollout_id: str) -> dict[str, Any]:
        """Return a rollout's manifest as plain wire data; raises ``Retired`` behind a tombstone."""

    async def retire(self, rollout_ids: Iterable[str]) -> Any:
        """Fence ledgers and remove their rows; returns ``removed`` and ``absent``."""

    async def delete(self, rollout_ids: Iterable[str]) -> Any:
        """Remove ledgers and their fences; returns ``removed`` and ``absent``."""


class Asked(NamedTuple):
    """Which operation a path names, and on which rollout where the path says it."""

    operation: str
    rollout_id: str


class Answer(NamedTuple):
    """A status and the JSON that goes with it."""

    status: int
    document: Any


def control_app(ledger: Ledger, *, token: str, refuse: Refuse | None = None, inner: Asgi | None = None) -> Asgi:
    """Return an ASGI application that serves the control routes of a ledger.

    ``refuse`` is asked before every retire and delete: a text refuses it for now, with 409. ``inner`` gets
    every request for another path. Raises ``Invalid`` for an empty token or an object that is no ledger.
    """
    absent = [name for name in _METHODS if not callable(getattr(ledger, name, None))]
    if absent:
        raise Invalid(f"the ledger lacks methods of the control routes, absent={', '.join(absent)}", kind="bad_ledger")
    return _ControlApp(ledger, require_token(token), refuse, inner or _nothing_else)


def install_rollout_control_routes(app: Any, ledger: Ledger, *, token: str, refuse: Refuse | None = None) -> None:
    """Serve the control routes of a ledger in a FastAPI or Starlette application; see ``control_app``.

    They come before all other routes, so that neither a catch-all nor an older control route hides them.
    Raises ``Invalid`` for another kind of application.
    """
    routes = control_app(ledger, token=token, refuse=refuse)
    router: Any = getattr(app, "router", None)
    if not isinstance(getattr(router, "routes", None), list) or not callable(getattr(router, "add_route", None)):
        raise Invalid(
            f"neither a FastAPI nor a Starlette application, type={type(app).__name__}",
            kind="bad_app",
            hint="for any other ASGI application: app = control_app(ledger, token=..., inner=app)",
        )
    for path in _ROUTES:
        router.add_route(PREFIX + path, routes, name=path.rpartition("/")[2], include_in_schema=False)
        router.routes.insert(0, router.routes.pop())


class _ControlApp:
    def __init__(self, ledger: Ledger, token: bytes, refuse: Refuse | None, inner: Asgi) -> None:
        self._ledger, self._token, self._refuse, self._inner = ledger, token, refuse, inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = _asked(scope) if scope["type"] == "http" else None
        if asked is None:
            await self._inner(scope, receive, send)
        elif scope["method"] != _METHODS[asked.operation]:
            refused = Answer(405, {"detail": "method not allowed", "error": "invalid", "kind": "bad_method"})
            await _send(send, refused, (b"allow", _METHODS[asked.operation].encode()))
        else:
            answer = await self._answer(asked, scope, receive)
            await _send(send, answer, *filter(None, [_HEADERS_OF.get(answer.status)]))

    async def _answer(self, asked: Asked, scope: Scope, receive: Receive) -> Answer:
        try:
            self._admit(scope)
            if asked.operation == MANIFEST:
                return Answer(200, await self._ledger.manifest(require_wire_id(asked.rollout_id)))
            return await self._remove(asked.operation, _ids_of(await _body(receive)))
        except ObjstoreError as error:
            answer = _refused(error)
            if answer.status >= _FAILED:
                event = Event("request_failed", kind=error.kind, detail=asked.operation)
                report(event, "a control request failed, operation=%s, error=%s", asked.operation, error)
            return answer

    def _admit(self, scope: Scope) -> None:
        """Raise ``Denied`` unless the one Authorization header carries the token."""
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, credentials = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        equal = is_secret(credentials.strip(b" "), self._token)
        if scheme.lower() != b"bearer" or not equal:
            raise Denied("a missing or wrong bearer token", kind="bad_token")

    async def _remove(self, operation: str, rollout_ids: tuple[str, ...]) -> Answer:
        reason = self._refuse() if self._refuse else None
        if inspect.isawaitable(reason):
            reason = await reason
        if reason is not None:
            raise Conflict(str(reason), kind="removal_refused")
        found = await (self._ledger.retire if operation == RETIRE else self._ledger.delete)(rollout_ids)
        removal = found if isinstance(found, Mapping) else found._asdict()
        return Answer(200, {name: removal[name] for name in ("removed", "absent")})


def _asked(scope: Scope) -> Asked | None:
    """Return what a request's path asks of the control routes, wherever they are mounted; None if nothing.

    The path was decoded by the server, once. An id with an encoded slash is still that route's, and bad.
    """
    path, root = scope["path"], scope.get("root_path", "")
    below = path.removeprefix(root) if path.startswith(f"{root}/") else path
    if not root.endswith(PREFIX):
        if not below.startswith(PREFIX):
            return None
        below = below.removeprefix(PREFIX)
    found = _PATH.fullmatch(below)
    return found and Asked(found[1] or MANIFEST, found[2] or "")


async def _body(receive: Receive) -> bytes:
    """Return the whole body, or raise ``Invalid`` as soon as it is too large."""
    body, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Invalid("the client left before its body ended", kind="bad_body")
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > BODY_LIMIT:
            raise Invalid(f"the body is too large, limit={BODY_LIMIT}", kind="too_large")
    return bytes(body)


def _ids_of(body: bytes) -> tuple[str, ...]:
    """Return the rollout ids that a removal names, all of them good; raises ``Invalid``."""
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Invalid("the body is not JSON", kind="bad_body") from error
    if not isinstance(said, dict) or said.keys() != {"rollout_ids"}:
        raise Invalid('the body must be {"rollout_ids": [...]} and nothing else', kind="bad_body")
    ids = said["rollout_ids"]
    if not isinstance(ids, list) or not all(isinstance(one, str) for one in ids):
        raise Invalid("rollout_ids must be a list of strings", kind="bad_body")
    if not 1 <= len(ids) <= BATCH_LIMIT:
        raise Invalid(f"rollout_ids must name 1 to {BATCH_LIMIT} rollouts, found={len(ids)}", kind="bad_body")
    return require_wire_ids(ids)


def _refused(error: ObjstoreError) -> Answer:
    of_class = next((status for cls, status in _STATUS_OF_CLASS.items() if isinstance(error, cls)), _FAILED)
    name = next(cls.__name__.lower() for cls in type(error).__mro__ if cls.__module__ == ObjstoreError.__module__)
    document = {"detail": str(error), "error": name, "kind": error.kind}
    return Answer(_STATUS_OF_KIND.get(error.kind, of_class), document)


async def _send(send: Send, answer: Answer, *headers: tuple[bytes, bytes]) -> None:
    body = orjson.dumps(answer.document)
    fixed = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": answer.status, "headers": [*fixed, *headers]})
    await send({"type": "http.response.body", "body": body})


async def _nothing_else(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer, where there is no other application, that there is nothing here."""
    if scope["type"] == "http":
        await _send(send, Answer(404, {"detail": "no such route", "error": "notfound", "kind": "no_route"}))
        return
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1000})
        return
    while (event := (await receive())["type"]) != "lifespan.shutdown":
        await send({"type": f"{event}.complete"})
    await send({"type": f"{event}.complete"})
