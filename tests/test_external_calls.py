# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What becomes of a worker's answer, and the forms in which a client can be sent it."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from gym_objstore.admission import Refusal
from gym_objstore.external_calls import Call, Reply, read_object, serve
from gym_objstore.http_exchange import Answer, Request
from gym_objstore.staged_calls import staged_coords
from gym_objstore.testing.staged_rollouts import admission, staged_call
from gym_objstore.wire_ledger import CaptureLedgerCommit
from tests.test_sse_replay import EXAMPLES, read

JSON = [(b"content-type", b"application/json"), (b"content-length", b"9"), (b"x-request-id", b"7")]
COORDS = staged_coords(staged_call("c1"), "k1").model_dump(mode="json")


def call(dialect: Any = "chat", *, admitted: bool = True, **body: Any) -> Call:
    return Call("rollout-1", "c1", dialect, 12.5, body, [], admission("c1") if admitted else None)


def answered(document: Any, status: int = 200, headers: Any = JSON) -> Answer:
    return Answer(status, headers, json.dumps(document).encode())


def test_a_call_knows_what_its_client_asked_for():
    asked = call(stream=True, stream_options={"include_usage": True})
    assert (asked.streaming, asked.with_usage) == (True, True)
    assert [call(stream=value).streaming for value in (False, None, "true", 1)] == [False] * 4
    assert [call(stream_options=value).with_usage for value in (None, "x", {}, {"include_usage": 0})] == [False] * 4
    unread = Call("r", "c", "chat", 1.0, None)
    assert (unread.streaming, unread.with_usage) == (False, False)


def test_a_whole_answer_loses_its_internal_fields_and_keeps_its_headers():
    found = serve(call(), answered({**EXAMPLES["chat"], "ng_commit_coords": COORDS}))
    assert json.loads(found.answer.body) == EXAMPLES["chat"]
    assert found.answer.headers[0] == (b"x-request-id", b"7")
    assert (b"content-length", str(len(found.answer.body)).encode()) in found.answer.headers
    assert isinstance(found.outcome, CaptureLedgerCommit)
    assert not found.events


@pytest.mark.parametrize("dialect", list(EXAMPLES))
def test_a_streamed_answer_says_the_same_in_events(dialect):
    found = serve(call(dialect, stream=True), answered({**EXAMPLES[dialect], "ng_commit_coords": COORDS}))
    assert found.events
    assert read(dialect, found.answer.body).terminal == "complete"
    headers = dict(found.answer.headers)
    assert headers[b"content-type"] == b"text/event-stream; charset=utf-8"
    assert headers[b"content-length"] == str(len(found.answer.body)).encode()
    assert isinstance(found.outcome, CaptureLedgerCommit)
    assert found.outcome.record.response_id == EXAMPLES[dialect]["id"]


def test_usage_is_streamed_only_if_it_was_asked_for():
    plain = serve(call(stream=True), answered(EXAMPLES["chat"])).answer.body
    asked = serve(call(stream=True, stream_options={"include_usage": True}), answered(EXAMPLES["chat"])).answer.body
    assert (b'"usage"' in plain, b'"usage"' in asked) == (False, True)


def test_errors_and_other_bodies_are_left_as_they_came():
    refused = answered({"ng_commit_coords": 1}, 500)
    assert serve(call(stream=True), refused).answer is refused
    assert serve(call(), refused).outcome.reason == "request_finished_without_staged_coordinates"
    for odd in (Answer(200, JSON, b"text"), answered([1])):
        assert serve(call(stream=True), odd).answer is odd
        assert serve(call(), odd).outcome.reason == "worker_response_missing_commit_coordinates"


def test_an_answer_that_cannot_be_converted_is_a_failed_stream_and_no_commit():
    found = serve(call("responses", stream=True), answered({"id": "x", "ng_commit_coords": COORDS}))
    assert found.outcome.reason == "request_finished_without_staged_coordinates"
    stream = read("responses", found.answer.body)
    assert (stream.terminal, stream.response["id"], found.events) == ("error", "resp_c1", True)


