# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Captures, call records, metrics and attachments are those of the installed nemo-gym on the same traffic.

Left out are inputs on which nemo-gym itself loses the capture (what orjson cannot write) and the deliberate
differences, which the last tests name: there nemo-gym's result is asserted beside ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from pathlib import Path
from typing import Any

import nemo_gym.base_responses_api_model as gym
import orjson
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from nemo_gym.config_types import ROLLOUT_PATH_PREFIX, TOKEN_CAPTURE_PATH_SEGMENT
from nemo_gym.rollout_collection import _attach_trajectory_record, _has_observation_gap
from nemo_gym.rollout_correlation import maybe_rollout_id_from_run_body
from nemo_gym.server_utils import apply_rollout_prefix, rollout_path_prefix

from gym_objstore.attachment import (
    UNREADABLE,
    attachment,
    gap,
    gaps_of,
    payloads_allowed,
    projection_failed,
    without_payloads,
)
from gym_objstore.calls import aggregate, model_call, normalize
from gym_objstore.capture_record import (
    Exchange,
    capture_record,
    client_session,
    failure_category,
    failure_details,
    status_category,
)
from gym_objstore.correlation import parse_path, rollout_id_of, rollout_prefix, rollout_url
from gym_objstore.errors import Invalid
from gym_objstore.sse import EventStream, Reassembly, begins_output, event_stream
from tests import model_traffic as traffic
from tests.transcripts import rows

fuzzed = settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
dialects = pytest.mark.parametrize("dialect", traffic.DIALECTS)

Json = dict[str, Any]
PATHS = {"responses": "/v1/responses", "chat": "/v1/chat/completions", "messages": "/v1/messages"}
CLOCKS = ("model_call_id", "started_at", "completed_at", "latency_ms", "latency_ttft_ms")


