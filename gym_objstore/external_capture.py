# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``ExternalCapture``: an ASGI middleware that has the calls of training rollouts staged by their worker.

It stands before any server of the OpenAI or Anthropic APIs that forwards the admission to its inference
worker and the worker's coordinates back. Owns the order of things: admitted, answered, converted, recorded,
and only then sent. The rules themselves are in ``admission``, ``commit`` and ``sse_replay``, the rows in the
ledger. Nothing of an answer is sent while the model generates, so a stream is no faster than a whole answer.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import orjson

from gym_objstore.admission import (
    Refusal,
    Worker,
    admission_for,
    continues_elsewhere,
    request_items,
    worker_request,
)
from gym_objstore.bodies import LIMIT
from gym_objstore.correlation import CALL_KEY, DIALECTS, Route, route_of
from gym_objstore.errors import Invalid, ObjstoreError, Retired
from gym_objstore.external_calls import Call, Reply, Served, read_object, serve
from gym_objstore.http_exchange import (
    Answer,
    Asked,
    Request,
    header,
    read_body,
    redirecting,
    with_body,
    without_prefix,
)
from gym_objstore.observing import Event, report
from gym_objstore.reasons import FailureReason
from gym_objstore.records import LineageResolution, ParentResolutionStatus

if TYPE_CHECKING:
    from gym_objstore.control_routes import Asgi, Receive, Scope, Send
    from gym_objstore.wire_ledger import CaptureLedgerCommit
    from gym_objstore.wire_staging import CaptureAdmission

    Item = dict[str, Any]

T = TypeVar("T")

KEEP_ALIVE_SECONDS = 15.0
"""Silence after which a streaming client is sent a comment; its headers then go out before the answer is known."""

_HEAVY = 256 * 1024
"""Bytes of a body from which it is worked on beside the event loop."""


class Ledger(Protocol):
    """What is needed of a capture ledger. Its writes are finished even if the caller is cancelled."""

    async def resolve(self, rollout_id: str, request_items: list[Item]) -> LineageResolution:
        """Return the staged call that a request continues. A storage error raises."""

    async def has_rows(self, rollout_id: str) -> bool:
        """Say whether there is any row. A storage error raises, a retired rollout raises ``Retired``."""

    async def record(self, commit: CaptureLedgerCommit) -> None:
        """Record a staged call durably."""

    async def record_failure(self, rollout_id: str, model_call_id: str, reason: str) -> None:
        """Record durably that a call did not commit."""


