# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What the client of a training call is sent: the worker's answer in the client's form, or why there is none.

Owns the conversion and the bytes on the wire. When they may go out is for ``external_capture``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import orjson

from gym_objstore.admission import Refusal
from gym_objstore.commit import commit_of, served_answer
from gym_objstore.errors import Invalid
from gym_objstore.http_exchange import Answer, other_body
from gym_objstore.portable import parse
from gym_objstore.reasons import FailureReason
from gym_objstore.sse_replay import KEEP_ALIVE, failure, replay

if TYPE_CHECKING:
    from gym_objstore.control_routes import Send
    from gym_objstore.correlation import Dialect
    from gym_objstore.wire_ledger import CaptureLedgerCommit
    from gym_objstore.wire_staging import CaptureAdmission

    Item = dict[str, Any]

_EVENTS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
_JSON = (b"content-type", b"application/json")
_RETRY_LATER = {503: [(b"retry-after", b"1")]}
_ERROR_LIMIT = 300


class Asking(Protocol):
    """What is needed of a call to answer it."""

    model_call_id: str
    dialect: Dialect
    admitted_at: float
    body: Item | None
    items: list[Item]
    admission: CaptureAdmission | None

    @property
    def streaming(self) -> bool:
        """Whether the client asked for events."""


class Served(NamedTuple):
    """What the client gets, and what the ledger is told if the call was admitted."""

    answer: Answer
    outcome: CaptureLedgerCommit | Refusal
    events: bool = False


def serve(call: Asking, answer: Answer) -> Served:
    """Return what becomes of a worker's answer.

    Errors and successes that are no JSON object go to the client as they came. An answer that cannot be
    converted into the events that were asked for becomes a failed stream.
    """
    if not answer.succeeded:
        return Served(answer, Refusal(FailureReason.UNCOMMITTED, f"the server refused it, status={answer.status}"))
    document = _object(answer.body)
    if document is None:
        return Served(answer, Refusal(FailureReason.MISSING_COORDINATES, "the answer is no JSON object"))
    served = served_answer(document)
    if not call.streaming:
        return Served(_with(answer, orjson.dumps(served), _JSON), _outcome(call, document, served))
    try:
        events = replay(call.dialect, served, include_usage=_wants_usage(call))
    except Invalid as error:
        failed = failure(
            call.dialect, "the answer cannot be sent as a stream", response_id=f"resp_{call.model_call_id}"
        )
        return Served(_with(answer, failed, *_EVENTS), Refusal(FailureReason.UNCOMMITTED, str(error)), events=True)
    return Served(_with(answer, events, *_EVENTS), _outcome(call, document, served), events=True)


class Reply:
    """The response to one client, in the form it still can have."""

    def __init__(self, send: Send, dialect: Dialect, model_call_id: str) -> None:
        self._send, self._dialect, self._response_id = send, dialect, f"resp_{model_call_id}"
        self.started = False

    async def keep_alive(self) -> None:
        """Send a comment, before the first one the headers of a stream."""
        if not self.started:
            self.started = True
            await self._send({"type": "http.response.start", "status": 200, "headers": list(_EVENTS)})
        await self._send({"type": "http.response.body", "body": KEEP_ALIVE, "more_body": True})

    async def send(self, served: Served) -> None:
        """Send the whole answer; behind a keep-alive one that is no stream becomes a failed one."""
        status, headers, body = served.answer
        if self.started:
            await self._end(body if served.events else self._failure(_error_of(served.answer)))
            return
        self.started = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._end(body)

    async def refuse(self, status: int, why: str) -> None:
        """Send an error in the dialect's form: as a status if nothing was sent yet, else as the stream's end."""
        if self.started:
            await self._end(self._failure(why))
            return
        kind = "api_error" if self._dialect == "messages" else "server_error"
        document: Item = {"error": {"message": why, "type": kind}}
        if self._dialect == "messages":
            document["type"] = "error"
        body = orjson.dumps(document)
        headers = other_body(_RETRY_LATER.get(status, []), body, _JSON)
        await self.send(Served(Answer(status, headers, body), Refusal(FailureReason.UNCOMMITTED, why)))

    def _failure(self, why: str) -> bytes:
        return failure(self._dialect, why, response_id=self._response_id)

    async def _end(self, body: bytes) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": False})


def _outcome(call: Asking, document: Item, served: Item) -> CaptureLedgerCommit | Refusal:
    if call.admission is None:
        return Refusal(FailureReason.UNCOMMITTED, "it was not admitted")
    return commit_of(call.admission, document, served=served, request_items=call.items, admitted_at=call.admitted_at)


def _with(answer: Answer, body: bytes, *headers: tuple[bytes, bytes]) -> Answer:
    return Answer(answer.status, other_body(answer.headers, body, *headers), body)


def _wants_usage(call: Asking) -> bool:
    options = (call.body or {}).get("stream_options")
    return isinstance(options, dict) and bool(options.get("include_usage"))


def _object(body: bytes) -> Item | None:
    try:
        value, _ = parse(body)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _error_of(answer: Answer) -> str:
    """Return a server's own words about its error, with the status."""
    error = (_object(answer.body) or {}).get("error")
    said = error.get("message") if isinstance(error, dict) else error
    return f"HTTP {answer.status}: {said or 'the model server refused the call'}"[:_ERROR_LIMIT]
