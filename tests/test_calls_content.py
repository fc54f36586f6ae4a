# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Tool calls and reasoning are found in each dialect's response."""

from __future__ import annotations

from typing import Any

import pytest

from gym_objstore.calls_content import Content, content_of, finish_reason_of

LOOK = {"call_id": "call_1", "name": "look", "arguments": {"q": "x"}}


def test_responses_output() -> None:
    output = [
        {"type": "reasoning", "summary": [{"text": "first"}, {"text": ""}, "skipped", {"text": "second"}]},
        {"type": "function_call", "call_id": "call_1", "id": "fc_1", "name": "look", "arguments": '{"q": "x"}'},
        {"type": "message", "content": []},
        7,
    ]
    assert content_of({"output": output, "choices": []}) == Content([LOOK], "first\nsecond")


def test_chat_choices() -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"q": "x"}'}}
    choices = [
        {"message": {"reasoning_content": "older", "reasoning": "newer", "tool_calls": [call, 7]}},
        {"message": {"reasoning": "newer", "tool_calls": None}},
        {"message": "none"},
    ]
    assert content_of({"choices": choices}) == Content([LOOK], "older\nnewer")


def test_anthropic_content() -> None:
    content = [
        {"type": "thinking", "thinking": "deep", "signature": "s"},
        {"type": "redacted_thinking", "data": "..."},
        {"type": "tool_use", "id": "call_1", "name": "look", "input": {"q": "x"}},
        {"type": "text", "text": "Hi"},
    ]
    assert content_of({"content": content}) == Content([LOOK], "deep")


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ({"a": 1}, {"a": 1}),
        ('{"a": 1}', {"a": 1}),
        ("[1]", [1]),
        ("{broken", {"_raw": "{broken"}),
        ("", {"_raw": ""}),
        (None, {}),
        ('{"a": "\\ud800", "b": NaN}', {"a": "\ufffd", "b": None}),
        ("[" * 300 + "]" * 300, {"_raw": "[" * 300 + "]" * 300}),
    ],
)
def test_arguments_become_a_value_that_can_be_written(arguments: Any, value: Any) -> None:
    output = [{"type": "function_call", "arguments": arguments}]
    assert content_of({"output": output}).tool_calls == [{"call_id": None, "name": None, "arguments": value}]


@pytest.mark.parametrize("response", [{}, {"output": "text"}, {"content": None}, {"choices": {}}])
def test_a_response_of_no_known_shape_has_neither(response: dict[str, Any]) -> None:
    assert content_of(response) == Content([], None)


@pytest.mark.parametrize(
    "response",
    [{"output": [{"type": "reasoning", "summary": 7}]}, {"choices": [{"message": {"tool_calls": True}}]}],
)
def test_a_part_that_cannot_be_looked_through_is_a_type_error(response: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        content_of(response)


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        ({"stop_reason": "end_turn", "choices": [{"finish_reason": "stop"}]}, "end_turn"),
        ({"choices": [{"finish_reason": "length"}, {"finish_reason": "stop"}]}, "length"),
        ({"incomplete_details": {"reason": "max_output_tokens"}}, "max_output_tokens"),
        ({"stop_reason": None, "choices": [], "incomplete_details": "x"}, None),
        ({}, None),
    ],
)
def test_the_finish_reason_is_where_the_dialect_has_it(response: dict[str, Any], reason: str | None) -> None:
    assert finish_reason_of(response) == reason
