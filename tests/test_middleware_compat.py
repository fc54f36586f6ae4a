# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The same traffic through the installed nemo-gym's middleware and ours leaves the same records, file beside bucket.

The deliberate differences are the last tests: there nemo-gym's record is asserted beside ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import sys
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from gym_objstore.capture_store import CaptureStore
from gym_objstore.middleware import CaptureMiddleware
from tests import model_traffic as traffic
from tests.asgi_calls import DONE, EVENTS, HELLO, JSON, PATHS, Played, body, start
from tests.gym_side import server_side
from tests.places import place_of

if sys.version_info >= (3, 12):
    import nemo_gym.base_responses_api_model as gym

pytestmark = server_side

OURS = {"model_call_id", "started_at", "completed_at", "latency_ms", "latency_ttft_ms"}
EXTRA = {"request_base64", "response_base64"}
OVERFLOW = {
    "upstream_attempted": True,
    "response_source": "local",
    "upstream_status_code": 400,
    "local_response_reason": "context_length_exceeded",
}
BEGIN = {
    "responses": b'event: response.created\ndata: {"type":"response.created","response":{"id":"r0"}}\n\n',
    "chat": HELLO,
    "messages": b'event: message_start\ndata: {"type":"message_start","message":{"id":"m1","usage":{"a":3}}}\n\n',
}
END = {
    "responses": b'event: response.completed\ndata: {"type":"response.completed","response":{"id":"r1"}}\n\n',
    "chat": DONE,
    "messages": b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
}
FAILED = b'event: error\ndata: {"error":{"message":"overloaded"}}\n\n'
INCOMPLETE = b'event: response.incomplete\ndata: {"type":"response.incomplete","response":{"status":"incomplete"}}\n\n'


class StatusError(Exception):
    status_code = 503
    response = type("Response", (), {"content": b"busy"})()


async def overflow(scope: Any, send: Any) -> None:
    scope["state"]["nemo_gym_model_execution"] = OVERFLOW


def answers(dialect: str) -> dict[str, list[Any]]:
    whole = orjson.dumps({"id": "a1", "usage": {"input_tokens": 1}, "choices": []})
    begun = [start(EVENTS), body(BEGIN[dialect][:20]), body(BEGIN[dialect][20:])]
    end, last = END[dialect], body(b"", more=False)
    return {
        "json": [start(), body(whole[:9]), body(whole[9:], more=False)],
        "json in one message and an empty one": [start(), body(whole), last],
        "no json": [start(), body(b"<html>", more=False)],
        "a list": [start(), body(b"[1]", more=False)],
        "nothing": [start(status=204), last],
        **{
            f"status {status}": [start(status=status), body(b'{"error": 1}', more=False)]
            for status in (401, 404, 429, 500)
        },
        "stream": [*begun, body(end), last],
        "stream cut in its end": [*begun, body(end[:9]), body(end[9:]), body(b": late\n\n"), last],
        "stream truncated": [*begun, last],
        "stream failed": [*begun, body(FAILED), body(end), last],
        "stream incomplete": [*begun, body(INCOMPLETE), last],
        "stream with status 500": [start(EVENTS, 500), body(FAILED, more=False)],
        "stream of nothing": [start(EVENTS), last],
        "context overflow": [overflow, start(), body(whole, more=False)],
        "context overflow in a stream": [overflow, *begun, body(end), last],
        "raises first": [StatusError()],
        "raises in a stream": [*begun, ConnectionResetError()],
        "raises after the terminal event": [*begun, body(end), TimeoutError()],
        "cancelled": [start(), asyncio.CancelledError()],
        "cancelled in a stream": [*begun, asyncio.CancelledError()],
        "no answer": [],
    }


REQUESTS = {"json": b'{"model": "m"}', "no json": b"\xff{", "a list": b"[]", "none": b""}
CASES = [(dialect, name) for dialect in PATHS for name in answers(dialect)]


async def play(middleware: Any, dialect: str, played: Played) -> Played:
    scope = {"type": "http", "method": "POST", "path": f"/ng-rollout/0-0-a1{PATHS[dialect]}"}
    headers = [(b"x-session-id", b"s1")]
    with contextlib.suppress(StatusError, ConnectionResetError, TimeoutError, asyncio.CancelledError):
        await middleware({**scope, "headers": headers}, played.receive, played.send)
    return played


def played(answer: list[Any], request: bytes = b'{"model": "m"}') -> Played:
    parts = [{"type": "http.request", "body": request[:3], "more_body": True}]
    return Played(*answer, client=[*parts, {"type": "http.request", "body": request[3:]}])


def compared(record: Any) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in OURS | EXTRA}


