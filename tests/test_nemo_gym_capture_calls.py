# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Calls through Gym's capture middleware with the bucket in place: clients leave, stores hang, servers end."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import gym_objstore_nemo_gym as ours
from gym_objstore.errors import NotFound
from gym_objstore.spill import Spill
from gym_objstore.testing.wrapping import WrappedStore
from gym_objstore_nemo_gym import capture_calls
from gym_objstore_nemo_gym.capture_calls import BucketCaptures
from tests.places import place_of

if sys.version_info < (3, 12):
    pytest.skip("nemo-gym's server side needs Python 3.12 or newer", allow_module_level=True)

from nemo_gym import base_responses_api_model as gym


@pytest.fixture(autouse=True)
def _gym_as_it_was():
    yield
    ours.deactivate()


@pytest.fixture
def place(request) -> dict[str, Any]:
    return place_of("file", request)


@pytest.fixture
def active(place) -> BucketCaptures:
    ours.activate(**place)
    return gym.make_capture_store(gym.ModelCallCaptureConfig())


def test_what_is_redacted_reaches_neither_bucket_nor_spill_nor_log(place, caplog, monkeypatch):
    secret = "sk-0123456789abcdef0123"
    ours.activate(**place, redact=["keys"])
    store = gym.make_capture_store(gym.ModelCallCaptureConfig())
    messages = {"messages": [{"role": "user", "content": f"my key is {secret}"}]}
    asyncio.run(store.keep("3-1", {"completed_at": 1.0, "request": messages}))
    assert store.read("3-1")[0]["request"]["messages"][0]["content"] == "my key is [redacted key]"
    monkeypatch.setattr(store.connection, "store", Hanging(store.connection.store))
    monkeypatch.setattr(capture_calls, "STORE_SECONDS", 0.05)
    monkeypatch.setattr("gym_objstore.connection.MARK_SECONDS", 0.05)
    asyncio.run(store.keep("3-1", {"completed_at": 2.0, "request": messages}))
    kept = list(store.connection.spill.kept())
    assert len(kept) == 2
    assert not any(secret.encode() in bytes(one.put.body) for one in kept)
    assert secret not in caplog.text


class Hanging(WrappedStore):
    """A store that takes no more writes, and refuses none."""

    async def put_async(self, key: str, body: Any) -> None:
        await asyncio.Event().wait()


class Gated(WrappedStore):
    """A store that takes a write once ``gate`` is open, and says that one came."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.came, self.gate = asyncio.Event(), asyncio.Event()

    async def put_async(self, key: str, body: Any) -> None:
        self.came.set()
        await self.gate.wait()
        await super().put_async(key, body)


class Answer:
    """An application that answers a chat call in two messages, the first of which holds all of a promised length."""

    def __init__(self, *, length: bool = True, content_type: bytes = b"application/json") -> None:
        self.body = json.dumps({"id": "r", "choices": [], "usage": {"prompt_tokens": 1}}).encode()
        self.headers = [(b"content-type", content_type)]
        self.headers += [(b"content-length", str(len(self.body)).encode())] if length else []
        self.generating, self.generate, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.generate.set()
        self.error: Exception | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        self.generating.set()
        await self.generate.wait()
        if self.error is not None:
            raise self.error
        await send({"type": "http.response.start", "status": 200, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        self.ended.set()


class Call:
    """One call through Gym's middleware with the bucket in place; ``sent`` is what the client has."""

    def __init__(self, store: BucketCaptures, app: Any, path: str = "/ng-rollout/3-1/v1/chat/completions") -> None:
        self.sent: list[dict[str, Any]] = []
        middleware = gym._CaptureMiddleware(app, store=store, model_server_name="policy_model")
        scope = {"type": "http", "method": "POST", "path": path, "headers": [], "state": {}}
        self.task = asyncio.create_task(middleware(scope, self._receive, self._send))

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)

    async def hang_up(self) -> None:
        self.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await self.task

    async def _receive(self) -> dict[str, Any]:
        return {"type": "http.request", "body": b'{"messages": []}', "more_body": False}

    async def _send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)


@pytest.fixture
def gated(active, monkeypatch) -> Gated:
    store = Gated(active.connection.store)
    monkeypatch.setattr(active.connection, "store", store)
    return store


@pytest.mark.parametrize("length", [True, False], ids=["length", "chunked"])
async def test_the_client_has_the_whole_answer_only_once_its_capture_is_durable(active, gated, length):
    app = Answer(length=length)
    call = Call(active, app)
    await gated.came.wait()
    before = list(call.sent)
    gated.gate.set()
    await call.task
    assert call.body == app.body
    assert [message["type"] for message in call.sent] == ["http.response.start"] + ["http.response.body"] * 2
    assert [message.get("more_body") for message in before] == ([None] if length else [None, True])
    (record,) = await active.read_async("3-1")
    assert record["response"] == json.loads(app.body)


