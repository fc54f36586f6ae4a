# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""External staging before a model server that has a real staging worker, on a file store, over real sockets.

What is recorded is read back from the ledger and from the staged rows, never from the middleware.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import threading
from itertools import count
from typing import Any

import httpx
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from gym_objstore import CaptureLedger, external_calls, external_capture, verify_and_linearize
from gym_objstore.correlation import openai_base_url, rollout_url
from gym_objstore.errors import Unavailable
from gym_objstore.external_capture import ExternalCapture
from gym_objstore.sse import EventStream
from gym_objstore.wire_ledger import RolloutReceipt
from tests.model_server import ANSWERS, ModelServer
from tests.places import place_of
from tests.web_servers import serving

PREFIX = "/ng-rollout/r1/training-token-capture"
DIALECTS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
USER = {"role": "user", "content": "hi"}
UNCOMMITTED = "request_finished_without_staged_coordinates"
both = pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
each = pytest.mark.parametrize("dialect", list(DIALECTS))


class Watched(CaptureLedger):
    """A ledger that fails when told to, and notes the order of what it is asked."""

    fails: tuple[str, ...] = ()
    slow: asyncio.Event | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.calls: list[str] = []

    async def _note(self, name: str) -> None:
        self.calls.append(name)
        if name in self.fails:
            raise Unavailable("the store is down", kind="unreachable", key="a/secret/key")

    async def resolve(self, *arguments: Any) -> Any:
        await self._note("resolve")
        return await super().resolve(*arguments)

    async def has_rows(self, *arguments: Any) -> bool:
        await self._note("has_rows")
        return await super().has_rows(*arguments)

    async def record(self, commit: Any) -> None:
        await self._note("record")
        await super().record(commit)

    async def record_failure(self, *arguments: Any) -> None:
        await self._note("record_failure")
        await super().record_failure(*arguments)


class Setup:
    """A server, its ledger and a client in this test's loop."""

    def __init__(self, place: dict[str, Any], **options: Any) -> None:
        self.server, self.ledger = ModelServer(place), Watched(**place)
        ids = count(1)
        known = {"clock": lambda: 12.5, "call_ids": lambda: f"c{next(ids)}"}
        self.app = ExternalCapture(self.server, self.ledger, **{**known, **options})
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://model", timeout=20)

    async def ask(self, dialect: str, *, streaming: bool = False, prefix: str = PREFIX, **body: Any) -> httpx.Response:
        asked = {"model": "m", "input" if dialect == "responses" else "messages": [USER], **body}
        return await self.http.post(prefix + DIALECTS[dialect], json=asked | ({"stream": True} if streaming else {}))

    async def manifest(self) -> dict[str, Any]:
        return await self.ledger.manifest("r1")

    async def failures(self) -> list[tuple[str, str]]:
        return [(one["model_call_id"], one["reason"]) for one in (await self.manifest())["failures"]]

    async def close(self) -> None:
        await self.http.aclose()
        await self.server.close()
        await self.ledger.close()


@pytest.fixture
async def place(request):
    return place_of("file", request)


@pytest.fixture
async def make(place):
    made: list[Setup] = []

    def setup(**options: Any) -> Setup:
        made.append(Setup(place, **options))
        return made[-1]

    yield setup
    for one in made:
        await one.close()


@pytest.fixture
async def setup(make):
    return make()


def folded(dialect: Any, body: bytes) -> Any:
    stream = EventStream(dialect)
    stream.push(body)
    return stream.finish()


def said(dialect: str, response: httpx.Response, *, streaming: bool) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    if not streaming:
        return dict(response.json())
    assert response.headers["content-type"].startswith("text/event-stream")
    found = folded(dialect, response.content)
    assert found.terminal == "complete"
    return found.response


