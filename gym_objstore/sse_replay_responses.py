# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The events of OpenAI Responses for an answer that is complete.

Items are announced, filled by deltas and finished as OpenAI does, so that clients which read only deltas and
clients which read only finished items see the same. Items of kinds that have no deltas are announced whole.
Framing, and what to do with an answer of another shape, is for ``sse_replay``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    Event = dict[str, Any]

_TERMINAL = {"incomplete": "response.incomplete", "failed": "response.failed"}
_COMPLETED = "response.completed"
_BEGUN = {"status": "in_progress", "output": []}


def responses_events(answer: Event) -> Iterator[Event]:
    """Yield the numbered events of an answer; the last one carries it whole.

    Raises ``TypeError``, ``KeyError`` or ``AttributeError`` for an answer that is none.
    """
    return _numbered(_events(answer))


def failed_events(message: str, response_id: str) -> Iterator[Event]:
    """Yield the events of a response that failed."""
    failed = {"id": response_id, "object": "response", "status": "failed", "output": []}
    begun = {"type": "response.created", "response": {**failed, **_BEGUN}}
    error = {"code": "server_error", "message": message}
    return _numbered(iter([begun, {"type": "response.failed", "response": {**failed, "error": error}}]))


def _numbered(events: Iterator[Event]) -> Iterator[Event]:
    for number, event in enumerate(events):
        yield {**event, "sequence_number": number}


def _events(answer: Event) -> Iterator[Event]:
    output = answer["output"]
    if not isinstance(output, list):
        msg = f"output must be a list, type={type(output).__name__}"
        raise TypeError(msg)
    begun = {**answer, **_BEGUN}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(output):
        yield {"type": "response.output_item.added", "output_index": index, "item": _announced(item)}
        place = {"item_id": item.get("id") or "", "output_index": index}
        yield from ({**event, **place} for event in _filling(item))
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": _TERMINAL.get(str(answer.get("status")), _COMPLETED), "response": answer}


def _announced(item: Event) -> Event:
    """Return an item as it is before its deltas."""
    match item.get("type"):
        case "message":
            return {**item, "content": [], "status": "in_progress"}
        case "function_call":
            return {**item, "arguments": "", "status": "in_progress"}
        case "reasoning":
            return {**item, "summary": []}
        case _:
            return dict(item)


def _filling(item: Event) -> Iterator[Event]:
    match item.get("type"):
        case "message":
            for index, part in enumerate(item.get("content") or []):
                yield from ({**event, "content_index": index} for event in _part(part))
        case "function_call":
            arguments = item.get("arguments") or ""
            yield {"type": "response.function_call_arguments.delta", "delta": arguments}
            done = {"type": "response.function_call_arguments.done", "arguments": arguments}
            yield {**done, "name": item.get("name")}
        case "reasoning":
            for index, part in enumerate(item.get("summary") or []):
                yield from ({**event, "summary_index": index} for event in _summary(part))


def _part(part: Event) -> Iterator[Event]:
    """Yield the events of one part of a message: a text, a refusal, or one that has no deltas."""
    kind = part.get("type")
    if kind == "output_text":
        text = part.get("text") or ""
        yield {"type": "response.content_part.added", "part": {**part, "text": ""}}
        yield {"type": "response.output_text.delta", "delta": text, "logprobs": []}
        yield {"type": "response.output_text.done", "text": text, "logprobs": []}
    elif kind == "refusal":
        refusal = part.get("refusal") or ""
        yield {"type": "response.content_part.added", "part": {**part, "refusal": ""}}
        yield {"type": "response.refusal.delta", "delta": refusal}
        yield {"type": "response.refusal.done", "refusal": refusal}
    else:
        yield {"type": "response.content_part.added", "part": part}
    yield {"type": "response.content_part.done", "part": part}


def _summary(part: Event) -> Iterator[Event]:
    text = part.get("text") or ""
    yield {"type": "response.reasoning_summary_part.added", "part": {**part, "text": ""}}
    yield {"type": "response.reasoning_summary_text.delta", "delta": text}
    yield {"type": "response.reasoning_summary_text.done", "text": text}
    yield {"type": "response.reasoning_summary_part.done", "part": part}
