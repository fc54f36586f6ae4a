# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever bytes a server sends, cut anyhow: no error, no byte lost, and the client gets what was sent.

``test_sse`` has the laws about streams that look like a provider's; here the bytes are anything, compressed
and damaged too, and the application and its client send messages in any order.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import tracemalloc
import zlib
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gym_objstore.bodies import Inflater
from gym_objstore.capture_record import Exchange, capture_record
from gym_objstore.errors import Unavailable
from gym_objstore.middleware_watch import Watch
from gym_objstore.sse import EventStream
from tests import model_traffic as traffic
from tests.asgi_calls import PATHS, Played

fuzzed = settings(deadline=None, max_examples=80, suppress_health_check=list(HealthCheck))
dialects = pytest.mark.parametrize("dialect", traffic.DIALECTS)

PIECES = st.sampled_from(
    [
        *(
            b"data: ",
            b"data:",
            b"event: ",
            b"\n",
            b"\r\n",
            b"\r",
            b"\n\n",
            b"[DONE]",
            b"{",
            b"}",
            b'"',
            b"error",
            b"\x00",
        ),
        *(
            b"message_stop",
            b"response.failed",
            "\u2028".encode(),
            b"\xed\xa0\x80",
            b"\xff",
            b"1e999",
            b"[" * 300,
            b"9" * 400,
        ),
        b'{"choices":[{"delta":{"content":"a"}}]}',
        b'{"choices":[{"delta":{"tool_calls":[{"index":"x"}]}}]}',
        b'{"type":"content_block_delta","index":[],"delta":{"type":"text_delta"}}',
        b'{"type":"content_block_start","index":null}',
        b'{"type":"message_start","message":7}',
        b'{"response":{"usage":NaN}}',
    ]
)
ANYTHING = st.lists(PIECES | st.binary(max_size=9), max_size=30).map(b"".join)


@st.composite
def payloads(draw: st.DrawFn, dialect: str) -> bytes:
    return draw(st.one_of(ANYTHING, traffic.streams(dialect, traffic.HOSTILE), st.binary(max_size=80)))


def compressed(raw: bytes, encoding: str) -> bytes:
    return {"gzip": gzip.compress, "deflate": zlib.compress}.get(encoding, bytes)(raw)


@dialects
@fuzzed
@given(data=st.data())
def test_any_bytes_cut_anyhow_are_reassembled_without_an_error_and_kept(dialect: Any, data: st.DataObject) -> None:
    raw = data.draw(payloads(dialect))
    stream = EventStream(dialect, limit=data.draw(st.sampled_from([2**20, 2**20, 30, 0])))
    released_at = data.draw(st.integers(0, 12))
    passed = b""
    for number, chunk in enumerate(data.draw(traffic.cut(raw))):
        if number == released_at:
            passed += stream.release()
        passed += stream.push(chunk)
        assert released_at > number or stream.held == b""
    assert passed + stream.held == raw
    exchange = Exchange(
        model_call_id="c",
        dialect=dialect,
        started_at=1,
        completed_at=2,
        latency_ms=1,
        status=200,
        response=raw,
        stream=stream.finish(),
    )
    record = orjson.loads(orjson.dumps(capture_record(exchange)))
    exact = record.get("response_base64")
    assert (base64.b64decode(exact) if exact else (record.get("response_raw") or "").encode()) == raw


@dialects
@fuzzed
@given(data=st.data())
def test_releasing_changes_neither_the_response_nor_the_end(dialect: Any, data: st.DataObject) -> None:
    raw = data.draw(payloads(dialect))
    held, released = EventStream(dialect), EventStream(dialect)
    released.release()
    for chunk in data.draw(traffic.cut(raw)):
        held.push(chunk)
        assert released.push(chunk) is chunk
        assert (released.holding, released.terminal) == (held.holding, held.terminal)
    assert released.finish() == held.finish()


