# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Events of each dialect add up to the response a call without streaming would have returned."""

from __future__ import annotations

from typing import Any

import pytest

from gym_objstore.reassembly import FOLDS, MALFORMED


def fold(dialect: Any, events: list[dict[str, Any]]) -> dict[str, Any] | None:
    folded = FOLDS[dialect]()
    for event in events:
        folded.add(event)
    return folded.response()


def delta(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields}]}


def test_chat_chunks_become_one_completion() -> None:
    piece = {"index": 0, "id": "call_1", "function": {"name": "look", "arguments": '{"q":'}}
    events = [
        {"id": "chatcmpl-1", "model": "m", "choices": [{"delta": {"role": "assistant", "content": ""}}]},
        delta(reasoning="hm"),
        delta(reasoning_content="m"),
        delta(content="Hel"),
        delta(content="lo"),
        delta(refusal="no"),
        delta(tool_calls=[piece]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": '"x"}'}}]),
        {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]},
        {"choices": [], "usage": {"prompt_tokens": 3}},
    ]
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"q":"x"}'}}
    message = {
        "role": "assistant",
        "content": "Hello",
        "reasoning_content": "hmm",
        "refusal": "no",
        "tool_calls": [call],
    }
    assert fold("chat", events) == {
        "object": "chat.completion",
        "id": "chatcmpl-1",
        "model": "m",
        "usage": {"prompt_tokens": 3},
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
    }


def test_anthropic_events_become_one_message() -> None:
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"id": "msg_1", "role": "assistant", "usage": {"input_tokens": 3}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s"}},
        {
            "type": "content_block_start",
            "index": 2,
            "content_block": {"type": "tool_use", "id": "t", "name": "look", "input": {}},
        },
        {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '{"q"'}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": ": 1}"}},
        {"type": "ping"},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Hi"}},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]
    assert fold("messages", events) == {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "stop_reason": "tool_use",
        "content": [
            {"type": "thinking", "thinking": "hm"},
            {"type": "text", "text": "Hi"},
            {"type": "tool_use", "id": "t", "name": "look", "input": {"q": 1}},
        ],
        "usage": {"input_tokens": 3, "output_tokens": 5},
    }


@pytest.mark.parametrize(("text", "value"), [("", {}), ("{", {"_raw": "{"}), ("[1]", [1])])
def test_a_tool_input_that_is_no_json_is_kept_as_text(text: str, value: Any) -> None:
    events = [
        {"type": "content_block_start", "content_block": {"type": "tool_use"}},
        {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": text}},
    ]
    assert fold("messages", events) == {"type": "message", "content": [{"type": "tool_use", "input": value}]}


def test_the_final_responses_event_wins_over_later_ones() -> None:
    created: dict[str, Any] = {"type": "response.created", "response": {"id": "r", "status": "in_progress"}}
    failed: dict[str, Any] = {"type": "response.failed", "response": {"id": "r", "status": "failed"}}
    assert fold("responses", [created]) == {"id": "r", "status": "in_progress"}
    assert fold("responses", [created, failed, created]) == {"id": "r", "status": "failed"}
    empty: dict[str, Any] = {"type": "response.completed", "response": {}}
    assert fold("responses", [empty, created]) == {}


@pytest.mark.parametrize(
    ("dialect", "event"),
    [
        ("chat", {"choices": []}),
        ("messages", {"type": "ping"}),
        ("responses", {"type": "response.completed", "response": "none"}),
    ],
)
def test_events_without_a_part_of_a_response_make_none(dialect: str, event: dict[str, Any]) -> None:
    assert fold(dialect, [event]) is None


@pytest.mark.parametrize(
    ("dialect", "event"),
    [
        ("chat", delta(content={"text": "x"})),
        ("chat", {"choices": 7}),
        ("chat", {"choices": [{"delta": "text"}]}),
        ("chat", delta(tool_calls=[{"index": []}])),
        ("messages", {"type": "message_start", "message": "text"}),
        ("messages", {"type": "message_delta", "usage": ["a"]}),
        ("messages", {"type": "content_block_delta", "delta": {"type": "text_delta", "text": {"a": 1}}}),
    ],
)
def test_events_of_no_known_shape_are_malformed(dialect: str, event: dict[str, Any]) -> None:
    with pytest.raises(MALFORMED):
        fold(dialect, [event])
