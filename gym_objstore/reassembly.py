# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""One response object out of the events of a stream, for each of the three API dialects.

A fold takes the parsed events one by one and keeps only what the response needs. Whether bytes are an
event, and which event ends a stream, is ``sse``'s business. Events of a shape no provider sends raise
``MALFORMED`` errors, from ``add`` or from ``response``; the caller then has no response, and its raw bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from gym_objstore.portable import loads

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gym_objstore.correlation import Dialect

MALFORMED = (AttributeError, TypeError, ValueError, RecursionError)
"""What a fold raises for an event that is JSON but not of its dialect."""

Event = dict[str, Any]

_FINAL = ("response.completed", "response.incomplete", "response.failed")


class Fold(Protocol):
    """Events in, one response out."""

    def add(self, event: Event) -> None:
        """Take the next event of the stream."""

    def response(self) -> dict[str, Any] | None:
        """Return the response as far as it is known; ``None`` if no event carried a part of one."""


class ResponsesFold:
    """OpenAI Responses: the terminal event carries the whole response; before it, the latest one stands."""

    def __init__(self) -> None:
        self._latest: dict[str, Any] | None = None
        self._final: dict[str, Any] | None = None

    def add(self, event: Event) -> None:
        """Keep the response the event carries, if any."""
        response = event.get("response")
        if not isinstance(response, dict):
            return
        self._latest = response
        if event.get("type") in _FINAL:
            self._final = response

    def response(self) -> dict[str, Any] | None:
        """Return the final response, else the latest."""
        return self._latest if self._final is None else self._final


class ChatFold:
    """OpenAI Chat Completions: deltas of one message. All choices are read as that one message."""

    def __init__(self) -> None:
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._refusal: list[str] = []
        self._tool_calls: dict[int, _ToolCall] = {}
        self._fields: dict[str, Any] = {"object": "chat.completion", "model": None}
        self._role = "assistant"
        self._finish_reason: str | None = None
        self._started = False

    def add(self, event: Event) -> None:
        """Take one chunk: its envelope's fields and the delta of each choice."""
        self._fields["model"] = event.get("model") or self._fields["model"]
        if isinstance(event.get("id"), str):
            self._fields["id"] = event["id"]
        if event.get("usage"):
            self._fields["usage"] = event["usage"]
        for choice in event.get("choices") or ():
            if isinstance(choice, dict):
                self._started = True
                self._add_delta(choice.get("delta") or {})
                self._finish_reason = choice.get("finish_reason") or self._finish_reason

    def _add_delta(self, delta: dict[str, Any]) -> None:
        self._role = delta.get("role") or self._role
        for parts, text in (
            (self._content, delta.get("content")),
            (self._refusal, delta.get("refusal")),
            (self._reasoning, delta.get("reasoning_content") or delta.get("reasoning")),
        ):
            if text:
                parts.append(text)
        for piece in delta.get("tool_calls") or ():
            self._tool_calls.setdefault(piece.get("index", 0), _ToolCall()).add(piece)

    def response(self) -> dict[str, Any] | None:
        """Return the completion; ``None`` before the first choice."""
        if not self._started:
            return None
        message: dict[str, Any] = {"role": self._role, "content": "".join(self._content) or None}
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        if self._refusal:
            message["refusal"] = "".join(self._refusal)
        if self._tool_calls:
            message["tool_calls"] = [self._tool_calls[index].whole() for index in sorted(self._tool_calls)]
        choice = {"index": 0, "message": message, "finish_reason": self._finish_reason}
        return {**self._fields, "choices": [choice]}


class _ToolCall:
    """One tool call of a chat message, in pieces."""

    def __init__(self) -> None:
        self._id: str | None = None
        self._name = ""
        self._arguments: list[str] = []

    def add(self, piece: dict[str, Any]) -> None:
        function = piece.get("function") or {}
        self._id = piece.get("id") or self._id
        self._name = function.get("name") or self._name
        if function.get("arguments"):
            self._arguments.append(function["arguments"])

    def whole(self) -> dict[str, Any]:
        function = {"name": self._name, "arguments": "".join(self._arguments)}
        return {"id": self._id, "type": "function", "function": function}


class MessagesFold:
    """Anthropic Messages: content blocks by index, and usage that grows from start to end."""

    def __init__(self) -> None:
        self._message: dict[str, Any] | None = None
        self._blocks: dict[int, _Block] = {}
        self._inputs: dict[int, list[str]] = {}
        self._usage: dict[str, Any] = {}

    def add(self, event: Event) -> None:
        """Take one event; pings and others that carry no part of the message change nothing."""
        match event.get("type"):
            case "message_start":
                self._start(event.get("message") or {})
            case "content_block_start":
                index = event.get("index", len(self._blocks))
                self._blocks[index] = _Block(event.get("content_block") or {})
            case "content_block_delta":
                self._add_delta(event.get("index", 0), event.get("delta") or {})
            case "message_delta":
                self._usage.update(event.get("usage") or {})
                stop = (event.get("delta") or {}).get("stop_reason")
                if self._message is not None and stop:
                    self._message["stop_reason"] = stop

    def _start(self, message: dict[str, Any]) -> None:
        known = ("id", "type", "role", "model", "stop_reason")
        self._message = {key: message.get(key) for key in known if message.get(key) is not None}
        self._usage.update(message.get("usage") or {})

    def _add_delta(self, index: int, delta: dict[str, Any]) -> None:
        block = self._blocks.setdefault(index, _Block({}))
        match delta.get("type"):
            case "text_delta":
                block.add("text", delta.get("text"))
            case "thinking_delta":
                block.add("thinking", delta.get("thinking"))
            case "input_json_delta":
                self._inputs.setdefault(index, []).append(delta.get("partial_json") or "")

    def response(self) -> dict[str, Any] | None:
        """Return the message; ``None`` before its start or first block."""
        if self._message is None and not self._blocks:
            return None
        content = [self._blocks[index].whole(self._inputs.get(index)) for index in sorted(self._blocks)]
        response = {**(self._message or {}), "type": "message", "content": content}
        return {**response, "usage": dict(self._usage)} if self._usage else response


class _Block:
    """One content block: what its start said, and the text that followed."""

    def __init__(self, start: Mapping[str, Any]) -> None:
        self._fields = dict(start)
        self._texts: dict[str, list[str]] = {}

    def add(self, field: str, text: str | None) -> None:
        self._fields["type"] = self._fields.get("type") or field
        parts = self._texts.setdefault(field, [self._fields.get(field) or ""])
        parts.append(text or "")

    def whole(self, json_parts: list[str] | None) -> dict[str, Any]:
        block = self._fields | {field: "".join(parts) for field, parts in self._texts.items()}
        if json_parts is not None and block.get("type") == "tool_use" and not block.get("input"):
            block["input"] = _tool_input("".join(json_parts))
        return block


def _tool_input(text: str) -> Any:
    try:
        return loads(text) if text else {}
    except ValueError:
        return {"_raw": text}


FOLDS: Mapping[Dialect, Callable[[], Fold]] = {
    "responses": ResponsesFold,
    "chat": ChatFold,
    "messages": MessagesFold,
}
