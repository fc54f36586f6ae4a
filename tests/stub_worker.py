# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""An inference worker behind a real socket: OpenAI's chat route with exact tokens, and capture of admitted calls.

``python -m tests.stub_worker '<json>'`` with the fields of ``Plan``. What it samples is drawn at random, text and
tokens apart, so that nobody can rebuild a sequence from text. Every generation is in the file ``log`` before its
answer leaves; that file says what the engine produced.

Words in the last message steer it: ``CALL:<tool>`` answers with a tool call; ``HOLD:<name>`` generates only once the
file ``<name>.open`` is in the folder ``gates``, having put its process id into ``<name>.reached``; ``LINGER:<name>``
waits likewise, but between staging and answering; ``FORGE:nothing``, ``:foreign``, ``:failed`` spoil the
acknowledgement of an admitted call.
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
import threading
import time
import uuid
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import Body, FastAPI

from gym_objstore import RolloutTokenCapture, StagingSink, StagingSource
from gym_objstore.wire_staging import CaptureAdmission
from gym_objstore_vllm import VLLMCaptureAdapter

WEIGHT_VERSION = 7

_draw = random.SystemRandom()


@dataclass(frozen=True, slots=True)
class Plan:
    """Where the worker listens, writes its log, looks for gates and, if it captures at all, stages rows."""

    port: int
    log: str
    gates: str
    staging: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Sampled:
    """What the engine did for one request."""

    prompt: list[int]
    generated: list[int]
    log_probs: list[float]
    message: dict[str, Any]
    response_id: str = field(default_factory=lambda: f"chatcmpl-{uuid.uuid4().hex}")


class Engine:
    """Samples answers and remembers their exact tokens, as an engine does that renders history stably."""

    def __init__(self) -> None:
        self._tokens: dict[str, list[int]] = {}

    def sample(self, messages: list[dict[str, Any]], prefix: list[int]) -> Sampled:
        """Generate behind the exact prefix of the captured parent, or behind the rendered conversation."""
        prompt = [*prefix, *self._render(_news(messages))] if prefix else self._render(messages)
        length = _draw.randint(3, 9)
        generated = [_draw.randrange(40_000, 150_000) for _ in range(length)]
        tool = re.search(r"CALL:(\w+)", text_of(messages[-1]))
        message = _tool_call(tool[1]) if tool else {"role": "assistant", "content": f"I say {uuid.uuid4().hex}."}
        self._tokens[_spoken(message)] = generated
        return Sampled(prompt, generated, [-_draw.random() for _ in generated], message)

    def _render(self, messages: list[dict[str, Any]]) -> list[int]:
        rendered: list[int] = []
        for message in messages:
            rendered += self._tokens.get(_spoken(message)) or _words(f"{message['role']} {text_of(message)}")
        return rendered


