# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A raw capture becomes one record in the same shape for every dialect; damaged ones hide nothing."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from pydantic import ValidationError

from gym_objstore.calls import ModelCallRecord, aggregate, model_call, normalize
from gym_objstore.errors import Corrupt

CAPTURE: dict[str, Any] = {
    "model_call_id": "863410a8d52e4be6a31efc5c6e9d4629",
    "dialect": "responses",
    "model_ref": {"type": "responses_api_models", "name": "policy_model"},
    "started_at": 1786032154.12,
    "completed_at": 1786032154.96,
    "latency_ms": 842.7,
    "latency_ttft_ms": 213.4,
    "status_code": 200,
    "error_category": None,
    "request": {"model": "gpt-4.1", "input": [{"role": "user", "content": "Which option is correct?"}]},
    "response": {
        "id": "resp_123",
        "status": "completed",
        "usage": {"input_tokens": 94, "output_tokens": 28, "total_tokens": 122},
    },
    "newer_field": 1,
}


def test_the_documented_capture_becomes_the_documented_call() -> None:
    record = model_call(CAPTURE, call_index=0)
    known = {name: value for name, value in record.model_dump().items() if value is not None}
    assert known == {
        "model_call_id": "863410a8d52e4be6a31efc5c6e9d4629",
        "response_id": "resp_123",
        "call_index": 0,
        "model_ref": {"type": "responses_api_models", "name": "policy_model"},
        "model": "gpt-4.1",
        "dialect": "responses",
        "status_code": 200,
        "response_status": "completed",
        "started_at": 1786032154.12,
        "completed_at": 1786032154.96,
        "tokens_in": 94,
        "tokens_out": 28,
        "tokens_total": 122,
        "request": CAPTURE["request"],
        "response": CAPTURE["response"],
        "tool_calls": [],
        "latency_total_ms": 842.7,
        "latency_ttft_ms": 213.4,
    }


def test_a_record_is_frozen_and_can_be_written_as_json() -> None:
    record = model_call(CAPTURE, call_index=3)
    assert orjson.loads(orjson.dumps(record.model_dump()))["call_index"] == 3
    with pytest.raises(ValidationError):
        record.call_index = 4


def test_the_answering_model_wins_over_the_one_asked_for() -> None:
    assert model_call({"request": {"model": "a"}, "response": {"model": "b"}}, call_index=0).model == "b"
    assert model_call({"request": {"model": "a"}, "response": {}}, call_index=0).model == "a"
    assert model_call({"request": {"model": "a"}, "response": {"model": 7}}, call_index=0).model is None


def test_bodies_that_are_no_objects_are_unknown() -> None:
    record = model_call({"request": [1], "response": "text", "response_raw": "text", "request_raw": 7}, call_index=0)
    assert (record.request, record.response, record.request_raw, record.response_raw) == (None, None, None, "text")


DAMAGED: list[dict[str, Any]] = [
    {"model_call_id": 7},
    {"status_code": "abc"},
    {"model_ref": {"type": "other", "name": "x"}},
    {"response_source": "elsewhere"},
    {"started_at": {}},
    {"response": {"output": [{"type": "reasoning", "summary": 7}]}},
]


@pytest.mark.parametrize("capture", DAMAGED)
def test_a_record_that_is_no_capture_is_corrupt(capture: dict[str, Any]) -> None:
    with pytest.raises(Corrupt, match="no capture of a model call, call_index=5") as caught:
        model_call(capture, call_index=5)
    assert caught.value.kind == "bad_capture"


def test_damaged_captures_are_counted_take_an_index_and_hide_no_other() -> None:
    calls, unreadable = normalize([(0, CAPTURE), (2, DAMAGED[0]), (3, CAPTURE)], 1)
    assert [call.call_index for call in calls] == [0, 3]
    assert unreadable == 2


def test_metrics_add_up_what_is_known() -> None:
    calls = [
        ModelCallRecord(call_index=0, tokens_in=10, tokens_out=1, cached_tokens=0, latency_total_ms=1.5),
        ModelCallRecord(call_index=1, tokens_in=5, tokens_total=6, latency_total_ms=2.0),
        ModelCallRecord(call_index=2),
    ]
    assert aggregate(calls) == {
        "tokens_in": 15,
        "tokens_out": 1,
        "tokens_reasoning": None,
        "tokens_total": 6,
        "cached_tokens": 0,
        "latency_total_ms": 3.5,
        "num_calls": 3,
    }


def test_metrics_of_no_calls_are_unknown() -> None:
    metrics = aggregate([])
    assert metrics.pop("num_calls") == 0
    assert set(metrics.values()) == {None}
