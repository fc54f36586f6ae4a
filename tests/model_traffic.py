# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Hypothesis strategies for what model servers send: responses and event streams in all three dialects.

Most of it is what providers send; a part is malformed in shape (an object where a text belongs), in format
(line ends, comments, broken JSON, several data lines) or cut off. ``HOSTILE`` adds characters that are line
ends to Python but not to SSE, and lone surrogates.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

DIALECTS = ("responses", "chat", "messages")

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x85\u2028\u2029"), max_size=8)
HOSTILE = st.text(st.sampled_from('a\u2028\u2029\x85\x1c\ud83d\ude00\ud800 \n\r\t"\\:{}🙂'), max_size=8)
SCALARS = st.none() | st.booleans() | st.integers(-5, 2**62) | st.floats(allow_nan=False, allow_infinity=False) | TEXT
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3))

COUNT = st.integers(0, 10_000) | st.none() | st.sampled_from([-1, True, 2.5, "7"])
FINISH = st.sampled_from(["stop", "length", "tool_calls", "end_turn", "tool_use", None])
ARGUMENTS = st.sampled_from(['{"city": "Rome"}', "", "{", "[1]", "5", '{"a": {"b": [1, 2]}}', '"text"']) | TEXT
IDS = st.sampled_from(["call_1", "msg_2", "resp_3"]) | st.none()
MALFORMED: st.SearchStrategy[Any] = st.just({"not": "a text"})


