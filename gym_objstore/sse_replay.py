# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A complete answer as the event stream its client asked for, in each of the three API dialects.

The inverse of ``reassembly``: folding the events gives the answer back. Nothing is left out of an answer
that the dialect's events can carry; fields nobody knows go out with the first event of what they belong to.
Pure; ``sse_replay_responses`` has the events of OpenAI Responses.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, assert_never

from gym_objstore.errors import Invalid
from gym_objstore.sse_replay_responses import failed_events, responses_events

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gym_objstore.correlation import Dialect

    Event = dict[str, Any]

KEEP_ALIVE = b": keep-alive\n\n"
"""A comment that keeps a silent connection open and is no event."""

_DONE = b"data: [DONE]\n\n"
_MALFORMED = (AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError)
_TEXT_OF_DELTA = {"text": "text_delta", "thinking": "thinking_delta"}


def replay(dialect: Dialect, answer: Event, *, include_usage: bool = True) -> bytes:
    """Return an answer as its dialect's whole event stream, terminal event included.

    ``include_usage`` is what a chat client asks for in ``stream_options``; the other dialects always tell
    usage. Raises ``Invalid`` for an answer that is not of its dialect; no part of it is then to be sent.
    """
    try:
        match dialect:
            case "chat":
                return b"".join(_framed(event) for event in _chat_events(answer, include_usage=include_usage)) + _DONE
            case "messages":
                return b"".join(_named(event) for event in _messages_events(answer))
            case "responses":
                return b"".join(_named(event) for event in responses_events(answer))
            case _:
                assert_never(dialect)
    except _MALFORMED as error:
        reason = f"the answer cannot be sent as a stream, dialect={dialect}, error={type(error).__name__}: {error}"
        raise Invalid(reason, kind="bad_response") from error


def failure(dialect: Dialect, message: str, *, response_id: str) -> bytes:
    """Return the events that end a stream whose answer is not coming."""
    match dialect:
        case "chat":
            error = {"message": message, "type": "server_error", "code": "server_error"}
            return b"event: error\n" + _framed({"error": error})
        case "messages":
            return _named({"type": "error", "error": {"type": "api_error", "message": message}})
        case "responses":
            return b"".join(_named(event) for event in failed_events(message, response_id))
        case _:
            assert_never(dialect)


def _framed(event: Event) -> bytes:
    """Return an event as ASCII, so that no client takes a U+2028 in a text for the end of a line."""
    return b"data: " + json.dumps(event, allow_nan=False, separators=(",", ":")).encode() + b"\n\n"


def _named(event: Event) -> bytes:
    return f"event: {event['type']}\n".encode() + _framed(event)


def _chat_events(answer: Event, *, include_usage: bool) -> Iterator[Event]:
    """Yield chunks: for each choice its role, one for each other field of its message, its finish reason."""
    envelope = {name: value for name, value in answer.items() if name not in ("choices", "usage")}
    envelope["object"] = "chat.completion.chunk"
    for position, choice in enumerate(_objects(answer["choices"])):
        index = choice.get("index", position)
        for delta in _chat_deltas(choice["message"]):
            yield {**envelope, "choices": [{"index": index, "delta": delta, "finish_reason": None}]}
        rest = {name: value for name, value in choice.items() if name != "message"}
        yield {**envelope, "choices": [{"finish_reason": None, **rest, "index": index, "delta": {}}]}
    if include_usage and answer.get("usage") is not None:
        yield {**envelope, "choices": [], "usage": answer["usage"]}


def _chat_deltas(message: Event) -> Iterator[Event]:
    content = message.get("content")
    yield {"role": message.get("role") or "assistant", "content": None if content is None else ""}
    for name, value in message.items():
        if name == "tool_calls":
            calls = [{**call, "index": index} for index, call in enumerate(_objects(value or []))]
            yield from ({name: [call]} for call in calls)
        elif name != "role" and value not in (None, ""):
            yield {name: value}


def _messages_events(answer: Event) -> Iterator[Event]:
    """Yield the message without content, its blocks, and how it stopped."""
    usage = answer.get("usage") or {"input_tokens": 0, "output_tokens": 0}
    blocks = _objects(answer["content"])
    began: Event = {"content": [], "stop_reason": None, "stop_sequence": None, "usage": {**usage, "output_tokens": 0}}
    yield {"type": "message_start", "message": {**answer, **began}}
    for index, block in enumerate(blocks):
        start, deltas = _block_parts(block)
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stop = {name: answer.get(name) for name in ("stop_reason", "stop_sequence")}
    yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 0, **usage}}
    yield {"type": "message_stop"}


def _block_parts(block: Event) -> tuple[Event, list[Event]]:
    """Return a block's start and what follows it; blocks without deltas of their own start whole."""
    kind = block["type"]
    if kind in _TEXT_OF_DELTA:
        deltas = [{"type": _TEXT_OF_DELTA[kind], kind: block.get(kind) or ""}]
        if block.get("signature"):
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        return {**block, kind: ""}, deltas
    if kind == "tool_use":
        return {**block, "input": {}}, [
            {"type": "input_json_delta", "partial_json": json.dumps(block.get("input", {}))}
        ]
    return block, []


def _objects(values: Any) -> list[Event]:
    """Return a list of objects as it is; raises ``TypeError`` for anything else."""
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        msg = f"a list of objects was expected, type={type(values).__name__}"
        raise TypeError(msg)
    return values
