# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The same requests, coordinates and answers, given to this package and to nemo-gym's own model server code."""

from __future__ import annotations

import copy
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_objstore.admission import Refusal, admission_for, request_items, worker_request
from gym_objstore.commit import commit_of, served_answer
from gym_objstore.fingerprint import assistant_fingerprint
from gym_objstore.records import LineageMatch, LineageResolution, ParentResolutionStatus
from gym_objstore.sse import EventStream
from gym_objstore.sse_replay import replay
from gym_objstore.staged_calls import admit, failed_coords, staged_coords
from gym_objstore.testing.staged_rollouts import admission, staged_call
from tests.alike import plain, quickly
from tests.test_sse_replay import ANSWERS, EXAMPLES
from tests.transcripts import conversations

if sys.version_info < (3, 12):
    pytest.skip("nemo-gym's model server needs Python 3.12 or newer", allow_module_level=True)

from nemo_gym.anthropic_converter import AnthropicConverter
from nemo_gym.base_responses_api_model import _reconstruct_streamed_response, _request_messages
from nemo_gym.chat_streaming import synthesize_chat_completion_sse
from nemo_gym.responses_streaming import synthesize_responses_sse
from nemo_gym.token_id_capture.external_capture import MegatronWorkerCaptureHandler, VLLMWorkerCaptureHandler
from nemo_gym.token_id_capture.sink import CaptureContext, reset_token_sink, resolve_parent, set_token_sink

PARENT = staged_call("c1")
CHILD = staged_call("c2", after=[PARENT])
MATCH = {"staging_chain": ("k1",), "prev_len": 4, "chain_hash": PARENT.chain_hash}
ASKED = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "said"}, {"role": "user", "content": "on"}]
SERVED = {"id": "a-2", "choices": [{"index": 0, "message": {"role": "assistant", "content": "yo"}}]}
STREAMS: dict[Any, Any] = {
    "chat": lambda answer: synthesize_chat_completion_sse(answer, include_usage=True),
    "messages": AnthropicConverter().anthropic_response_to_sse,
    "responses": synthesize_responses_sse,
}


class Ledger:
    """A ledger of nemo-gym's protocol that keeps what it is told."""

    def __init__(self, match: LineageMatch | None, rows: bool) -> None:
        self.match, self.rows = match, rows
        self.commits: list[Any] = []
        self.failures: list[str] = []

    async def resolve(self, rollout_id, items):
        status = ParentResolutionStatus.UNRESOLVED if self.match is None else ParentResolutionStatus.RESOLVED
        return LineageResolution(status, self.match)

    async def has_rows(self, rollout_id):
        return self.rows

    async def record(self, commit):
        self.commits.append(commit)

    async def record_failure(self, rollout_id, model_call_id, reason):
        self.failures.append(reason)

    async def manifest(self, rollout_id):
        raise NotImplementedError

    async def close(self):
        pass

    @property
    def is_process_shared(self):
        return True


class Gym:
    """nemo-gym's half of one call: resolved, sent, answered."""

    def __init__(self, match: LineageMatch | None = None, *, rows: bool = True) -> None:
        self.ledger = Ledger(match, rows)
        self.context = CaptureContext(
            rollout_id="rollout-1",
            model_call_id="c2",
            token_sink=None,
            lineage_store=self.ledger,
            external_staging=True,
            admitted_at=12.5,
        )

    async def play(self, items: list[Any], request: Any, answer: Any) -> Any:
        token = set_token_sink(self.context)
        handler = VLLMWorkerCaptureHandler()
        try:
            await resolve_parent(items)
            sent = handler.prepare_request(copy.deepcopy(request))
            if answer is not None:
                handler.prepare_response(answer)
                await handler.finalize_response(answer)
        finally:
            reset_token_sink(token)
        return sent


@pytest.mark.parametrize("items", [[ASKED[0]], ASKED], ids=["root", "continuation"])
@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("match", [None, MATCH, {**MATCH, "chain_hash": ""}, {**MATCH, "prev_len": 0}])
async def test_both_admit_the_same_calls_and_send_the_worker_the_same_request(items, rows, match):
    found = None if match is None else LineageMatch("c1", (), "d" * 64, **match)
    gym = Gym(found, rows=rows)
    request = {"messages": items, "temperature": 0.5, "stream": False, "stream_options": {}}
    sent = await gym.play(items, request, None)
    if len(items) == 1:
        resolution = LineageResolution(ParentResolutionStatus.ROOT)
    else:
        resolution = await gym.ledger.resolve("rollout-1", items)
    ours = admission_for("rollout-1", "c2", resolution=resolution, has_rows=rows)
    refused = isinstance(ours, Refusal)
    assert gym.ledger.failures == ([ours.reason] if refused else [])
    assert worker_request("chat", request, None if refused else ours) == sent