class Worker:
    """One worker process: many threads, one engine, one log."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._engine, self._writing = plan, Engine(), threading.Lock()
        self._source: StagingSource | None = None
        if plan.staging is not None:
            self._source = StagingSource(**plan.staging)
            self._capture = RolloutTokenCapture(
                sink=StagingSink(**plan.staging), weight_version_fn=lambda: WEIGHT_VERSION, adapter=VLLMCaptureAdapter()
            )

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        """Answer one request."""
        asked = text_of(body["messages"][-1])
        self._wait_for("HOLD", asked)
        admission = CaptureAdmission.model_validate(body["ng_capture"]) if body.get("ng_capture") else None
        prefix: list[int] = []
        if admission is not None and admission.staging_chain and self._source is not None:
            prefix = self._source.prefix(admission.staging_chain, parent_chain_hash=admission.parent_chain_hash)
        sampled = self._engine.sample(body["messages"], prefix)
        answer = _answer(sampled)
        coords = None if admission is None else self._stage(admission, prefix, answer, asked)
        self._note(body["messages"], sampled, coords)
        self._wait_for("LINGER", asked)
        if coords is not None and "FORGE:nothing" not in asked:
            answer["ng_commit_coords"] = coords | ({"rollout_id": "another-0"} if "FORGE:foreign" in asked else {})
        return answer

    def _stage(
        self, admission: CaptureAdmission, prefix: list[int], answer: dict[str, Any], asked: str
    ) -> dict[str, Any]:
        call = self._capture.begin_call(admission, prefix_token_ids=prefix or None)
        note: Any = object() if "FORGE:failed" in asked else answer["id"].encode()
        coords = self._capture.complete_call_from_response(call, answer, attachments={"note": note})
        return coords.model_dump(mode="json")

    def _wait_for(self, word: str, asked: str) -> None:
        """Wait at the gate that the message names after a word, if it does."""
        if found := re.search(rf"{word}:(\S+)", asked):
            gates = Path(self._plan.gates)
            (gates / f"{found[1]}.reached").write_text(str(os.getpid()), encoding="utf-8")
            while not (gates / f"{found[1]}.open").exists():
                time.sleep(0.02)

    def _note(self, messages: list[dict[str, Any]], sampled: Sampled, coords: dict[str, Any] | None) -> None:
        line = {
            "opening": text_of(messages[0]),
            "response_id": sampled.response_id,
            "prompt": sampled.prompt,
            "generated": sampled.generated,
            "log_probs": sampled.log_probs,
            **({name: coords[name] for name in ("rollout_id", "model_call_id", "staging_key")} if coords else {}),
        }
        with self._writing, Path(self._plan.log).open("a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")


def text_of(message: dict[str, Any]) -> str:
    """Return the text of a chat message, its parts joined."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else " ".join(part.get("text") or "" for part in content)


def _news(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages behind the last one that the model wrote."""
    last = max(number for number, message in enumerate(messages) if message["role"] == "assistant")
    return messages[last + 1 :]


def _words(text: str) -> list[int]:
    return [1_000 + zlib.crc32(word.encode()) % 30_000 for word in text.split()]


def _tool_call(name: str) -> dict[str, Any]:
    arguments = json.dumps({"nonce": uuid.uuid4().hex, "day": -1})
    call = {"id": f"call_{uuid.uuid4().hex}", "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _spoken(message: dict[str, Any]) -> str:
    """Return what tells one message of the model from another, however a dialect has reshaped it."""
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    said = [[call["name"], json.loads(call["arguments"])] for call in calls]
    return json.dumps([message["role"], text_of(message), said], sort_keys=True)


def _answer(sampled: Sampled) -> dict[str, Any]:
    """Return the completion as an engine with exact tokens sends it, which Gym reads and ``VLLMCaptureAdapter`` too."""
    exact = {
        "prompt_token_ids": sampled.prompt,
        "generation_token_ids": sampled.generated,
        "generation_log_probs": sampled.log_probs,
    }
    used, said = len(sampled.prompt), len(sampled.generated)
    reason = "tool_calls" if "tool_calls" in sampled.message else "stop"
    return {
        "id": sampled.response_id,
        "object": "chat.completion",
        "created": 0,
        "model": "stub",
        "choices": [{"index": 0, "finish_reason": reason, "message": {**sampled.message, **exact}}],
        "usage": {"prompt_tokens": used, "completion_tokens": said, "total_tokens": used + said},
    }


def main() -> None:
    """Serve until killed."""
    plan = Plan(**json.loads(sys.argv[1]))
    worker, app = Worker(plan), FastAPI()

    # A function that is not async runs in a pool of threads, as blocking capture does in an engine's host.
    @app.post("/v1/chat/completions")
    def complete(body: dict[str, Any] = Body()) -> dict[str, Any]:  # noqa: B008, FAST002 - how FastAPI is told
        return worker.complete(body)

    @app.get("/healthz")
    def healthz() -> int:
        return os.getpid()

    uvicorn.run(app, host="127.0.0.1", port=plan.port, log_level="warning")


if __name__ == "__main__":
    main()
