# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A served response taken apart: its output items in one shape, and the token arrays it carries.

Reads Responses, Chat Completions and Anthropic Messages payloads as nemo-gym 0.7.0 does. What is stored of them is
for ``records``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gym_objstore.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    Item = dict[str, Any]

TOKEN_ARRAYS: Final = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
"""The fields that a captured response must carry together, on one item."""

TOKEN_FIELDS: Final = (*TOKEN_ARRAYS, "routed_experts")
"""Every field of an item that an entry stores once, beside its output items."""


def response_to_output_items(payload: Mapping[str, Any]) -> list[Item]:
    """Return what the model said as Responses items, token arrays still in place.

    Chat messages become ``message`` items, one per choice. An Anthropic message becomes one ``reasoning`` item per
    thinking block, then one ``message`` item with the other blocks. Raises ``Invalid`` for a payload of no known shape.
    """
    output = payload.get("output")
    if isinstance(output, list) and output:
        return [item for item in output if isinstance(item, dict)]
    if payload.get("type") == "message" and payload.get("role") == "assistant":
        return _anthropic_items(payload)
    return [{"type": "message", "role": "assistant", **message} for message in _chat_messages(payload)]


def strip_token_fields(items: Iterable[Item]) -> tuple[list[Item], int | None]:
    """Return copies of the items without token fields, and the index of the one that carried generated ids.

    The index is ``None`` if no item did. Raises ``Invalid`` if several did: an entry holds one set of arrays.
    """
    whole = _list(items, "output items")
    for item in whole:
        if not isinstance(item, dict):
            raise Invalid(f"an output item must be an object, type={type(item).__name__}", kind="bad_response")
    carriers = [index for index, item in enumerate(whole) if item.get("generation_token_ids") is not None]
    _require_one_carrier(carriers)
    stripped = [{key: value for key, value in item.items() if key not in TOKEN_FIELDS} for item in whole]
    return stripped, carriers[0] if carriers else None


def extract_token_fields(payload: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the four token fields of a response, or ``None`` if it carries none.

    ``routed_experts`` may be ``None``. Raises ``Invalid`` if several items carry token fields, or one carries only
    some of the arrays.
    """
    output = [item for item in _list(payload.get("output"), "output") if isinstance(item, dict)]
    carriers = [item for item in [*output, *_chat_messages(payload)] if _arrays_of(item)]
    _require_one_carrier(carriers)
    if not carriers:
        return None
    missing = [name for name in TOKEN_ARRAYS if name not in _arrays_of(carriers[0])]
    if missing:
        raise Invalid(f"the response carries token arrays without {', '.join(missing)}", kind="bad_response")
    return {name: carriers[0].get(name) for name in TOKEN_FIELDS}


def _arrays_of(item: Item) -> list[str]:
    return [name for name in TOKEN_ARRAYS if item.get(name) is not None]


def _require_one_carrier(carriers: list[Any]) -> None:
    if len(carriers) > 1:
        reason = f"token arrays stand on several items of one response, items={len(carriers)}"
        raise Invalid(reason, kind="bad_response")


def _chat_messages(payload: Mapping[str, Any]) -> Iterator[Item]:
    """Yield the message of every choice; a choice or message that is ``null`` counts as an empty one."""
    for choice in _list(payload.get("choices"), "choices"):
        if choice and not isinstance(choice, dict):
            raise Invalid(f"a choice must be an object, type={type(choice).__name__}", kind="bad_response")
        message = (choice or {}).get("message") or {}
        if isinstance(message, dict):
            yield message


def _anthropic_items(payload: Mapping[str, Any]) -> list[Item]:
    blocks = _list(payload.get("content"), "content")
    items = [_reasoning_item(block) for block in blocks if _is_thinking(block)]
    content = [block for block in blocks if not _is_thinking(block)]
    if content:
        items.append({"type": "message", "role": "assistant", "content": content})
    return items


def _is_thinking(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") in ("thinking", "redacted_thinking")


def _reasoning_item(block: Item) -> Item:
    thinking, data = block.get("thinking"), block.get("data")
    item: Item = {"type": "reasoning", "summary": []}
    if block["type"] == "thinking" and isinstance(thinking, str):
        item["summary"] = [{"type": "summary_text", "text": thinking}]
    elif block["type"] == "redacted_thinking" and data is not None:
        item["encrypted_content"] = data
    return item


def _list(values: Any, what: str) -> list[Any]:
    try:
        return list(values or ())
    except TypeError as error:
        raise Invalid(f"{what} must be a list, type={type(values).__name__}", kind="bad_response") from error
