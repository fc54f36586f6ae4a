# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Which calls may be captured, and what the worker is sent: the three dialects' requests and every decision."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gym_objstore.admission import Refusal, admission_for, continues_elsewhere, request_items, worker_request
from gym_objstore.errors import Invalid
from gym_objstore.fingerprint import assistant_fingerprint, conversation_digest
from gym_objstore.reasons import FailureReason
from gym_objstore.records import LineageMatch, LineageResolution, ParentResolutionStatus
from gym_objstore.responses import response_to_output_items
from gym_objstore.wire_staging import CaptureAdmission

ROOT = LineageResolution(ParentResolutionStatus.ROOT)
UNKNOWN = LineageResolution(ParentResolutionStatus.UNRESOLVED, reason="no_match")
CHAIN = "a" * 64
USER = {"role": "user", "content": "hi"}


def resolved(**fields: Any) -> LineageResolution:
    obvious = {"staging_chain": ("k1", "k2"), "prev_len": 9, "chain_hash": CHAIN}
    match = LineageMatch("parent", (), "d" * 64, **{**obvious, **fields})
    return LineageResolution(ParentResolutionStatus.RESOLVED, match)


def decide(resolution: LineageResolution, *, has_rows: bool) -> Any:
    return admission_for("r", "c", resolution=resolution, has_rows=has_rows)


@pytest.mark.parametrize(("resolution", "has_rows"), [(ROOT, False), (ROOT, True), (UNKNOWN, False)])
def test_a_call_that_continues_nothing_known_is_a_root(resolution, has_rows):
    root = CaptureAdmission(rollout_id="r", model_call_id="c", mode="text")
    assert decide(resolution, has_rows=has_rows) == root


def test_an_unknown_continuation_beside_rows_is_refused():
    refusal = decide(UNKNOWN, has_rows=True)
    assert refusal == Refusal(FailureReason.UNRESOLVED_PARENT, "no staged call is its parent: no_match")


def test_a_continuation_names_its_chain_and_carries_no_tokens():
    assert decide(resolved(), has_rows=False) == CaptureAdmission(
        rollout_id="r",
        model_call_id="c",
        parent_call_id="parent",
        prev_len=9,
        mode="token_in",
        staging_chain=("k1", "k2"),
        parent_chain_hash=CHAIN,
    )


@pytest.mark.parametrize("fields", [{"chain_hash": ""}, {"prev_len": 0}, {"staging_chain": ()}])
def test_a_parent_that_anchors_no_chain_is_refused(fields):
    refusal = decide(resolved(**fields), has_rows=True)
    assert refusal.reason == "unresolved_parent"
    assert "parent_call_id=parent" in refusal.why


def test_chat_items_are_the_tools_and_the_messages():
    body = {"messages": [USER, None, {"role": "assistant", "content": "yo"}], "tools": [{"type": "function"}]}
    assert request_items("chat", body) == [
        {"role": "_ng_request_envelope", "content": '{"instructions": null, "tools": [{"type": "function"}]}'},
        USER,
        {"role": "assistant", "content": "yo"},
    ]


@pytest.mark.parametrize("dialect", ["chat", "responses", "messages"])
def test_a_request_without_instructions_and_tools_has_no_envelope(dialect):
    assert request_items(dialect, {"messages": [USER], "input": [USER]}) == [USER]
    assert request_items(dialect, {}) == []


def test_a_text_as_input_is_the_message_a_client_echoes():
    asked = request_items("responses", {"input": "hi", "instructions": "be brief"})
    assert asked[1:] == [USER]
    assert json.loads(asked[0]["content"]) == {"instructions": "be brief", "tools": None}
    echoed = request_items("responses", {"input": [{"type": "message", **USER}], "instructions": "be brief"})
    assert conversation_digest(asked) == conversation_digest(echoed)


def test_an_anthropic_echo_has_the_fingerprint_of_the_answer():
    content = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "let me look"},
        {"type": "tool_use", "id": "t1", "name": "look", "input": {"q": 1}},
        {"type": "text", "text": "done"},
    ]
    said = response_to_output_items({"type": "message", "role": "assistant", "content": content})
    echo = [*content[:3], {**content[3], "cache_control": {"type": "ephemeral"}}]
    for blocks in (echo, echo[1:]):  # clients may leave thinking out
        items = request_items("messages", {"messages": [USER, {"role": "assistant", "content": blocks}]})
        assert assistant_fingerprint(items) == assistant_fingerprint([USER, *said])


