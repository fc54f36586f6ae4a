# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""An exchange becomes the documented record, whatever its bodies are, and nothing of them is lost."""

from __future__ import annotations

import asyncio
import base64
import gzip
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_objstore.capture_record import (
    Exchange,
    capture_record,
    client_session,
    failure_category,
    failure_details,
    status_category,
)
from gym_objstore.sse import Reassembly


def exchange(**fields: Any) -> Exchange:
    usual: dict[str, Any] = {
        "model_call_id": "863410a8d52e4be6a31efc5c6e9d4629",
        "dialect": "responses",
        "started_at": 1786032154.12,
        "completed_at": 1786032154.96,
        "latency_ms": 842.7012,
        "status": 200,
        "request": b'{"input": "hi"}',
        "response": b'{"id": "resp_123"}',
    }
    return Exchange(**usual | fields)


def test_the_record_is_the_documented_one() -> None:
    record = capture_record(exchange(ttft_ms=213.4049, model_server="policy_model"))
    assert record == {
        "model_call_id": "863410a8d52e4be6a31efc5c6e9d4629",
        "dialect": "responses",
        "model_ref": {"type": "responses_api_models", "name": "policy_model"},
        "started_at": 1786032154.12,
        "completed_at": 1786032154.96,
        "latency_ms": 842.7,
        "latency_ttft_ms": 213.4,
        "status_code": 200,
        "error_category": None,
        "request": {"input": "hi"},
        "response": {"id": "resp_123"},
    }


def test_what_the_model_server_noted_is_in_the_record() -> None:
    noted = {"upstream_attempted": False, "local_response_reason": "context_length_exceeded", "newer": object}
    record = capture_record(exchange(execution=noted, client_session_id="s-1", status=400))
    assert record["client_session_id"] == "s-1"
    assert record["upstream_attempted"] is False
    assert record["error_category"] == "context_length_exceeded"
    orjson.dumps(record)


@pytest.mark.parametrize(
    ("body", "text", "exact"),
    [
        (b"not json", "not json", True),
        (b"[1, 2]", "[1, 2]", True),
        ("naïve".encode("latin-1"), "na\ufffdve", False),
        (b"\x00\xff", "\x00\ufffd", False),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd", False),
    ],
)
def test_a_body_that_is_no_object_is_kept_as_text_and_as_bytes_where_text_is_not_exact(
    body: bytes, text: str, exact: bool
) -> None:
    record = capture_record(exchange(request=body, response=body))
    assert record["request"] is None
    assert record["response"] is None
    assert record["request_raw"] == record["response_raw"] == text
    assert record["error_category"] == "capture_parse_error"
    kept = [record.get("request_base64"), record.get("response_base64")]
    assert kept == [None if exact else base64.b64encode(body).decode()] * 2


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{"a": "\\ud83d!"}', {"a": "\ufffd!"}),
        (b'{"a": NaN}', {"a": None}),
        (b'{"a": 36893488147419103232}', {"a": 36893488147419103232.0}),
    ],
)
def test_a_body_that_cannot_be_stored_exactly_is_kept_as_value_and_text(body: bytes, value: Any) -> None:
    record = capture_record(exchange(request=body, response=body))
    assert record["request"] == record["response"] == value
    assert record["request_raw"] == record["response_raw"] == body.decode()
    assert record["error_category"] is None
    assert orjson.loads(orjson.dumps(record)) == record


def test_a_body_nested_too_deep_is_kept_as_text() -> None:
    body = b'{"a":' * 400 + b"1" + b"}" * 400
    record = capture_record(exchange(request=body))
    assert (record["request"], record["request_raw"]) == (None, body.decode())


def test_compressed_bodies_are_read() -> None:
    packed = gzip.compress(b'{"id": "r"}')
    record = capture_record(
        exchange(request=packed, request_encoding="gzip", response=packed, response_encoding="gzip")
    )
    assert record["request"] == record["response"] == {"id": "r"}
    assert "response_raw" not in record


def test_a_damaged_compressed_body_is_kept_as_bytes() -> None:
    packed = gzip.compress(b'{"id": "r"}')[:-4]
    record = capture_record(exchange(response=packed, response_encoding="gzip"))
    assert record["error_category"] == "capture_parse_error"
    assert base64.b64decode(record["response_base64"]) == packed


def test_a_compressed_stream_is_kept_as_text() -> None:
    packed = gzip.compress(b"data: {}\n\n")
    record = capture_record(
        exchange(response=packed, response_encoding="gzip", stream=Reassembly({"id": "r"}, "complete"))
    )
    assert (record["response"], record["response_raw"]) == ({"id": "r"}, "data: {}\n\n")


def test_an_empty_exchange_has_no_bodies() -> None:
    record = capture_record(exchange(request=b"", response=b"", status=None))
    assert (record["request"], record["response"], record["status_code"], record["error_category"]) == (None,) * 4
    assert not {"request_raw", "response_raw"} & record.keys()