def as_json(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def writable(value: Any) -> bool:
    """Whether nemo-gym can write it to its file."""
    try:
        as_json(value)
    except TypeError:
        return False
    return True


# Streams


def gym_reassembly(dialect: str, chunks: list[bytes]) -> Reassembly:
    buffer, terminal = bytearray(), None
    for chunk in chunks:
        buffer.extend(chunk)
        terminal = terminal or gym._consume_terminal_sse_event(buffer, dialect)
    try:
        response = gym._reconstruct_streamed_response(b"".join(chunks), dialect)
    except Exception:  # noqa: BLE001 - as its middleware has it
        response = None
    return Reassembly(response, terminal)


def our_reassembly(dialect: Any, chunks: list[bytes]) -> Reassembly:
    stream = EventStream(dialect)
    for chunk in chunks:
        stream.push(chunk)
    return stream.finish()


@dialects
@fuzzed
@given(data=st.data())
def test_a_stream_is_reassembled_and_ends_as_in_gym(dialect: str, data: st.DataObject) -> None:
    chunks = data.draw(traffic.cut(data.draw(traffic.streams(dialect))))
    theirs = gym_reassembly(dialect, chunks)
    assume(writable(theirs.response))
    ours = our_reassembly(dialect, chunks)
    assert ours.terminal == theirs.terminal
    assert as_json(ours.response) == as_json(theirs.response)


def test_real_responses_come_back_whole_from_a_stream() -> None:
    found = [row["response"] for _, row in rows() if isinstance(row.get("response"), dict)]
    for response in found:
        event = {"type": "response.completed", "response": response}
        raw = b"event: response.completed\ndata: " + orjson.dumps(event) + b"\n\n"
        assert our_reassembly("responses", [raw[:100], raw[100:]]) == (response, "complete")
    assert len(found) > 500


def test_time_to_first_token_does_not_begin_with_gyms_keepalive() -> None:
    assert not begins_output(gym._SSE_KEEPALIVE)
    assert begins_output(b'{"id": 1}')


# Raw records, through the real middleware


class Recorder:
    """Stands in for gym's store."""

    def __init__(self) -> None:
        self.exchanges: list[Json] = []
        self.incomplete = False

    def record(self, rollout_id: str, exchange: Json) -> None:
        assert rollout_id == "0-0"
        orjson.dumps(exchange, default=str)
        self.exchanges.append(exchange)

    def mark_incomplete(self, rollout_id: str) -> None:
        assert rollout_id == "0-0"
        self.incomplete = True


def through_gym(dialect: str, exchange: Exchange, chunks: list[bytes], content_type: bytes) -> Recorder:
    """Play an exchange through gym's middleware and return what it recorded."""

    async def app(scope: Json, receive: Any, send: Any) -> None:
        if exchange.execution is not None:
            scope["state"]["nemo_gym_model_execution"] = exchange.execution
        await receive()
        if exchange.status is not None:
            headers = [(b"content-type", content_type)]
            await send({"type": "http.response.start", "status": exchange.status, "headers": headers})
            for chunk in chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        if exchange.failure is not None:
            raise exchange.failure
        await send({"type": "http.response.body", "body": b""})

    async def receive() -> Json:
        return {"type": "http.request", "body": exchange.request}

    async def send(message: Json) -> None:
        pass

    recorder = Recorder()
    middleware = gym._CaptureMiddleware(app, store=recorder, model_server_name=exchange.model_server)
    headers = [(b"x-session-id", session.encode()) for session in [exchange.client_session_id] if session]
    scope = {"type": "http", "method": "POST", "path": f"/ng-rollout/0-0{PATHS[dialect]}", "headers": headers}
    expected = [] if exchange.failure is None else [type(exchange.failure)]
    with contextlib.suppress(*expected):
        asyncio.run(middleware(scope, receive, send))
    return recorder


class ReadTimeout(Exception):
    """A client's own timeout."""


class ClientConnectorError(Exception):
    """A client's own connection error."""


class ResponseError(Exception):
    """Carries status and body as gym's own client errors do."""

    status = 429
    response_content = b'{"error": "slow down"}'


class StatusError(Exception):
    """Carries them as openai's and httpx's errors do."""

    def __init__(self, status: Any = 503, content: Any = b"busy") -> None:
        super().__init__("status")
        self.response = type("Response", (), {"status_code": status, "content": content, "text": "as text"})()


FAILURES: list[Any] = [
    asyncio.CancelledError(),
    TimeoutError(),
    ReadTimeout(),
    ClientConnectorError(),
    ConnectionResetError(),
    RuntimeError("no"),
    ResponseError(),
    StatusError(),
    StatusError(None, None),
    StatusError("503", object()),
]
EXECUTIONS = st.fixed_dictionaries(
    {
        "upstream_attempted": st.booleans(),
        "response_source": st.sampled_from(["upstream", "local", None]),
        "upstream_status_code": st.sampled_from([200, 400, None]),
        "local_response_reason": st.sampled_from(["context_length_exceeded", "other", None]),
    }
)
BODIES = st.one_of(traffic.JSON, *traffic.RESPONSES.values()).map(orjson.dumps) | st.sampled_from(
    [b"", b"{", b"[1]", b"\xff{}", b'"text"', "{} ü".encode("latin-1")]
)
STATUSES = st.sampled_from([200, 200, 200, 201, 302, 400, 401, 403, 404, 408, 418, 429, 500, 502, 504])


@dialects
@fuzzed
@given(data=st.data())
def test_the_record_of_an_exchange_is_gyms(dialect: Any, data: st.DataObject) -> None:
    streamed = data.draw(st.booleans())
    raw = data.draw(traffic.streams(dialect) if streamed else BODIES)
    failure = data.draw(st.none() | st.none() | st.sampled_from(FAILURES))
    status = data.draw(STATUSES if failure is None else st.none() | STATUSES)
    content_type = b"text/event-stream; charset=utf-8" if streamed else b"application/json"
    exchange = Exchange(
        model_call_id="c",
        dialect=dialect,
        started_at=1.0,
        completed_at=2.0,
        latency_ms=3.0,
        status=status,
        request=data.draw(BODIES),
        response=raw if status is not None else b"",
        failure=failure,
        model_server=data.draw(st.sampled_from(["policy_model", None])),
        client_session_id=data.draw(st.sampled_from(["s-1", None])),
        execution=data.draw(st.none() | EXECUTIONS),
        stream=our_reassembly(dialect, [raw]) if event_stream(content_type) else None,
    )
    recorder = through_gym(dialect, exchange, data.draw(traffic.cut(raw)), content_type)
    assume(not recorder.incomplete)
    (theirs,) = recorder.exchanges
    ours = capture_record(exchange)
    for name in ("request_base64", "response_base64"):
        ours.pop(name, None)
    assert list(ours) == list(theirs)
    assert as_json(without_clocks(ours)) == as_json(without_clocks(theirs))


def without_clocks(record: Json) -> Json:
    return {name: value for name, value in record.items() if name not in CLOCKS}


def test_every_status_is_classified_as_in_gym() -> None:
    statuses = range(100, 600)
    assert [status_category(status) for status in statuses] == [gym._classify_status(status) for status in statuses]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
def test_every_failure_is_read_as_in_gym(failure: BaseException) -> None:
    assert failure_category(failure) == gym._classify_exception(failure)
    assert failure_details(failure) == gym._exception_http_details(failure)


@given(
    headers=st.lists(st.tuples(st.sampled_from([b"x-session-id", b"X-Session-ID", b"other"]), st.binary(max_size=3)))
)
def test_the_client_session_is_gyms(headers: list[tuple[bytes, bytes]]) -> None:
    assert client_session(headers) == gym._unique_request_header(headers, b"x-session-id")


# Call records, metrics, attachment


def field(usual: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return traffic.rarely(traffic.JSON, usual | st.none())


CAPTURES = st.one_of(list(traffic.RESPONSES.values())).flatmap(
    lambda response: traffic.maybe(
        model_call_id=field(traffic.TEXT),
        client_session_id=field(traffic.TEXT),
        model_ref=field(st.just({"type": "responses_api_models", "name": "policy_model", "extra": 1})),
        dialect=field(st.sampled_from(traffic.DIALECTS)),
        started_at=field(st.floats(0, 2e9)),
        completed_at=field(st.floats(0, 2e9)),
        latency_ms=field(st.floats(0, 1e6)),
        latency_ttft_ms=field(st.integers(0, 10)),
        status_code=field(st.sampled_from([200, 429, "200"])),
        error_category=field(st.just("timeout")),
        upstream_attempted=field(st.booleans()),
        response_source=field(st.sampled_from(["upstream", "local"])),
        upstream_status_code=field(st.just(400)),
        local_response_reason=field(st.just("context_length_exceeded")),
        request=field(traffic.maybe(model=traffic.TEXT)),
        response=field(st.just(response)),
        request_raw=field(traffic.TEXT),
        response_raw=field(traffic.TEXT),
        newer_field=traffic.JSON,
    )
)
LINES = CAPTURES.map(orjson.dumps) | st.sampled_from([b"{", b"7", b"[]", b'"text"', b"\xff"])


@settings(fuzzed, max_examples=80)
@given(lines=st.lists(LINES, max_size=6), incomplete=st.booleans(), payloads=st.booleans())
def test_records_metrics_and_attachment_of_a_capture_file_are_gyms(
    lines: list[bytes], incomplete: bool, payloads: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = gym.CaptureStore(folder)
        if lines:
            store.path_for("4-2-a1").write_bytes(b"".join(line + b"\n" for line in lines))
        if incomplete:
            store.mark_incomplete("4-2-a1")
        captures, damaged = store.read_available("4-2-a1")
        theirs, unreadable = gym.read_available_model_call_records(store, "4-2-a1")
        row = {"_ng_task_index": 4, "_ng_rollout_index": 2, "_ng_attempt_index": 1}
        merged = gym.merge_model_call_capture_into_record(dict(row), [Path(folder)], include_payloads=payloads)
    ours = normalize(captures, damaged)
    assert ours.unreadable == unreadable
    assert as_json([call.model_dump() for call in ours.calls]) == as_json([call.model_dump() for call in theirs])
    assert as_json(aggregate(ours.calls)) == as_json(gym.aggregate_model_call_records(theirs))
    gaps = gaps_of(ours.calls, unreadable=ours.unreadable, incomplete=incomplete)
    attached = attachment(rollout_id_of(row) or "", ours.calls, gaps=gaps, payloads=payloads)
    assert as_json(attached) == as_json(merged["ng_model_call_capture"])


def test_what_cannot_be_read_at_all_is_gyms_gap(tmp_path: Path) -> None:
    gym.CaptureStore(tmp_path).path_for("0-0").mkdir()
    row = {"_ng_task_index": 0, "_ng_rollout_index": 0}
    merged = gym.merge_model_call_capture_into_record(row, [tmp_path])
    assert merged["ng_model_call_capture"] == attachment("0-0", [], gaps=[gap(UNREADABLE)])


def test_real_responses_become_gyms_call_records() -> None:
    compared = 0
    for _, row in rows():
        capture = {"model_call_id": "c", "request": row.get("responses_create_params"), "response": row.get("response")}
        try:
            theirs = gym.build_model_call_record(capture, call_index=compared).model_dump()
        except TypeError:
            continue
        assert as_json(model_call(capture, call_index=compared).model_dump()) == as_json(theirs)
        compared += 1
    assert compared > 500


def test_the_real_attachment_is_rebuilt_from_the_capture_behind_it() -> None:
    (row,) = [row for _, row in rows() if "ng_model_call_capture" in row][:1]
    published = row["ng_model_call_capture"]
    (call,) = published["calls"]
    details = {"prompt_tokens": call["tokens_in"], "completion_tokens": call["tokens_out"]}
    capture = {
        "model_call_id": call["model_call_id"],
        "dialect": call["dialect"],
        "model_ref": call["model_ref"],
        "started_at": call["started_at"],
        "completed_at": call["completed_at"],
        "latency_ms": call["latency_total_ms"],
        "latency_ttft_ms": call["latency_ttft_ms"],
        "status_code": 200,
        "error_category": None,
        "request": {"model": "gym-policy-model", "messages": []},
        "response": {
            "id": call["response_id"],
            "model": "gym-policy-model",
            "usage": {**details, "total_tokens": call["tokens_total"]},
            "choices": [{"message": {"content": "..."}, "finish_reason": call["finish_reason"]}],
        },
    }
    calls, unreadable = normalize([(0, capture)])
    rebuilt = attachment("0-0", calls, gaps=gaps_of(calls, unreadable=unreadable))
    newer = (
        "client_session_id",
        "upstream_attempted",
        "response_source",
        "upstream_status_code",
        "local_response_reason",
    )
    (shown,) = rebuilt["calls"]
    assert {name: shown.pop(name) for name in newer} == dict.fromkeys(newer)
    assert rebuilt == published


def test_payloads_leave_or_stay_as_gyms_collector_does_it() -> None:
    calls, _ = normalize([(0, {"model_call_id": "c", "request": {"input": "hi"}, "response_raw": "oops"})])
    attached = attachment("0-0", calls, payloads=True)
    row = {"_ng_task_index": 0, "_ng_rollout_index": 0}

    projected: Json = {"ng_model_call_capture": orjson.loads(orjson.dumps(attached))}
    _attach_trajectory_record(row, projected)
    assert projected["ng_model_call_capture"] == without_payloads(attached)

    failed: Json = {"ng_model_call_capture": orjson.loads(orjson.dumps(attached)), "response": 7}
    _attach_trajectory_record({}, failed)
    assert failed["ng_model_call_capture"] == projection_failed(attached, KeyError())


@pytest.mark.parametrize("holder", ["ng_trajectory", "ng_agent_observations", "elsewhere"])
@pytest.mark.parametrize("gaps", [[{"code": "multimodal_history_redacted"}], [{"code": "other"}, 7], None, "text"])
def test_payloads_are_refused_where_gym_refuses_them(holder: str, gaps: Any) -> None:
    record = {holder: {"gaps": gaps}}
    assert payloads_allowed(record) is not _has_observation_gap(record, "multimodal_history_redacted")


# Correlation

SEGMENT = st.sampled_from(
    [ROLLOUT_PATH_PREFIX, TOKEN_CAPTURE_PATH_SEGMENT, "0-0", "a b", "..", "", "v1", "chat", "%2F", "é"]
)


@settings(fuzzed, max_examples=200)
@given(
    path=st.lists(SEGMENT, max_size=7).map("/".join) | st.lists(SEGMENT, max_size=7).map(lambda p: "/" + "/".join(p))
)
def test_a_path_is_taken_apart_as_by_gyms_middleware(path: str) -> None:
    theirs = gym._ROLLOUT_PATH_RE.match(path)
    ours = parse_path(path)
    assert (ours is None) is (theirs is None)
    if ours and theirs:
        assert ours[:2] == (theirs["rollout_id"], theirs["token_capture"] is not None)
        assert (ours.prefix, ours.path) == (path[: theirs.start("rest")], theirs["rest"])


@pytest.mark.parametrize("rollout_id", ["0-0", "12-3-a4", "a.b_c", None])
@pytest.mark.parametrize("tokens", [True, False])
def test_prefixes_and_urls_are_gyms(rollout_id: str | None, tokens: bool) -> None:
    assert rollout_prefix(rollout_id, token_capture=tokens) == rollout_path_prefix(rollout_id, token_capture=tokens)
    for url in ("http://policy:8000", "http://policy:8000/"):
        ours = rollout_url(url, rollout_id, token_capture=tokens)
        assert ours == apply_rollout_prefix(url, rollout_id, token_capture=tokens).rstrip("/")


INDICES = st.none() | st.integers(0, 3) | st.just("t1")


@given(
    row=traffic.maybe(
        _ng_rollout_id=st.sampled_from([None, "r1", "r.1-a2", "", ".r", "a/b", "é", 7]),
        _ng_task_index=INDICES,
        _ng_rollout_index=INDICES,
        _ng_attempt_index=st.sampled_from([None, 0, 1, 2, "3", -1, "x"]),
    )
)
def test_a_row_implies_gyms_rollout_id(row: Json) -> None:
    try:
        theirs = maybe_rollout_id_from_run_body(row)
    except ValueError:
        with pytest.raises(Invalid):
            rollout_id_of(row)
    else:
        assert rollout_id_of(row) == theirs


@pytest.mark.parametrize("location", ["/v1/x", "http://host/v1/x?q=1", "http://other/v1", "x", "/ng-rollout/r/v1", ""])
def test_redirects_keep_the_prefix_as_in_gym(location: str) -> None:
    message = {"status": 307, "headers": [(b"location", location.encode())]}
    theirs = gym._preserve_capture_prefix_on_redirect(
        message, capture_prefix="/ng-rollout/r", request_headers=[(b"host", b"host")]
    )
    route = parse_path("/ng-rollout/r/v1")
    assert route is not None
    assert route.location(location, "host").encode() == theirs["headers"][0][1]


# Deliberate differences


def test_a_line_separator_inside_a_text_belongs_to_it_where_gym_loses_the_event() -> None:
    chunks = [b'data: {"choices":[{"delta":{"content":"' + text.encode() + b'"}}]}\n\n' for text in ("a\u2028b", "c")]
    (theirs, _), (ours, _) = gym_reassembly("chat", chunks), our_reassembly("chat", chunks)
    assert theirs is not None
    assert ours is not None
    assert theirs["choices"][0]["message"]["content"] == "c"
    assert ours["choices"][0]["message"]["content"] == "a\u2028bc"


@pytest.mark.parametrize(
    "body", [b'{"text": "\\ud800"}', b'{"seed": 123456789012345678901234567890}', b"[" * 300 + b"]" * 300]
)
def test_a_body_gym_loses_is_kept_as_it_came(body: bytes) -> None:
    nested = b'{"a": ' + body + b"}" if body.startswith(b"[") else body
    exchange = Exchange(
        model_call_id="c",
        dialect="chat",
        started_at=1,
        completed_at=2,
        latency_ms=3,
        status=200,
        request=nested,
        response=b"{}",
    )
    assert through_gym("chat", exchange, [b"{}"], b"application/json").incomplete
    record = capture_record(exchange)
    assert record["request_raw"] == nested.decode()
    assert writable(record)


def test_an_event_stream_is_known_by_its_type_in_any_case() -> None:
    assert event_stream(b"Text/Event-Stream")
    assert not event_stream(b"application/json")


def test_an_id_with_a_line_break_behind_it_is_refused_where_gym_lets_it_pass() -> None:
    assert maybe_rollout_id_from_run_body({"_ng_rollout_id": "r1\n"}) == "r1\n"
    with pytest.raises(Invalid, match="letters, digits, dots, dashes or underscores"):
        rollout_id_of({"_ng_rollout_id": "r1\n"})
