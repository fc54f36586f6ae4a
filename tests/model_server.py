# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A model server with a staging worker in it, small enough to read, for tests of what stands before it.

It answers in the dialect of the path, stages what it said with the real worker code, and can be told to go
wrong in the ways of ``Trouble``.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from gym_objstore import RolloutTokenCapture, StagingSink, StagingSource
from gym_objstore.wire_staging import CaptureAdmission

Item = dict[str, Any]


def completion(turn: int, text: str) -> Item:
    arrays = {"prompt_token_ids": [1], "generation_token_ids": [turn], "generation_log_probs": [-0.5]}
    message = {"role": "assistant", "content": text, **arrays}
    choice = {"index": 0, "finish_reason": "stop", "message": message, "logprobs": {"content": []}}
    return {"id": f"answer-{turn}", "object": "chat.completion", "model": "m", "created": 1, "choices": [choice]}


def response(turn: int, text: str) -> Item:
    part = {"type": "output_text", "text": text, "annotations": []}
    message = {"type": "message", "id": f"msg_{turn}", "role": "assistant", "status": "completed", "content": [part]}
    call = {"type": "function_call", "call_id": f"f{turn}", "namespace": "maps", "name": "look", "arguments": "{}"}
    output = [{**message, "generation_token_ids": [turn]}, call]
    return {"id": f"answer-{turn}", "object": "response", "status": "completed", "model": "m", "output": output}


def message(turn: int, text: str) -> Item:
    content = [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": text}]
    usage = {"input_tokens": 3, "output_tokens": 2}
    known = {"type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn"}
    return {"id": f"answer-{turn}", **known, "content": content, "usage": usage}


ANSWERS = {"/v1/chat/completions": completion, "/v1/responses": response, "/v1/messages": message}


class ModelServer:
    """An ASGI application. ``asked`` keeps the requests; ``said`` the tokens by call id.

    ``coordinates`` and ``document`` change what is answered, ``status`` and ``error`` replace it, ``gate`` holds
    it back.
    """

    def __init__(self, place: dict[str, Any]) -> None:
        self.sink, self.source = StagingSink(**place), StagingSource(**place)
        self.capture = RolloutTokenCapture(sink=self.sink, weight_version_fn=lambda: 3)
        self.asked: list[Item] = []
        self.scopes: list[Item] = []
        self.said: dict[str, list[int]] = {}
        self.coordinates: Any = lambda coordinates: coordinates
        self.document: Any = lambda document: document
        self.status = 200
        self.error: Exception | None = None
        self.raw: bytes | None = None
        self.gate: Any = None
        self.left = asyncio.Event()

    async def close(self) -> None:
        await self.sink.close()
        await self.source.close()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        self.scopes.append(scope)
        body = b""
        while True:
            event = await receive()
            body += event.get("body", b"")
            if not event.get("more_body", False):
                break
        if self.gate is not None:
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.left.set()
                raise
        if self.error is not None:
            raise self.error
        answer = self.raw if self.raw is not None else await self._answer(scope["path"], body)
        headers = [(b"Content-Type", b"application/json"), (b"X-Request-Id", b"7")]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer[:10], "more_body": True})
        await send({"type": "http.response.body", "body": answer[10:]})

    async def _answer(self, path: str, body: bytes) -> bytes:
        if path not in ANSWERS:
            return b"elsewhere"
        request = json.loads(body)
        self.asked.append(request)
        turn = len(self.asked)
        document = ANSWERS[path](turn, f"said {turn}")
        if "ng_capture" in request:
            document["ng_commit_coords"] = self.coordinates(await self._stage(request, turn))
        if self.status != 200:
            document = {"error": {"message": "overloaded"}}
        return json.dumps(self.document(document)).encode()

    async def _stage(self, request: Item, turn: int) -> Item:
        admission = CaptureAdmission.model_validate(request["ng_capture"])
        chain, sealed = list(admission.staging_chain), admission.parent_chain_hash
        prefix = await self.source.prefix_async(chain, parent_chain_hash=sealed) if chain else []
        call = self.capture.begin_call(admission, prefix_token_ids=prefix, stream=request["stream"])
        prompt, generated = [*prefix, 10 * turn], [10 * turn + 1, 10 * turn + 2]
        self.said[admission.model_call_id] = [*prompt, *generated]
        coordinates = await asyncio.to_thread(
            self.capture.complete_call,
            call,
            prompt_token_ids=prompt,
            generated_token_ids=generated,
            generated_logprobs=[-0.5, -0.25],
        )
        return coordinates.model_dump(mode="json")
