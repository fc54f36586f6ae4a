# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What passes and what waits, what is recorded, and that nothing about capturing ever reaches the client."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import logging
import threading
import time
from typing import Any

import httpx
import pytest

from gym_objstore import CaptureLedger, middleware_call, middleware_copies, middleware_recording
from gym_objstore.capture_store import CaptureStore
from gym_objstore.correlation import SCOPE_KEY, parse_path
from gym_objstore.errors import Invalid, Unavailable
from gym_objstore.external_capture import ExternalCapture
from gym_objstore.middleware import CaptureMiddleware
from gym_objstore.middleware_recording import CAPTURE_SECONDS
from tests.asgi_calls import DONE, EVENTS, HELLO, JSON, PATHS, Played, body, start
from tests.model_server import ModelServer
from tests.places import place_of

ANSWER = b'{"id": "c1", "choices": []}'
SECRET = "sk-verysecretverysecret"
ENDS = {
    "responses": b'event: response.completed\ndata: {"type":"response.completed","response":{"id":"r1"}}\n\n',
    "chat": DONE,
    "messages": b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
}
STARTS = {
    "responses": b'event: response.created\ndata: {"type":"response.created","response":{"id":"r0"}}\n\n',
    "chat": HELLO,
    "messages": b'event: message_start\ndata: {"type":"message_start","message":{"id":"m1"}}\n\n',
}
each = pytest.mark.parametrize("dialect", list(PATHS))


def streamed(*chunks: bytes) -> list[Any]:
    return [start(EVENTS), *(body(chunk) for chunk in chunks), body(b"", more=False)]


class Leaving(Played):
    """The client leaves before the first bytes of the answer."""

    async def send(self, message: Any) -> None:
        if "body" in message:
            raise BrokenPipeError
        await super().send(message)


async def until(condition: Any) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.001)


# What passes at once, and what waits until the capture is durable


@each
async def test_of_a_stream_only_the_terminal_event_waits(dialect):
    played = await Played(*streamed(STARTS[dialect], ENDS[dialect])).run(f"/ng-rollout/0-0{PATHS[dialect]}")
    begun = ["http.response.start", STARTS[dialect]]
    assert played.steps == [*begun, "recording", "durable", ENDS[dialect]]
    assert played.store.record["response"]["id"] == {"responses": "r1", "chat": "c1", "messages": "m1"}[dialect]
    assert played.store.record["error_category"] is None


async def test_what_stands_before_the_terminal_event_in_its_chunk_passes_at_once():
    played = await Played(start(EVENTS), body(HELLO + DONE, more=False)).run()
    assert played.steps == ["http.response.start", HELLO, "recording", "durable", DONE]
    assert [message["more_body"] for message in played.sent[1:]] == [True, False]


async def test_of_a_json_response_the_last_message_waits():
    played = await Played(start(), body(ANSWER[:5]), body(ANSWER[5:], more=False)).run()
    assert played.steps == ["http.response.start", ANSWER[:5], "recording", "durable", ANSWER[5:]]
    assert played.store.record["response"] == {"id": "c1", "choices": []}


@pytest.mark.parametrize("headers", [JSON, EVENTS])
async def test_the_last_byte_of_a_known_length_waits_though_an_empty_message_follows(headers):
    length = (b"Content-Length", str(len(ANSWER)).encode())
    played = await Played(start([*headers, length]), body(ANSWER), body(b"", more=False)).run()
    assert played.steps == ["http.response.start", "recording", "durable", ANSWER, b""]


async def test_a_compressed_stream_waits_in_whole_chunks():
    packed = gzip.compress(HELLO), gzip.compress(HELLO + DONE)
    played = await Played(
        start([*EVENTS, (b"content-encoding", b"gzip")]), *map(body, packed), body(b"", more=False)
    ).run()
    assert played.steps == ["http.response.start", packed[0], "recording", "durable", packed[1]]
    assert played.store.record["response"]["choices"][0]["message"]["content"] == "HiHi"
    assert played.store.record["response_raw"] == (HELLO + HELLO + DONE).decode()