class ExternalCapture:
    """Serves ``app`` with external staging for calls below ``/ng-rollout/<id>/training-token-capture``.

    Such a call reaches ``app`` as a request for a complete answer, with its admission in ``ng_capture``; the
    answer's ``ng_commit_coords`` are checked, and the ledger's row is durable before the client gets the
    answer, as JSON or as the events it asked for. A call that cannot be captured is served all the same and
    leaves its reason in the ledger; only storage that does not answer fails it, with 503. Other prefixed calls
    lose their prefix, all others pass untouched.
    """

    def __init__(  # noqa: PLR0913 - a clock and a source of ids are components
        self,
        app: Asgi,
        ledger: Ledger,
        *,
        worker: Worker = "vllm",
        body_limit: int = LIMIT,
        keep_alive: float = KEEP_ALIVE_SECONDS,
        clock: Callable[[], float] = time.time,
        call_ids: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self._app, self._ledger, self._worker = app, ledger, worker
        self._limit, self._keep_alive = body_limit, keep_alive
        self._clock, self._call_ids = clock, call_ids

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        route = route_of(scope) if scope["type"] == "http" else None
        if route is None:
            await self._app(scope, receive, send)
            return
        inner, back = without_prefix(scope, route), redirecting(send, route, scope)
        if route.token_capture and route.dialect is not None and scope["method"] == "POST":
            await self._serve(route, inner, receive, back)
        else:
            await self._app(inner, receive, back)

    async def _serve(self, route: Route, scope: Scope, receive: Receive, send: Send) -> None:
        call = Call(
            route.rollout_id, scope.get(CALL_KEY) or self._call_ids(), DIALECTS[route.path], self._clock(), None
        )
        reply = Reply(send, call.dialect, call.response_id)
        try:
            raw = await read_body(receive, self._limit)
            if raw is not None:
                request = Request(scope["headers"], raw)
                call.body = await _beside(_weight(request), read_object, request)
                asked = Asked(self._app, *await self._admit(call, scope, raw), receive)
                await self._exchange(call, asked, reply)
        except ObjstoreError as error:
            event = Event("request_failed", call.rollout_id, call.model_call_id, kind=error.kind, detail=str(error))
            report(event, "a training call failed before it was served, %s, error=%s", call.where, error)
            await reply.refuse(*_refusal_of(error))
        except Exception:
            if reply.started:
                await reply.refuse(500, "the model server failed")
            raise

    async def _admit(self, call: Call, scope: Scope, raw: bytes) -> tuple[Scope, bytes]:
        """Decide whether the call is captured; return the request for the worker. Storage errors raise."""
        if call.body is None:
            return scope, raw
        decided = await self._decide(call)
        if isinstance(decided, Refusal):
            await self._refuse(call, decided)
        else:
            call.admission = decided
        try:
            request = worker_request(call.dialect, call.body, call.admission, worker=self._worker)
        except Invalid as error:
            await self._refuse(call, Refusal(FailureReason.CAPTURE_FAILED, error.message))
            call.admission = None
            request = worker_request(call.dialect, call.body, None)
        body = await _beside(_weight(Request(scope["headers"], raw)), orjson.dumps, request)
        return with_body(scope, body), body

    async def _decide(self, call: Call) -> CaptureAdmission | Refusal | None:
        """Return the admission, or why there is none; ``None`` for a rollout that is retired."""
        body = call.body or {}
        try:
            call.items = request_items(call.dialect, body)
            resolution = await self._ledger.resolve(call.rollout_id, call.items)
        except Invalid as error:
            return Refusal(FailureReason.UNRESOLVED_PARENT, f"its conversation cannot be read: {error}")
        if continues_elsewhere(body):
            resolution = LineageResolution(ParentResolutionStatus.UNRESOLVED, reason="the server has the history")
        try:
            # Asked of a root too: a call that starts after retirement would stage what nobody looks for.
            has_rows = resolution.match is None and await self._ledger.has_rows(call.rollout_id)
        except Retired:
            event = Event("uncaptured", call.rollout_id, call.model_call_id, kind="retired")
            report(event, "a call of a retired rollout is served without capture, %s", call.where)
            return None
        return admission_for(call.rollout_id, call.model_call_id, resolution=resolution, has_rows=has_rows)

    async def _exchange(self, call: Call, asked: Asked, reply: Reply) -> None:
        """Have the call answered, record what came of it, and only then send it."""
        try:
            while not await asked.answered(self._keep_alive):
                if call.streaming:
                    await reply.keep_alive()
            answer = asked.answer()
            served = await self._settle(call, answer)
            if served is not None:
                await reply.send(served.answer, events=served.events)
        except (Exception, asyncio.CancelledError):
            await self._abandon(call)
            raise
        finally:
            await asked.close()

    async def _settle(self, call: Call, answer: Answer | None) -> Served | None:
        """Record the call durably, as captured or as failed; return what the client gets."""
        if answer is None:
            await self._abandon(call)
            return None
        if call.body is None and answer.succeeded:
            await self._refuse(call, Refusal(FailureReason.UNRESOLVED_PARENT, "its request is no JSON object"))
        served = await _beside(_weight(answer) + 2048 * len(call.items), serve, call, answer)
        if call.admission is None:
            return served
        call.settled = True
        if isinstance(served.outcome, Refusal):
            await self._refuse(call, served.outcome)
        else:
            await self._record(call, served.outcome)
        return served

    async def _record(self, call: Call, commit: CaptureLedgerCommit) -> None:
        """Record a commit. If its storage fails the call is failed too, and nobody may build on it."""
        try:
            await self._ledger.record(commit)
        except Invalid as error:
            await self._refuse(call, Refusal(FailureReason.INVALID_COORDINATES, str(error)))
        except ObjstoreError:
            call.settled = False
            raise

    async def _refuse(self, call: Call, refusal: Refusal) -> None:
        reason = refusal.reason.value
        event = Event("uncaptured", call.rollout_id, call.model_call_id, kind=reason, detail=refusal.why)
        report(event, "a call is not captured, %s, reason=%s, why=%s", call.where, reason, refusal.why)
        await self._ledger.record_failure(call.rollout_id, call.model_call_id, reason)

    async def _abandon(self, call: Call) -> None:
        """Leave a trace of an admitted call that ended without an answer of which anything was recorded."""
        if call.admission is None or call.settled:
            return
        call.settled = True
        try:
            await self._refuse(call, Refusal(FailureReason.UNCOMMITTED, "it ended without an answer"))
        except ObjstoreError as error:
            event = Event("loss", call.rollout_id, call.model_call_id, kind="untraced", detail=str(error))
            report(event, "a failed call left no trace in the ledger, %s, error=%s", call.where, error)


def _refusal_of(error: ObjstoreError) -> tuple[int, str]:
    """Return the status and the words for a client, which is no business of the storage's details."""
    if error.kind == "too_large":
        return 413, error.message
    return 503, f"the capture ledger failed, kind={error.kind}"


def _weight(whole: Request | Answer) -> int:
    """Return the bytes that a body is taken for: a compressed one may be a thousand times as long as it came."""
    return _HEAVY if header(whole.headers, b"content-encoding") else len(whole.body)


async def _beside(size: int, function: Callable[..., T], *arguments: Any) -> T:
    """Compute something, in a thread if it is heavy."""
    if size < _HEAVY:
        return function(*arguments)
    return await asyncio.to_thread(function, *arguments)
