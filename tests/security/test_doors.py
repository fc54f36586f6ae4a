# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Who gets in where something listens: one comparison in constant time, loopback unless told otherwise, no backlog.

What the routes answer is in ``test_control_routes``, what passes the proxy in ``test_proxy``. Clients that send a byte
a minute are uvicorn's business, or that of what stands in front of it: see ``docs/threat-model.md``.
"""

from __future__ import annotations

import asyncio
import hmac
import inspect
import tracemalloc

import httpx
import pytest
from typer.testing import CliRunner

from gym_objstore.capture_store import CaptureStore
from gym_objstore.cli import proxy as proxy_command
from gym_objstore.cli.app import app
from gym_objstore.control_routes import control_app
from gym_objstore.control_wire import is_secret
from gym_objstore.middleware_copies import COPY_BYTES, MEMORY_BYTES, Copy
from gym_objstore.proxy import proxy_app
from tests.upstream import QUESTIONS, UpstreamServer
from tests.web_servers import serving

TOKEN = "the-secret-token-of-this-test"
CHAT = "/v1/chat/completions"
WRONG = ("", "x", TOKEN[:-1], f"{TOKEN}x", TOKEN.upper(), TOKEN[::-1], "x" * 5_000, "ü", "\x00")


@pytest.fixture
def compared(monkeypatch):
    """The lengths of what was compared in constant time."""
    seen = []
    compare = hmac.compare_digest

    def noting(one, other):
        seen.append((len(one), len(other)))
        return compare(one, other)

    monkeypatch.setattr(hmac, "compare_digest", noting)
    return seen


class Empty:
    async def manifest(self, rollout_id):
        return {"rollout_id": rollout_id}

    retire = delete = manifest


async def status_of(asgi, path: str, *headers: tuple[bytes, bytes]) -> int:
    sent = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    await asgi({"type": "http", "method": "GET", "path": path, "headers": list(headers)}, receive, send)
    return sent[0]["status"]


@pytest.mark.parametrize("given", WRONG)
def test_a_secret_is_compared_as_a_digest_whatever_its_length(compared, given):
    assert not is_secret(given.encode(), TOKEN.encode())
    assert is_secret(TOKEN.encode(), TOKEN.encode())
    assert compared == [(32, 32), (32, 32)]


@pytest.mark.parametrize("given", [f"Bearer {TOKEN}", *(f"Bearer {one}" for one in WRONG), f"Basic {TOKEN}", TOKEN, ""])
async def test_the_control_routes_compare_once_for_every_token_and_scheme(compared, given):
    path = "/training-token-capture/control/rollouts/r1/manifest"
    status = await status_of(control_app(Empty(), token=TOKEN), path, (b"authorization", given.encode()))
    assert status == (200 if given == f"Bearer {TOKEN}" else 401)
    assert compared == [(32, 32)]


async def test_two_tokens_are_none(compared):
    path = "/training-token-capture/control/rollouts/r1/manifest"
    twice = [(b"authorization", f"Bearer {TOKEN}".encode())] * 2
    assert await status_of(control_app(Empty(), token=TOKEN), path, *twice) == 401
    assert await status_of(control_app(Empty(), token=TOKEN), path) == 401
    assert compared == [(32, 32)] * 2


@pytest.mark.parametrize("given", WRONG)
async def test_the_proxy_compares_every_key_that_is_given(compared, prefix, tmp_path, given):
    store = CaptureStore(f"memory://{prefix}", "run-1", spill_dir=str(tmp_path))
    guarded = proxy_app("http://127.0.0.1:1", store, api_key=TOKEN)
    headers = [(b"authorization", f"Bearer {given}".encode()), (b"x-api-key", given.encode()), (b"accept", b"x")]
    assert await status_of(guarded, CHAT, *headers) == 401
    assert compared == [(32, 32)] * 2
    await store.close()


def test_the_proxy_listens_to_this_machine_alone_unless_told_otherwise(monkeypatch):
    command = inspect.signature(proxy_command.proxy).parameters
    assert command["host"].default == "127.0.0.1"
    said = ["proxy", "--upstream", "http://127.0.0.1:1", "--run-id", "r", "--url", "memory://x", "--port", "0"]
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org", "127.0.0.1.example.org", "0"):
        refused = CliRunner().invoke(app, [*said, "--host", host])
        assert (refused.exit_code, "other machines" in refused.stderr) == (2, True), host
    monkeypatch.setenv("KEY_THAT_IS_EMPTY", "")
    unset = CliRunner().invoke(app, [*said, "--host", "0.0.0.0", "--api-key-env", "KEY_THAT_IS_EMPTY"])
    assert (unset.exit_code, "holds no API key" in unset.stderr) == (2, True)


def test_a_body_without_end_takes_a_file_of_bounded_size_and_then_none():
    copy = Copy()
    tracemalloc.start()
    try:
        part = bytes(2**20)
        for _ in range(MEMORY_BYTES // len(part) + 8):
            copy.add(part)
        assert tracemalloc.get_traced_memory()[1] < 4 * MEMORY_BYTES
    finally:
        tracemalloc.stop()
    assert copy.whole
    copy.size = COPY_BYTES
    copy.add(b"x")
    assert (copy.whole, copy.read()) == (False, b"")


async def test_a_long_body_passes_the_proxy_piece_by_piece(prefix, tmp_path):
    """64 MB through it, in a process that never holds a quarter of that."""
    store = CaptureStore(f"memory://{prefix}", "run-1", spill_dir=str(tmp_path))

    async def taking(scope, receive, send):
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def sending():
        part = bytes(2**16)
        for _ in range(1024):
            yield part

    with serving(taking) as upstream, serving(proxy_app(upstream, store)) as url:
        tracemalloc.start()
        try:
            async with httpx.AsyncClient(timeout=60) as client:
                answer = await client.post(f"{url}/anything", content=sending())
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert answer.status_code == 200
    assert peak < 16 * 2**20
    await store.close()


async def test_its_own_routes_say_nothing_of_secrets_and_need_none(prefix, tmp_path):
    store = CaptureStore(f"memory://{prefix}", "run-1", spill_dir=str(tmp_path))
    with serving(UpstreamServer()) as upstream, serving(proxy_app(upstream, store, api_key=TOKEN)) as url:
        for path in ("/healthz", "/readyz", "/metrics"):
            answer = await asyncio.to_thread(httpx.get, f"{url}{path}")
            assert answer.status_code == 200
            assert TOKEN not in answer.text
        unguarded = await asyncio.to_thread(httpx.post, f"{url}/ng-rollout/r1{CHAT}", json=QUESTIONS[CHAT])
        assert unguarded.status_code == 401
    assert list(store.connection.store.scan("")) == []
    await store.close()