async def test_a_stream_in_an_unknown_encoding_passes_and_is_kept_as_it_came():
    played = await Played(
        start([*EVENTS, (b"content-encoding", b"br")]), body(b"\xffpacked"), body(b"", more=False)
    ).run()
    assert played.got == b"\xffpacked"
    assert played.store.record["error_category"] == "capture_parse_error"
    assert played.store.record["response_base64"] == "/3BhY2tlZA=="
    assert played.store.record["latency_ttft_ms"] is not None


async def test_a_terminal_event_waits_for_a_stream_that_stays_open_only_so_long(monkeypatch):
    monkeypatch.setattr(middleware_call, "END_SECONDS", 0.01)
    late = asyncio.Event()
    played = Played(start(EVENTS), body(HELLO), body(DONE), late, body(b": late\n\n"), body(b"", more=False))
    running = asyncio.create_task(played.run())
    await until(lambda: DONE in played.steps)
    late.set()
    await running
    assert played.steps == ["http.response.start", HELLO, "recording", "durable", DONE, b": late\n\n", b""]
    assert played.store.record["response_raw"] == (HELLO + DONE).decode()


async def test_what_waits_is_not_sent_to_a_call_that_is_cancelled_while_its_stream_stays_open(monkeypatch):
    monkeypatch.setattr(middleware_call, "END_SECONDS", 0.01)
    played = Played(start(EVENTS), body(HELLO + DONE), asyncio.Event())
    played.store.gate = asyncio.Event()
    running = asyncio.create_task(played.run())
    await until(lambda: "recording" in played.steps)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    played.store.gate.set()
    await played.store.drain()
    await asyncio.sleep(0.01)
    assert played.got == HELLO


async def test_a_request_may_be_read_after_the_response():
    heard = []
    played = Played(client=[])

    async def app(scope, receive, send):
        await send(start())
        await send(body(ANSWER, more=False))
        heard.append(await receive())

    played.client = [{"type": "http.request", "body": b"late"}]
    played.middleware = CaptureMiddleware(app, played.store)
    await played.run()
    assert heard == [{"type": "http.request", "body": b"late"}]
    assert played.store.record["request"] is None


async def test_a_server_that_goes_on_after_its_terminal_event_is_recorded_and_let_go(monkeypatch):
    monkeypatch.setattr(middleware_call, "HELD_BYTES", 50)
    more = b": and on\n\n" * 3
    played = await Played(start(EVENTS), *map(body, [HELLO, DONE, more, more, more]), body(b"", more=False)).run()
    assert played.steps == ["http.response.start", HELLO, "recording", "durable", DONE + more + more, more, b""]


async def test_a_stream_that_ends_without_its_terminal_event_ends_when_it_is_recorded():
    played = await Played(*streamed(HELLO)).run()
    assert played.steps == ["http.response.start", HELLO, "recording", "durable", b""]
    assert played.store.record["error_category"] == "stream_truncated"
    assert played.store.record["response"]["choices"][0]["message"]["content"] == "Hi"


async def test_files_that_a_server_would_send_by_itself_are_sent_as_messages():
    played = Played(start(), body(ANSWER, more=False))
    await played.run(extensions={"http.response.pathsend": {}, "http.response.trailers": {}})
    assert played.scopes[0]["extensions"] == {"http.response.trailers": {}}


async def test_trailers_come_after_the_end():
    trailers = {"type": "http.response.trailers", "headers": []}
    played = await Played({**start(), "trailers": True}, body(ANSWER, more=False), trailers).run()
    assert played.steps == ["http.response.start", "recording", "durable", ANSWER, "http.response.trailers"]


