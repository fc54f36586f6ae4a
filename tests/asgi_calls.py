# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""One model call through an ASGI middleware, message by message, with every step noted in order."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from gym_objstore.middleware import CaptureMiddleware

PATHS = {"responses": "/v1/responses", "chat": "/v1/chat/completions", "messages": "/v1/messages"}
EVENTS = [(b"content-type", b"text/event-stream")]
JSON = [(b"content-type", b"application/json")]
HELLO = b'data: {"id":"c1","model":"m","choices":[{"delta":{"content":"Hi"}}]}\n\n'
DONE = b"data: [DONE]\n\n"

Message = dict[str, Any]


def start(headers: Any = JSON, status: int = 200) -> Message:
    return {"type": "http.response.start", "status": status, "headers": headers}


def body(chunk: bytes, *, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": chunk, "more_body": more}


class NotedStore:
    """A capture store in memory. ``gate`` holds records back, ``error`` fails them, ``mark_error`` the markers."""

    def __init__(self, steps: list[Any]) -> None:
        self.steps = steps
        self.records: list[tuple[str, Mapping[str, Any]]] = []
        self.marks: list[tuple[str, str, str]] = []
        self.within: list[float | None] = []
        self.gate: asyncio.Event | None = None
        self.error: Exception | None = None
        self.mark_error: Exception | None = None
        self.busy = self.busiest = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    async def record_async(self, rollout_id: str, exchange: Mapping[str, Any], *, within: float | None = None) -> None:
        self.within.append(within)
        self.steps.append("recording")
        self.busy += 1
        self.busiest = max(self.busiest, self.busy)
        try:
            if self.gate is not None:
                await self.gate.wait()
        finally:
            self.busy -= 1
        if self.error is not None:
            raise self.error
        self.records.append((rollout_id, exchange))
        self.steps.append("durable")

    async def mark_incomplete_async(self, rollout_id: str, model_call_id: str = "", *, reason: str = "lost") -> None:
        if self.mark_error is not None:
            raise self.mark_error
        self.marks.append((rollout_id, model_call_id, reason))
        self.steps.append("marked")

    def expect(self, rollout_id: str, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)

    async def drain(self, rollout_id: str | None = None, *, timeout: float = 5) -> bool:  # noqa: ASYNC109
        if not self._tasks:
            return True
        _, pending = await asyncio.wait(self._tasks, timeout=timeout)
        return not pending

    @property
    def record(self) -> Mapping[str, Any]:
        ((_, record),) = self.records
        return record


class Played:
    """An application that sends given messages, behind the middleware, and the client's end of the call.

    Its answer may hold messages, exceptions to raise, events to wait for, and functions to call and await.
    ``client`` are the messages it receives first, ``steps`` what happened in order.
    """

    def __init__(self, *answer: Any, client: Any = ({"type": "http.request", "body": b"{}"},), **options: Any) -> None:
        self.answer, self.client = answer, list(client)
        self.steps: list[Any] = []
        self.sent: list[Message] = []
        self.scopes: list[Any] = []
        self.send_error: Exception | None = None
        self.store = NotedStore(self.steps)
        self.middleware = CaptureMiddleware(self.app, self.store, **{"call_ids": lambda: "call-1", **options})

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        for _ in range(len(self.client)):
            await receive()
        for step in self.answer:
            if isinstance(step, BaseException):
                raise step
            if isinstance(step, asyncio.Event):
                await step.wait()
            elif isinstance(step, dict):
                await send(step)
            else:
                await step(scope, send)

    async def receive(self) -> Message:
        return self.client.pop(0)

    async def send(self, message: Message) -> None:
        if self.send_error is not None:
            raise self.send_error
        self.sent.append(message)
        self.steps.append(message.get("body", message["type"]))

    async def run(self, path: str = f"/ng-rollout/0-0{PATHS['chat']}", **scope: Any) -> Played:
        known = {"type": "http", "method": "POST", "path": path, "headers": [], **scope}
        await self.middleware(known, self.receive, self.send)
        return self

    @property
    def got(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)
