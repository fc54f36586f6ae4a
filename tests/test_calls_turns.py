# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What was said is the same in all three dialects, nothing is said twice, and no body is too strange to be shown."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_objstore.calls import ModelCallRecord
from gym_objstore.calls_turns import Conversation, Turn, request_turns, response_turns
from tests import model_traffic as traffic

ARGUMENTS = '{"city":"Rome"}'
ASKED = [
    Turn("system", "text", "be brief"),
    Turn("user", "text", "weather?"),
    Turn("assistant", "tool_call", ARGUMENTS, "look", "t1"),
    Turn("tool", "tool_result", "sunny", call_id="t1"),
]
ANSWERED = [Turn("assistant", "reasoning", "hm"), Turn("assistant", "text", "Sunny.")]

DIALECTS = {
    "chat": (
        {
            "messages": [
                {"role": "system", "content": "be brief"},
                {"role": "user", "content": [{"type": "text", "text": "weather?"}]},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "t1", "function": {"name": "look", "arguments": '{"city": "Rome"}'}}],
                },
                {"role": "tool", "tool_call_id": "t1", "content": "sunny"},
            ]
        },
        {"choices": [{"message": {"role": "assistant", "reasoning_content": "hm", "content": "Sunny."}}]},
    ),
    "responses": (
        {
            "instructions": "be brief",
            "input": [
                {"role": "user", "content": "weather?"},
                {"type": "function_call", "call_id": "t1", "name": "look", "arguments": '{"city": "Rome"}'},
                {"type": "function_call_output", "call_id": "t1", "output": "sunny"},
            ],
        },
        {
            "output": [
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Sunny."}]},
            ]
        },
    ),
    "messages": (
        {
            "system": [{"type": "text", "text": "be brief"}],
            "messages": [
                {"role": "user", "content": "weather?"},
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "t1", "name": "look", "input": {"city": "Rome"}}],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "sunny"}]}
                    ],
                },
            ],
        },
        {"content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Sunny."}]},
    ),
}


def call(request=None, response=None, index=0, **fields) -> ModelCallRecord:
    return ModelCallRecord(call_index=index, request=request, response=response, **fields)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_dialogue_reads_the_same_in_every_dialect(dialect):
    request, response = DIALECTS[dialect]
    assert request_turns(call(request)) == ASKED
    assert response_turns(call(response=response)) == ANSWERED


def test_a_text_input_an_error_and_bodies_that_are_no_json_are_said():
    assert request_turns(call({"input": "hi"})) == [Turn("user", "text", "hi")]
    assert response_turns(call(response={"error": {"code": 5}})) == [Turn("assistant", "error", '{"code":5}')]
    assert request_turns(call(request_raw="{half")) == [Turn("user", "raw", "{half")]
    assert response_turns(call(response_raw="<html>")) == [Turn("assistant", "raw", "<html>")]


def test_media_is_named_and_cut_short():
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 5_000}}
    (turn,) = request_turns(call({"messages": [{"role": "user", "content": [part]}]}))
    assert (turn.kind, turn.name, len(turn.text) < 300, "characters)" in turn.text) == (
        "other",
        "image_url",
        True,
        True,
    )


def chat(index, *texts) -> ModelCallRecord:
    """A call whose request has these texts, by turns of user and assistant, but the last, which is its answer."""
    roles = ["user", "assistant"] * len(texts)
    messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]
    return call({"messages": messages[:-1]}, {"choices": [{"message": messages[-1]}]}, index)


def test_what_an_earlier_call_said_is_not_said_again():
    talk = Conversation()
    assert talk.add(chat(0, "a", "b")).continues is None
    said = talk.add(chat(1, "a", "b", "c", "d"))
    assert (said.continues, said.repeated, [turn.text for turn in said.request]) == (0, 2, ["c"])
    branch = talk.add(chat(2, "a", "b", "x", "y"))
    assert (branch.continues, branch.repeated, [turn.text for turn in branch.request]) == (0, 2, ["x"])
    retry = talk.add(chat(3, "a", "b", "c", "e"))
    assert (retry.continues, retry.repeated, retry.request) == (1, 3, [])
    assert [turn.text for turn in retry.response] == ["e"]
    fresh = talk.add(chat(4, "other", "f"))
    assert (fresh.continues, fresh.repeated) == (None, 0)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_reasoning_that_is_or_is_not_repeated_starts_no_new_conversation(dialect):
    request, response = DIALECTS[dialect]
    talk = Conversation()
    talk.add(call(request, response, 0))
    field = "input" if dialect == "responses" else "messages"
    echo = response["output"] if dialect == "responses" else None
    echo = echo or [response["choices"][0]["message"] if dialect == "chat" else {"role": "assistant", **response}]
    for index, said in enumerate((echo, [_without_reasoning(one) for one in echo if one.get("type") != "reasoning"])):
        new = {**request, field: [*request[field], *said, {"role": "user", "content": f"and {index}?"}]}
        found = talk.add(call(new, None, index + 1))
        assert (found.continues, [turn.text for turn in found.request]) == (0, [f"and {index}?"])


def _without_reasoning(message):
    content = message["content"]
    if isinstance(content, list):
        content = [part for part in content if part["type"] != "thinking"]
    return {**{name: value for name, value in message.items() if name != "reasoning_content"}, "content": content}


@given(
    st.fixed_dictionaries({}, optional=dict.fromkeys(("system", "instructions", "messages", "input"), traffic.JSON)),
    st.one_of(traffic.RESPONSES.values()),
)
def test_no_body_is_too_strange(request, response):
    said = Conversation().add(call(request, response))
    for turn in (*said.request, *said.response):
        assert all(isinstance(one, str) for one in turn)
        orjson.dumps(turn._asdict())
