# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Fingerprints and conversation digests are those of the golden vectors and tell conversations apart as promised."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gym_objstore.errors import Invalid
from gym_objstore.fingerprint import (
    FINGERPRINT_VERSION,
    assistant_fingerprint,
    canonicalize_tool_arguments,
    conversation_digest,
)

FOLDER = Path(__file__).parent / "vectors"
CONVERSATIONS = json.loads((FOLDER / "conversations.json").read_text("ascii"))
ARGUMENTS = json.loads((FOLDER / "arguments.json").read_text("ascii"))

QUESTION = {"role": "user", "content": "Weather?"}
CHAT = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"b": 1, "a": 2}'}}],
}
RESPONSES = {"type": "function_call", "call_id": "c1", "id": "fc1", "name": "look", "arguments": '{"a":2,"b":1}'}
ANTHROPIC = {
    "role": "assistant",
    "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {"a": 2, "b": 1}}],
}


@pytest.mark.parametrize("case", CONVERSATIONS, ids=lambda case: case["name"])
@pytest.mark.parametrize(("hashed", "field"), [(assistant_fingerprint, "fingerprint"), (conversation_digest, "digest")])
def test_a_conversation_hashes_to_the_vector_or_is_refused(case: dict[str, Any], hashed: Any, field: str) -> None:
    if case[field] is not None:
        assert hashed(case["messages"]) == case[field]
        return
    with pytest.raises(Invalid, match=r"^message 0 ") as refusal:
        hashed(case["messages"])
    assert refusal.value.kind == "bad_message"


@pytest.mark.parametrize("case", ARGUMENTS, ids=lambda case: case["name"])
def test_arguments_become_the_text_of_the_vector_or_are_refused(case: dict[str, Any]) -> None:
    if case["canonical"] is not None:
        assert canonicalize_tool_arguments(case["arguments"]) == case["canonical"]
        return
    with pytest.raises(Invalid):
        canonicalize_tool_arguments(case["arguments"])


def test_the_version_of_the_layout_is_two() -> None:
    assert FINGERPRINT_VERSION == 2


def test_a_tool_call_has_one_fingerprint_in_all_three_dialects() -> None:
    assert len({assistant_fingerprint([QUESTION, said]) for said in (CHAT, RESPONSES, ANTHROPIC)}) == 1


def test_a_namespace_counts_whether_apart_or_joined() -> None:
    apart = {**RESPONSES, "namespace": "weather"}
    joined = {**RESPONSES, "name": "weather__look"}
    assert assistant_fingerprint([apart]) == assistant_fingerprint([joined]) != assistant_fingerprint([RESPONSES])


def test_without_anything_said_by_the_model_there_is_no_fingerprint() -> None:
    assert assistant_fingerprint([QUESTION, {"role": "tool", "content": "sunny"}]) == ""
    assert assistant_fingerprint([]) == assistant_fingerprint(None) == ""


def test_users_tools_and_reasoning_change_the_digest_only() -> None:
    short: list[dict[str, Any]] = [QUESTION, RESPONSES]
    reasoning: dict[str, Any] = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    longer = [QUESTION, reasoning, RESPONSES, {"type": "function_call_output", "call_id": "c1", "output": "sunny"}]
    assert assistant_fingerprint(short) == assistant_fingerprint(longer)
    assert conversation_digest(short) != conversation_digest(longer)


def test_parts_and_messages_do_not_run_together() -> None:
    said = [{"role": "assistant", "content": "ab"}]
    parts = [{"role": "assistant", "content": ["a", "b"]}]
    assert assistant_fingerprint(said) != assistant_fingerprint(parts)
    assert conversation_digest(said) != conversation_digest([*said, *said])


def test_a_changed_tool_result_changes_the_digest_in_every_dialect() -> None:
    def results(text: str) -> list[dict[str, Any]]:
        return [
            {"role": "tool", "tool_call_id": "c1", "content": text},
            {"type": "function_call_output", "call_id": "c1", "output": text},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": text}]},
        ]

    for before, after in zip(results("sunny"), results("rainy"), strict=True):
        assert conversation_digest([before]) != conversation_digest([after])


@pytest.mark.parametrize(
    "message",
    [
        5,
        {"role": "assistant", "content": 5},
        {"role": "assistant", "content": [5]},
        {"role": "assistant", "content": [{}]},
        {"role": "assistant", "content": "\ud800"},
        {"role": "assistant", "content": [{"type": "audio", "data": "\ud800"}]},
        {"role": "assistant", "content": [{"type": "audio", "data": {1, 2}}]},
        {"role": "assistant", "tool_calls": 5},
        {"role": "assistant", "tool_calls": [5]},
        {"role": "assistant", "tool_calls": [{"function": 5}]},
        {"type": "function_call", "arguments": "[" * 100_000},
        {"type": "function_call", "arguments": "9" * 5000 + "0", "name": 10**5000},
        {"type": "function_call", "arguments": {"a": 2**64}},
        {"type": "function_call", "arguments": b"{}"},
    ],
)
def test_a_message_that_cannot_be_hashed_is_refused_by_its_number(message: Any) -> None:
    for hashed in (assistant_fingerprint, conversation_digest):
        with pytest.raises(Invalid, match=r"^message 1 ") as refusal:
            hashed([QUESTION, message])
        assert str(refusal.value).isascii()


def test_what_the_model_did_not_say_is_not_looked_at_by_the_fingerprint() -> None:
    assert assistant_fingerprint([{"role": "user", "content": 5}]) == ""
