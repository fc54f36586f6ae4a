# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Two hashes of a conversation, equal across Chat, Responses and Anthropic shapes. Version 2 of nemo-gym 0.7.0.

``assistant_fingerprint`` covers what the model said and finds the call that a request continues;
``conversation_digest`` covers everything and proves that the context is unchanged. Both read messages as a harness
echoes them and keep no state. Which entry continues which is decided in ``lineage``.

Every message becomes tagged, length-delimited text fields: its role, its content parts as (type, text), its tool
calls as (id, name, arguments) and its tool results as (id, output). Reasoning items have none: harnesses need not
echo them.
"""

from __future__ import annotations

import hashlib
import json
import struct
from typing import TYPE_CHECKING, Any, Final

from gym_objstore.digests import canonical_json
from gym_objstore.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    Message = dict[str, Any]
    Field = tuple[int, str]

FINGERPRINT_VERSION: Final = 2
"""Entries stamped with another version are no candidates: their fingerprints say nothing here."""

_FINGERPRINT_DOMAIN = b"nemo-gym-lineage"
_CONTEXT_DOMAIN = b"nemo-gym-lineage-context"
_ROLE, _PART_TYPE, _PART_TEXT, _CALL_ID, _CALL_NAME, _CALL_ARGUMENTS, _RESULT_ID, _RESULT_TEXT = range(8)
_HEADER = struct.Struct(">BQ")
_TEXT_TYPES = {"", "text", "input_text", "output_text"}
_TOOL_TYPES = {"tool_use", "tool_result"}


def assistant_fingerprint(messages: Sequence[Message] | None) -> str:
    """Return the fingerprint of the model-authored messages in order; ``""`` without any.

    Raises ``Invalid`` naming the message that is of no known shape or holds text that is not Unicode.
    """
    hasher = hashlib.sha256(_FINGERPRINT_DOMAIN)
    authored = [(index, message) for index, message in _numbered(messages) if _model_authored(message)]
    for index, message in authored:
        # Without a role field every tag of the wire layout is one lower than in the context digest.
        _absorb(hasher, index, ((tag - 1, text) for tag, text in _said(message)))
    return hasher.hexdigest() if authored else ""


def conversation_digest(messages: Sequence[Message] | None) -> str:
    """Return the digest of all messages in order, whoever wrote them. Raises ``Invalid`` as the fingerprint does."""
    hasher = hashlib.sha256(_CONTEXT_DOMAIN)
    for index, message in _numbered(messages):
        _absorb(hasher, index, _all_fields(message))
    return hasher.hexdigest()


def canonicalize_tool_arguments(value: Any) -> str:
    """Return tool arguments as canonical JSON, whether given as an object or as JSON text.

    Text that is not JSON is stripped of outer white space and kept; ``None`` is ``""``. For comparison only: a
    record keeps the model's own text. Raises ``Invalid`` for values without canonical JSON.
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        return _canonical(value)
    try:
        parsed = json.loads(value)
    except RecursionError as error:
        raise Invalid("tool arguments are nested too deeply", kind="bad_message") from error
    except ValueError:
        return value.strip()
    return _canonical(parsed)


def _numbered(messages: Sequence[Message] | None) -> Iterator[tuple[int, Message]]:
    for index, message in enumerate(messages or ()):
        if not isinstance(message, dict):
            raise Invalid(f"message {index} must be an object, type={type(message).__name__}", kind="bad_message")
        yield index, message


def _absorb(hasher: hashlib._Hash, index: int, fields: Iterable[Field]) -> None:
    try:
        for tag, text in fields:
            encoded = text.encode()
            hasher.update(_HEADER.pack(tag, len(encoded)) + encoded)
    except ValueError as error:
        reason = f"message {index} cannot be hashed: {error}"
        raise Invalid(reason, kind="bad_message") from error


def _model_authored(message: Message) -> bool:
    return message.get("role") == "assistant" or message.get("type") == "function_call"


