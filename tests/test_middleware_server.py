# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The middleware on real servers and real sockets: whatever clients do, every call of theirs is in the store."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import threading
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from openai import OpenAI
from starlette.middleware import Middleware

from gym_objstore.capture_store import CaptureStore
from gym_objstore.correlation import openai_base_url
from gym_objstore.middleware import CaptureMiddleware
from tests.asgi_calls import DONE, EVENTS, HELLO, JSON, body, start
from tests.places import place_of
from tests.web_servers import serving

PATH = "/ng-rollout/0-0/v1/chat/completions"
CALLS = 40


class SlowStore(CaptureStore):
    """Takes 30 ms longer for each record."""

    async def record_async(self, *arguments: Any, **options: Any) -> None:
        await asyncio.sleep(0.03)
        await super().record_async(*arguments, **options)


@pytest.fixture
def store(request):
    made = SlowStore(**place_of("file", request))
    yield made
    made.close_now()


def model_server() -> FastAPI:
    """A server as nemo-gym's are: a framework, with another middleware that reads the response in pieces."""
    app = FastAPI()

    @app.middleware("http")
    async def pieces(request: Request, call_next: Any) -> Any:
        return await call_next(request)

    @app.post("/v1/chat/completions")
    async def complete(request: Request) -> Any:
        asked = await request.json()
        if not asked.get("stream"):
            return {"id": asked["id"], "choices": []}

        async def events() -> Any:
            for _ in range(3):
                yield HELLO
                await asyncio.sleep(0)
            yield DONE

        return StreamingResponse(events(), media_type="text/event-stream")

    return app


