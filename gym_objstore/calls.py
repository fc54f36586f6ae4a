# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What a captured model call was, in one shape for all API dialects, and what a rollout's calls add up to.

Input are raw captures as ``capture_record`` builds them. How usage, tool calls and reasoning are read from
each dialect's response is in ``calls_usage`` and ``calls_content``; where captures are kept, and in which
order, is the store's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gym_objstore.calls_content import content_of, finish_reason_of
from gym_objstore.calls_usage import usage_of
from gym_objstore.errors import Corrupt

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_AS_CAPTURED = (
    "model_call_id",
    "model_ref",
    "dialect",
    "status_code",
    "error_category",
    "upstream_attempted",
    "response_source",
    "upstream_status_code",
    "local_response_reason",
    "started_at",
    "completed_at",
    "latency_ttft_ms",
)
_SUMMED = ("tokens_in", "tokens_out", "tokens_reasoning", "tokens_total", "cached_tokens", "latency_total_ms")


class ModelServer(BaseModel):
    """The model server that answered a call."""

    model_config = ConfigDict(frozen=True)

    type: Literal["responses_api_models"]
    name: str


class ModelCallRecord(BaseModel):
    """One captured model call. ``None`` is unknown, never zero.

    ``call_index`` is the durable order of a rollout's captures, damaged ones counted; neither it nor the
    timestamps (seconds since the epoch, UTC) say which of two concurrent calls caused the other. Latencies
    are milliseconds of a monotonic clock. ``client_session_id`` is what the client declared: evidence, no
    security boundary. ``request_raw`` and ``response_raw`` are bodies as text, where they are not JSON
    objects, not exactly representable, or streamed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    model_call_id: str | None = None
    response_id: str | None = None
    client_session_id: str | None = None
    call_index: int
    model_ref: ModelServer | None = None
    model: str | None = None
    dialect: str | None = None
    status_code: int | None = None
    response_status: str | None = None
    finish_reason: str | None = None
    upstream_attempted: bool | None = None
    response_source: Literal["upstream", "local"] | None = None
    upstream_status_code: int | None = None
    local_response_reason: str | None = None
    started_at: float | None = None
    completed_at: float | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    tokens_reasoning: int | None = None
    tokens_total: int | None = None
    request: dict[str, Any] | None = None
    response: dict[str, Any] | None = None
    request_raw: str | None = None
    response_raw: str | None = None
    tool_calls: list[dict[str, Any]] = Field(default_factory=list)
    reasoning_content: str | None = None
    cache_hit: bool | None = None
    cached_tokens: int | None = None
    cache_creation_tokens: int | None = None
    error_category: str | None = None
    latency_total_ms: float | None = None
    latency_ttft_ms: float | None = None


class Calls(NamedTuple):
    """A rollout's calls in ``call_index`` order, and how many captures were damaged."""

    calls: list[ModelCallRecord]
    unreadable: int


def model_call(capture: Mapping[str, Any], *, call_index: int) -> ModelCallRecord:
    """Return the normalized record of one raw capture. Raises ``Corrupt`` for one that is none."""
    request, response = _object(capture.get("request")), _object(capture.get("response"))
    answer = response or {}
    try:
        content = content_of(answer)
        return ModelCallRecord(
            call_index=call_index,
            **{field: capture.get(field) for field in _AS_CAPTURED},
            **usage_of(answer.get("usage"))._asdict(),
            client_session_id=_text(capture.get("client_session_id")),
            response_id=_text(answer.get("id")),
            model=_text(answer.get("model") or (request or {}).get("model")),
            response_status=_text(answer.get("status")),
            finish_reason=finish_reason_of(answer),
            request=request,
            response=response,
            request_raw=_text(capture.get("request_raw")),
            response_raw=_text(capture.get("response_raw")),
            tool_calls=content.tool_calls,
            reasoning_content=content.reasoning,
            latency_total_ms=capture.get("latency_ms"),
        )
    except (TypeError, ValidationError) as error:
        msg = f"the record is no capture of a model call, call_index={call_index}"
        raise Corrupt(msg, kind="bad_capture") from error


def normalize(captures: Iterable[tuple[int, Mapping[str, Any]]], unreadable: int = 0) -> Calls:
    """Return the records of what could be read of a rollout: ``(call_index, capture)`` in durable order.

    ``unreadable`` is the number of captures that could not be read at all, each of which took an index.
    Captures that can be read and are none are added to it; no capture hides the others.
    """
    calls = []
    for call_index, capture in captures:
        try:
            calls.append(model_call(capture, call_index=call_index))
        except Corrupt:
            unreadable += 1
    return Calls(calls, unreadable)


def aggregate(calls: Sequence[ModelCallRecord]) -> dict[str, Any]:
    """Return a rollout's totals of tokens and latency over the calls that know theirs, and ``num_calls``.

    A total that no call knows is ``None``.
    """
    totals: dict[str, Any] = {field: _total(getattr(call, field) for call in calls) for field in _SUMMED}
    return {**totals, "num_calls": len(calls)}


def _total(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _object(value: Any) -> dict[str, Any] | None:
    return value if isinstance(value, dict) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
