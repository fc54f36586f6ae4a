# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A model server that knows nothing of rollouts, for tests and benchmarks of what stands in front of it."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from typing import Any, NamedTuple

from gym_objstore.correlation import DIALECTS
from gym_objstore.sse_replay import replay

USAGE = {
    "chat": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    "responses": {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5},
    "messages": {"input_tokens": 3, "output_tokens": 2},
}
QUESTIONS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"model": "m", "messages": [{"role": "user", "content": "warm?"}]},
    "/v1/responses": {"model": "m", "input": "warm?"},
    "/v1/messages": {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "warm?"}]},
}


class Asked(NamedTuple):
    """A request as it arrived."""

    method: str
    raw_path: bytes
    query: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes

    def header(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.headers if key == name]


def document(dialect: str, number: int, text: str) -> dict[str, Any]:
    """Return a whole answer."""
    if dialect == "chat":
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        known: dict[str, Any] = {"object": "chat.completion", "created": 1, "choices": [choice]}
    elif dialect == "responses":
        part = {"type": "output_text", "text": text, "annotations": []}
        item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
        tools = {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True}
        known = {"object": "response", "created_at": 1, "status": "completed", "output": [item], **tools}
    else:
        content = [{"type": "text", "text": text}]
        known = {"type": "message", "role": "assistant", "stop_reason": "end_turn", "content": content}
    return {"id": f"answer-{number}", "model": "m", **known, "usage": USAGE[dialect]}


class UpstreamServer:
    """An ASGI application that answers in three dialects. ``begun`` counts requests, ``asked`` keeps the whole ones.

    A request's ``metadata`` may ask for trouble: ``die`` or ``hang`` after so many pieces of the answer, a
    ``pause`` in seconds before each, a ``status``, ``gzip``. ``left`` is set when a client left before its
    answer was complete; ``sent`` counts the bytes of ``/endless``.
    """

    def __init__(self) -> None:
        self.begun = 0
        self.asked: list[Asked] = []
        self.left = threading.Event()
        self.sent = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        self.begun += 1
        body = b""
        while (event := await receive())["type"] == "http.request":
            body += event["body"]
            if not event["more_body"]:
                break
        else:
            self.left.set()
            return
        self.asked.append(
            Asked(scope["method"], scope["raw_path"], scope["query_string"], list(scope["headers"]), body)
        )
        answering = asyncio.ensure_future(self._answer(scope, body, send))
        leaving = asyncio.ensure_future(receive())
        await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            answering.cancel()
            self.left.set()
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        await answering

    async def _answer(self, scope: Any, body: bytes, send: Any) -> None:
        if (dialect := DIALECTS.get(scope["path"])) is not None and body:
            await self._generate(dialect, json.loads(body), send)
        elif scope["path"] == "/endless":
            await _start(send, 200, b"application/octet-stream")
            while True:
                await send({"type": "http.response.body", "body": bytes(65536), "more_body": True})
                self.sent += 65536
                await asyncio.sleep(0)  # to a client that left, sending takes no time
        elif scope["path"] == "/moved":
            host = next(value for name, value in scope["headers"] if name == b"host")
            scheme = scope["scheme"].encode()
            await _start(send, 307, b"text/plain", (b"location", scheme + b"://" + host + b"/v1/responses?a=%2F"))
            await send({"type": "http.response.body"})
        else:
            await _start(send, 200, b"text/plain", (b"x-one", b"1"), (b"set-cookie", b"a=1"), (b"set-cookie", b"b=2"))
            await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    async def _generate(self, dialect: Any, request: dict[str, Any], send: Any) -> None:
        trouble = request.get("metadata") or {}
        if "status" in trouble:
            await _start(send, trouble["status"], b"application/json", (b"retry-after", b"7"))
            await send({"type": "http.response.body", "body": b'{"error":{"message":"overloaded"}}'})
            return
        answer = document(dialect, len(self.asked), "yes " * 20)
        streams = bool(request.get("stream"))
        whole = replay(dialect, answer) if streams else json.dumps(answer).encode()
        packed = [(b"content-encoding", b"gzip")] if trouble.get("gzip") else []
        whole = gzip.compress(whole) if packed else whole
        size = max(1, len(whole) // 8)
        pieces = [whole[start : start + size] for start in range(0, len(whole), size)]
        length = [] if streams else [(b"content-length", str(len(whole)).encode())]
        await _start(send, 200, b"text/event-stream" if streams else b"application/json", *packed, *length)
        for number, piece in enumerate(pieces):
            if number == trouble.get("die"):
                raise RuntimeError("died in the middle")
            if number == trouble.get("hang"):
                await asyncio.Event().wait()
            await asyncio.sleep(trouble.get("pause", 0))
            await send({"type": "http.response.body", "body": piece, "more_body": number + 1 < len(pieces)})


async def _start(send: Any, status: int, content_type: bytes, *headers: tuple[bytes, bytes]) -> None:
    await send(
        {"type": "http.response.start", "status": status, "headers": [(b"content-type", content_type), *headers]}
    )