@pytest.mark.parametrize(
    ("stream", "status", "category"),
    [
        (Reassembly({"id": "r"}, "complete"), 200, None),
        (Reassembly({"id": "r"}, "incomplete"), 200, "incomplete"),
        (Reassembly({"id": "r"}, "error"), 200, "upstream_error"),
        (Reassembly({"id": "r"}, None), 200, "stream_truncated"),
        (Reassembly(None, None), 200, "stream_truncated"),
        (Reassembly(None, "complete"), 200, "capture_parse_error"),
        (Reassembly(None, "error"), 200, "upstream_error"),
        (Reassembly({"id": "r"}, "complete"), 429, "rate_limit"),
    ],
)
def test_a_stream_is_judged_by_its_status_its_end_and_its_response(
    stream: Reassembly, status: int, category: str | None
) -> None:
    record = capture_record(exchange(stream=stream, status=status, response=b"data: {}\n\n"))
    assert record["error_category"] == category
    assert record["response"] == stream.response
    assert record["response_raw"] == "data: {}\n\n"


@pytest.mark.parametrize(
    ("status", "category"),
    [
        (200, None),
        (302, None),
        (400, "client_error"),
        (401, "auth"),
        (403, "auth"),
        (404, "not_found"),
        (408, "timeout"),
        (422, "client_error"),
        (429, "rate_limit"),
        (500, "upstream_error"),
        (503, "upstream_error"),
        (504, "timeout"),
    ],
)
def test_every_status_has_its_category(status: int, category: str | None) -> None:
    assert status_category(status) == category


class ReadTimeoutError(Exception):
    """As HTTP clients have it."""


class ServerDisconnectedConnError(Exception):
    """As HTTP clients have it."""


@pytest.mark.parametrize(
    ("failure", "category"),
    [
        (asyncio.CancelledError(), "cancelled"),
        (TimeoutError(), "timeout"),
        (ReadTimeoutError(), "timeout"),
        (ConnectionResetError(), "connection"),
        (ServerDisconnectedConnError(), "connection"),
        (ValueError(), "exception"),
    ],
)
def test_every_exception_has_its_category(failure: BaseException, category: str) -> None:
    assert failure_category(failure) == category
    assert capture_record(exchange(failure=failure, status=None))["error_category"] == category


class Broken(Exception):
    """An error of a client whose attributes raise."""

    status_code = 502

    @property
    def response(self) -> Any:
        """Raise, as an unread response does."""
        raise RuntimeError


def client_error(**attributes: Any) -> Exception:
    failure = RuntimeError("upstream")
    for name, value in attributes.items():
        setattr(failure, name, value)
    return failure


@pytest.mark.parametrize(
    ("failure", "details"),
    [
        (ValueError(), (None, b"")),
        (Broken(), (502, b"")),
        (client_error(status=429, response_content=b"slow"), (429, b"slow")),
        (client_error(status="429", status_code=500, response_content="é\ud800"), (500, "é?".encode())),
        (client_error(response=client_error(status_code=503, content=bytearray(b"x"))), (503, b"x")),
        (client_error(response=client_error(status_code=503, text="busy")), (503, b"busy")),
        (client_error(response=client_error(content=object(), text="busy")), (None, b"")),
    ],
)
def test_status_and_body_are_read_from_the_errors_of_http_clients(
    failure: BaseException, details: tuple[int | None, bytes]
) -> None:
    assert failure_details(failure) == details


def test_a_failed_exchange_keeps_what_it_saw_else_what_the_exception_carries() -> None:
    failure = client_error(status=429, response_content=b"slow down")
    unseen = capture_record(exchange(failure=failure, status=None, response=b""))
    assert (unseen["status_code"], unseen["error_category"], unseen["response_raw"]) == (429, "rate_limit", "slow down")
    seen = capture_record(exchange(failure=failure, status=200, response=b'{"part'))
    assert (seen["status_code"], seen["error_category"], seen["response_raw"]) == (200, "exception", '{"part')
    assert seen["response"] is None


@pytest.mark.parametrize(
    ("headers", "session"),
    [
        ([(b"X-Session-Id", b"s-1"), (b"other", b"x")], "s-1"),
        ([(b"x-session-id", b"s-1"), (b"x-session-id", b"s-1")], "s-1"),
        ([(b"x-session-id", b"s-1"), (b"x-session-id", b"s-2")], None),
        ([(b"x-session-id", b"")], None),
        ([], None),
    ],
)
def test_a_client_session_is_one_declared_once(headers: list[tuple[bytes, bytes]], session: str | None) -> None:
    assert client_session(headers) == session


@given(
    request=st.binary(max_size=50) | st.text('{}[]"\\u0d8:,1', max_size=20).map(str.encode),
    response=st.binary(max_size=50),
    encoding=st.sampled_from(["", "gzip", "deflate", "br"]),
    stream=st.sampled_from([None, Reassembly(None, None), Reassembly({"id": "r"}, "complete")]),
)
def test_any_bytes_become_a_record_that_holds_them(
    request: bytes, response: bytes, encoding: str, stream: Reassembly | None
) -> None:
    record = capture_record(exchange(request=request, response=response, response_encoding=encoding, stream=stream))
    assert orjson.loads(orjson.dumps(record)) == record
    if record["request"] is None and request:
        kept = record.get("request_base64")
        assert (record["request_raw"].encode() if kept is None else base64.b64decode(kept)) == request
