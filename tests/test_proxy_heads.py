# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Nobody fills a server's memory with what is no body, and nobody else is held up."""

from __future__ import annotations

import contextlib
import socket
import tracemalloc

import httpx
import pytest

from gym_objstore.proxy_heads import HEAD_BYTES, BoundedHeads
from tests.web_servers import serving

MB = 2**20
START = b"POST /x HTTP/1.1\r\nHost: x\r\n"
ENDLESS = {
    "a header": (START + b"X: ", b"a" * 50_000),
    "headers": (START, (b"X: " + b"a" * 997 + b"\r\n") * 50),
    "a path": (b"GET /", b"a" * 50_000),
    "a chunk's extension": (START + b"Transfer-Encoding: chunked\r\n\r\n1;", b"a" * 50_000),
    "trailers": (START + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", (b"X: " + b"a" * 997 + b"\r\n") * 50),
}


async def counting(scope, receive, send):
    """Answer how many bytes the body had."""
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(size).encode()})


@pytest.fixture
def url():
    with serving(counting, http=BoundedHeads) as found:
        yield found


def sent_to(url: str, start: bytes, part: bytes) -> tuple[int, bytes]:
    """Send parts until the server has enough; return how many bytes it took, and its answer."""
    host, port = url.removeprefix("http://").split(":")
    taken, answer = 0, b""
    with socket.create_connection((host, int(port)), timeout=20) as client:
        with contextlib.suppress(ConnectionError):
            client.sendall(start)
            while taken < 40 * MB:
                client.sendall(part)
                taken += len(part)
        with contextlib.suppress(ConnectionError):
            answer = client.recv(1_000)
    return taken, answer


@pytest.mark.parametrize("what", ENDLESS)
def test_what_is_no_body_and_has_no_end_is_refused_in_little_memory(url, what):
    tracemalloc.start()
    try:
        taken, answer = sent_to(url, *ENDLESS[what])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert taken < 40 * MB
    assert peak < 4 * MB
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400 "), answer
    assert httpx.get(url).text == "0"


def test_a_head_within_the_limit_and_a_body_of_any_length_pass_again_and_again(url):
    headers = {"x-long": "a" * (HEAD_BYTES - 1_000)}
    with httpx.Client() as client:
        for size in (0, 3 * MB, 10):
            assert client.post(url, content=bytes(size), headers=headers).text == str(size)
            pieces = (bytes(1_000) for _ in range(size // 1_000))
            assert client.post(url, content=pieces, headers=headers).text == str(size // 1_000 * 1_000)


def test_requests_that_come_at_once_are_each_counted_alone(url):
    host, port = url.removeprefix("http://").split(":")
    one = b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 40_000 + b"\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=20) as client:
        client.sendall(one * 5)
        answers = client.recv(65_536)
        while answers.count(b"HTTP/1.1 200 OK") < 5:
            answers += client.recv(65_536)
    assert answers.count(b"HTTP/1.1 ") == 5
