# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""One training call, and what its client is sent: the worker's answer in the client's form, or why there is none.

Owns the conversion and the bytes on the wire. When they may go out is for ``external_capture``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from gym_objstore.admission import Refusal
from gym_objstore.commit import commit_of, served_answer
from gym_objstore.errors import Invalid
from gym_objstore.http_exchange import Answer, Headers, Request, other_body, plain_body
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


@dataclass(slots=True)
class Call:
    """One training call. Without an admission it is served and not captured.

    ``body`` is ``None`` for a request that is no JSON object. ``settled`` says that the ledger has been, or is
    being told what came of the call.
    """

    rollout_id: str
    model_call_id: str
    dialect: Dialect
    admitted_at: float
    body: Item | None
    items: list[Item] = field(default_factory=list)
    admission: CaptureAdmission | None = None
    settled: bool = False

    @property
    def where(self) -> str:
        """The call's ids, for messages."""
        return f"rollout_id={self.rollout_id}, model_call_id={self.model_call_id}"

    @property
    def response_id(self) -> str:
        """The id of a response that only says that the call failed."""
        return f"resp_{self.model_call_id}"

    @property
    def streaming(self) -> bool:
        """Whether the client asked for events."""
        return self.body is not None and self.body.get("stream") is True

    @property
    def with_usage(self) -> bool:
        """Whether the client asked for usage in its chat events."""
        options = (self.body or {}).get("stream_options")
        return isinstance(options, dict) and bool(options.get("include_usage"))


class Served(NamedTuple):
    """What the client gets, and what the ledger is told if the call was admitted."""

    answer: Answer
    outcome: CaptureLedgerCommit | Refusal
    events: bool = False


def serve(call: Call, answer: Answer) -> Served:
    """Return what becomes of a worker's answer.

    Errors and successes that are no JSON object go to the client as they came. An answer that cannot be
    converted into the events that were asked for becomes a failed stream.
    """
    if not answer.succeeded:
        return Served(answer, Refusal(FailureReason.UNCOMMITTED, f"the server refused it, status={answer.status}"))
    document = read_object(answer)
    if document is None:
        return Served(answer, Refusal(FailureReason.MISSING_COORDINATES, "the answer is no JSON object"))
    served = served_answer(document)
    if not call.streaming:
        return Served(_with(answer, orjson.dumps(served), _JSON), _outcome(call, document, served))
    try:
        events = replay(call.dialect, served, include_usage=call.with_usage)
    except Invalid as error:
        failed = failure(call.dialect, "the answer cannot be sent as a stream", response_id=call.response_id)
        return Served(_with(answer, failed, *_EVENTS), Refusal(FailureReason.UNCOMMITTED, str(error)), events=True)
    return Served(_with(answer, events, *_EVENTS), _outcome(call, document, served), events=True)


class Reply:
    """The response to one client, in the form it still can have. What comes after its end is dropped."""

    def __init__(self, send: Send, dialect: Dialect, response_id: str) -> None:
        self._send, self._dialect, self._response_id = send, dialect, response_id
        self.started = False
        self._ended = False

    async def keep_alive(self) -> None:
        """Send a comment, before the first one the headers of a stream."""
        if not self.started:
            await self._start(200, list(_EVENTS))
        await self._send({"type": "http.response.body", "body": KEEP_ALIVE, "more_body": True})

    async def send(self, answer: Answer, *, events: bool = False) -> None:
        """Send the whole answer; behind a keep-alive one that is no stream becomes a failed one."""
        if self.started:
            await self._end(answer.body if events else self._failure(_error_of(answer)))
            return
        await self._start(answer.status, answer.headers)
        await self._end(answer.body)

    async def refuse(self, status: int, why: str) -> None:
        """Send an error in the dialect's form: as a status if nothing was sent yet, else as the stream's end."""
        if self.started:
            await self._end(self._failure(why))
            return
        body = orjson.dumps(_error_document(self._dialect, why))
        await self.send(Answer(status, other_body(_RETRY_LATER.get(status, []), body, _JSON), body))

    def _failure(self, why: str) -> bytes:
        return failure(self._dialect, why, response_id=self._response_id)

    async def _start(self, status: int, headers: Headers) -> None:
        self.started = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def _end(self, body: bytes) -> None:
        if not self._ended:
            self._ended = True
            await self._send({"type": "http.response.body", "body": body, "more_body": False})


def _error_document(dialect: Dialect, why: str) -> Item:
    if dialect == "messages":
        return {"type": "error", "error": {"type": "api_error", "message": why}}
    return {"error": {"message": why, "type": "server_error"}}


def read_object(whole: Answer | Request) -> Item | None:
    """Return the JSON object that a body is, made portable; ``None`` for anything else."""
    try:
        value, _ = parse(plain_body(whole.headers, whole.body) or b"")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _outcome(call: Call, document: Item, served: Item) -> CaptureLedgerCommit | Refusal:
    if call.admission is None:
        return Refusal(FailureReason.UNCOMMITTED, "it was not admitted")
    return commit_of(call.admission, document, served=served, request_items=call.items, admitted_at=call.admitted_at)


def _with(answer: Answer, body: bytes, *headers: tuple[bytes, bytes]) -> Answer:
    return Answer(answer.status, other_body(answer.headers, body, *headers), body)


def _error_of(answer: Answer) -> str:
    """Return a server's own words about its error, with the status."""
    error = (read_object(answer) or {}).get("error")
    said = error.get("message") if isinstance(error, dict) else error
    return f"HTTP {answer.status}: {said or 'the model server refused the call'}"[:_ERROR_LIMIT]
