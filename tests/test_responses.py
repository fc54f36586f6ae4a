# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Responses of every dialect are taken apart into the same items and token fields."""

from __future__ import annotations

from typing import Any

import pytest

from gym_objstore.errors import Invalid
from gym_objstore.responses import TOKEN_FIELDS, extract_token_fields, response_to_output_items, strip_token_fields

TOKENS = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.5]}
SAID = {"type": "message", "role": "assistant", "content": "4"}


def test_the_token_fields_are_those_of_the_wire() -> None:
    assert TOKEN_FIELDS == ("prompt_token_ids", "generation_token_ids", "generation_log_probs", "routed_experts")


def test_responses_output_is_taken_as_it_is_without_what_is_no_item() -> None:
    assert response_to_output_items({"output": [SAID, "noise", None], "choices": [{"message": {}}]}) == [SAID]


def test_chat_choices_become_message_items() -> None:
    choices = [{"message": {"content": "4"}}, {"message": {"role": "tool", "type": "x"}}, {"message": "4"}]
    assert response_to_output_items({"choices": choices}) == [SAID, {"type": "x", "role": "tool"}]


def test_a_null_choice_or_message_counts_as_an_empty_one() -> None:
    empty = {"type": "message", "role": "assistant"}
    assert response_to_output_items({"output": [], "choices": [None, {"message": None}]}) == [empty, empty]


def test_anthropic_thinking_becomes_reasoning_before_one_message() -> None:
    text, tool = {"type": "text", "text": "4"}, {"type": "tool_use", "id": "c", "name": "f", "input": {}}
    content = [
        {"type": "thinking", "thinking": "hm"},
        text,
        {"type": "redacted_thinking", "data": "AA=="},
        {"type": "thinking"},
        tool,
        {"type": "redacted_thinking", "data": ""},
        {"type": "redacted_thinking"},
    ]
    assert response_to_output_items({"type": "message", "role": "assistant", "content": content}) == [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "reasoning", "summary": [], "encrypted_content": "AA=="},
        {"type": "reasoning", "summary": []},
        {"type": "reasoning", "summary": [], "encrypted_content": ""},
        {"type": "reasoning", "summary": []},
        {"type": "message", "role": "assistant", "content": [text, tool]},
    ]


def test_anthropic_thinking_alone_makes_no_message() -> None:
    payload = {"type": "message", "role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]}
    assert [item["type"] for item in response_to_output_items(payload)] == ["reasoning"]


def test_nothing_said_is_no_item() -> None:
    message = {"type": "message", "role": "assistant", "content": None}
    bare: list[dict[str, Any]] = [{}, {"output": None}, {"choices": []}, message]
    assert [response_to_output_items(payload) for payload in bare] == [[], [], [], []]


def test_token_fields_are_stripped_from_copies() -> None:
    carrier = {**SAID, **TOKENS, "routed_experts": "x"}
    assert strip_token_fields([{"type": "reasoning"}, carrier]) == ([{"type": "reasoning"}, SAID], 1)
    assert "prompt_token_ids" in carrier
    assert strip_token_fields([SAID]) == ([SAID], None)
    assert strip_token_fields([{**SAID, "generation_token_ids": []}]) == ([SAID], 0)


@pytest.mark.parametrize("place", ["output", "choices"])
def test_token_fields_are_found_in_either_dialect(place: str) -> None:
    carrier = {**SAID, **TOKENS}
    payload = {"output": [SAID, carrier]} if place == "output" else {"choices": [{"message": carrier}]}
    assert extract_token_fields(payload) == {**TOKENS, "routed_experts": None}


def test_a_response_without_arrays_has_no_token_fields() -> None:
    bare: list[dict[str, Any]] = [{}, {"output": [SAID]}, {"output": [{"routed_experts": "x"}], "choices": [None]}]
    assert [extract_token_fields(payload) for payload in bare] == [None, None, None]


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({"output": [TOKENS, TOKENS]}, "several items of one response, items=2"),
        ({"output": [TOKENS], "choices": [{"message": TOKENS}]}, "several items of one response, items=2"),
        ({"output": [{"generation_token_ids": [1]}]}, "without prompt_token_ids, generation_log_probs"),
        ({"output": 5}, "output must be a list, type=int"),
        ({"choices": 5}, "choices must be a list, type=int"),
        ({"choices": ["4"]}, "a choice must be an object, type=str"),
    ],
)
def test_token_fields_that_belong_to_no_one_call_are_refused(payload: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid, match=message) as refusal:
        extract_token_fields(payload)
    assert refusal.value.kind == "bad_response"


def test_items_that_are_none_are_refused() -> None:
    with pytest.raises(Invalid, match="an output item must be an object, type=str"):
        strip_token_fields(["4"])  # type: ignore[list-item]
    with pytest.raises(Invalid, match="several items of one response, items=2"):
        strip_token_fields([TOKENS, TOKENS])
    with pytest.raises(Invalid, match="content must be a list, type=int"):
        response_to_output_items({"type": "message", "role": "assistant", "content": 5})
