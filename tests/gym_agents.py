# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Agents that hold a conversation through a model server, each in the dialect of one API."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self
from urllib.parse import urlsplit

import httpx
import orjson

Item = dict[str, Any]

# Token arrays are for nobody but the trainer, and Gym's own requests have no place for annotations.
_NOT_ECHOED = ("prompt_token_ids", "generation_token_ids", "generation_log_probs", "routed_experts", "annotations")


def agents_client() -> httpx.AsyncClient:
    """Return a client that opens a connection for each call, so that a server's processes share them out."""
    return httpx.AsyncClient(timeout=120, limits=httpx.Limits(max_keepalive_connections=0), trust_env=False)


@dataclass(slots=True)
class ChatAgent:
    """Talks Chat Completions. ``history`` is what it sends back each time, in its dialect."""

    client: httpx.AsyncClient
    server: str
    rollout: str
    history: list[Item] = field(default_factory=list)
    path: ClassVar[str] = "chat/completions"

    @property
    def url(self) -> str:
        """Where its calls go."""
        return f"{self.server}/ng-rollout/{self.rollout}/training-token-capture/v1/{self.path}"

    async def say(self, text: str) -> Item:
        """Add a user's message, make the call, take the answer into the history and return it."""
        self.history.append({"role": "user", "content": text})
        return await self.call()

    async def call(self) -> Item:
        """Make the call for the history as it is, and take the answer into it."""
        response = await self.client.post(self.url, json=self.body())
        assert response.status_code == 200, f"{self.rollout}: {response.status_code} {response.text[:1000]}"
        answer: Item = response.json()
        self.history += self.said(answer)
        return answer

    def fork(self) -> Self:
        """Return an agent that goes its own way from here."""
        return replace(self, history=list(self.history))

    @contextmanager
    def asking(self, text: str) -> Iterator[socket.socket]:
        """Ask over a connection that closes with the context, whatever has come by then; the history stays."""
        asker, address = self.fork(), urlsplit(self.url)
        asker.history.append({"role": "user", "content": text})
        body = orjson.dumps(asker.body())
        head = f"POST {address.path} HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\n"
        with socket.create_connection((address.hostname, address.port), timeout=60) as connection:
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            yield connection

    def body(self) -> Item:
        """Return the request for the history as it is."""
        return {"messages": self.history}

    def said(self, answer: Item) -> list[Item]:
        """Return what the model said, as the dialect echoes it."""
        return [_plain(answer["choices"][0]["message"])]

    def give_result(self, text: str) -> None:
        """Answer the tool call that the history ends in."""
        call = self.history[-1]["tool_calls"][0]
        self.history.append({"role": "tool", "tool_call_id": call["id"], "content": text})


class ResponsesAgent(ChatAgent):
    """Talks Responses."""

    __slots__ = ()
    path = "responses"

    def body(self) -> Item:
        return {"input": self.history}

    def said(self, answer: Item) -> list[Item]:
        return [_plain(item) for item in answer["output"]]

    def give_result(self, text: str) -> None:
        call = self.history[-1]
        self.history.append({"type": "function_call_output", "call_id": call["call_id"], "output": text})


class MessagesAgent(ChatAgent):
    """Talks Anthropic Messages."""

    __slots__ = ()
    path = "messages"

    def body(self) -> Item:
        return {"model": "stub", "max_tokens": 100, "messages": self.history}

    def said(self, answer: Item) -> list[Item]:
        return [{"role": "assistant", "content": answer["content"]}]

    def give_result(self, text: str) -> None:
        (call,) = (one for one in self.history[-1]["content"] if one["type"] == "tool_use")
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": text}
        self.history.append({"role": "user", "content": [result]})


DIALECTS = {"chat": ChatAgent, "responses": ResponsesAgent, "messages": MessagesAgent}


def _plain(item: Item) -> Item:
    """Return an item as a client echoes it: only what was said."""
    return {name: value for name, value in item.items() if name not in _NOT_ECHOED and value is not None}