@pytest.mark.parametrize("offload", [{}, {"offload_params": None}, {"offload_params": {"theirs": 1}}])
def test_a_megatron_worker_is_asked_as_gym_asks_it(offload):
    ours = admission_for("rollout-1", "c2", resolution=LineageResolution(ParentResolutionStatus.ROOT), has_rows=False)
    request = {"messages": ASKED, "stream": False, **offload}
    sent = MegatronWorkerCaptureHandler()._prepare_admitted_request(request, ours)
    assert worker_request("chat", {"messages": ASKED, **offload}, ours, worker="megatron") == sent


FIELDS = ["model_call_id", "parent_call_id", "prev_len", "delta_len", "cum_len", "digest", "staging_key", "chain_hash"]
WRONG = st.dictionaries(
    st.sampled_from([*FIELDS, "rollout_id", "disposition", "schema_version", "unknown"]),
    st.sampled_from([None, 0, 4, 8, "c1", "k9", "f" * 64, "capture_failed", True]),
    max_size=2,
)
FAILED = failed_coords(admit(admission("c2", after=[PARENT]), 7, None)).model_dump(mode="json")
STAGED = staged_coords(CHILD, "k2").model_dump(mode="json")


@given(base=st.sampled_from([STAGED, FAILED]), wrong=WRONG, identity=st.sampled_from(["a-2", "", None]))
@quickly
def test_both_believe_the_same_coordinates_and_commit_the_same(base, wrong, identity):
    import asyncio

    answer = {**SERVED, "id": identity, "ng_commit_coords": {**base, **wrong}}
    match = LineageMatch("c1", (), "d" * 64, **MATCH)
    gym = Gym(match)
    asyncio.run(gym.play(ASKED, {}, copy.deepcopy(answer)))
    admitted = admission_for(
        "rollout-1", "c2", resolution=LineageResolution(ParentResolutionStatus.RESOLVED, match), has_rows=True
    )
    served = served_answer(answer)
    ours = commit_of(admitted, answer, served=served, request_items=ASKED, admitted_at=12.5)
    if isinstance(ours, Refusal):
        assert (gym.ledger.failures, gym.ledger.commits) == ([ours.reason], [])
    else:
        assert [plain(commit) for commit in gym.ledger.commits] == [plain(ours)]


@pytest.mark.parametrize("dialect", list(ANSWERS))
@given(data=st.data())
@quickly
def test_the_events_of_both_say_the_same_answer(dialect, data):
    answer = data.draw(ANSWERS[dialect])
    try:
        theirs = "".join(STREAMS[dialect](answer)).encode()
    except NotImplementedError:  # kinds of Anthropic blocks that nemo-gym does not stream
        return
    ours = replay(dialect, answer)
    assert said(dialect, ours) == {**said(dialect, theirs), **told_more(dialect, answer)}
    assert reconstructed(dialect, ours) == {**reconstructed(dialect, theirs), **told_more(dialect, answer)}


def said(dialect: Any, stream: bytes) -> Any:
    watched = EventStream(dialect)
    watched.push(stream)
    return watched.finish().response


def reconstructed(dialect: str, stream: bytes) -> Any:
    return _reconstruct_streamed_response(stream, dialect)


def told_more(dialect: str, answer: dict[str, Any]) -> dict[str, Any]:
    """Return what our events carry and nemo-gym's drop: signatures of thinking blocks."""
    return {"content": answer["content"]} if dialect == "messages" else {}


@pytest.mark.parametrize("dialect", list(EXAMPLES))
def test_every_kind_of_event_that_nemo_gym_sends_is_among_ours(dialect):
    def kinds(stream: bytes) -> list[bytes]:
        return [line for line in stream.splitlines() if line.startswith(b"event: ")]

    answer = {**EXAMPLES[dialect]}
    if dialect == "messages":
        answer["content"] = [block for block in answer["content"] if block["type"] != "redacted_thinking"]
    theirs = "".join(STREAMS[dialect](answer)).encode()
    assert set(kinds(theirs)) <= set(kinds(replay(dialect, answer)))


def test_both_read_the_same_conversation_from_real_requests():
    count = 0
    for talk in conversations():
        for call in talk.calls[:4]:
            items = list(call.request_items)
            for dialect, body in (("responses", {"input": items, "instructions": "x"}), ("chat", {"messages": items})):
                body["tools"] = [{"type": "function", "name": "look"}]
                assert request_items(dialect, body) == _request_messages(body)
                count += 1
    assert count > 1_000


def test_both_find_the_same_fingerprint_in_an_anthropic_request():
    content = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "let me look"},
        {"type": "tool_use", "id": "t1", "name": "look", "input": {"q": 1}},
    ]
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "sunny"}]}
    messages = [ASKED[0], {"role": "assistant", "content": content}, {"role": "user", "content": [result]}]
    body = {"model": "m", "max_tokens": 5, "system": "be brief", "messages": messages}
    theirs = _request_messages(AnthropicConverter().anthropic_request_to_responses(body))
    assert assistant_fingerprint(request_items("messages", body)) == assistant_fingerprint(theirs)