# Which requests are recorded


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/ng-rollout/", "/ng-rollout/0-0", "/other"])
async def test_a_request_without_the_prefix_passes_untouched(path):
    scope = {"type": "http", "method": "POST", "path": path, "headers": []}
    played = Played(start(), body(ANSWER, more=False))
    await played.middleware(scope, played.receive, played.send)
    assert played.scopes[0] is scope
    assert played.sent == [start(), body(ANSWER, more=False)]
    assert played.store.steps == ["http.response.start", ANSWER]


@pytest.mark.parametrize("path", ["/v1/models", "/v1/chat/completions/", "/health"])
async def test_a_prefixed_path_that_is_not_observed_loses_its_prefix_and_is_not_recorded(path):
    played = await Played(start(), body(ANSWER, more=False)).run(f"/ng-rollout/0-0{path}")
    assert played.scopes[0]["path"] == path
    assert played.steps == ["http.response.start", ANSWER]


async def test_the_prefix_of_training_calls_is_stripped_too_and_left_for_those_within():
    prefix = "/ng-rollout/a%20b/training-token-capture"
    played = Played(start(), body(ANSWER, more=False))
    await played.run("/ng-rollout/a b/training-token-capture/v1/messages", raw_path=f"{prefix}/v1/messages".encode())
    scope = played.scopes[0]
    assert (scope["path"], scope["raw_path"]) == ("/v1/messages", b"/v1/messages")
    assert scope[SCOPE_KEY].token_capture
    assert [rollout for rollout, _ in played.store.records] == ["a b"]
    assert played.store.record["dialect"] == "messages"


@pytest.mark.parametrize("method", ["GET", "OPTIONS", "HEAD"])
async def test_observed_is_a_path_with_any_method_as_in_gym(method):
    played = await Played(start(status=405), body(b"", more=False)).run(method=method)
    assert (played.store.record["status_code"], played.store.record["error_category"]) == (405, "client_error")


async def test_a_call_that_passes_two_of_them_is_recorded_by_the_outer_one():
    played = Played(start(), body(ANSWER, more=False))
    played.middleware = CaptureMiddleware(played.middleware, played.store, call_ids=lambda: "outer")
    await played.run()
    assert played.store.record["model_call_id"] == "outer"
    assert played.scopes[0]["path"] == "/v1/chat/completions"


async def test_a_call_whose_prefix_another_middleware_has_stripped_is_recorded():
    played = Played(start(), body(ANSWER, more=False))
    await played.run("/v1/messages", **{SCOPE_KEY: parse_path("/ng-rollout/0-0/v1/messages")})
    assert [rollout for rollout, _ in played.store.records] == ["0-0"]


async def test_a_redirect_keeps_its_prefix():
    moved = start([(b"location", b"/v1/models/")], status=307)
    played = await Played(moved, body(b"", more=False)).run("/ng-rollout/0-0/v1/models")
    assert played.sent[0]["headers"] == [(b"location", b"/ng-rollout/0-0/v1/models/")]


@pytest.mark.parametrize("kind", ["lifespan", "websocket"])
async def test_other_protocols_pass(kind):
    seen = []

    async def app(scope, receive, send):
        seen.append(scope)

    scope = {"type": kind, "path": "/ng-rollout/0-0/v1/responses"}
    await CaptureMiddleware(app, Played().store)(scope, None, None)
    assert seen == [scope]


async def test_a_server_stops_when_its_records_are_durable():
    played = Played(start(), asyncio.CancelledError())
    with pytest.raises(asyncio.CancelledError):
        await played.run()
    played.answer = ({"type": "lifespan.shutdown.complete"},)
    await played.middleware({"type": "lifespan"}, played.receive, played.send)
    assert played.steps == ["http.response.start", "recording", "durable", "lifespan.shutdown.complete"]


async def test_a_server_stops_though_its_store_is_closed(request):
    store = CaptureStore(**place_of("memory", request))
    await store.close()
    played = Played({"type": "lifespan.shutdown.complete"}, client=[])
    await CaptureMiddleware(played.app, store)({"type": "lifespan"}, played.receive, played.send)
    assert played.steps == ["lifespan.shutdown.complete"]


