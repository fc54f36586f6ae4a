# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A stream's bytes pass unchanged, its end waits, and its response does not depend on how it was cut."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gym_objstore.sse import EventStream, Reassembly, begins_output, event_stream
from tests import model_traffic as traffic

fuzzed = settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
dialects = pytest.mark.parametrize("dialect", traffic.DIALECTS)

HELLO = b'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\n'
DONE = b"data: [DONE]\n\n"
HI = {
    "object": "chat.completion",
    "model": None,
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": None}],
}


def play(dialect: Any, chunks: list[bytes], **options: Any) -> tuple[list[bytes], bytes, Reassembly]:
    """Return what was forwarded per chunk, what was held at the end, and the result."""
    stream = EventStream(dialect, **options)
    ready = [stream.push(chunk) for chunk in chunks]
    return ready, stream.held, stream.finish()


# Fuzzed laws


@dialects
@fuzzed
@given(data=st.data())
def test_no_bytes_are_lost_and_no_cut_matters(dialect: str, data: st.DataObject) -> None:
    raw = data.draw(traffic.streams(dialect, traffic.HOSTILE) | st.binary(max_size=60))
    limit = data.draw(st.sampled_from([2**20, 2**20, 50]))
    whole = play(dialect, [raw], limit=limit)
    chunks = data.draw(traffic.cut(raw))
    ready, held, result = play(dialect, chunks, limit=limit)
    assert b"".join(ready) + held == raw
    assert result == whole[2]
    single, last, one_by_one = play(dialect, [raw[at : at + 1] for at in range(len(raw))], limit=limit)
    assert b"".join(single) + last == raw
    assert one_by_one == result


@dialects
@fuzzed
@given(data=st.data())
def test_not_one_byte_of_a_terminal_line_passes_before_the_end(dialect: str, data: st.DataObject) -> None:
    marker = data.draw(st.sampled_from(traffic.ENDS[dialect]))
    body = data.draw(traffic.streams(dialect)) + b"\n\n"
    _, _, before = play(dialect, [body])
    raw = body + marker + b"\ndata: {}\n\n"
    ready, held, result = play(dialect, data.draw(traffic.cut(raw)))
    assert result.terminal is not None
    assert (len(b"".join(ready)) <= len(body)) or before.terminal is not None
    assert held.endswith(b"data: {}\n\n")


# What passes and what waits


def test_a_chunk_that_ends_nothing_passes_as_it_is() -> None:
    stream = EventStream("chat")
    assert stream.push(HELLO) is HELLO
    assert stream.held == b""
    assert not stream.holding


def test_only_the_terminal_event_of_a_chunk_waits() -> None:
    assert play("chat", [HELLO + DONE]) == ([HELLO], DONE, Reassembly(HI, "complete"))


def test_everything_after_the_terminal_event_waits_too() -> None:
    stream = EventStream("messages")
    assert stream.push(b"event: message_stop\n") == b""
    assert stream.holding
    assert stream.terminal is None
    assert stream.push(b"data: {}\n\n: late\n\n") == b""
    assert stream.terminal == "complete"
    assert stream.held == b"event: message_stop\ndata: {}\n\n: late\n\n"


def test_a_line_that_may_become_the_end_waits_until_it_cannot() -> None:
    stream = EventStream("messages")
    assert stream.push(b"event: mess") == b""
    assert stream.held == b"event: mess"
    assert stream.push(b"age_delta") == b"event: message_delta"
    assert stream.held == b""


def test_an_unfinished_line_that_cannot_be_the_end_passes_at_once() -> None:
    ready, held, _ = play("chat", [b'data: {"choices"', b":" * 100, b"data: " + b" " * 80])
    assert ready == [b'data: {"choices"', b":" * 100, b"data: " + b" " * 80]
    assert held == b""


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_both_line_ends_end_an_event(newline: bytes) -> None:
    chunks = [b"event: message_stop" + newline, newline]
    assert play("messages", chunks) == ([b"", b""], b"".join(chunks), Reassembly(None, "complete"))


def test_what_waits_can_be_released_and_nothing_waits_after() -> None:
    stream = EventStream("chat")
    assert stream.push(HELLO + b"data: [DO") == HELLO
    assert stream.release() == b"data: [DO"
    assert stream.push(b"NE]\n\n") == b"NE]\n\n"
    assert stream.held == b""
    assert stream.finish() == Reassembly(HI, "complete")


# How a stream ended