async def test_a_client_that_leaves_while_its_capture_is_written_loses_nothing(active, gated):
    call = Call(active, Answer())
    await gated.came.wait()
    await call.hang_up()
    assert not await active.drain("3-1", timeout=0.01)
    gated.gate.set()
    assert await active.drain("3-1")
    (record,) = await active.read_async("3-1")
    assert (record["status_code"], record["error_category"]) == (200, None)
    assert [message["type"] for message in call.sent] == ["http.response.start"]


async def test_a_client_that_leaves_before_its_capture_is_written_loses_nothing(active):
    app, busy = Answer(), threading.Event()
    with ThreadPoolExecutor(2) as threads:
        asyncio.get_running_loop().set_default_executor(threads)
        for _ in range(2):
            threads.submit(busy.wait)
        call = Call(active, app)
        await app.ended.wait()
        await call.hang_up()
        busy.set()
        assert await active.drain("3-1")
    (record,) = active.read("3-1")
    assert (record["status_code"], record["error_category"]) == (200, None)


async def test_a_client_that_leaves_before_the_answer_is_recorded_as_cancelled(active):
    app = Answer()
    app.generate.clear()
    call = Call(active, app)
    await app.generating.wait()
    await call.hang_up()
    assert await active.drain("3-1")
    (record,) = await active.read_async("3-1")
    assert (record["error_category"], record["request"]) == ("cancelled", {"messages": []})


async def test_an_application_that_fails_is_recorded_and_its_error_passed_on(active):
    app = Answer()
    app.error = RuntimeError("no engine")
    with pytest.raises(RuntimeError, match="no engine"):
        await Call(active, app).task
    (record,) = await active.read_async("3-1")
    assert record["error_category"] == "exception"


async def test_the_terminal_event_of_a_stream_waits_for_its_capture(active, gated):
    app = Answer(length=False, content_type=b"text/event-stream")
    app.body = b"data: [DONE]\n\n"
    call = Call(active, app)
    await gated.came.wait()
    assert call.body == b""
    gated.gate.set()
    await call.task
    assert call.body == app.body


async def test_a_store_that_hangs_delays_a_call_by_a_bound_and_leaves_its_trace(active, place, monkeypatch):
    for name, seconds in (("STORE_SECONDS", 0.1), ("CALL_SECONDS", 0.3)):
        monkeypatch.setattr(capture_calls, name, seconds)
    monkeypatch.setattr("gym_objstore.connection.MARK_SECONDS", 0.05)
    whole = active.connection.store
    monkeypatch.setattr(active.connection, "store", Hanging(whole))
    calls = [Call(active, Answer()) for _ in range(100)]
    async with asyncio.timeout(30):
        await asyncio.gather(*(call.task for call in calls))
    assert {call.body for call in calls} == {Answer().body}
    await active.drain("3-1")
    assert len(Spill(place["spill_dir"], active.settings.store.url)) == 200
    assert active.connection._replaying is not None
    active.connection._replaying.cancel()


async def test_what_gym_does_not_capture_passes_through(active):
    app = Answer()
    for path in ("/v1/chat/completions", "/ng-rollout/3-1/v1/models", "/healthz"):
        call = Call(active, app, path)
        await call.task
        assert call.body == app.body
    off = Call(None, app)
    await off.task
    assert off.body == app.body
    with pytest.raises(NotFound):
        await active.read_async("3-1")


async def test_an_id_that_no_store_takes_costs_the_capture_and_not_the_answer(active, caplog):
    app = Answer()
    call = Call(active, app, "/ng-rollout/" + "x" * 2000 + "/v1/chat/completions")
    await call.task
    assert call.body == app.body


async def test_the_end_of_the_server_waits_for_captures(active, gated):
    sent: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await (Answer()(scope, receive, send) if scope["type"] == "http" else send({"type": (await receive())["type"]}))

    call = Call(active, app)
    await gated.came.wait()
    await call.hang_up()
    middleware = gym._CaptureMiddleware(app, store=active, model_server_name="policy_model")

    async def receive() -> dict[str, Any]:
        return {"type": "lifespan.shutdown.complete"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message["type"])

    ending = asyncio.create_task(middleware({"type": "lifespan"}, receive, send))
    await asyncio.sleep(0.05)
    assert sent == []
    gated.gate.set()
    await ending
    assert sent == ["lifespan.shutdown.complete"]
    assert len(await active.read_async("3-1")) == 1
