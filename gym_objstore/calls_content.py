# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Tool calls, reasoning and the finish reason out of a response of any of the three dialects, for ``calls``.

The shape of the response decides, not the dialect it was asked for: ``output`` is a Responses one,
``choices`` a chat completion, ``content`` an Anthropic message. Parts of another shape are skipped; a part
that cannot even be looked through raises ``TypeError``, and the record counts as damaged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from gym_objstore.portable import parse


class Content(NamedTuple):
    """What the model did besides answering: tool calls as ``{call_id, name, arguments}``, and its reasoning."""

    tool_calls: list[dict[str, Any]]
    reasoning: str | None


def content_of(response: Mapping[str, Any]) -> Content:
    """Return a response's tool calls and reasoning texts, in its order, the texts joined by line breaks."""
    for field, tool_calls, reasoning in _SHAPES:
        parts = response.get(field)
        if isinstance(parts, list):
            texts = [text for text in reasoning(parts) if isinstance(text, str)]
            return Content(list(tool_calls(parts)), "\n".join(texts) or None)
    return Content([], None)


def finish_reason_of(response: Mapping[str, Any]) -> str | None:
    """Return why the model stopped: Anthropic's stop reason, chat's finish reason, or why it is incomplete."""
    choices = response.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    details = response.get("incomplete_details")
    reasons = (
        response.get("stop_reason"),
        first.get("finish_reason") if isinstance(first, dict) else None,
        details.get("reason") if isinstance(details, dict) else None,
    )
    return next((reason for reason in reasons if isinstance(reason, str)), None)


def _responses_tool_calls(output: list[Any]) -> Iterator[dict[str, Any]]:
    for item in _objects(output, "function_call"):
        yield _tool_call(item.get("call_id") or item.get("id"), item.get("name"), _arguments(item.get("arguments")))


def _responses_reasoning(output: list[Any]) -> Iterator[Any]:
    for item in _objects(output, "reasoning"):
        for summary in item.get("summary") or ():
            if isinstance(summary, dict) and summary.get("text"):
                yield summary["text"]


def _chat_tool_calls(choices: list[Any]) -> Iterator[dict[str, Any]]:
    for message in _messages(choices):
        for call in message.get("tool_calls") or ():
            if isinstance(call, dict):
                function = call.get("function")
                named = function if isinstance(function, Mapping) else {}
                yield _tool_call(call.get("id"), named.get("name"), _arguments(named.get("arguments")))


def _chat_reasoning(choices: list[Any]) -> Iterator[Any]:
    """Read the older field before the one newer servers send."""
    for message in _messages(choices):
        text = message.get("reasoning_content") or message.get("reasoning")
        if text:
            yield text


def _messages_tool_calls(content: list[Any]) -> Iterator[dict[str, Any]]:
    for block in _objects(content, "tool_use"):
        yield _tool_call(block.get("id"), block.get("name"), block.get("input") or {})


def _messages_reasoning(content: list[Any]) -> Iterator[Any]:
    for block in _objects(content, "thinking", "redacted_thinking"):
        yield block.get("thinking")


_SHAPES = (
    ("output", _responses_tool_calls, _responses_reasoning),
    ("choices", _chat_tool_calls, _chat_reasoning),
    ("content", _messages_tool_calls, _messages_reasoning),
)


def _objects(parts: list[Any], *types: str) -> Iterator[dict[str, Any]]:
    return (part for part in parts if isinstance(part, dict) and part.get("type") in types)


def _messages(choices: list[Any]) -> Iterator[Mapping[str, Any]]:
    messages = (choice.get("message") for choice in choices if isinstance(choice, dict))
    return (message for message in messages if isinstance(message, Mapping))


def _tool_call(call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    return {"call_id": call_id, "name": name, "arguments": arguments}


def _arguments(arguments: Any) -> Any:
    """Return a tool call's arguments as a value; text that is not JSON as ``{"_raw": text}``."""
    if isinstance(arguments, dict):
        return arguments
    if not isinstance(arguments, str):
        return {}
    try:
        value, _ = parse(arguments)
    except ValueError:
        return {"_raw": arguments}
    return value