def test_a_call_that_was_not_admitted_commits_nothing():
    found = serve(call(admitted=False), answered({**EXAMPLES["chat"], "ng_commit_coords": COORDS}))
    assert isinstance(found.outcome, Refusal)
    assert json.loads(found.answer.body) == EXAMPLES["chat"]


def test_a_compressed_answer_is_read():
    body = gzip.compress(json.dumps({**EXAMPLES["chat"], "ng_commit_coords": COORDS}).encode())
    found = serve(call(), Answer(200, [(b"content-encoding", b"gzip")], body))
    assert json.loads(found.answer.body) == EXAMPLES["chat"]
    assert b"content-encoding" not in dict(found.answer.headers)


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{"a": 1}', {"a": 1}),
        (b'{"a": NaN, "b": "\\ud800"}', {"a": None, "b": "\ufffd"}),
        (b'{"a": %d}' % 2**70, {"a": float(2**70)}),
        (b"[" * 300 + b"]" * 300, None),
        (b"[1]", None),
        (b"", None),
        (b"\xff", None),
    ],
)
def test_only_a_json_object_is_read_and_as_every_reader_reads_it(body, value):
    assert read_object(Request([], body)) == value


class Client:
    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    async def __call__(self, event: Any) -> None:
        self.events.append(event)

    @property
    def body(self) -> bytes:
        return b"".join(event.get("body", b"") for event in self.events)


@pytest.fixture
def client():
    return Client()


async def test_a_reply_that_was_not_begun_is_the_answer(client):
    await Reply(client, "chat", "r").send(answered({"a": 1}, 418))
    assert client.events == [
        {"type": "http.response.start", "status": 418, "headers": JSON},
        {"type": "http.response.body", "body": b'{"a": 1}', "more_body": False},
    ]


@pytest.mark.parametrize(
    ("dialect", "error"),
    [
        ("chat", {"error": {"message": "why", "type": "server_error"}}),
        ("responses", {"error": {"message": "why", "type": "server_error"}}),
        ("messages", {"type": "error", "error": {"type": "api_error", "message": "why"}}),
    ],
)
async def test_a_refusal_has_the_form_of_the_dialect(client, dialect, error):
    await Reply(client, dialect, "r").refuse(503, "why")
    assert json.loads(client.body) == error
    assert client.events[0]["status"] == 503
    assert (b"retry-after", b"1") in client.events[0]["headers"]


@pytest.mark.parametrize("dialect", list(EXAMPLES))
async def test_a_reply_that_was_kept_alive_ends_as_a_stream(client, dialect):
    reply = Reply(client, dialect, "r")
    await reply.keep_alive()
    await reply.keep_alive()
    await reply.send(answered({"error": "busy"}, 429))
    await reply.refuse(500, "too late")
    assert [event.get("more_body") for event in client.events] == [None, True, True, False]
    assert client.body.startswith(b": keep-alive\n\n: keep-alive\n\n")
    assert b"HTTP 429: busy" in client.body
    assert read(dialect, client.body).terminal == "error"


async def test_events_follow_what_kept_the_stream_alive(client):
    reply = Reply(client, "chat", "r")
    await reply.keep_alive()
    await reply.send(serve(call(stream=True), answered(EXAMPLES["chat"])).answer, events=True)
    assert read("chat", client.body).terminal == "complete"


@pytest.mark.parametrize("body", [b"", b"text", b"[]", b"{}", b'{"error": null}', b'{"error": {}}'])
async def test_an_error_without_words_tells_its_status(client, body):
    reply = Reply(client, "messages", "r")
    await reply.keep_alive()
    await reply.send(Answer(502, [], body))
    assert b"HTTP 502: the model server refused the call" in client.body
