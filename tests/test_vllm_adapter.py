# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Exact tokens are read from the shapes vLLM answers in, and from nothing that only looks like them."""

from __future__ import annotations

from typing import Any

import pytest
from nemo_gym.token_id_capture.adapters.vllm import VLLMCaptureAdapter as GymVLLMCaptureAdapter

from gym_objstore.errors import Invalid
from gym_objstore.rollout_capture import RolloutTokenCapture
from gym_objstore.testing.staged_rollouts import admission
from gym_objstore.wire_staging import StagedCallRecord, StageResult
from gym_objstore_vllm import VLLMCaptureAdapter

ROUTES = "nrlre1:int16:2x1x2:AQACAAMABAA="
SPANS = [{"modality": "image", "start": 3, "length": 576}]
MESSAGE: dict[str, Any] = {
    "role": "assistant",
    "content": "a cat",
    "prompt_token_ids": [1, 2, 151643],
    "generation_token_ids": [3, 4],
    "generation_log_probs": [-0.25, -1],
}


def response(**choice: Any) -> dict[str, Any]:
    """Return a chat completion with one choice of these fields."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": "policy",
        "choices": [{"index": 0, "finish_reason": "stop", **choice}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    }


def with_logprobs(*tokens: Any, **fields: Any) -> dict[str, Any]:
    """Return a completion as ``logprobs`` and ``return_tokens_as_token_ids`` make it."""
    content = [{"token": token, "logprob": -0.25, "bytes": None, "top_logprobs": []} for token in tokens]
    plain = {"role": "assistant", "content": "a cat"}
    return {**response(message=plain, logprobs={"content": content}), "prompt_token_ids": [1, 2], **fields}


SHAPES = {
    "tokens in the message": response(message=MESSAGE),
    "tokens in the log probabilities": with_logprobs("token_id:3", "token_id:151643"),
    "ids without a prefix": with_logprobs("3", "4"),
    "the response's prompt before the message's": {**response(message=MESSAGE), "prompt_token_ids": [7]},
    "routes": response(message={**MESSAGE, "routed_experts": ROUTES}),
    "nested routes": response(message={**MESSAGE, "routed_experts": [[[1, 2]], [[3, 4]]]}),
    "no routes": response(message={**MESSAGE, "routed_experts": None}),
    "media": {**response(message=MESSAGE), "media_spans": SPANS},
    "no media": {**response(message=MESSAGE), "media_spans": []},
    "nothing generated": response(message={**MESSAGE, "generation_token_ids": [], "generation_log_probs": []}),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_is_read_as_nemo_gym_reads_it(shape: str) -> None:
    ours, theirs, payload = VLLMCaptureAdapter(), GymVLLMCaptureAdapter(), SHAPES[shape]
    assert ours.extract_prompt_ids(payload) == theirs.extract_prompt_ids(payload)
    assert ours.extract_generation(payload) == theirs.extract_generation(payload)
    assert ours.extract_extras(payload) == theirs.extract_extras(payload)


def test_tokens_are_those_of_the_response() -> None:
    adapter = VLLMCaptureAdapter()
    assert adapter.extract_prompt_ids(SHAPES["tokens in the message"]) == [1, 2, 151643]
    assert adapter.extract_generation(SHAPES["tokens in the message"]) == ([3, 4], [-0.25, -1.0])
    assert adapter.extract_generation(SHAPES["tokens in the log probabilities"]) == ([3, 151643], [-0.25, -0.25])


def test_extras_are_passed_on_unchanged() -> None:
    payload = {**SHAPES["routes"], "media_spans": SPANS}
    assert VLLMCaptureAdapter().extract_extras(payload) == {"routed_experts": ROUTES, "media_spans": SPANS}
    assert VLLMCaptureAdapter().extract_extras(SHAPES["tokens in the message"]) is None


def test_the_prefix_goes_into_the_request_itself() -> None:
    request = {"model": "policy"}
    assert VLLMCaptureAdapter().enter_prefix(request, [1, 2]) is request
    assert request == {"model": "policy", "required_prefix_token_ids": [1, 2]}


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {**response(message=MESSAGE), "choices": []},
        {**response(message=MESSAGE), "choices": [{"message": MESSAGE}] * 2},
        {**response(message=MESSAGE), "choices": ["text"]},
        {**response(message=MESSAGE), "choices": {"0": {}}},
        response(),
        response(message="a cat"),
        response(message={"content": "a cat"}),
        response(message={"content": "a cat"}, logprobs=[1]),
        response(message={"content": "a cat"}, logprobs={"content": None}),
        response(message={"content": "a cat"}, logprobs={"content": [3]}),
        response(message={**MESSAGE, "generation_log_probs": [-0.25]}),
        response(message={**MESSAGE, "generation_log_probs": [-0.25, None]}),
        response(message={**MESSAGE, "generation_log_probs": [-0.25, "-1"]}),
        response(message={**MESSAGE, "generation_log_probs": [-0.25, True]}),
        response(message={**MESSAGE, "generation_token_ids": None}),
        response(message={**MESSAGE, "generation_token_ids": [3, 4.0]}),
        response(message={**MESSAGE, "generation_token_ids": [3, True]}),
        with_logprobs("a", " cat"),
        with_logprobs("token_id:"),
        with_logprobs("token_id:-1"),
        with_logprobs("token_id:1_0"),
        with_logprobs(" 3"),
        with_logprobs(None),
        with_logprobs("token_id:\u0663"),
    ],
)
def test_a_generation_of_another_shape_is_refused(payload: dict[str, Any]) -> None:
    with pytest.raises(Invalid) as refused:
        VLLMCaptureAdapter().extract_generation(payload)
    assert refused.value.kind == "bad_engine_response"


@pytest.mark.parametrize(
    "payload",
    [
        {},
        response(message={"content": "a cat"}),
        {**response(message=MESSAGE), "prompt_token_ids": "1 2 3"},
        {**response(message=MESSAGE), "prompt_token_ids": [1, 2.5]},
        {**response(message=MESSAGE), "prompt_token_ids": [1, None]},
    ],
)
def test_a_prompt_of_another_shape_is_refused(payload: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        VLLMCaptureAdapter().extract_prompt_ids(payload)


@pytest.mark.parametrize(
    "payload",
    [
        response(message={**MESSAGE, "routed_experts": b"bytes"}),
        response(message={**MESSAGE, "routed_experts": 1}),
        {**response(message=MESSAGE), "media_spans": None},
        {**response(message=MESSAGE), "media_spans": {"start": 1}},
        {**response(message=MESSAGE), "media_spans": [1]},
    ],
)
def test_extras_of_another_shape_are_refused(payload: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        VLLMCaptureAdapter().extract_extras(payload)


class Sink:
    def __init__(self) -> None:
        self.records: list[StagedCallRecord] = []

    def stage(self, record: StagedCallRecord, **_: Any) -> StageResult:
        self.records.append(record)
        return StageResult(ok=True, staging_key="key")


def test_a_response_is_staged_with_its_extras() -> None:
    sink = Sink()
    capture = RolloutTokenCapture(sink=sink, weight_version_fn=lambda: 7, adapter=VLLMCaptureAdapter())
    payload = {**SHAPES["routes"], "media_spans": SPANS}
    coords = capture.complete_call_from_response(capture.begin_call(admission("call-1")), payload)
    assert (coords.disposition, coords.digest) == ("staged", sink.records[0].digest)
    assert sink.records[0].token_ids_delta == (1, 2, 151643, 3, 4)
    assert sink.records[0].extras == {"routed_experts": ROUTES, "media_spans": SPANS}