def test_cache_marks_change_nothing():
    image = {"type": "image", "source": {"type": "base64", "data": "AA=="}}
    mark = {"cache_control": {"type": "ephemeral"}}
    tool = {"name": "look", "input_schema": {"type": "object"}}
    plain = {"system": "be brief", "tools": [tool], "messages": [{"role": "user", "content": [image]}]}
    marked = {
        "system": [{"type": "text", "text": "be brief", **mark}],
        "tools": [{**tool, **mark}],
        "messages": [{"role": "user", "content": [{**image, **mark}]}],
    }
    assert request_items("messages", plain) == request_items("messages", marked)


@pytest.mark.parametrize(
    ("dialect", "body", "field"),
    [
        ("chat", {"messages": "hi"}, "messages"),
        ("chat", {"messages": [1]}, "messages"),
        ("responses", {"input": {"role": "user"}}, "input"),
        ("messages", {"messages": ["hi"]}, "messages"),
    ],
)
def test_a_conversation_of_another_shape_is_invalid(dialect, body, field):
    with pytest.raises(Invalid, match=field):
        request_items(dialect, body)


@pytest.mark.parametrize("odd", [5, "text", {"a": 1}, [5], None])
def test_odd_tools_and_instructions_are_for_the_server_to_refuse(odd):
    for dialect in ("chat", "responses", "messages"):
        body = {"messages": [USER], "input": [USER], "tools": odd, "system": odd, "instructions": odd}
        assert request_items(dialect, body)[-1] == USER


def test_history_on_the_server_is_seen():
    assert continues_elsewhere({"previous_response_id": "resp_1"})
    assert continues_elsewhere({"conversation": {"id": "conv_1"}})
    assert not continues_elsewhere({"previous_response_id": None, "input": "hi"})


def test_the_worker_gets_a_request_for_a_complete_answer_with_the_admission():
    body = {"stream": True, "stream_options": {"include_usage": True}, "messages": [USER], "temperature": 0.5}
    admitted = decide(ROOT, has_rows=False)
    assert worker_request("chat", body, admitted) == {
        "messages": [USER],
        "temperature": 0.5,
        "stream": False,
        "ng_capture": admitted.model_dump(mode="json"),
        "logprobs": True,
        "top_logprobs": 0,
        "return_tokens_as_token_ids": True,
    }
    assert worker_request("messages", body, admitted).keys() == {"messages", "temperature", "stream", "ng_capture"}
    assert worker_request("chat", body, decide(resolved(), has_rows=True))["required_prefix_token_ids"] == []


def test_a_megatron_worker_finds_the_admission_among_its_own_parameters():
    body = {"messages": [USER], "offload_params": {"theirs": 1, "ng_capture": "forged"}, "n": 1}
    admitted = decide(ROOT, has_rows=False)
    assert worker_request("chat", body, admitted, worker="megatron") == {
        "messages": [USER],
        "n": 1,
        "stream": False,
        "offload_params": {"theirs": 1, "ng_capture": admitted.model_dump(mode="json")},
        "logprobs": True,
        "top_logprobs": 0,
    }
    assert worker_request("chat", body, None, worker="megatron")["offload_params"] == {"theirs": 1}


@pytest.mark.parametrize("wrong", [{"n": 2}, {"offload_params": []}, {"offload_params": "x"}])
def test_a_megatron_worker_stages_one_choice_with_an_object_of_parameters(wrong):
    with pytest.raises(Invalid):
        worker_request("chat", {"messages": [USER], **wrong}, decide(ROOT, has_rows=False), worker="megatron")


def test_a_client_cannot_admit_its_own_call():
    forged = {"ng_capture": {"mode": "text"}, "required_prefix_token_ids": [1], "input": "hi"}
    assert worker_request("responses", forged, None) == {"input": "hi", "stream": False}