async def theirs_and_ours(dialect: str, answer: list[Any], request: Any, folder: Any, place: Any) -> tuple[Any, Any]:
    files, store = gym.CaptureStore(folder), CaptureStore(**place)
    with_gym, with_us = played(answer, request), played(answer, request)
    await play(gym._CaptureMiddleware(with_gym.app, store=files, model_server_name="policy"), dialect, with_gym)
    await play(CaptureMiddleware(with_us.app, store, model_server_name="policy"), dialect, with_us)
    assert await store.drain("0-0-a1", timeout=10)
    (theirs,), (ours,) = files.read("0-0-a1"), await store.read_async("0-0-a1")
    assert [*files.read("0-0-a1")[0]] == [name for name in ours if name not in EXTRA]
    assert files.is_incomplete("0-0-a1") is await store.is_incomplete_async("0-0-a1") is False
    if not any(isinstance(step, asyncio.CancelledError) for step in answer):
        assert with_us.got == with_gym.got
    await store.close()
    return theirs, ours


@pytest.mark.parametrize(("dialect", "name"), CASES)
async def test_a_file_and_a_bucket_hold_the_same_record(dialect, name, request, tmp_path):
    place = place_of("file", request)
    theirs, ours = await theirs_and_ours(dialect, answers(dialect)[name], b'{"model": "m"}', tmp_path / "gym", place)
    assert compared(ours) == compared(theirs)
    assert (ours["latency_ttft_ms"] is None) is (theirs["latency_ttft_ms"] is None)


@pytest.mark.parametrize("name", list(REQUESTS))
async def test_requests_are_recorded_alike(name, request, tmp_path):
    place = place_of("file", request)
    theirs, ours = await theirs_and_ours("chat", answers("chat")["json"], REQUESTS[name], tmp_path / "gym", place)
    assert compared(ours) == compared(theirs)


class Lines:
    """Stands in for gym's store."""

    def __init__(self) -> None:
        self.records: list[Any] = []

    def record(self, rollout_id: str, exchange: Any) -> None:
        orjson.dumps(exchange, default=str)
        self.records.append(exchange)

    def mark_incomplete(self, rollout_id: str) -> None:
        pass


@pytest.mark.parametrize("dialect", list(PATHS))
@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_stream_cut_anyhow_is_recorded_alike(dialect: str, data: st.DataObject) -> None:
    chunks = data.draw(traffic.cut(data.draw(traffic.streams(dialect))))
    answer = [start(EVENTS), *map(body, chunks), body(b"", more=False)]
    lines, with_gym, with_us = Lines(), played(answer), played(answer)
    asyncio.run(play(gym._CaptureMiddleware(with_gym.app, store=lines, model_server_name=None), dialect, with_gym))
    assume(lines.records)
    asyncio.run(play(with_us.middleware, dialect, with_us))
    assert compared(with_us.store.record) == compared(lines.records[0])
    assert with_us.got == with_gym.got


# Deliberate differences


async def both(answer: list[Any], client: Any = ()) -> tuple[Any, Any, Played, Played]:
    lines, with_gym, with_us = Lines(), played(answer), played(answer)
    with_gym.client += client
    with_us.client += client
    await play(gym._CaptureMiddleware(with_gym.app, store=lines, model_server_name=None), "chat", with_gym)
    await play(with_us.middleware, "chat", with_us)
    return lines.records[0], with_us.store.record, with_gym, with_us


async def test_a_client_that_left_cancelled_its_call_where_gym_says_the_stream_was_truncated():
    answer = [start(EVENTS), body(HELLO)]
    theirs, ours, *_ = await both(answer, [{"type": "http.disconnect"}])
    assert (theirs["error_category"], ours["error_category"]) == ("stream_truncated", "cancelled")


async def test_a_compressed_stream_is_read_where_gym_reads_noise():
    answer = [start([*EVENTS, (b"content-encoding", b"gzip")]), body(gzip.compress(HELLO + DONE), more=False)]
    theirs, ours, *_ = await both(answer)
    assert (theirs["error_category"], ours["error_category"]) == ("stream_truncated", None)


async def test_an_error_after_the_response_leaves_it_where_gym_loses_it():
    theirs, ours, with_gym, with_us = await both([start(), body(b'{"id": "a"}', more=False), ConnectionResetError()])
    assert (theirs["response"], theirs["error_category"]) == (None, "connection")
    assert (ours["response"], ours["error_category"]) == ({"id": "a"}, None)
    assert with_us.got == with_gym.got == b'{"id": "a"}'


async def test_the_end_of_a_known_length_waits_where_gym_lets_it_pass():
    passed = []

    async def note(scope, send):
        passed.append((bool(lines.records), len(with_gym.got), len(with_us.store.records), len(with_us.got)))

    length = (b"content-length", b"2")
    answer = [start([*JSON, length]), body(b"{}"), note, body(b"", more=False)]
    lines, with_gym, with_us = Lines(), played(answer), played(answer)
    await play(gym._CaptureMiddleware(with_gym.app, store=lines, model_server_name=None), "chat", with_gym)
    await play(with_us.middleware, "chat", with_us)
    assert passed == [(False, 2, 0, 0), (True, 2, 1, 2)]
