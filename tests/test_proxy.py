# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The proxy between real clients and a real upstream: what passes, what is captured, what is never kept."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

import anthropic
import httpx
import openai
import pytest
import trustme

from gym_objstore.capture_store import CaptureStore
from gym_objstore.errors import Invalid
from gym_objstore.proxy import proxy_app
from gym_objstore.proxy_upstream import Upstream
from tests.upstream import QUESTIONS, UpstreamServer
from tests.web_servers import answering, serving

CHAT, RESPONSES, MESSAGES = QUESTIONS
CANARY = "sk-canary-51f0c7e2a9b84d33"
TEXT = "yes " * 20


@pytest.fixture
def store(prefix, tmp_path):
    return CaptureStore(f"memory://{prefix}", "run-1", spill_dir=str(tmp_path / "spill"))


@pytest.fixture
def upstream():
    return UpstreamServer()


@pytest.fixture
def upstream_url(upstream):
    with serving(upstream) as url:
        yield url


@pytest.fixture
def proxy(upstream_url, store):
    with serving(proxy_app(upstream_url, store, model_server_name="policy"), server_header=False) as url:
        yield url


@pytest.fixture
def client(proxy):
    with httpx.Client(base_url=proxy, timeout=20) as one:
        yield one


def rollout(path: str, rollout_id: str = "0-0") -> str:
    return f"/ng-rollout/{rollout_id}{path}"


@pytest.mark.parametrize("path", QUESTIONS)
def test_a_whole_answer_reaches_the_client_to_the_byte_and_the_bucket(client, store, upstream, upstream_url, path):
    direct = httpx.post(upstream_url + path, json=QUESTIONS[path])
    upstream.asked.clear()
    through = client.post(rollout(path), json=QUESTIONS[path])
    assert (through.status_code, through.content) == (200, direct.content)
    assert upstream.asked[0].raw_path == path.encode()
    (capture,) = store.read("0-0")
    assert capture["request"] == QUESTIONS[path]
    assert capture["response"] == through.json()
    assert capture["model_ref"] == {"type": "responses_api_models", "name": "policy"}
    assert capture["status_code"] == 200


@pytest.mark.parametrize("path", QUESTIONS)
def test_a_stream_reaches_the_client_to_the_byte_and_the_bucket_reassembled(
    client, store, upstream, upstream_url, path
):
    question = {**QUESTIONS[path], "stream": True}
    direct = httpx.post(upstream_url + path, json=question)
    upstream.asked.clear()
    through = client.post(rollout(path), json=question)
    assert through.headers["content-type"] == "text/event-stream"
    assert through.content == direct.content
    (capture,) = store.read("0-0")
    assert capture["error_category"] is None
    assert TEXT in json.dumps(capture["response"])
    assert capture["latency_ttft_ms"] is not None


def test_the_sdks_speak_through_it_streaming_and_not(proxy, store):
    base = f"{proxy}/ng-rollout/sdk"
    with openai.OpenAI(base_url=f"{base}/v1", api_key=CANARY, max_retries=0) as sdk:
        asked = {"model": "m", "messages": [{"role": "user", "content": "warm?"}]}
        assert sdk.chat.completions.create(**asked).choices[0].message.content == TEXT
        chunks = list(sdk.chat.completions.create(**asked, stream=True))
        assert "".join(one.choices[0].delta.content or "" for one in chunks if one.choices) == TEXT
        assert sdk.responses.create(model="m", input="warm?").output_text == TEXT
        with sdk.responses.stream(model="m", input="warm?") as events:
            assert events.get_final_response().output_text == TEXT
    with anthropic.Anthropic(base_url=base, api_key=CANARY, max_retries=0) as sdk:
        asked = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "warm?"}]}
        assert sdk.messages.create(**asked).content[0].text == TEXT
        with sdk.messages.stream(**asked) as stream:
            assert stream.get_final_text() == TEXT
    dialects = [one["dialect"] for one in store.read("sdk")]
    assert dialects == ["chat", "chat", "responses", "responses", "messages", "messages"]