async def test_an_id_that_is_none_passes_and_is_logged_once(caplog):
    played = Played(start(), body(ANSWER, more=False))
    played.store.error = played.store.mark_error = Invalid("no id", kind="bad_id")
    await played.run("/ng-rollout/\udcff\n/v1/responses")
    await played.store.drain()
    assert played.got == ANSWER
    (line,) = caplog.messages
    assert "rollout_id=\\udcff\\n, " in line


# The record


async def test_a_record_has_every_field():
    times = iter([100.0, 101.5])

    async def note(scope, send):
        scope["state"]["nemo_gym_model_execution"] = {
            "upstream_attempted": True,
            "response_source": "upstream",
            "upstream_status_code": 200,
            "local_response_reason": None,
        }

    request = [
        {"type": "http.request", "body": b'{"model"', "more_body": True},
        {"type": "http.request", "body": b': "m"}'},
    ]
    answer = note, start(), body(ANSWER, more=False)
    played = Played(*answer, client=request, model_server_name="policy", clock=lambda: next(times))
    await played.run(headers=[(b"X-Session-Id", b"s1")], state={"app": 1})
    record = dict(played.store.record)
    assert 0 <= record.pop("latency_ttft_ms") <= record.pop("latency_ms")
    assert record == {
        "model_call_id": "call-1",
        "dialect": "chat",
        "model_ref": {"type": "responses_api_models", "name": "policy"},
        "started_at": 100.0,
        "completed_at": 101.5,
        "status_code": 200,
        "error_category": None,
        "request": {"model": "m"},
        "response": {"id": "c1", "choices": []},
        "client_session_id": "s1",
        "upstream_attempted": True,
        "response_source": "upstream",
        "upstream_status_code": 200,
        "local_response_reason": None,
    }


@pytest.mark.parametrize("state", [object(), {"nemo_gym_model_execution": "text"}, None])
async def test_state_that_is_something_else_is_not_read(state):
    played = await Played(start(), body(ANSWER, more=False)).run(state=state)
    assert played.store.record["response"] == {"id": "c1", "choices": []}


async def test_comments_before_the_first_token_are_no_output():
    played = await Played(start(EVENTS), body(b": keep-alive\n\n"), body(b"", more=False)).run()
    assert played.store.record["latency_ttft_ms"] is None


async def test_an_application_that_raises_is_recorded_with_what_the_error_says_and_raises():
    class StatusError(Exception):
        status = 429
        response_content = b"slow down"

    with pytest.raises(StatusError):
        await (played := Played(StatusError())).run()
    record = played.store.record
    assert (record["status_code"], record["error_category"], record["response_raw"]) == (429, "rate_limit", "slow down")


async def test_an_application_that_raises_in_a_stream_leaves_what_it_said_to_the_client_and_the_record():
    with pytest.raises(TimeoutError):
        await (played := Played(start(EVENTS), body(HELLO + b"data: [DO"), TimeoutError())).run()
    assert played.steps == ["http.response.start", HELLO, "recording", "durable", b"data: [DO"]
    assert played.store.record["error_category"] == "timeout"
    assert played.store.record["response_raw"] == HELLO.decode() + "data: [DO"


async def test_an_error_after_a_complete_response_is_not_the_calls():
    with pytest.raises(ValueError, match="cleanup"):
        await (played := Played(start(), body(ANSWER, more=False), ValueError("cleanup"))).run()
    assert played.store.record["error_category"] is None


async def test_an_application_that_answers_nothing_is_recorded():
    played = await Played().run()
    assert (played.store.record["status_code"], played.store.record["error_category"]) == (None, None)


# Cancelled calls and clients that left