def raw_request(document: Any, path: str = PATH, **headers: str) -> bytes:
    content = document if isinstance(document, bytes) else json.dumps(document).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: model", f"Content-Length: {len(content)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + content


def connected(url: str) -> socket.socket:
    return socket.create_connection((urlsplit(url).hostname, urlsplit(url).port), timeout=20)


def drained(store: CaptureStore) -> list[dict[str, Any]]:
    assert asyncio.run(store.drain(timeout=60))
    return store.read("0-0")


@pytest.mark.parametrize("concurrent", [1, 32])
@pytest.mark.parametrize("keep_alive", [True, False], ids=["keep-alive", "closing"])
@pytest.mark.parametrize("inside", [True, False], ids=["inside", "outside"])
def test_every_capture_of_every_client_is_in_the_store(store, concurrent, keep_alive, inside):
    app = model_server()
    if inside:
        app.user_middleware.append(Middleware(CaptureMiddleware, store=store))
    served = app if inside else CaptureMiddleware(app, store)
    headers = {} if keep_alive else {"connection": "close"}

    async def ask_all(url: str) -> None:
        turn = asyncio.Semaphore(concurrent)
        limits = httpx.Limits(max_keepalive_connections=concurrent if keep_alive else 0)
        async with httpx.AsyncClient(base_url=url, limits=limits, timeout=60, headers=headers) as http:

            async def ask(number: int) -> None:
                async with turn:
                    answer = await http.post(PATH, json={"id": f"c{number}", "stream": number % 2 == 1})
                whole = json.dumps({"id": f"c{number}", "choices": []}, separators=(",", ":")).encode()
                assert answer.content == (HELLO * 3 + DONE if number % 2 else whole)

            await asyncio.gather(*map(ask, range(CALLS)))

    with serving(served) as url:
        asyncio.run(ask_all(url))
        records = drained(store)
    assert Counter(record["request"]["id"] for record in records) == {f"c{number}": 1 for number in range(CALLS)}
    assert {record["error_category"] for record in records} == {None}
    assert not store.is_incomplete("0-0")


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("concurrent", [1, 32])
def test_clients_that_close_as_soon_as_they_asked_or_heard_something_are_recorded(store, streaming, concurrent):
    """A server may or may not notice; either way each call has one record, and no marker."""

    def hang_up(url: str, number: int) -> None:
        with connected(url) as connection:
            connection.sendall(raw_request({"id": f"c{number}", "stream": streaming}))
            if number % 2:
                connection.recv(10)

    with serving(CaptureMiddleware(model_server(), store)) as url:
        threads = [threading.Thread(target=hang_up, args=(url, number)) for number in range(concurrent)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    records = drained(store)
    assert sorted(record["request"]["id"] for record in records) == sorted(f"c{number}" for number in range(concurrent))
    assert {record["error_category"] for record in records} <= {None, "cancelled"}
    assert not store.is_incomplete("0-0")


def test_a_client_that_hangs_up_in_the_middle_of_a_stream_cancelled_it(store):
    async def endless(request: Request) -> Any:
        async def events() -> Any:
            while True:
                yield HELLO
                await asyncio.sleep(0.001)

        return StreamingResponse(events(), media_type="text/event-stream")

    app = FastAPI()
    app.post("/v1/chat/completions")(endless)
    with serving(CaptureMiddleware(app, store)) as url, connected(url) as connection:
        connection.sendall(raw_request({"id": "c1"}))
        while HELLO not in (got := connection.recv(65536)):
            assert got
        connection.close()
    (record,) = drained(store)
    assert record["error_category"] == "cancelled"
    assert HELLO.decode() in record["response_raw"]


def test_a_chunk_reaches_the_client_before_the_application_goes_on(store):
    heard = threading.Event()

    async def app(scope, receive, send):
        if scope["type"] == "http":
            await send(start(EVENTS))
            await send(body(HELLO))
            assert await asyncio.to_thread(heard.wait, 20)
            await send(body(DONE, more=False))

    with serving(CaptureMiddleware(app, store)) as url, httpx.stream("POST", url + PATH, json={}) as answer:
        chunks = answer.iter_raw()
        assert next(chunks) == HELLO
        heard.set()
        assert b"".join(chunks) == DONE
        assert len(store.read("0-0")) == 1


def test_a_server_that_never_ends_after_its_terminal_event_keeps_no_client_waiting(store):
    async def app(scope, receive, send):
        if scope["type"] == "http":
            await send(start(EVENTS))
            await send(body(HELLO + DONE))
            while (await receive())["type"] != "http.disconnect":
                pass

    with serving(CaptureMiddleware(app, store)) as url:
        with httpx.stream("POST", url + PATH, json={}, timeout=20) as answer:
            got = b""
            for chunk in answer.iter_raw():
                got += chunk
                if got.endswith(DONE):
                    break
        assert got == HELLO + DONE
        (record,) = drained(store)
    assert record["error_category"] is None
    assert record["response"]["choices"][0]["message"]["content"] == "Hi"


def test_compressed_requests_and_answers_pass_as_they_are_and_are_recorded_readably(store):
    packed = gzip.compress(b'{"id": "c1", "choices": []}')

    async def app(scope, receive, send):
        if scope["type"] == "http":
            assert gzip.decompress((await receive())["body"]) == b'{"id": "c1"}'
            await send(start([*JSON, (b"content-encoding", b"gzip"), (b"content-length", str(len(packed)).encode())]))
            await send(body(packed, more=False))

    asked = {"content": gzip.compress(b'{"id": "c1"}'), "headers": {"content-encoding": "gzip"}}
    with serving(CaptureMiddleware(app, store)) as url, httpx.stream("POST", url + PATH, **asked) as answer:
        assert b"".join(answer.iter_raw()) == packed
    (record,) = drained(store)
    assert (record["request"], record["response"]) == ({"id": "c1"}, {"id": "c1", "choices": []})


def test_fifty_megabytes_pass_and_are_recorded_whole(store):
    text = "x" * 50_000_000

    async def app(scope, receive, send):
        if scope["type"] == "http":
            size, more = 0, True
            while more:
                message = await receive()
                size, more = size + len(message["body"]), message["more_body"]
            await send(start())
            await send(body(json.dumps({"size": size}).encode(), more=False))

    with serving(CaptureMiddleware(app, store, within=60)) as url:
        answer = httpx.post(url + PATH, json={"text": text}, timeout=90)
    assert answer.json() == {"size": len('{"text":""}') + len(text)}
    (record,) = drained(store)
    assert record["request"] == {"text": text}


def test_the_openai_client_streams_through_it(store):
    with (
        serving(CaptureMiddleware(model_server(), store)) as url,
        OpenAI(base_url=openai_base_url(url, "0-0"), api_key="k") as client,
    ):
        stream = client.chat.completions.create(model="m", messages=[], stream=True, extra_body={"id": "c1"})
        text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert text == "HiHiHi"
    (record,) = drained(store)
    assert record["response"]["choices"][0]["message"]["content"] == "HiHiHi"