def maybe(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """An object that has any of the fields."""
    return st.fixed_dictionaries({}, optional=fields)


def rarely(malformed: st.SearchStrategy[Any], usual: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """The malformed value in about one of 40 draws."""
    return st.integers(0, 39).flatmap(lambda draw: malformed if draw == 0 else usual)


DETAILS = maybe(reasoning_tokens=COUNT, cached_tokens=COUNT, cached_input_tokens=COUNT) | JSON
USAGE = (
    maybe(
        input_tokens=COUNT,
        output_tokens=COUNT,
        prompt_tokens=COUNT,
        completion_tokens=COUNT,
        total_tokens=COUNT,
        cache_read_input_tokens=COUNT,
        cache_creation_input_tokens=COUNT,
        cached_input_tokens=COUNT,
        reasoning_output_tokens=COUNT,
        input_tokens_details=DETAILS,
        output_tokens_details=DETAILS,
        prompt_tokens_details=DETAILS,
        completion_tokens_details=DETAILS,
    )
    | JSON
)

FUNCTION = maybe(name=TEXT, arguments=ARGUMENTS | st.dictionaries(TEXT, SCALARS, max_size=2))
CHAT_MESSAGE = maybe(
    role=st.just("assistant"),
    content=TEXT | st.none(),
    reasoning_content=TEXT | st.none(),
    reasoning=TEXT,
    tool_calls=rarely(JSON, st.lists(maybe(id=IDS, type=st.just("function"), function=FUNCTION | JSON), max_size=3)),
)
OUTPUT_ITEM = (
    maybe(type=st.just("function_call"), call_id=IDS, id=IDS, name=TEXT, arguments=ARGUMENTS | JSON)
    | maybe(type=st.just("reasoning"), summary=rarely(JSON, st.lists(maybe(text=TEXT) | JSON, max_size=3)))
    | maybe(type=st.just("message"), content=JSON)
)
BLOCK = (
    maybe(type=st.just("tool_use"), id=IDS, name=TEXT, input=JSON)
    | maybe(type=st.sampled_from(["thinking", "redacted_thinking"]), thinking=TEXT | JSON, signature=TEXT)
    | maybe(type=st.just("text"), text=TEXT)
)
ENVELOPE = {
    "id": IDS | JSON,
    "model": TEXT | st.none() | JSON,
    "usage": USAGE,
    "status": st.sampled_from(["completed", "incomplete"]) | JSON,
    "stop_reason": FINISH | JSON,
    "incomplete_details": maybe(reason=TEXT) | JSON,
}
CHOICE = maybe(message=CHAT_MESSAGE | JSON, finish_reason=FINISH)
RESPONSES: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "responses": maybe(output=st.lists(OUTPUT_ITEM | JSON, max_size=4) | JSON, **ENVELOPE),
    "chat": maybe(choices=st.lists(CHOICE | JSON, max_size=3) | JSON, **ENVELOPE),
    "messages": maybe(content=st.lists(BLOCK | JSON, max_size=4) | JSON, **ENVELOPE),
}

_INDEX = st.integers(0, 2)
_OBJECT_USAGE = maybe(input_tokens=COUNT, output_tokens=COUNT, prompt_tokens=COUNT) | st.none()


def _piece(text: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    return rarely(MALFORMED, text | st.none())


def chat_events(text: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    """Chat chunks."""
    call = maybe(index=_INDEX, id=IDS, function=maybe(name=text, arguments=_piece(text)) | st.none())
    delta = maybe(
        role=st.just("assistant"),
        content=_piece(text),
        reasoning_content=text,
        reasoning=text,
        refusal=text,
        tool_calls=st.lists(rarely(JSON, call), max_size=2) | st.none(),
    )
    choice = maybe(index=_INDEX, delta=rarely(JSON, delta | st.none()), finish_reason=FINISH)
    error = st.just({"message": "overloaded"}) | st.none() | st.just("broken")
    chunk = maybe(id=IDS, model=text, choices=st.lists(rarely(JSON, choice), max_size=2), usage=_OBJECT_USAGE)
    failed = maybe(error=error, choices=st.lists(choice, max_size=1))
    return st.one_of([chunk] * 5 + [failed])


def messages_events(text: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    """Anthropic events, in any order."""
    block = st.sampled_from([{"type": "text", "text": ""}, {"type": "thinking", "thinking": ""}]) | maybe(
        type=st.just("tool_use"), id=IDS, name=text, input=st.just({}) | st.just({"a": 1})
    )
    delta = (
        st.fixed_dictionaries({"type": st.just("text_delta")}, optional={"text": _piece(text)})
        | st.fixed_dictionaries({"type": st.just("thinking_delta")}, optional={"thinking": _piece(text)})
        | st.fixed_dictionaries({"type": st.just("input_json_delta")}, optional={"partial_json": _piece(ARGUMENTS)})
        | st.just({"type": "signature_delta", "signature": "s"})
    )
    message = maybe(id=IDS, role=st.just("assistant"), model=text, stop_reason=FINISH, usage=_OBJECT_USAGE)
    return st.one_of(
        st.fixed_dictionaries({"type": st.just("message_start")}, optional={"message": rarely(JSON, message)}),
        st.fixed_dictionaries(
            {"type": st.just("content_block_start")}, optional={"index": _INDEX, "content_block": block | st.none()}
        ),
        st.fixed_dictionaries(
            {"type": st.just("content_block_delta")}, optional={"index": _INDEX, "delta": rarely(JSON, delta)}
        ),
        st.fixed_dictionaries(
            {"type": st.just("message_delta")},
            optional={"delta": maybe(stop_reason=FINISH) | st.none(), "usage": _OBJECT_USAGE},
        ),
        st.sampled_from([{"type": "ping"}, {"type": "content_block_stop", "index": 0}]),
    )


def responses_events(text: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    """Responses events."""
    kind = st.sampled_from(
        [
            "response.created",
            "response.output_text.delta",
            "response.completed",
            "response.incomplete",
            "response.failed",
        ]
    )
    return maybe(type=kind, delta=text, response=maybe(id=IDS, status=text, output=st.lists(OUTPUT_ITEM)) | JSON)


EVENTS = {"responses": responses_events, "chat": chat_events, "messages": messages_events}
ENDS = {
    "responses": [
        b"event: response.completed",
        b"event:response.incomplete",
        b"event: response.failed",
        b"event: error",
    ],
    "chat": [b"data: [DONE]", b"data:[DONE]", b"event: error"],
    "messages": [b"event: message_stop", b"event:  message_stop", b"event: error"],
}
NOISE = st.sampled_from(
    [b": keep-alive", b"", b"data:", b"data: {", b"id: 7", b"retry: 1", b"event: ping", b"data: [1]", b"\xff\xfe", b"x"]
)


def _framed(event: dict[str, Any], plain: bool) -> list[bytes]:
    text = json.dumps(event, ensure_ascii=not plain)
    return [b"data: " + text.encode("utf-8", "surrogatepass")]


def blocks(dialect: str, text: st.SearchStrategy[str]) -> st.SearchStrategy[list[bytes]]:
    """One event as its lines, or noise."""
    named = st.builds(_framed, EVENTS[dialect](text), st.booleans())
    ends = st.sampled_from(ENDS[dialect]).map(lambda line: [line])
    noise = st.lists(NOISE, max_size=2)
    return st.one_of([named] * 6 + [ends, noise, st.tuples(named, noise).map(lambda both: both[1] + both[0])])


@st.composite
def streams(draw: st.DrawFn, dialect: str, text: st.SearchStrategy[str] = TEXT) -> bytes:
    """The bytes of a whole stream, or of its beginning."""
    newline = draw(st.sampled_from([b"\n", b"\r\n"]))
    lines = draw(st.lists(blocks(dialect, text), max_size=12))
    raw = b"".join(newline.join([*block, b"", b""]) for block in lines)
    return raw[: draw(st.integers(0, len(raw)))] if draw(st.booleans()) else raw


@st.composite
def cut(draw: st.DrawFn, raw: bytes) -> list[bytes]:
    """The same bytes in pieces."""
    places = sorted(draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    return [raw[start:end] for start, end in zip([0, *places], [*places, len(raw)], strict=True)]