@pytest.mark.parametrize("cancel_at", range(7))
async def test_a_call_cancelled_anywhere_is_recorded_and_stays_cancelled(cancel_at):
    held = [asyncio.Event() for _ in range(7)]
    chunks = [
        start(EVENTS),
        body(HELLO),
        body(b"data: [DO"),
        body(b"NE]\n\n"),
        body(b": end\n\n"),
        body(b"", more=False),
    ]
    answer = [held[0], *(step for pair in zip(chunks, held[1:], strict=True) for step in pair)]
    played = Played(*answer)
    for event in held[:cancel_at]:
        event.set()
    running = asyncio.create_task(played.run())
    await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await played.store.drain()
    complete = cancel_at == 6
    assert played.store.record["error_category"] == (None if complete else "cancelled")
    assert (DONE + b": end\n\n" in played.got) is complete
    assert played.store.marks == []


@pytest.mark.parametrize("answer", [[start(), body(ANSWER, more=False)], streamed(HELLO, DONE)])
async def test_a_call_cancelled_while_its_capture_is_written_is_recorded_once(answer):
    played = Played(*answer)
    played.store.gate = asyncio.Event()
    running = asyncio.create_task(played.run())
    await until(lambda: "recording" in played.steps)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not await played.store.drain(timeout=0.01)
    played.store.gate.set()
    assert await played.store.drain()
    assert played.store.record["error_category"] is None


@pytest.mark.parametrize("during", ["receive", "send"])
async def test_a_call_cancelled_in_the_servers_own_code_is_recorded(during):
    played, stuck = Played(start(), body(ANSWER, more=False)), asyncio.Event()

    async def hang(*_):
        stuck.set()
        await asyncio.Event().wait()

    setattr(played, during, hang)
    running = asyncio.create_task(played.run())
    await stuck.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await played.store.drain()
    assert played.store.record["error_category"] == "cancelled"


async def test_a_client_that_left_before_the_end_cancelled_its_call():
    client = [{"type": "http.request", "body": b"{}"}, {"type": "http.disconnect"}]
    played = await Played(start(EVENTS), body(HELLO), client=client).run()
    assert played.store.record["error_category"] == "cancelled"
    assert played.store.record["response_raw"] == HELLO.decode()


async def test_a_framework_that_ends_the_stream_of_a_client_that_left_did_not_complete_it():
    client = [{"type": "http.request", "body": b"{}"}, {"type": "http.disconnect"}]
    played = await Played(start(EVENTS), body(HELLO), body(b"", more=False), client=client).run()
    assert played.store.record["error_category"] == "cancelled"


@pytest.mark.parametrize("more", [True, False])
async def test_a_client_that_left_takes_nothing_from_a_stream_whose_terminal_event_was_said(more):
    client = [{"type": "http.request", "body": b"{}"}, {"type": "http.disconnect"}]
    played = await Played(start(EVENTS), body(HELLO + DONE, more=more), client=client).run()
    assert played.store.record["error_category"] is None
    assert played.got == HELLO + DONE


async def test_a_client_that_left_takes_nothing_from_a_response_that_is_complete():
    client = [{"type": "http.request", "body": b"{}"}, {"type": "http.disconnect"}]
    played = await Played(start(), body(ANSWER, more=False), client=client).run()
    assert played.store.record["error_category"] is None


async def test_a_server_that_says_the_client_left_is_recorded_as_cancelled():
    played = Played(start(EVENTS), body(HELLO))
    played.send_error = BrokenPipeError()
    with pytest.raises(BrokenPipeError):
        await played.run()
    assert played.store.record["error_category"] == "cancelled"


async def test_a_client_that_left_before_a_terminal_event_that_was_said_takes_nothing_from_it():
    with pytest.raises(BrokenPipeError):
        await (played := Leaving(start(EVENTS), body(HELLO + DONE, more=False))).run()
    assert played.store.record["error_category"] is None
    assert played.store.record["response"]["id"] == "c1"


