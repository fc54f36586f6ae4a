# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The raw capture: one model-server exchange as it is stored, and what kind of failure it was.

The record has the fields of Gym's ``<rollout_id>.capture.jsonl`` lines, so that either side reads the
other's. Bodies are JSON values where they are JSON objects. The text is kept beside the value, as
``request_raw`` or ``response_raw``, where the value is missing or not exactly what the text says, and for
every stream. Two fields are ours: ``request_base64`` and ``response_base64`` hold the bytes where even the
text is not exact. A record can always be written as JSON. Who observes the exchange, and where records go,
is not decided here.
"""

from __future__ import annotations

from asyncio import CancelledError
from base64 import b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from gym_objstore.bodies import inflate
from gym_objstore.portable import parse, portable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gym_objstore.correlation import Dialect
    from gym_objstore.sse import Reassembly

SESSION_HEADER = b"x-session-id"
"""The request header in which a client may declare its session. Evidence, no authentication."""

CONTEXT_OVERFLOW = "context_length_exceeded"

_STATUS_CATEGORIES = {
    401: "auth",
    403: "auth",
    404: "not_found",
    408: "timeout",
    429: "rate_limit",
    504: "timeout",
}
_FIRST_ERROR, _FIRST_SERVER_ERROR = 400, 500
_TERMINAL_CATEGORIES = {"error": "upstream_error", "incomplete": "incomplete"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One model-server exchange as it was observed.

    Timestamps are seconds since the epoch (UTC), latencies milliseconds of a monotonic clock. ``request`` and
    ``response`` are the bodies as they were on the wire, with the ``Content-Encoding`` they were sent in.
    ``stream`` is set for server-sent events, ``failure`` if the application raised or was cancelled.
    ``execution`` is what the model server itself noted about the upstream call.
    """

    model_call_id: str
    dialect: Dialect
    started_at: float
    completed_at: float
    latency_ms: float
    ttft_ms: float | None = None
    status: int | None = None
    request: bytes = b""
    response: bytes = b""
    request_encoding: str = ""
    response_encoding: str = ""
    stream: Reassembly | None = None
    failure: BaseException | None = None
    model_server: str | None = None
    client_session_id: str | None = None
    execution: Mapping[str, Any] | None = None


class _Body(NamedTuple):
    """A body as a JSON object (if it is one), as text, and its bytes where the text is not exact."""

    value: dict[str, Any] | None = None
    raw: str | None = None
    base64: str | None = None


def capture_record(exchange: Exchange) -> dict[str, Any]:
    """Return the record of an exchange, ready to be written as JSON."""
    status, response = _response(exchange)
    request = _json_body(exchange.request, exchange.request_encoding)
    server = exchange.model_server
    record = {
        "model_call_id": exchange.model_call_id,
        "dialect": exchange.dialect,
        "model_ref": {"type": "responses_api_models", "name": server} if server else None,
        "started_at": exchange.started_at,
        "completed_at": exchange.completed_at,
        "latency_ms": round(exchange.latency_ms, 2),
        "latency_ttft_ms": None if exchange.ttft_ms is None else round(exchange.ttft_ms, 2),
        "status_code": status,
        "error_category": error_category(exchange, status, answered=response.value is not None),
        "request": request.value,
        "response": response.value,
    }
    return record | _optional(exchange, request, response)


def error_category(exchange: Exchange, status: int | None, *, answered: bool) -> str | None:
    """Return what kind of failure an exchange was; ``None`` for a success.

    ``status`` is the HTTP status, ``answered`` whether the response became a JSON object. What the model
    server noted itself comes first, then the status, the exception, and how the stream ended; a success whose
    body could not be read is ``capture_parse_error``.
    """
    if (exchange.execution or {}).get("local_response_reason") == CONTEXT_OVERFLOW:
        return CONTEXT_OVERFLOW
    category = None if status is None else status_category(status)
    if category is None and exchange.failure is not None:
        return failure_category(exchange.failure)
    if category is None and exchange.stream is not None:
        category = _stream_category(exchange.stream)
    if category is None and exchange.response and not answered:
        category = "capture_parse_error"
    return category


