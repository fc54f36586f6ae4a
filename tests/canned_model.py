# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A model behind OpenAI's chat route that gives the same answer to the same question, for servers to be compared.

Words in the last message steer it: ``CALL:<tool>`` answers with a tool call, ``THINK`` reasons first, ``CUT`` runs out
of tokens, ``FAIL:<status>`` refuses, ``BREAK`` answers what is no JSON, ``HOLD:<seconds>`` takes that long.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

from tests.stub_worker import text_of
from tests.web_servers import serving


class Upstream:
    """The model as an ASGI application, which answers at ``url``; ``asked`` has the last message of each request."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        status, answer = 200, b"{}"
        if body:
            request = json.loads(body)
            self.asked.append(text_of(request["messages"][-1]))
            status, answer = await _answer(request, self.asked[-1])
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


@contextmanager
def serving_model() -> Iterator[Upstream]:
    """Serve the model from this process."""
    upstream = Upstream()
    with serving(upstream) as upstream.url:
        yield upstream


async def _answer(request: dict[str, Any], asked: str) -> tuple[int, bytes]:
    if found := re.search(r"HOLD:([\d.]+)", asked):
        await asyncio.sleep(float(found[1]))
    if found := re.search(r"FAIL:(\d+)", asked):
        return int(found[1]), b'{"error": {"message": "refused", "code": 7}}'
    if "BREAK" in asked:
        return 200, b"<html>not what you expected</html>"
    return 200, json.dumps(_completion(request, asked)).encode()


def _completion(request: dict[str, Any], asked: str) -> dict[str, Any]:
    identity = sha256(json.dumps(request["messages"], sort_keys=True).encode()).hexdigest()[:16]
    message: dict[str, Any] = {"role": "assistant", "content": f"I heard {asked!r}."}
    reason = "length" if "CUT" in asked else "stop"
    if "THINK" in asked:
        message["reasoning_content"] = "Let me think."
    if found := re.search(r"CALL:(\w+)", asked):
        function = {"name": found[1], "arguments": '{"day": 1}'}
        message |= {"content": None, "tool_calls": [{"id": "call_1", "type": "function", "function": function}]}
        reason = "tool_calls"
    usage = {"prompt_tokens": len(asked), "completion_tokens": 5, "total_tokens": len(asked) + 5}
    return {
        "id": f"chatcmpl-{identity}",
        "object": "chat.completion",
        "created": 0,
        "model": "stub",
        "choices": [{"index": 0, "finish_reason": reason, "message": message}],
        "usage": usage | {"prompt_tokens_details": {"cached_tokens": 2}},
    }