async def test_an_application_that_gives_up_sending_and_goes_on_breaks_no_order(monkeypatch):
    monkeypatch.setattr(middleware_call, "HELD_BYTES", 20)

    async def impatient(scope, send):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(send(body(b": end\n\n" * 10)), 0.01)
        played.store.gate.set()

    played = Played(start(EVENTS), body(HELLO + DONE), impatient, body(b": more\n\n"), body(b"", more=False))
    played.store.gate = asyncio.Event()
    await played.run()
    assert played.got == HELLO + DONE + b": end\n\n" * 10 + b": more\n\n"
    assert played.steps.index("durable") < len(played.steps) - 3


async def test_a_client_that_left_when_its_capture_was_durable_changes_nothing():
    played = Played(start(), body(ANSWER, more=False))

    async def leave(scope, send):
        played.send_error = ConnectionResetError()

    played.answer = (start(), leave, body(ANSWER, more=False))
    with pytest.raises(ConnectionResetError):
        await played.run()
    assert played.store.record["error_category"] is None


# A store that is slow, fails, or hangs


@pytest.mark.parametrize("answer", [[start(), body(ANSWER, more=False)], streamed(HELLO, DONE)])
async def test_a_failing_store_costs_a_marker_and_nothing_else(answer, caplog):
    played = Played(*answer)
    played.store.error = Unavailable(f"the store is down, it said {SECRET}", kind="unreachable")
    await played.run()
    await played.store.drain()
    assert played.got == b"".join(message.get("body", b"") for message in answer)
    assert played.store.marks == [("0-0", "call-1", "unreachable")]
    assert caplog.messages == []  # the store says what it marks


async def test_a_marker_that_fails_too_is_logged(caplog):
    played = Played(start(), body(ANSWER, more=False))
    played.store.error, played.store.mark_error = RuntimeError(SECRET), RuntimeError(SECRET)
    await played.run()
    await played.store.drain()
    assert played.got == ANSWER
    assert "lost without a marker, rollout_id=0-0, model_call_id=call-1, reason=RuntimeError" in caplog.text
    assert SECRET not in caplog.text


async def test_a_store_that_hangs_delays_a_call_for_the_bound_and_not_for_ever(monkeypatch):
    monkeypatch.setattr(middleware_recording, "_GRACE_SECONDS", 0.01)
    played = Played(*streamed(HELLO, DONE), within=0.05)
    played.store.gate = asyncio.Event()
    await played.run()
    assert played.steps[:4] == ["http.response.start", HELLO, "recording", DONE]
    assert await played.store.drain()
    assert played.store.marks == [("0-0", "call-1", "TimeoutError")]
    assert played.store.within == [pytest.approx(0.04)]


async def test_a_call_waits_only_once_for_its_record(monkeypatch):
    waits, wait = [], asyncio.wait

    async def noted(*arguments, **options):
        waits.append(options["timeout"])
        return await wait(*arguments, **options)

    monkeypatch.setattr(middleware_call.asyncio, "wait", noted)
    played = Played(*streamed(HELLO, DONE), within=0.05)
    played.store.gate = asyncio.Event()
    await played.run()
    assert 0 < waits[0] <= 0.05
    assert waits[1:] == [0]
    played.store.gate.set()
    await played.store.drain()


async def test_the_bound_is_five_seconds_of_which_the_store_has_four():
    assert CAPTURE_SECONDS == 5.0
    played = await Played(start(), body(ANSWER, more=False)).run()
    assert played.store.within == [4.0]


async def test_a_record_that_cannot_be_built_costs_a_marker(monkeypatch, caplog):
    def broken(exchange):
        raise ValueError(SECRET)

    monkeypatch.setattr(middleware_recording, "capture_record", broken)
    played = await Played(start(), body(ANSWER, more=False)).run()
    await played.store.drain()
    assert (played.got, played.store.marks) == (ANSWER, [("0-0", "call-1", "ValueError")])
    assert SECRET not in caplog.text


async def test_a_store_that_is_closed_fails_no_call(request):
    store = CaptureStore(**place_of("memory", request))
    await store.close()
    played = Played(start(), body(ANSWER, more=False))
    played.middleware = CaptureMiddleware(played.app, store)
    await played.run()
    assert played.got == ANSWER


