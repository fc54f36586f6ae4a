# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A complete answer and its event stream say the same: to our reassembly, to nemo-gym's and to the vendors' clients."""

from __future__ import annotations

import json
import string
from typing import Any

import httpx
import pytest
from anthropic import Anthropic
from hypothesis import given
from hypothesis import strategies as st
from openai import APIError, OpenAI

from gym_objstore.errors import Invalid
from gym_objstore.sse import EventStream
from gym_objstore.sse_replay import failure, replay
from tests.alike import quickly
from tests.transcripts import conversations

TEXT = st.text(st.sampled_from(string.ascii_letters + ' \n\r"\\{}é\u2028\u0085🙂'), max_size=12)
NAME = st.text(string.ascii_lowercase, min_size=1, max_size=6)
VALUES = st.dictionaries(NAME, st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT, max_size=3)


def objects(always: dict[str, Any], **maybe: Any) -> Any:
    fixed = {name: value if isinstance(value, st.SearchStrategy) else st.just(value) for name, value in always.items()}
    return st.fixed_dictionaries(fixed, optional=maybe)


FUNCTION = objects({"name": NAME, "arguments": TEXT})
TOOL_CALLS = st.lists(objects({"id": NAME, "type": "function", "function": FUNCTION}), min_size=1, max_size=3)
SAID = TEXT.filter(bool)
MESSAGE = objects(
    {"role": "assistant", "content": st.none() | SAID}, reasoning_content=SAID, refusal=SAID, tool_calls=TOOL_CALLS
)
CHAT = objects(
    {
        "id": NAME,
        "object": "chat.completion",
        "model": NAME,
        "choices": st.tuples(objects({"index": 0, "message": MESSAGE, "finish_reason": NAME})).map(list),
    },
    usage=VALUES.filter(bool),
)
BLOCK = st.one_of(
    objects({"type": "text", "text": TEXT}),
    objects({"type": "thinking", "thinking": TEXT}, signature=NAME),
    objects({"type": "redacted_thinking", "data": NAME}),
    objects({"type": "tool_use", "id": NAME, "name": NAME, "input": VALUES}),
    objects({"type": "server_tool_use", "id": NAME, "name": NAME, "input": VALUES}),
)
MESSAGES = objects(
    {
        "id": NAME,
        "type": "message",
        "role": "assistant",
        "model": NAME,
        "content": st.lists(BLOCK, max_size=4),
        "stop_reason": NAME,
        "usage": objects({"input_tokens": st.integers(0, 9), "output_tokens": st.integers(0, 9)}, cached=VALUES),
    }
)
PART = objects({"type": "output_text", "text": TEXT}, annotations=st.just([])) | objects(
    {"type": "refusal", "refusal": TEXT}
)
ITEM = st.one_of(
    objects({"type": "message", "id": NAME, "role": "assistant", "content": st.lists(PART, max_size=2)}),
    objects({"type": "function_call", "call_id": NAME, "name": NAME, "arguments": TEXT}, namespace=NAME, id=NAME),
    objects({"type": "reasoning", "summary": st.lists(objects({"type": "summary_text", "text": TEXT}), max_size=2)}),
    objects({"type": "compaction", "encrypted_content": TEXT}),
)
RESPONSES = objects(
    {"id": NAME, "object": "response", "status": st.sampled_from(["completed", "incomplete", "failed"])},
    output=st.just([]),
    usage=VALUES,
).flatmap(lambda answer: st.lists(ITEM, max_size=4).map(lambda output: {**answer, "output": output}))
ANSWERS = {"chat": CHAT, "messages": MESSAGES, "responses": RESPONSES}


def read(dialect: Any, stream: bytes) -> Any:
    watched = EventStream(dialect)
    watched.push(stream)
    return watched.finish()


def events(stream: bytes) -> list[dict[str, Any]]:
    lines = stream.decode().split("\n")
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


@pytest.mark.parametrize("dialect", ["chat", "messages", "responses"])
@given(data=st.data())
@quickly
def test_the_events_of_an_answer_add_up_to_it(dialect, data):
    answer = data.draw(ANSWERS[dialect])
    found = read(dialect, replay(dialect, answer))
    assert found.response == answer
    ends = {"incomplete": "incomplete", "failed": "error"} if dialect == "responses" else {}
    assert found.terminal == ends.get(answer.get("status", ""), "complete")


def test_the_answers_of_real_rollouts_add_up():
    count = 0
    for talk in conversations():
        for call in talk.calls:
            answer = {"id": "resp_1", "status": "completed", "output": list(call.output_items)}
            assert read("responses", replay("responses", answer)).response == answer
            count += 1
    assert count > 1_000


def test_only_the_terminal_event_of_a_stream_ends_it():
    for dialect, answer in EXAMPLES.items():
        stream = replay(dialect, answer)
        assert read(dialect, stream).terminal == "complete"
        assert read(dialect, stream[: stream[:-2].rindex(b"\n\n")]).terminal is None


def test_streams_are_ascii_with_one_kind_of_line_end():
    stream = replay("messages", {**EXAMPLES["messages"], "content": [{"type": "text", "text": "a\u2028\u0085\r\nb"}]})
    assert stream.isascii()
    assert b"\r" not in stream


CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"q":1}'}}
EXAMPLES: dict[Any, dict[str, Any]] = {
    "chat": {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 5,
        "model": "m",
        "system_fingerprint": "fp",
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "message": {"role": "assistant", "content": "Hi", "reasoning_content": "hm", "tool_calls": [CALL]},
            },
            {"index": 1, "finish_reason": "stop", "message": {"role": "assistant", "content": None, "refusal": "No"}},
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    },
    "messages": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "sig"},
            {"type": "redacted_thinking", "data": "xx"},
            {"type": "text", "text": "Hi"},
            {"type": "tool_use", "id": "t1", "name": "look", "input": {"q": 1}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": "END",
        "usage": {"input_tokens": 3, "output_tokens": 2},
    },
    "responses": {
        "id": "resp_1",
        "object": "response",
        "created_at": 5,
        "model": "m",
        "status": "completed",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "output": [
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [
                    {"type": "output_text", "text": "Hi", "annotations": []},
                    {"type": "refusal", "refusal": "No"},
                ],
            },
            {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "f1",
                "namespace": "maps",
                "name": "look",
                "arguments": '{"q":1}',
                "status": "completed",
            },
        ],
    },
}


def test_usage_of_a_chat_stream_is_told_to_those_who_ask():
    asked, unasked = (replay("chat", EXAMPLES["chat"], include_usage=usage) for usage in (True, False))
    assert events(asked)[-1]["choices"] == []
    assert events(asked)[-1]["usage"] == EXAMPLES["chat"]["usage"]
    assert b"usage" not in unasked
    assert unasked.endswith(b"data: [DONE]\n\n")


def test_an_anthropic_answer_without_usage_tells_none():
    answer = {name: value for name, value in EXAMPLES["messages"].items() if name != "usage"}
    assert events(replay("messages", answer))[0]["message"]["usage"] == {"input_tokens": 0, "output_tokens": 0}


@pytest.mark.parametrize(
    ("dialect", "answer"),
    [
        ("chat", {}),
        ("chat", {"choices": [{"index": 0}]}),
        ("chat", {"choices": [{"message": "text"}]}),
        ("chat", {"choices": "text"}),
        ("chat", {"choices": [{"message": {"tool_calls": ["text"]}}]}),
        ("messages", {}),
        ("messages", {"content": "text"}),
        ("messages", {"content": [{"text": "untyped"}]}),
        ("messages", {"content": [], "usage": 7}),
        ("responses", {}),
        ("responses", {"output": "text"}),
        ("responses", {"output": ["text"]}),
        ("responses", {"output": [{"type": "message", "content": "text"}]}),
        ("responses", {"output": [{"type": "reasoning", "summary": [1]}]}),
        ("responses", {"output": [], "temperature": float("inf")}),
    ],
)
def test_an_answer_of_another_shape_is_no_stream(dialect, answer):
    with pytest.raises(Invalid, match=f"cannot be sent as a stream, dialect={dialect}"):
        replay(dialect, answer)


@pytest.mark.parametrize("dialect", ["chat", "messages", "responses"])
def test_a_failure_ends_a_stream_with_an_error(dialect):
    found = read(dialect, failure(dialect, "out of order", response_id="resp_1"))
    assert found.terminal == "error"


def test_a_failed_response_says_why():
    assert read("responses", failure("responses", "out of order", response_id="resp_1")).response == {
        "id": "resp_1",
        "object": "response",
        "status": "failed",
        "output": [],
        "error": {"code": "server_error", "message": "out of order"},
    }


def sent(stream: bytes) -> httpx.MockTransport:
    return httpx.MockTransport(
        lambda _: httpx.Response(200, headers={"content-type": "text/event-stream"}, content=stream)
    )


@pytest.fixture
def client(request):
    def make(kind: Any, stream: bytes) -> Any:
        http = httpx.Client(transport=sent(stream))
        request.addfinalizer(http.close)
        return kind(api_key="k", base_url="http://model", http_client=http, max_retries=0)

    return make


def subset(part: Any, whole: Any) -> bool:
    """Whether everything said in ``part`` is in ``whole``, which may have more fields."""
    if isinstance(part, dict):
        return all(name in whole and subset(value, whole[name]) for name, value in part.items())
    if isinstance(part, list):
        return len(part) == len(whole) and all(map(subset, part, whole))
    return bool(part == whole)


def test_openai_accumulates_the_chat_answer(client):
    openai = client(OpenAI, replay("chat", EXAMPLES["chat"]))
    asked = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    with openai.chat.completions.stream(**asked, stream_options={"include_usage": True}) as stream:
        found = stream.get_final_completion().model_dump()
    assert subset(EXAMPLES["chat"], found), found


def test_openai_accumulates_the_response_from_deltas_and_whole(client):
    openai = client(OpenAI, replay("responses", EXAMPLES["responses"]))
    texts, calls, refusals = "", "", ""
    with openai.responses.stream(model="m", input="hi") as stream:
        for event in stream:
            texts += event.delta if event.type == "response.output_text.delta" else ""
            calls += event.delta if event.type == "response.function_call_arguments.delta" else ""
            refusals += event.delta if event.type == "response.refusal.delta" else ""
        found = stream.get_final_response().model_dump()
    assert (texts, calls, refusals) == ("Hi", '{"q":1}', "No")
    assert subset(EXAMPLES["responses"], found), found


def test_response_events_are_numbered_from_zero():
    numbers = [event["sequence_number"] for event in events(replay("responses", EXAMPLES["responses"]))]
    assert numbers == list(range(len(numbers)))


def test_anthropic_accumulates_the_message(client):
    anthropic = client(Anthropic, replay("messages", EXAMPLES["messages"]))
    asked = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}
    with anthropic.messages.stream(**asked) as stream:
        found = stream.get_final_message().model_dump()
    assert subset(EXAMPLES["messages"], found), found


def test_the_clients_raise_what_a_failure_says(client):
    asked: Any = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    openai = client(OpenAI, failure("chat", "out of order", response_id="r"))
    with pytest.raises(APIError, match="out of order"):
        list(openai.chat.completions.create(**asked))
    anthropic = client(Anthropic, failure("messages", "out of order", response_id="r"))
    with pytest.raises(Exception, match="out of order"):
        list(anthropic.messages.create(**asked, max_tokens=5))
