# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What was said in a model call, turn by turn, whatever the API dialect, and which of it was not said before.

The shape of a body decides, not the dialect it was sent in. Nothing here fails on a body of another shape: what is
not understood is a turn of kind ``other``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

if TYPE_CHECKING:
    from gym_objstore.calls import ModelCallRecord

_TEXTS = ("text", "input_text", "output_text", "refusal", "summary_text", "reasoning_text")
_UNSAID = ("type", "role", "id", "status", "annotations", "cache_control")
_SHOWN = 200
"""Characters of a part that is no text, such as an image."""


class Turn(NamedTuple):
    """One thing that was said.

    ``role`` is ``system``, ``user``, ``assistant``, ``tool`` or what the body says. ``kind`` is ``text``,
    ``tool_call`` (``name`` and the arguments as JSON), ``tool_result``, ``reasoning``, ``error``, ``raw`` (a body that
    is no JSON object) or ``other``. ``call_id`` joins a tool call and its result.
    """

    role: str
    kind: str
    text: str
    name: str = ""
    call_id: str = ""


class Said(NamedTuple):
    """A call's turns that are new: those of its request behind what ``continues`` said already, and its response.

    ``continues`` is the index of the call whose conversation this one goes on with, None for a beginning; ``repeated``
    the number of turns that are left out.
    """

    continues: int | None
    repeated: int
    request: list[Turn]
    response: list[Turn]


class Conversation:
    """The turns of a rollout so far, as a tree: calls that go on with the same history share it."""

    def __init__(self) -> None:
        self._root: _Node = _Node(None, {})

    def add(self, call: ModelCallRecord) -> Said:
        """Return what is new in a call. Reasoning, which clients may leave out of what they repeat, is not compared."""
        request, response = request_turns(call), response_turns(call)
        node, repeated = self._root, 0
        for turn in request:
            following = node if turn.kind == "reasoning" else node.children.get(_key(turn))
            if following is None:
                break
            node, repeated = following, repeated + 1
        continues = node.call_index
        for turn in (*request[repeated:], *response):
            if turn.kind != "reasoning":
                node = node.children.setdefault(_key(turn), _Node(call.call_index, {}))
        return Said(continues, repeated, request[repeated:], response)


class _Node(NamedTuple):
    call_index: int | None
    children: dict[bytes, _Node]


def request_turns(call: ModelCallRecord) -> list[Turn]:
    """Return what the model was given, the instructions first."""
    request = call.request
    if request is None:
        return [Turn("user", "raw", call.request_raw)] if call.request_raw else []
    turns: list[Turn] = []
    for field in ("instructions", "system"):
        turns += _content("system", request.get(field))
    for field in ("messages", "input"):
        said = request.get(field)
        turns += [Turn("user", "text", said)] if isinstance(said, str) else _items(said)
    return turns


def response_turns(call: ModelCallRecord) -> list[Turn]:
    """Return what the model, or the server in its place, answered."""
    response = call.response
    if response is None:
        return [Turn("assistant", "raw", call.response_raw)] if call.response_raw else []
    turns = list(_items(response.get("output")))
    choices = response.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, Mapping):
            turns += _item(choice.get("message"), "assistant")
    turns += _content("assistant", response.get("content"))
    if response.get("error"):
        turns.append(Turn("assistant", "error", _text(response["error"])))
    return turns


def _items(items: Any) -> Iterator[Turn]:
    for item in items if isinstance(items, list) else ():
        yield from _item(item, "")


def _item(item: Any, role: str) -> Iterator[Turn]:
    """Yield the turns of a message, or of an item of the Responses dialect."""
    if not isinstance(item, Mapping):
        if item is not None:
            yield Turn(role, "other", _text(item))
        return
    kind, role = item.get("type"), _word(item.get("role")) or role
    if kind == "function_call":
        yield _tool_call(item, item.get("arguments"), "call_id", "id")
    elif kind == "function_call_output":
        yield Turn("tool", "tool_result", _joined(item.get("output")), call_id=_word(item.get("call_id")))
    elif kind == "reasoning":
        thought = [_joined(item.get(field)) for field in ("summary", "content")]
        yield Turn("assistant", "reasoning", "\n".join(filter(None, thought)))
    elif role in {"tool", "function"}:
        yield Turn("tool", "tool_result", _joined(item.get("content")), call_id=_word(item.get("tool_call_id")))
    elif role:
        yield from _message(item, role)
    else:
        yield Turn("", "other", _brief(item), _word(kind))


def _message(message: Mapping[str, Any], role: str) -> Iterator[Turn]:
    if thought := message.get("reasoning_content") or message.get("reasoning"):
        yield Turn(role, "reasoning", _text(thought))
    yield from _content(role, message.get("content"))
    if message.get("refusal"):
        yield Turn(role, "text", _text(message["refusal"]))
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            yield _tool_call({**function, "id": call.get("id")}, function.get("arguments"), "id")


def _content(role: str, content: Any) -> Iterator[Turn]:
    if isinstance(content, str):
        if content:
            yield Turn(role, "text", content)
        return
    for part in content if isinstance(content, list) else ():
        yield from _part(role, part)


def _part(role: str, part: Any) -> Iterator[Turn]:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if isinstance(part, str) or kind in _TEXTS:
        if text := _plain(part):
            yield Turn(role, "text", text)
    elif kind == "tool_use":
        yield _tool_call(part, part.get("input"), "id")
    elif kind == "tool_result":
        yield Turn("tool", "tool_result", _joined(part.get("content")), call_id=_word(part.get("tool_use_id")))
    elif kind in {"thinking", "redacted_thinking"}:
        yield Turn(role, "reasoning", _text(part.get("thinking") or "redacted"))
    else:
        yield Turn(role, "other", _brief(part), _word(kind))


def _tool_call(call: Mapping[str, Any], arguments: Any, *ids: str) -> Turn:
    call_id = next((_word(call.get(name)) for name in ids if call.get(name)), "")
    return Turn("assistant", "tool_call", _arguments(arguments), _word(call.get("name")), call_id)


def _arguments(arguments: Any) -> str:
    """Return arguments as one JSON text, however the client wrote them when it repeated them."""
    if isinstance(arguments, str):
        try:
            arguments = orjson.loads(arguments)
        except orjson.JSONDecodeError:
            return arguments  # type: ignore[no-any-return]
    return _text(arguments)


def _joined(content: Any) -> str:
    """Return the texts of a tool's result or of reasoning, parts that are none in brief."""
    if isinstance(content, list):
        return "\n".join(_plain(part) or _brief(part) for part in content)
    return "" if content is None else _text(content)


def _plain(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping) or part.get("type") not in _TEXTS:
        return ""
    return _text(part.get("text") or part.get("refusal") or "")


def _brief(part: Any) -> str:
    """Return the beginning of what is no text, and how long it is."""
    said = {name: value for name, value in part.items() if name not in _UNSAID} if isinstance(part, Mapping) else part
    text = _text(said)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value, default=str).decode()


def _word(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _key(turn: Turn) -> bytes:
    parts: Sequence[str] = turn
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).digest()[:16]