async def test_no_more_records_are_under_way_than_the_bound_and_all_land(monkeypatch):
    played = Played(start(), body(ANSWER, more=False), client=[])
    monkeypatch.setattr(played.middleware._recorder, "_turn", middleware_recording.Gate(3))
    played.store.gate = asyncio.Event()
    running = [asyncio.create_task(played.run()) for _ in range(10)]
    await until(lambda: played.store.busy == 3)
    played.store.gate.set()
    await asyncio.gather(*running)
    assert (played.store.busiest, len(played.store.records)) == (3, 10)


async def test_a_record_whose_turn_does_not_come_is_marked(monkeypatch):
    played = Played(start(), body(ANSWER, more=False), within=0.05)
    monkeypatch.setattr(played.middleware._recorder, "_turn", middleware_recording.Gate(0))
    await played.run()
    await played.store.drain()
    assert (played.got, played.store.marks) == (ANSWER, [("0-0", "call-1", "TimeoutError")])


async def test_a_loop_that_ends_leaves_a_marker_for_what_it_cut_off():
    played = Played(start(), body(ANSWER, more=False))

    async def serve():
        played.store.gate = asyncio.Event()
        running = asyncio.create_task(played.run())
        await until(lambda: "recording" in played.steps)
        running.cancel()

    await asyncio.to_thread(asyncio.run, serve())
    assert played.store.marks == [("0-0", "call-1", "CancelledError")]


async def test_one_middleware_serves_many_loops():
    played = Played(start(), body(ANSWER, more=False), client=[])
    for _ in range(3):
        await asyncio.to_thread(asyncio.run, played.run())
    assert len(played.store.records) == 3


# Large bodies


async def test_large_bodies_are_copied_to_disk_and_recorded_whole():
    text = "x" * 3 * 2**20
    request = [{"type": "http.request", "body": b'{"a": "', "more_body": True}]
    request += [
        {"type": "http.request", "body": text.encode(), "more_body": True},
        {"type": "http.request", "body": b'"}'},
    ]
    answer = json.dumps({"b": text}).encode()
    pieces = [answer[at : at + 65536] for at in range(0, len(answer), 65536)]
    played = await Played(start(), *map(body, pieces), body(b"", more=False), client=request).run()
    assert played.got == answer
    assert (played.store.record["request"], played.store.record["response"]) == ({"a": text}, {"b": text})


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_body_without_end_passes_and_leaves_the_rest_of_its_record_and_a_marker(monkeypatch, streaming):
    monkeypatch.setattr(middleware_copies, "COPY_BYTES", 1000)
    chunks = [HELLO] * 20 + [DONE] if streaming else [b"x" * 100] * 20
    played = await Played(start(EVENTS if streaming else JSON), *map(body, chunks), body(b"", more=False)).run()
    await played.store.drain()
    assert played.got == b"".join(chunks)
    assert played.store.record["response"] is None
    assert played.store.record["request"] == {}
    assert played.store.record["error_category"] is None
    assert played.store.marks == [("0-0", "call-1", "body_not_kept")]


async def test_a_full_disk_costs_the_body_and_nothing_else(monkeypatch):
    closed = []

    class Full:
        def __init__(self, **_):
            pass

        def write(self, chunk):
            raise OSError(28, "no space left on device")

        def close(self):
            closed.append(self)

    monkeypatch.setattr(middleware_copies, "SpooledTemporaryFile", Full)
    played = await Played(start(), body(ANSWER, more=False)).run()
    await played.store.drain()
    assert played.got == ANSWER
    assert played.store.marks == [("0-0", "call-1", "body_not_kept")]
    assert len(set(map(id, closed))) == 2