def status_category(status: int) -> str | None:
    """Return the kind of failure an HTTP status stands for; ``None`` below 400."""
    if status < _FIRST_ERROR:
        return None
    kind = "client_error" if status < _FIRST_SERVER_ERROR else "upstream_error"
    return _STATUS_CATEGORIES.get(status, kind)


def failure_category(failure: BaseException) -> str:
    """Return the kind of failure an exception stands for, by its name where HTTP clients have their own."""
    if isinstance(failure, CancelledError):
        return "cancelled"
    name = type(failure).__name__.lower()
    if isinstance(failure, TimeoutError) or "timeout" in name:
        return "timeout"
    return "connection" if "conn" in name else "exception"


def failure_details(failure: BaseException) -> tuple[int | None, bytes]:
    """Return the HTTP status and body an exception of an HTTP client carries, as far as it has them."""
    response = _attribute(failure, "response")
    statuses = (
        _attribute(failure, "status"),
        _attribute(failure, "status_code"),
        _attribute(response, "status_code"),
    )
    bodies = (
        _attribute(failure, "response_content"),
        _attribute(response, "content"),
        _attribute(response, "text"),
    )
    status = next((one for one in statuses if isinstance(one, int)), None)
    body = next((one for one in bodies if one is not None), b"")
    if isinstance(body, str):
        return status, body.encode("utf-8", "replace")
    return status, bytes(body) if isinstance(body, bytes | bytearray) else b""


def client_session(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return the session a client declared; ``None`` if it declared none, or several."""
    declared = {value.decode("latin-1") for name, value in headers if name.lower() == SESSION_HEADER and value}
    return declared.pop() if len(declared) == 1 else None


def _response(exchange: Exchange) -> tuple[int | None, _Body]:
    """Return the status and the body; those the exception carries where the exchange saw none."""
    if exchange.failure is not None:
        status, body = failure_details(exchange.failure)
        seen = exchange.response or body
        return exchange.status or status, _text_body(seen, exchange.response_encoding if exchange.response else "")
    if exchange.stream is not None:
        text = _text_body(exchange.response, exchange.response_encoding)
        return exchange.status, text._replace(value=exchange.stream.response)
    return exchange.status, _json_body(exchange.response, exchange.response_encoding)


def _optional(exchange: Exchange, request: _Body, response: _Body) -> dict[str, Any]:
    """Return the fields a record has only where there is something in them."""
    session = exchange.client_session_id
    execution: dict[str, Any]
    execution, _ = portable(dict(exchange.execution or {}))
    texts = {
        "request_raw": request.raw,
        "response_raw": response.raw,
        "request_base64": request.base64,
        "response_base64": response.base64,
    }
    kept = {name: text for name, text in texts.items() if text is not None}
    return ({} if session is None else {"client_session_id": session}) | execution | kept


def _json_body(body: bytes, encoding: str) -> _Body:
    plain = inflate(body, encoding)
    try:
        value, exact = parse(plain or b"")
    except ValueError:
        return _text_body(body, encoding)
    if isinstance(value, dict) and exact:
        return _Body(value)
    text = _text_body(body, encoding)
    return text._replace(value=value) if isinstance(value, dict) else text


def _text_body(body: bytes, encoding: str) -> _Body:
    if not body:
        return _Body()
    plain = inflate(body, encoding)
    shown = body if plain is None else plain
    text = shown.decode("utf-8", "replace")
    exact = text.encode() == shown
    return _Body(None, text, None if exact else b64encode(shown).decode("ascii"))


def _stream_category(stream: Reassembly) -> str | None:
    if stream.terminal is None:
        return "stream_truncated"
    return _TERMINAL_CATEGORIES.get(stream.terminal)


def _attribute(value: Any, name: str) -> Any:
    """Read an attribute that may be a property which raises."""
    try:
        return getattr(value, name, None)
    except Exception:  # noqa: BLE001 - any class may be behind it
        return None