def test_what_carries_no_prefix_passes_and_is_not_captured(client, store, upstream):
    assert client.post(CHAT, json=QUESTIONS[CHAT]).status_code == 200
    client.post(rollout("/v1/embeddings"), json={})
    assert [one.raw_path for one in upstream.asked] == [CHAT.encode(), b"/v1/embeddings"]
    assert list(store.connection.store.scan("captures/")) == []


@pytest.mark.parametrize("path", ["/a%2Fb/%e2%82%ac/~x;y=1//z/./w", "/%25/%41", "/v1/files/..%2Fup"])
@pytest.mark.parametrize("query", ["", "?q=%2f+%20&q=&%5B%5D=1&=", "?a=?/:@"])
def test_paths_and_queries_arrive_as_they_were_written(proxy, upstream, path, query):
    with socket.create_connection(("127.0.0.1", urlsplit(proxy).port)) as raw:
        raw.sendall(f"GET {rollout(path)}{query} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
        assert raw.recv(65536).startswith(b"HTTP/1.1 200")
    assert (upstream.asked[0].raw_path, upstream.asked[0].query) == (path.encode(), query[1:].encode())


def test_headers_pass_both_ways_without_those_of_a_connection(client, upstream, upstream_url):
    given = {
        "authorization": f"Bearer {CANARY}",
        "x-api-key": CANARY,
        "cookie": "c=1",
        "connection": "keep-alive, x-hop",
        "x-hop": "1",
        "te": "trailers",
        "proxy-authorization": "Basic eDp5",
        "keep-alive": "timeout=5",
        "user-agent": "agent/1",
    }
    answer = client.request("PATCH", "/v1/things", headers=given, content=b"body")
    (asked,) = upstream.asked
    assert (asked.method, asked.body) == ("PATCH", b"body")
    assert dict(asked.headers) == {
        b"host": upstream_url.removeprefix("http://").encode(),
        b"accept": b"*/*",
        b"accept-encoding": client.headers["accept-encoding"].encode(),
        b"authorization": f"Bearer {CANARY}".encode(),
        b"x-api-key": CANARY.encode(),
        b"cookie": b"c=1",
        b"user-agent": b"agent/1",
        b"content-length": b"4",
    }
    assert answer.headers["x-one"] == "1"
    assert answer.headers.get_list("set-cookie") == ["a=1", "b=2"]


def test_nothing_of_one_answer_is_in_the_next_request(client, upstream):
    with httpx.Client(base_url=client.base_url) as forgetful:
        forgetful.get("/v1/a")
    client.cookies.clear()
    client.get("/v1/b")
    assert upstream.asked[1].header(b"cookie") == []


def test_a_body_of_unknown_length_is_streamed(client, upstream):
    pieces = [b"x" * 100_000 for _ in range(30)]
    answer = client.post("/v1/upload", content=iter(pieces))
    assert answer.content == b"".join(pieces)
    assert upstream.asked[0].header(b"transfer-encoding") == [b"chunked"]
    assert upstream.asked[0].header(b"content-length") == []


def test_head_has_the_headers_and_no_body(client):
    answer = client.head("/v1/things")
    assert (answer.status_code, answer.headers["x-one"], answer.content) == (200, "1", b"")


@pytest.mark.parametrize("stream", [False, True])
def test_compressed_answers_pass_unchanged_and_are_captured_readably(client, store, stream):
    question = {**QUESTIONS[CHAT], "stream": stream, "metadata": {"gzip": True}}
    with client.stream("POST", rollout(CHAT), json=question) as answer:
        assert answer.headers["content-encoding"] == "gzip"
        packed = b"".join(answer.iter_raw())
    assert TEXT[:40] in gzip.decompress(packed).decode().replace("\\u0020", " ")
    assert TEXT in json.dumps(store.read("0-0")[0]["response"])


@pytest.mark.parametrize("path", QUESTIONS)
def test_an_error_of_the_upstream_passes_as_it_is_and_is_captured(client, store, path):
    answer = client.post(rollout(path), json={**QUESTIONS[path], "metadata": {"status": 429}})
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")
    assert answer.content == b'{"error":{"message":"overloaded"}}'
    (capture,) = store.read("0-0")
    assert (capture["status_code"], capture["error_category"]) == (429, "rate_limit")


def test_a_redirect_to_the_upstream_leads_back_through_the_proxy(client):
    assert client.get("/moved").headers["location"] == "/v1/responses?a=%2F"
    assert client.get(rollout("/moved")).headers["location"] == "/ng-rollout/0-0/v1/responses?a=%2F"


@pytest.mark.parametrize("path", QUESTIONS)
def test_an_upstream_that_is_not_there_is_a_502_in_the_shape_of_the_api(store, path):
    with socket.create_server(("127.0.0.1", 0)) as unused:
        closed = unused.getsockname()[1]
    with serving(proxy_app(f"http://127.0.0.1:{closed}", store)) as url:
        answer = httpx.post(url + rollout(path), json=QUESTIONS[path])
    error = answer.json()["error"]
    assert answer.status_code == 502
    assert "cannot be reached" in error["message"]
    if path == MESSAGES:
        assert (answer.json()["type"], error["type"]) == ("error", "api_error")
    else:
        assert (error["type"], error["code"]) == ("upstream_error", "upstream_unreachable")
    (capture,) = store.read("0-0")
    assert (capture["status_code"], capture["error_category"]) == (502, "upstream_error")


def test_an_upstream_that_says_nothing_in_time_is_a_504(store):
    def listen(_, connection):
        while connection.recv(65536):
            pass

    with (
        answering(listen) as upstream_url,
        serving(proxy_app(Upstream(upstream_url, silence_seconds=0.3), store)) as url,
    ):
        answer = httpx.post(url + rollout(MESSAGES), json=QUESTIONS[MESSAGES], timeout=20)
    assert answer.status_code == 504
    assert answer.json()["error"]["type"] == "timeout_error"
    assert store.read("0-0")[0]["error_category"] == "timeout"


def test_an_upstream_that_speaks_no_http_is_a_502(store):
    with (
        answering(lambda _, connection: connection.sendall(b"SSH-2.0-x\r\n\r\n")) as upstream_url,
        serving(proxy_app(upstream_url, store)) as url,
    ):
        answer = httpx.post(url + rollout(CHAT), json=QUESTIONS[CHAT])
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_failed")


@pytest.mark.parametrize(("stream", "category"), [(True, "stream_truncated"), (False, "exception")])
def test_an_upstream_that_dies_in_the_middle_breaks_the_answer_off(client, store, stream, category):
    question = {**QUESTIONS[CHAT], "stream": stream, "metadata": {"die": 4}}
    received = bytearray()
    with client.stream("POST", rollout(CHAT), json=question) as answer, pytest.raises(httpx.RemoteProtocolError):
        received.extend(byte for part in answer.iter_raw() for byte in part)
    (capture,) = store.read("0-0")
    assert (capture["status_code"], capture["error_category"]) == (200, category)
    assert capture["response_raw"].encode().startswith(received)
    assert len(capture["response_raw"]) > 100
    if stream:
        assert capture["response"]["id"] == "answer-1"


def test_a_client_that_leaves_ends_the_upstream_request(client, upstream, store):
    client.post(rollout(CHAT, "1-0"), json=QUESTIONS[CHAT])
    question = {**QUESTIONS[CHAT], "stream": True, "metadata": {"hang": 3}}
    with client.stream("POST", rollout(CHAT), json=question) as answer:
        next(answer.iter_raw())
    assert upstream.left.wait(20)
    while not (captures := store.read("0-0")):
        time.sleep(0.01)
    assert [one["error_category"] for one in captures] == ["cancelled"]


def test_a_client_that_leaves_within_its_body_ends_the_upstream_request(proxy, upstream):
    with socket.create_connection(("127.0.0.1", urlsplit(proxy).port)) as raw:
        raw.sendall(b"POST /v1/upload HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nhalf")
        while not upstream.begun:
            time.sleep(0.01)
    assert upstream.left.wait(20)
    assert upstream.asked == []


def test_a_client_that_reads_slowly_holds_the_upstream_back(client, upstream):
    with client.stream("GET", "/endless"):
        sent = -1
        while sent != upstream.sent:
            sent = upstream.sent
            time.sleep(0.3)
    assert 0 < sent < 32 * 2**20


async def test_64_concurrent_streams_are_captured_each_as_its_own(proxy, store):
    async with httpx.AsyncClient(base_url=proxy, timeout=30, limits=httpx.Limits(max_connections=64)) as client:

        async def one(number: int) -> bytes:
            path = list(QUESTIONS)[number % 3]
            question = {**QUESTIONS[path], "stream": True, "user": f"u{number}"}
            return (await client.post(rollout(path, f"{number}-0"), json=question)).content

        answers = await asyncio.gather(*map(one, range(64)))
    for number, answer in enumerate(answers):
        (capture,) = store.read(f"{number}-0")
        assert capture["request"]["user"] == f"u{number}"
        assert capture["response_raw"].encode() == answer


def test_credentials_reach_the_upstream_and_nothing_else(tmp_path, upstream, upstream_url, caplog):
    store = CaptureStore(f"file://{tmp_path}/store", "run-1", spill_dir=str(tmp_path / "spill"))
    headers = {"authorization": f"Bearer {CANARY}", "x-api-key": CANARY, "cookie": f"session={CANARY}"}
    with serving(proxy_app(upstream_url, store)) as url, caplog.at_level("INFO"):
        for trouble in ({}, {"status": 500}, {"die": 2}):
            for stream in (False, True):
                question = {**QUESTIONS[CHAT], "stream": stream, "metadata": trouble}
                try:
                    httpx.post(f"{url}{rollout(CHAT)}?api-key={CANARY}", json=question, headers=headers)
                except httpx.RemoteProtocolError:
                    assert "die" in trouble
        figures = httpx.get(f"{url}/metrics", headers=headers).text
    assert len(store.read("0-0")) == 6
    assert {one.header(b"x-api-key")[0] for one in upstream.asked} == {CANARY.encode()}
    assert CANARY not in figures
    ours = [record for record in caplog.records if record.name not in {"httpx", "uvicorn.access"}]
    assert CANARY not in "".join(map(str, [record.getMessage() for record in ours]))
    kept = [path for path in Path(tmp_path).rglob("*") if path.is_file()]
    assert len(kept) >= 6
    for path in kept:
        assert CANARY.encode() not in path.read_bytes()
        assert CANARY not in path.name


def test_a_key_to_the_proxy_is_required_and_not_sent_on(upstream, upstream_url, store):
    with serving(proxy_app(upstream_url, store, api_key="proxy-key")) as url:
        for headers in ({}, {"authorization": "Bearer other"}, {"x-api-key": ""}, {"x-other": "proxy-key"}):
            refused = httpx.post(url + rollout(CHAT), json=QUESTIONS[CHAT], headers=headers)
            assert (refused.status_code, refused.json()["error"]["type"]) == (401, "authentication_error")
            assert refused.headers["www-authenticate"] == "Bearer"
        assert upstream.asked == []
        for headers in (
            {"authorization": "Bearer proxy-key"},
            {"x-api-key": "proxy-key"},
            {"proxy-authorization": "bearer proxy-key", "authorization": f"Bearer {CANARY}"},
        ):
            assert httpx.post(url + rollout(CHAT), json=QUESTIONS[CHAT], headers=headers).status_code == 200
        assert httpx.get(f"{url}/healthz").status_code == 200
    assert [one.header(b"authorization") for one in upstream.asked] == [[], [], [f"Bearer {CANARY}".encode()]]
    assert not any(b"proxy-key" in value for one in upstream.asked for _, value in one.headers)


@pytest.mark.parametrize("bad", ["", "two words", "line\nend", "schlüssel"])
def test_a_key_that_no_header_can_carry_is_refused(store, bad):
    with pytest.raises(Invalid, match="printable ASCII"):
        proxy_app("http://127.0.0.1:1", store, api_key=bad)


def test_it_says_whether_it_is_alive_and_ready(store, upstream_url, prefix):
    with serving(proxy_app(upstream_url, store)) as url:
        assert httpx.get(f"{url}/healthz").json() == {"alive": True}
        ready = httpx.get(f"{url}/readyz")
        assert (ready.status_code, ready.json()) == (200, {"store": True, "upstream": True})


def test_it_is_not_ready_without_its_store_or_its_upstream(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as unused:
        closed = f"http://127.0.0.1:{unused.getsockname()[1]}"
    keys = {"access_key_id": "a", "secret_access_key": "b", "region": "us-east-1"}
    store = CaptureStore("s3://none/x", "run-1", endpoint=closed, spill_dir=str(tmp_path / "spill"), **keys)
    with serving(proxy_app(closed, store)) as url:
        assert httpx.get(f"{url}/healthz").status_code == 200
        ready = httpx.get(f"{url}/readyz", timeout=20)
        assert (ready.status_code, ready.json()) == (503, {"store": False, "upstream": False})


def test_it_counts_what_passed_and_what_was_captured(client, proxy):
    client.post(rollout(CHAT), json=QUESTIONS[CHAT])
    client.post(rollout(MESSAGES), json={**QUESTIONS[MESSAGES], "stream": True})
    client.post(rollout(RESPONSES), json={**QUESTIONS[RESPONSES], "metadata": {"status": 429}})
    with pytest.raises(httpx.RemoteProtocolError):
        client.post(rollout(CHAT), json={**QUESTIONS[CHAT], "metadata": {"die": 1}})
    client.get("/v1/models")
    answer = httpx.get(f"{proxy}/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    figures = dict(line.rsplit(" ", 1) for line in answer.text.splitlines() if not line.startswith("#"))
    of = "gym_objstore_proxy"
    assert figures[f'{of}_requests_total{{dialect="chat",status="200"}}'] == "2.0"
    assert figures[f'{of}_requests_total{{dialect="messages",status="200"}}'] == "1.0"
    assert figures[f'{of}_requests_total{{dialect="responses",status="429"}}'] == "1.0"
    assert figures[f'{of}_requests_total{{dialect="other",status="200"}}'] == "1.0"
    assert figures[f'{of}_truncated_total{{dialect="chat"}}'] == "1.0"
    assert figures[f"{of}_in_flight"] == "0.0"
    assert figures[f'{of}_captures_total{{outcome="recorded"}}'] == "4.0"
    assert figures[f'{of}_captures_total{{outcome="lost"}}'] == "0.0"
    assert figures[f'{of}_time_to_first_token_seconds_count{{dialect="messages"}}'] == "1.0"
    assert figures[f'{of}_duration_seconds_count{{dialect="chat"}}'] == "2.0"
    assert float(figures[f"{of}_response_bytes_total"]) > 0
    assert float(figures[f"{of}_request_bytes_total"]) > 0


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def tls_upstream(authority, upstream, tmp_path):
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    certificate.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    with serving(upstream, ssl_certfile=str(tmp_path / "server.pem")) as url:
        yield url


def test_an_upstream_behind_a_private_ca_is_verified_with_its_file(tls_upstream, store, tmp_path):
    with serving(proxy_app(Upstream(tls_upstream, ca_file=str(tmp_path / "ca.pem")), store)) as url:
        answer = httpx.post(url + rollout(CHAT), json={**QUESTIONS[CHAT], "stream": True})
        assert answer.status_code == 200
        assert httpx.get(f"{url}/moved").headers["location"] == "/v1/responses?a=%2F"
    assert store.read("0-0")[0]["error_category"] is None


def test_an_upstream_that_cannot_be_verified_is_never_spoken_to(tls_upstream, upstream, store):
    with serving(proxy_app(tls_upstream, store)) as url:
        answer = httpx.post(url + rollout(CHAT), json=QUESTIONS[CHAT])
    assert answer.status_code == 502
    assert "CERTIFICATE_VERIFY_FAILED" in answer.json()["error"]["message"]
    assert upstream.asked == []


def test_web_sockets_are_refused(proxy, upstream):
    upgrade = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: eHh4\r\n"
    with socket.create_connection(("127.0.0.1", urlsplit(proxy).port)) as raw:
        raw.sendall(f"GET /v1/responses HTTP/1.1\r\nhost: x\r\n{upgrade}\r\n".encode())
        assert raw.recv(65536).startswith(b"HTTP/1.1 400")
    assert upstream.asked == []