@pytest.mark.parametrize(
    ("size", "headers", "thread"),
    [
        (100, JSON, "MainThread"),
        (100, [(b"content-encoding", b"identity")], "gym-objstore-captures"),
        (20_000, JSON, "gym-objstore-captures"),
        (5_000_000, JSON, "gym-objstore-large-captures"),
    ],
)
async def test_a_record_is_built_where_its_size_does_not_hold_others_up(monkeypatch, size, headers, thread):
    names, build = [], middleware_recording.capture_record

    def noted(exchange):
        names.append(threading.current_thread().name)
        time.sleep(0.1)  # longer than a call may wait, which costs no record that is on its way
        return build(exchange)

    monkeypatch.setattr(middleware_recording, "capture_record", noted)
    played = await Played(start(headers), body(b"x" * size, more=False), within=0.05).run()
    await played.store.drain()
    assert [name.rstrip("_0") for name in names] == [thread]
    assert played.store.record["response_raw"] == "x" * size
    assert played.store.marks == []


async def test_fewer_large_records_are_under_way_at_a_time(monkeypatch):
    monkeypatch.setattr(middleware_recording, "LARGE_BYTES", 10)
    played = Played(start(), body(ANSWER, more=False), client=[])
    played.store.gate = asyncio.Event()
    running = [asyncio.create_task(played.run()) for _ in range(6)]
    await until(lambda: played.store.busy == 2)
    played.store.gate.set()
    await asyncio.gather(*running)
    assert (played.store.busiest, len(played.store.records)) == (2, 6)


# With the real store


@pytest.mark.parametrize("kind", ["memory", "file"])
@each
async def test_captures_are_read_back_from_the_store(kind, dialect, request):
    store = CaptureStore(**place_of(kind, request))
    played = Played(*streamed(STARTS[dialect], ENDS[dialect]))
    played.middleware = CaptureMiddleware(played.app, store)
    await played.run(f"/ng-rollout/0-0{PATHS[dialect]}")
    (record,) = await store.read_async("0-0")
    assert record["dialect"] == dialect
    assert record["response_raw"].encode() == STARTS[dialect] + ENDS[dialect] == played.got
    assert not await store.is_incomplete_async("0-0")
    await store.close()


async def test_a_cancelled_call_is_waited_for_by_the_stores_drain(request):
    store = CaptureStore(**place_of("file", request))
    played = Played(start(), body(b"x" * 100_000), asyncio.CancelledError())
    played.middleware = CaptureMiddleware(played.app, store)
    with pytest.raises(asyncio.CancelledError):
        await played.run()
    assert await store.drain("0-0", timeout=10)
    assert [record["error_category"] for record in await store.read_async("0-0")] == ["cancelled"]
    await store.close()


async def test_a_redaction_that_fails_keeps_the_record_out_and_marks(request, caplog):
    caplog.set_level(logging.DEBUG)

    def redact(record):
        raise ValueError(record["response"]["id"])

    store = CaptureStore(**place_of("file", request), redact=redact)
    played = Played(start(), body(json.dumps({"id": SECRET}).encode(), more=False))
    played.middleware = CaptureMiddleware(played.app, store)
    await played.run()
    await store.drain(timeout=10)
    assert await store.read_async("0-0") == []
    assert await store.is_incomplete_async("0-0")
    assert SECRET not in caplog.text
    await store.close()


async def test_before_the_middleware_of_training_calls_both_record_the_call(request):
    place = place_of("file", request)
    server, ledger, store = ModelServer(place), CaptureLedger(**place), CaptureStore(**place)
    app = CaptureMiddleware(ExternalCapture(server, ledger), store)
    asked = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://model") as http:
        answer = await http.post(f"/ng-rollout/0-0/training-token-capture{PATHS['chat']}", json=asked)
    (record,) = await store.read_async("0-0")
    (row,) = (await ledger.manifest("0-0"))["records"]
    assert record["response_raw"] == answer.text
    assert record["request"] == asked
    assert record["response"]["id"] == row["response_id"] == "answer-1"
    assert record["model_call_id"] == row["model_call_id"]
    for each_one in (server, ledger, store):
        await each_one.close()