def _all_fields(message: Message) -> Iterator[Field]:
    yield _ROLE, str(message.get("role") or message.get("type") or "")
    yield from _said(message)
    for identity, output in _tool_results(message):
        yield _RESULT_ID, str(identity or "")
        yield _RESULT_TEXT, output if isinstance(output, str) else _canonical(output)


def _said(message: Message) -> Iterator[Field]:
    for part_type, text in _content_parts(message.get("content")):
        yield _PART_TYPE, part_type
        yield _PART_TEXT, text
    for identity, name, arguments in _tool_calls(message):
        yield _CALL_ID, str(identity or "")
        yield _CALL_NAME, str(name)
        yield _CALL_ARGUMENTS, canonicalize_tool_arguments(arguments)


def _content_parts(content: Any) -> Iterator[tuple[str, str]]:
    if isinstance(content, str):
        content = [content]
    elif content is not None and not isinstance(content, list):
        raise Invalid(f"content must be text or a list, type={type(content).__name__}")
    for block in content or ():
        if isinstance(block, str):
            part_type, text = "text", block
        elif isinstance(block, dict):
            part_type, text = _block_part(block)
        else:
            raise Invalid(f"a content block must be text or an object, type={type(block).__name__}")
        if text:
            yield part_type, text


def _block_part(block: dict[str, Any]) -> tuple[str, str]:
    """Return a block's type and text; no text where it counts as a tool call or result, or is empty."""
    block_type = str(block.get("type") or "")
    if block_type in _TOOL_TYPES:
        return block_type, ""
    text = block.get("text")
    if block_type in _TEXT_TYPES and isinstance(text, str):
        return "text", text
    if not block_type:
        raise Invalid("a content block has neither a type nor text")
    return block_type, _canonical(block)


def _tool_calls(message: Message) -> Iterator[tuple[Any, Any, Any]]:
    """Yield (id, name, arguments) of a Responses item, then Anthropic blocks, then Chat tool calls."""
    if message.get("type") == "function_call":
        name, namespace = message.get("name", ""), message.get("namespace")
        # Streams carry the namespace apart, echoed requests carry it joined: both are one name.
        full_name = f"{namespace}__{name}" if namespace else name
        yield message.get("call_id") or message.get("id"), full_name, message.get("arguments")
    for block in _blocks(message, "tool_use"):
        yield block.get("id"), block.get("name", ""), block.get("input")
    for call in _objects(message.get("tool_calls"), "tool_calls"):
        function = _object(call.get("function"), "function")
        yield call.get("id"), function.get("name", ""), function.get("arguments")


def _tool_results(message: Message) -> Iterator[tuple[Any, Any]]:
    """Yield (id, output) of a Responses item or a Chat tool message, then of Anthropic blocks."""
    if message.get("type") == "function_call_output":
        yield message.get("call_id") or message.get("id"), message.get("output")
    elif message.get("role") == "tool":
        yield message.get("tool_call_id"), message.get("content")
    for block in _blocks(message, "tool_result"):
        yield block.get("tool_use_id") or block.get("id"), block.get("content")


def _blocks(message: Message, block_type: str) -> list[dict[str, Any]]:
    content = message.get("content")
    if not isinstance(content, list):
        return []
    return [block for block in content if isinstance(block, dict) and block.get("type") == block_type]


def _objects(values: Any, what: str) -> list[dict[str, Any]]:
    if values and not isinstance(values, (list, tuple)):
        raise Invalid(f"{what} must be a list, type={type(values).__name__}")
    return [_object(value, what) for value in values or ()]


def _object(value: Any, what: str) -> dict[str, Any]:
    """Return an object; nothing counts as an empty one, as servers write ``null`` for it."""
    if value and not isinstance(value, dict):
        raise Invalid(f"{what} must hold objects, type={type(value).__name__}")
    return value or {}


def _canonical(value: Any) -> str:
    return canonical_json(value).decode()