@pytest.mark.parametrize(
    ("dialect", "raw", "terminal"),
    [
        ("responses", b"event: response.completed\n\n", "complete"),
        ("responses", b"event:response.incomplete\n\n", "incomplete"),
        ("responses", b"event: response.failed\n\n", "error"),
        ("responses", b"event: error\n\n", "error"),
        ("responses", b"event: response.created\n\n", None),
        ("responses", b"data: [DONE]\n\n", None),
        ("chat", b"data: [DONE]\n\n", "complete"),
        ("chat", b"data:[DONE]\n\n", "complete"),
        ("chat", b'data: {"error": {"message": "overloaded"}}\n\n', "error"),
        ("chat", b'data: {"\\u0065rror": 1}\n\n', "error"),
        ("chat", b'data: {"error": null}\n\n', None),
        ("chat", b"data: {error\n\n", None),
        ("chat", b"event: error\n\n", "error"),
        ("chat", b'data: {"error": 1}\ndata: [DONE]\n\n', "complete"),
        ("chat", b"data: [DONE]", None),
        ("chat", b"data: [DONE]\n", None),
        ("messages", b"event: message_stop\ndata: {}\n\n", "complete"),
        ("messages", b'event: error\ndata: {"type":"error"}\n\n', "error"),
        ("messages", b'data: {"error": 1}\n\n', None),
    ],
)
def test_each_dialect_has_its_ends(dialect: str, raw: bytes, terminal: str | None) -> None:
    assert play(dialect, [raw])[2].terminal == terminal
    assert play(dialect, [raw], limit=0)[2].terminal == terminal


def test_the_first_end_counts() -> None:
    assert (
        play("responses", [b"event: response.incomplete\n\nevent: response.completed\n\n"])[2].terminal == "incomplete"
    )


# The response


def test_a_truncated_stream_keeps_its_part_even_without_a_last_empty_line() -> None:
    assert play("chat", [HELLO.rstrip()])[2] == Reassembly(HI, None)


def test_events_over_several_lines_comments_and_broken_ones_are_read_as_the_standard_says() -> None:
    raw = b': note\n\ndata: {"choices":\ndata:[{"delta":{"content":"Hi"}}]}\nid: 1\n\ndata: {broken\n\ndata: 7\n\n'
    assert play("chat", [raw])[2] == Reassembly(HI, None)


def test_a_malformed_event_ends_the_reassembly_and_not_the_watch_for_the_end() -> None:
    chunks = [HELLO, b'data: {"choices": 7}\n\n', HELLO, DONE]
    assert play("chat", chunks)[2] == Reassembly(None, "complete")


def test_surrogate_halves_in_two_deltas_become_one_character() -> None:
    halves = [b'data: {"choices":[{"delta":{"content":"\\u%s"}}]}\n\n' % half for half in (b"d83d", b"de00")]
    response = play("chat", halves)[2].response
    assert response is not None
    assert response["choices"][0]["message"]["content"] == "😀"


def test_a_response_nested_too_deep_to_be_stored_is_none() -> None:
    nested = b"[" * 300 + b"]" * 300
    assert play("responses", [b'data: {"response": {"a": ' + nested + b"}}\n\n"])[2].response is None


def test_finishing_twice_gives_the_same() -> None:
    stream = EventStream("chat")
    stream.push(HELLO[:-5])
    stream.push(HELLO[-5:-1])
    assert stream.finish() == stream.finish() == Reassembly(HI, None)


# Bounds


def test_a_stream_over_the_limit_is_watched_but_not_reassembled() -> None:
    limit = 2 * len(HELLO)
    assert play("chat", [HELLO, DONE], limit=limit)[2] == Reassembly(HI, "complete")
    assert play("chat", [HELLO] * 3 + [DONE], limit=limit)[2] == Reassembly(None, "complete")


@dialects
def test_a_line_that_never_ends_does_not_fill_memory(dialect: Any) -> None:
    stream = EventStream(dialect, limit=10_000)
    chunk = b"x" * 5000
    stream.push(chunk)
    tracemalloc.start()
    for _ in range(2000):
        assert stream.push(chunk) is chunk
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200_000


# Headers and the first token


def test_an_event_stream_is_known_by_its_content_type() -> None:
    assert event_stream(b"text/event-stream")
    assert event_stream(b" Text/Event-Stream; charset=utf-8")
    assert not event_stream(b"application/json")
    assert not event_stream(b"")


@pytest.mark.parametrize("chunk", [b"", b": keep-alive\n\n", b":\r\n", b": a\n: b\n\n", b"\n", b":" * 50_000])
def test_comments_are_no_output(chunk: bytes) -> None:
    assert not begins_output(chunk)


@pytest.mark.parametrize("chunk", [HELLO, b": keep-alive\n\ndata", b"{", b"event: ping\n\n", b":" * 50_000 + b"\nx"])
def test_anything_else_is(chunk: bytes) -> None:
    assert begins_output(chunk)