def echo(dialect: str, answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the turns with which a client sends an answer back and goes on."""
    if dialect == "responses":
        output = {"type": "function_call_output", "call_id": answer["output"][1]["call_id"], "output": "sunny"}
        return [USER, *answer["output"], output]
    if dialect == "messages":
        return [USER, {"role": "assistant", "content": answer["content"]}, {"role": "user", "content": "go on"}]
    return [USER, answer["choices"][0]["message"], {"role": "user", "content": "go on"}]


@each
@both
async def test_a_rollout_of_two_calls_trains_on_exactly_what_the_engine_produced(setup, dialect, streaming):
    field = "input" if dialect == "responses" else "messages"
    first = said(dialect, await setup.ask(dialect, streaming=streaming), streaming=streaming)
    second = await setup.ask(dialect, streaming=streaming, **{field: echo(dialect, first)})
    said(dialect, second, streaming=streaming)
    manifest = await setup.manifest()
    assert manifest["failures"] == []
    rows = manifest["records"]
    assert [(row["model_call_id"], row["parent_call_id"], row["mode"]) for row in rows] == [
        ("c1", None, "text"),
        ("c2", "c1", "token_in"),
    ]
    assert [row["response_id"] for row in rows] == ["answer-1", "answer-2"]
    receipt = RolloutReceipt(
        rollout_id="r1",
        reward=1.0,
        manifest=tuple(rows),
        terminal_model_call_id="c2",
        terminal_selection="response_id",
    )
    snapshots = await setup.server.source.fetch_async([row["staging_key"] for row in rows])
    trained = verify_and_linearize(receipt, snapshots)
    assert list(trained.token_ids) == setup.server.said["c2"] == [10, 11, 12, 20, 21, 22]


@each
@both
async def test_the_worker_is_asked_for_a_complete_answer_and_the_client_sees_no_tokens(setup, dialect, streaming):
    response = await setup.ask(dialect, streaming=streaming, stream_options={"include_usage": True})
    [asked] = setup.server.asked
    assert asked["stream"] is False
    assert "stream_options" not in asked
    assert asked["ng_capture"]["model_call_id"] == "c1"
    assert response.headers["x-request-id"] == "7"
    for hidden in ("ng_commit", "ng_capture", "token_ids", "log_probs", 'logprobs": {', "staging_key"):
        assert hidden not in response.text


@both
async def test_what_is_recorded_is_durable_before_the_first_byte_of_the_answer(setup, streaming):
    sent: list[Any] = []

    async def send(event):
        sent.append((event["type"], tuple(setup.ledger.calls), len((await setup.manifest())["records"])))

    body = json.dumps({"messages": [USER], "stream": streaming}).encode()
    await setup.app(scope_for(PREFIX + DIALECTS["chat"]), receiving(body), send)
    asked = ("resolve", "has_rows", "record")
    assert sent == [("http.response.start", asked, 1), ("http.response.body", asked, 1)]


def scope_for(path: str) -> dict[str, Any]:
    return {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "headers": [],
        "query_string": b"",
    }


def receiving(body: bytes) -> Any:
    events = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive():
        return events.pop() if events else {"type": "http.disconnect"}

    return receive


@both
async def test_a_continuation_of_something_unknown_is_served_and_poisons(setup, streaming):
    await setup.ask("chat")
    rewritten = [{"role": "user", "content": "a summary"}, {"role": "assistant", "content": "said 1"}, USER]
    said("chat", await setup.ask("chat", streaming=streaming, messages=rewritten), streaming=streaming)
    assert "ng_capture" not in setup.server.asked[1]
    assert await setup.failures() == [("c2", "unresolved_parent")]


async def test_a_continuation_of_something_unknown_is_a_root_where_there_are_no_rows(setup):
    await setup.ask("chat", messages=[USER, {"role": "assistant", "content": "earlier"}, USER])
    assert setup.server.asked[0]["ng_capture"]["mode"] == "text"


async def test_history_that_only_the_server_has_is_no_root_beside_rows(setup):
    await setup.ask("responses")
    await setup.ask("responses", previous_response_id="answer-1")
    assert await setup.failures() == [("c2", "unresolved_parent")]


@pytest.mark.parametrize(
    "messages", ["hi", [1], [{"role": "assistant", "content": 5}], [{"role": "assistant", "content": [{}]}]]
)
async def test_a_conversation_that_cannot_be_read_is_served_and_poisons(setup, messages):
    assert (await setup.ask("chat", messages=messages)).status_code == 200
    assert await setup.failures() == [("c1", "unresolved_parent")]


async def test_a_call_that_a_megatron_worker_cannot_stage_is_served_and_poisons(make):
    setup = make(worker="megatron")
    assert (await setup.ask("chat", n=2)).status_code == 200
    assert await setup.failures() == [("c1", "worker_capture_failed")]


@both
@pytest.mark.parametrize(
    ("coordinates", "reason"),
    [
        (lambda _: None, "worker_response_missing_commit_coordinates"),
        (lambda coords: {**coords, "rollout_id": "r2"}, "invalid_worker_commit_coordinates"),
        (lambda coords: {**coords, "model_call_id": "c0"}, "invalid_worker_commit_coordinates"),
        (lambda coords: {**coords, "cum_len": 99}, "invalid_worker_commit_coordinates"),
        (lambda coords: "text", "invalid_worker_commit_coordinates"),
    ],
    ids=["missing", "foreign rollout", "foreign call", "lengths", "shape"],
)
async def test_coordinates_that_are_not_believed_change_no_answer(setup, coordinates, reason, streaming):
    setup.server.coordinates = coordinates
    answer = said("chat", await setup.ask("chat", streaming=streaming), streaming=streaming)
    assert answer["choices"][0]["message"]["content"] == "said 1"
    assert await setup.failures() == [("c1", reason)]
    assert (await setup.manifest())["records"] == []


async def test_a_worker_that_could_not_stage_changes_no_answer(setup):
    setup.server.sink.stage = lambda *_, **__: 1 / 0
    assert (await setup.ask("chat")).json()["choices"][0]["message"]["content"] == "said 1"
    assert await setup.failures() == [("c1", "worker_capture_failed")]


@both
async def test_the_servers_errors_go_to_the_client_as_they_are(setup, streaming):
    setup.server.status = 429
    response = await setup.ask("chat", streaming=streaming)
    assert (response.status_code, response.json()) == (429, {"error": {"message": "overloaded"}})
    assert await setup.failures() == [("c1", UNCOMMITTED)]


@each
async def test_an_answer_that_is_no_stream_leaves_a_failure_and_ends_with_a_failed_event(setup, dialect):
    setup.server.document = lambda document: {"id": document["id"], "ng_commit_coords": document["ng_commit_coords"]}
    response = await setup.ask(dialect, streaming=True)
    assert response.status_code == 200
    assert folded(dialect, response.content).terminal == "error"
    assert await setup.failures() == [("c1", UNCOMMITTED)]
    assert (await setup.manifest())["records"] == []


@both
async def test_an_answer_that_is_no_json_goes_out_as_it_came(setup, streaming):
    setup.server.raw = b"data: {}\n\n"
    response = await setup.ask("chat", streaming=streaming)
    assert (response.status_code, response.content) == (200, b"data: {}\n\n")
    assert await setup.failures() == [("c1", "worker_response_missing_commit_coordinates")]


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"\xff"])
async def test_a_request_that_is_no_object_is_the_servers_to_refuse_and_poisons_only_if_answered(setup, body):
    setup.server.raw, setup.server.status = b"{}", 422
    assert (await setup.http.post(PREFIX + DIALECTS["chat"], content=body)).status_code == 422
    assert await setup.failures() == []
    setup.server.status = 200
    assert (await setup.http.post(PREFIX + DIALECTS["chat"], content=body)).status_code == 200
    assert await setup.failures() == [("c2", "unresolved_parent")]


async def test_a_compressed_request_is_read(setup):
    body = gzip.compress(json.dumps({"messages": [USER]}).encode())
    response = await setup.http.post(PREFIX + DIALECTS["chat"], content=body, headers={"content-encoding": "gzip"})
    assert response.status_code == 200
    [record] = (await setup.manifest())["records"]
    assert record["response_id"] == "answer-1"
    names = {name for name, _ in setup.server.scopes[0]["headers"]}
    assert not names & {b"content-encoding", b"accept-encoding"}


async def test_a_compressed_request_which_may_be_huge_is_read_beside_the_loop(setup, monkeypatch):
    read = []

    def noting(whole):
        read.append(threading.current_thread() is threading.main_thread())
        return external_calls.read_object(whole)

    monkeypatch.setattr(external_capture, "read_object", noting)
    body = json.dumps({"messages": [USER]}).encode()
    await setup.http.post(PREFIX + DIALECTS["chat"], content=body)
    packed = gzip.compress(body)
    await setup.http.post(PREFIX + DIALECTS["chat"], content=packed, headers={"content-encoding": "gzip"})
    assert read == [True, False]


@both
async def test_text_that_is_not_unicode_is_captured_as_every_reader_reads_it(setup, streaming):
    def torn(document):
        document["choices"][0]["message"]["content"] = "a\ud800b"
        return document

    setup.server.document = torn
    answer = said("chat", await setup.ask("chat", streaming=streaming), streaming=streaming)
    assert answer["choices"][0]["message"]["content"] == "a\ufffdb"
    assert len((await setup.manifest())["records"]) == 1


async def test_a_body_over_the_limit_is_refused_before_anything_happens(make):
    setup = make(body_limit=10)
    response = await setup.ask("messages")
    assert response.status_code == 413
    assert response.json()["error"] == {"type": "api_error", "message": "the request body is too large, limit=10"}
    assert (setup.server.scopes, setup.ledger.calls) == ([], [])


@pytest.mark.parametrize("fails", ["resolve", "has_rows"])
async def test_a_storage_error_at_admission_fails_the_call_before_it_generates(setup, fails):
    setup.ledger.fails = (fails,)
    response = await setup.ask("chat")
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    assert response.json()["error"]["message"] == "the capture ledger failed, kind=unreachable"
    assert setup.server.asked == []


@both
async def test_an_answer_that_could_not_be_recorded_is_not_given(setup, streaming):
    setup.ledger.fails = ("record",)
    response = await setup.ask("chat", streaming=streaming)
    assert response.status_code == 503
    assert "secret" not in response.text
    assert await setup.failures() == [("c1", UNCOMMITTED)]


async def test_a_failure_that_could_not_be_recorded_fails_the_call(setup):
    setup.ledger.fails = ("record_failure",)
    setup.server.coordinates = lambda _: None
    assert (await setup.ask("chat")).status_code == 503


async def test_a_retired_rollout_is_served_and_nothing_of_it_is_staged_or_recorded(setup, caplog):
    await setup.ledger.retire(["r1"])
    with caplog.at_level(logging.WARNING, "gym_objstore"):
        for messages in ([USER], [USER, {"role": "assistant", "content": "earlier"}, USER]):
            assert (await setup.ask("chat", messages=messages)).status_code == 200
    assert [("ng_capture" in asked) for asked in setup.server.asked] == [False, False]
    assert "record_failure" not in setup.ledger.calls
    assert "retired rollout is served without capture" in caplog.text


async def test_a_rollout_that_is_retired_while_it_generates_is_served(setup):
    setup.server.gate = asyncio.Event()
    asking = asyncio.create_task(setup.ask("chat"))
    await until(lambda: setup.server.scopes)
    await setup.ledger.retire(["r1"])
    setup.server.gate.set()
    assert (await asking).status_code == 200
    await setup.ledger.delete(["r1"])
    assert (await setup.manifest())["records"] == []


async def until(condition: Any) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for knows of no event
        await asyncio.sleep(0.002)


async def test_an_exception_of_the_server_is_raised_and_leaves_a_failure(setup):
    setup.server.error = ZeroDivisionError("broken")
    with pytest.raises(ZeroDivisionError, match="broken"):
        await setup.ask("chat")
    assert await setup.failures() == [("c1", UNCOMMITTED)]


async def test_a_cancelled_call_stops_the_server_and_leaves_a_failure(setup):
    setup.server.gate = asyncio.Event()
    asking = asyncio.create_task(setup.ask("chat"))
    await until(lambda: setup.server.scopes)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert setup.server.left.is_set()
    assert await setup.ledger.connection.writer.drain("r1", timeout=10)
    assert await setup.failures() == [("c1", UNCOMMITTED)]


@pytest.mark.parametrize("write", ["record", "record_failure"])
async def test_a_write_that_began_is_finished_though_the_call_is_cancelled(setup, write):
    store, gate, began = setup.ledger.connection, asyncio.Event(), asyncio.Event()
    whole = store.write

    async def slow(family, flow):
        began.set()
        await gate.wait()
        return await whole(family, flow)

    store.write = slow
    if write == "record_failure":
        setup.server.coordinates = lambda _: None
    asking = asyncio.create_task(setup.ask("chat"))
    await began.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    gate.set()
    assert await store.writer.drain("r1", timeout=10)
    manifest = await setup.manifest()
    assert (len(manifest["records"]), len(manifest["failures"])) == ((1, 0) if write == "record" else (0, 1))


@each
async def test_a_silent_stream_is_kept_alive_with_comments(make, dialect):
    setup = make(keep_alive=0.01)
    setup.server.gate = asyncio.Event()
    sent: list[Any] = []

    async def send(event):
        sent.append(event)
        if len(sent) > 3:
            setup.server.gate.set()

    body = json.dumps({"messages": [USER], "input": [USER], "stream": True}).encode()
    await setup.app(scope_for(PREFIX + DIALECTS[dialect]), receiving(body), send)
    assert sent[0]["status"] == 200
    assert {event["body"] for event in sent[1:-1]} == {b": keep-alive\n\n"}
    assert folded(dialect, b"".join(event["body"] for event in sent[1:])).terminal == "complete"
    assert [event.get("more_body") for event in sent[-2:]] == [True, False]
    assert len((await setup.manifest())["records"]) == 1


@each
@pytest.mark.parametrize(
    ("trouble", "why"),
    [
        ({"status": 429}, "HTTP 429: overloaded"),
        ({"error": ZeroDivisionError()}, "the model server failed"),
        ({"fails": ("record",)}, "the capture ledger failed, kind=unreachable"),
    ],
    ids=["status", "exception", "storage"],
)
async def test_a_kept_alive_stream_ends_with_a_failed_event_after_the_failure_is_recorded(make, dialect, trouble, why):
    setup = make(keep_alive=0.01)
    setup.server.gate = asyncio.Event()
    for name, value in trouble.items():
        setattr(setup.ledger if name == "fails" else setup.server, name, value)
    sent: list[Any] = []

    async def send(event):
        sent.append(event)
        if not event.get("more_body", True):
            sent.append(await setup.failures())
        if len(sent) > 2:
            setup.server.gate.set()

    body = json.dumps({"messages": [USER], "input": [USER], "stream": True}).encode()
    try:
        await setup.app(scope_for(PREFIX + DIALECTS[dialect]), receiving(body), send)
    except ZeroDivisionError:
        assert "error" in trouble
    assert sent[-1] == [("c1", UNCOMMITTED)]
    assert why.encode() in sent[-2]["body"]
    assert folded(dialect, sent[-2]["body"]).terminal == "error"


async def test_a_silent_whole_answer_is_not_kept_alive(make):
    setup = make(keep_alive=0.001)
    setup.server.gate = asyncio.Event()
    asking = asyncio.create_task(setup.ask("chat"))
    await asyncio.sleep(0.02)
    setup.server.gate.set()
    assert (await asking).json()["id"] == "answer-1"


async def test_calls_without_the_training_prefix_are_not_touched(setup):
    answer = await setup.ask("chat", prefix="", stream_options={"x": 1})
    assert answer.json() == ANSWERS["/v1/chat/completions"](1, "said 1")
    assert setup.server.asked[0]["stream_options"] == {"x": 1}
    assert (await setup.ask("chat", prefix="/ng-rollout/r1")).json()["id"] == "answer-2"
    assert [scope["path"] for scope in setup.server.scopes] == ["/v1/chat/completions"] * 2
    assert (await setup.http.get(f"{PREFIX}/v1/models")).text == "elsewhere"
    setup.server.raw = b"{}"
    assert (await setup.http.get(f"{PREFIX}/v1/responses")).json() == {}
    assert setup.ledger.calls == []


async def test_a_redirect_keeps_its_prefix(setup):
    async def moved(scope, receive, send):
        headers = [(b"location", b"http://model/v1/models/")]
        await send({"type": "http.response.start", "status": 307, "headers": headers})
        await send({"type": "http.response.body"})

    app = ExternalCapture(moved, setup.ledger)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://model") as http:
        found = await http.get(f"{PREFIX}/v1/models")
    assert found.headers["location"] == f"http://model{PREFIX}/v1/models/"


async def test_other_protocols_pass():
    seen = []

    async def app(scope, receive, send):
        seen.append(scope["type"])

    middleware = ExternalCapture(app, ledger=None)
    await middleware({"type": "lifespan"}, None, None)
    await middleware({"type": "websocket", "path": f"{PREFIX}/v1/responses"}, None, None)
    assert seen == ["lifespan", "websocket"]


async def test_the_vendors_clients_stream_over_a_real_socket(setup):
    with serving(setup.app) as url:
        openai = AsyncOpenAI(api_key="k", base_url=openai_base_url(url, "r1", token_capture=True))
        anthropic = AsyncAnthropic(api_key="k", base_url=rollout_url(url, "r1", token_capture=True))
        async with openai, anthropic:
            async with openai.chat.completions.stream(model="m", messages=[USER]) as chat:
                completion = await chat.get_final_completion()
            async with openai.responses.stream(model="m", input="hi") as responses:
                response = await responses.get_final_response()
            async with anthropic.messages.stream(model="m", max_tokens=5, messages=[USER]) as messages:
                message = await messages.get_final_message()
    assert completion.choices[0].message.content == "said 1"
    assert response.output[1].namespace == "maps"
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert {row["response_id"] for row in (await setup.manifest())["records"]} == {"answer-1", "answer-2", "answer-3"}


class Gate:
    """Holds a server in another thread's loop back."""

    def __init__(self) -> None:
        self.event = threading.Event()

    async def wait(self):
        await asyncio.to_thread(self.event.wait)


async def test_a_call_whose_client_left_is_recorded_all_the_same(setup):
    setup.server.gate = Gate()
    with serving(setup.app) as url:
        async with httpx.AsyncClient(base_url=url) as http:
            with pytest.raises(httpx.ReadTimeout):
                await http.post(PREFIX + DIALECTS["chat"], json={"messages": [USER]}, timeout=0.5)
        setup.server.gate.event.set()
        while not (rows := (await setup.manifest())["records"]):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
    assert [row["response_id"] for row in rows] == ["answer-1"]


async def test_many_calls_at_once_are_each_recorded_once(setup):
    answers = await asyncio.gather(*(setup.ask("chat", streaming=one % 2 == 0) for one in range(40)))
    assert {answer.status_code for answer in answers} == {200}
    rows = (await setup.manifest())["records"]
    assert len({row["model_call_id"] for row in rows}) == 40
    assert len({row["staging_key"] for row in rows}) == 40