@dialects
@fuzzed
@given(data=st.data())
def test_what_is_watched_passes_whole_and_its_end_is_the_reassembled_one(dialect: Any, data: st.DataObject) -> None:
    raw = data.draw(payloads(dialect))
    encoding = data.draw(st.sampled_from(["", "identity", "gzip", "deflate", "br"]))
    wire = compressed(raw, encoding)
    if data.draw(st.booleans()):
        wire = data.draw(st.sampled_from([wire[: len(wire) // 2], wire + raw, wire[:5] + b"\x00" + wire[5:]]))
    watch, read, inflater = Watch(dialect, encoding, streamed=True), EventStream(dialect), Inflater(encoding)
    passed = b""
    for chunk in data.draw(traffic.cut(wire)):
        ready, plain = watch.push(chunk), read.push(inflater.push(chunk))
        assert ready == plain or encoding not in {"", "identity"}
        assert (watch.terminal, watch.holding) == (read.terminal, read.holding)
        passed += ready
    waiting = watch.waiting
    held = watch.release()
    assert (passed + held, len(held)) == (wire, waiting)
    assert watch.push(b"more") == b"more"


def test_what_follows_a_terminal_event_is_not_kept_after_the_release() -> None:
    watch = Watch("chat", "gzip", streamed=True)
    watch.push(gzip.compress(b"data: [DONE]\n\n"))
    assert watch.holding
    watch.release()
    bomb = gzip.compress(b": on and on" * 100_000 + b"\n")
    tracemalloc.start()
    for _ in range(20):
        assert watch.push(bomb) is bomb
    current, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert current < 100_000


# The middleware

TYPES = st.sampled_from([b"text/event-stream", b"application/json", b"text/plain", b""])
LENGTHS = st.sampled_from([None, None, b"0", b"7", b"x", b"-1", b"99999999999999999999"])
ENCODINGS = st.sampled_from([None, None, b"gzip", b"deflate", b"br", b"\xff"])


@st.composite
def answers(draw: st.DrawFn, dialect: str) -> list[Any]:
    """What an application does: mostly a response, sometimes messages in no sensible order."""
    headers = [(b"Content-Type", draw(TYPES))]
    for name, values in ((b"content-length", LENGTHS), (b"Content-Encoding", ENCODINGS)):
        value = draw(values)
        headers += [] if value is None else [(name, value)]
    raw = compressed(draw(payloads(dialect)), (dict(headers).get(b"Content-Encoding") or b"").decode("latin-1"))
    begin = {"type": "http.response.start", "status": draw(st.sampled_from([200, 200, 429, 500])), "headers": headers}
    steps: list[Any] = [begin]
    steps += [{"type": "http.response.body", "body": chunk, "more_body": True} for chunk in draw(traffic.cut(raw))]
    steps.append({"type": "http.response.body", "more_body": False})
    if draw(st.booleans()):
        strange = [{"type": "http.response.body"}, {"type": "http.response.trailers", "headers": []}, begin]
        strange += [ValueError("app"), {"type": "http.response.body", "body": None, "more_body": True}]
        steps.insert(draw(st.integers(0, len(steps))), draw(st.sampled_from(strange)))
    return steps


REQUESTS = st.lists(
    st.binary(max_size=20).map(lambda part: {"type": "http.request", "body": part, "more_body": True})
    | st.sampled_from([{"type": "http.request"}, {"type": "http.disconnect"}]),
    max_size=4,
)
STORES = st.sampled_from([None, None, Unavailable("down", kind="unreachable"), RuntimeError("hook")])


def expected_of(answer: list[Any]) -> tuple[list[Any], bytes, bool, str]:
    """What the application sends by itself: the other messages, the bytes, whether they ended, and what it raised."""
    raised = next((step for step in answer if isinstance(step, Exception)), None)
    return summary(answer[: answer.index(raised)] if raised else answer, raised)


def summary(messages: list[Any], raised: Exception | None) -> tuple[list[Any], bytes, bool, str]:
    bodies = [message for message in messages if message["type"] == "http.response.body"]
    others = [message for message in messages if message["type"] != "http.response.body"]
    ended = any(not message.get("more_body", False) for message in bodies)
    return others, b"".join(message.get("body") or b"" for message in bodies), ended, type(raised).__name__


@dialects
@settings(fuzzed, max_examples=100)
@given(data=st.data())
def test_no_messages_of_application_or_client_change_what_the_client_gets(dialect: Any, data: st.DataObject) -> None:
    answer, client = data.draw(answers(dialect)), data.draw(REQUESTS)
    expected = expected_of(answer)
    fails, marks = data.draw(STORES), data.draw(STORES)

    async def play() -> tuple[Played, Exception | None]:
        played = Played(*answer, client=client)
        played.store.error, played.store.mark_error = fails, marks
        raised = None
        try:
            await played.run(f"/ng-rollout/0-0{PATHS[dialect]}")
        except ValueError as error:
            raised = error
        assert await played.store.drain()
        return played, raised

    played, raised = asyncio.run(play())
    assert summary(played.sent, raised) == expected
    assert len(played.store.records) == (1 if fails is None else 0)
    assert len(played.store.marks) == (1 if fails is not None and marks is None else 0)
    orjson.dumps([record for _, record in played.store.records])
