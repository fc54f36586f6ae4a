# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The attachment says what was captured, what is missing, and carries payloads only where it may."""

from __future__ import annotations

from typing import Any

import pytest

from gym_objstore.attachment import (
    UNREADABLE,
    attachment,
    gap,
    gaps_of,
    payloads_allowed,
    projection_failed,
    without_payloads,
)
from gym_objstore.calls import ModelCallRecord

CALL = ModelCallRecord(
    call_index=0, request={"input": "hi"}, response={"id": "r"}, request_raw="a", response_raw="b", tokens_in=3
)
PAYLOADS = {"request", "response", "request_raw", "response_raw"}


def test_an_attachment_has_metrics_and_calls_and_no_gaps_where_none_are() -> None:
    attached = attachment("0-0", [CALL])
    assert list(attached) == ["rollout_id", "metrics", "calls"]
    assert attached["rollout_id"] == "0-0"
    assert attached["metrics"]["tokens_in"] == 3
    assert not PAYLOADS & attached["calls"][0].keys()


def test_payloads_are_attached_when_asked_for_and_can_be_taken_out_again() -> None:
    attached = attachment("0-0", [CALL], payloads=True)
    (call,) = attached["calls"]
    assert [call[name] for name in ("request", "response", "request_raw", "response_raw")] == [
        {"input": "hi"},
        {"id": "r"},
        "a",
        "b",
    ]
    assert without_payloads(attached) == attachment("0-0", [CALL])
    assert "request" in attached["calls"][0]


@pytest.mark.parametrize(
    ("calls", "facts", "gaps"),
    [
        ([CALL], {}, []),
        ([], {}, [{"code": "model_call_capture_no_records"}]),
        ([CALL], {"unreadable": 2}, [{"code": "model_call_capture_records_unreadable", "detail": "count=2"}]),
        ([], {"unreadable": 1}, [{"code": "model_call_capture_records_unreadable", "detail": "count=1"}]),
        ([], {"incomplete": True}, [{"code": "model_call_capture_incomplete"}]),
        ([CALL], {"pending": True}, [{"code": "model_call_capture_pending"}]),
        (
            [CALL],
            {"unreadable": 1, "incomplete": True, "pending": True},
            [
                {"code": "model_call_capture_records_unreadable", "detail": "count=1"},
                {"code": "model_call_capture_incomplete"},
                {"code": "model_call_capture_pending"},
            ],
        ),
    ],
)
def test_every_gap_is_named(calls: list[Any], facts: dict[str, Any], gaps: list[Any]) -> None:
    assert gaps_of(calls, **facts) == gaps
    assert attachment("0-0", calls, gaps=gaps).get("gaps", []) == gaps


def test_a_failed_projection_keeps_payloads_and_is_a_gap() -> None:
    attached = attachment("0-0", [CALL], gaps=[gap(UNREADABLE)], payloads=True)
    failed = projection_failed(attached, ValueError("secret"))
    assert failed["calls"] == attached["calls"]
    assert failed["gaps"] == [
        {"code": "model_call_capture_unreadable"},
        {"code": "trajectory_projection_failed", "detail": "ValueError"},
    ]
    assert attached["gaps"] == [{"code": "model_call_capture_unreadable"}]


@pytest.mark.parametrize("holder", ["ng_trajectory", "ng_agent_observations"])
def test_payloads_are_refused_where_the_producer_redacted_its_history(holder: str) -> None:
    assert not payloads_allowed({holder: {"gaps": [{"code": "other"}, {"code": "multimodal_history_redacted"}]}})


@pytest.mark.parametrize(
    "record", [{}, {"ng_trajectory": None}, {"ng_trajectory": {"gaps": "x"}}, {"ng_trajectory": {"gaps": [7, {}]}}]
)
def test_payloads_are_allowed_elsewhere(record: dict[str, Any]) -> None:
    assert payloads_allowed(record)
