# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Ready rules that take secrets, addresses and media out of a raw capture before it is stored.

A redaction is any function from record to record; ``redaction("keys", "emails", "media")`` makes one of the
rules below. Off unless asked for. Rules work on texts, wherever in the bodies they are, field names and
JSON inside strings included:

``keys``    credentials by their known shapes (``sk-``, ``AKIA``, JWT, private keys, ...) and by the name in
            front of them (``api_key``, ``password``, ...)
``emails``  e-mail addresses
``media``   base64, as data URLs or bare from 256 characters on

What a rule cannot look into is left out rather than passed on: the text of streams, whose pieces may cut
what is looked for in two; the text of a body that is in the record as a value too; bytes that are no text.
Rules do not look at token ids and log-probability tables, which spell the same text in pieces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from gym_objstore.errors import Invalid

Redaction = Callable[[dict[str, Any]], dict[str, Any]]
Rule = Callable[[str, str], str]
"""From a field name and a text in it to the text that may be stored."""

_IDENTITY = ("model_call_id", "dialect", "model_ref")
_RAW = {"request_raw": "request", "response_raw": "response"}
_BYTES = ("request_base64", "response_base64")
_STREAM = re.compile(r"^(?:data|event):", re.MULTILINE)
_ESCAPE = re.compile(r"\\u00([0-7][0-9a-fA-F])")

_SECRET = "[redacted key]"  # noqa: S105 - the mark that replaces one
_EMAIL = "[redacted e-mail]"

_SHAPES = re.compile(
    r"sk-[\w-]{16,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}"
    r"|gh[pousr]_\w{30,}|github_pat_\w{22,}|glpat-[\w-]{20,}"
    r"|hf_\w{30,}|nvapi-[\w-]{20,}|AIza[\w-]{35}|xox[abeprs]-[\w-]{10,}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"
    r"|(?i:(?<=bearer )|(?<=basic ))[\w.~+/-]{16,}=*"
    r"|(?<=://)[^\s/:@]+:[^\s/@]+(?=@)"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
_NAMES = (
    r"api[\s_-]?key|authorization|passw(?:or)?d|passphrase|client[_-]?secret|secret[_-]?(?:access[_-]?)?key"
    r"|(?:access|refresh|auth|session|id|bearer)[_-]?token|private[_-]?key|set-cookie"
)
_NAMED_FIELD = re.compile(rf".*(?:{_NAMES}|secret|cookie)", re.IGNORECASE)
_NAMED_TEXT = re.compile(
    rf"((?:{_NAMES})\\*[\"']?\s*[:=]\s*)"
    r"(?:(\\*[\"'])(?:(?!\2)(?:\\.|.))+|(?:(?:bearer|basic)\s+)?[^\s\"'\\,;&}\])]{4,})",
    re.IGNORECASE | re.DOTALL,
)
_ADDRESS = re.compile(r"(?<![\w.+-])[\w.+-]++(?:@|%40)[\w-]++(?:\.[\w-]++)+")

_BASE64 = "[A-Za-z0-9+/_-]"
_NEWLINE = r"(?:\r?\n|(?:\\r)?\\n)"  # JSON inside a string has its line ends escaped
_MEDIA = re.compile(
    r"(data:[\w.+-]++/[\w.+-]++(?:;[\w.+-]++=[\w.+-]++)*+;base64,)[A-Za-z0-9+/=_%-]+"
    rf"|(?<!{_BASE64}){_BASE64}{{60,}}+(?:{_NEWLINE}{_BASE64}{{60,}}+)*+"
    rf"(?:{_NEWLINE}{_BASE64}{{1,76}}+(?=[=\"\\\r\n]|\Z))?={{0,2}}"
)
_MEDIA_FROM = 256
_NO_MEDIA = ("signature", "encrypted_content")


def redaction(*names: str) -> Redaction:
    """Return the redaction that applies these rules in this order. It can be pickled.

    Raises ``Invalid`` for a rule that does not exist.
    """
    unknown = [name for name in names if name not in RULES]
    if unknown or not names:
        msg = f"redaction rules must be some of {', '.join(RULES)}, rules={', '.join(names) or 'none'}"
        raise Invalid(msg, kind="unknown_redaction")
    return partial(_redacted, names=names)


def keys(field: str, text: str) -> str:
    """Replace credentials: all of a field with such a name, else what has the shape or name of one."""
    if _NAMED_FIELD.fullmatch(field):
        return _SECRET
    named = _NAMED_TEXT.sub(lambda found: f"{found[1]}{found[2] or ''}{_SECRET}", text)
    return _SHAPES.sub(_SECRET, named)


def emails(field: str, text: str) -> str:  # noqa: ARG001 - the shape of a rule
    """Replace e-mail addresses."""
    return _ADDRESS.sub(_EMAIL, text)


def media(field: str, text: str) -> str:
    """Replace base64, keeping a data URL's type. Signatures and encrypted reasoning are no media."""
    return text if field in _NO_MEDIA else _MEDIA.sub(_without_media, text)


RULES: Mapping[str, Rule] = {"keys": keys, "emails": emails, "media": media}


def _without_media(found: re.Match[str]) -> str:
    head = found[1] or ""
    size = len(found[0]) - len(head)
    return f"{head}[redacted media, {size} characters]" if head or size >= _MEDIA_FROM else found[0]


def _redacted(record: dict[str, Any], *, names: Iterable[str]) -> dict[str, Any]:
    rules = [RULES[name] for name in names]
    kept: dict[str, Any] = {}
    for field, value in record.items():
        if field in _IDENTITY:
            kept[field] = value
        elif field in _RAW:
            kept.update(_raw(field, value, record, rules))
        elif field not in _BYTES:
            kept[_name(field, kept, rules)] = _value(field, value, rules)
    return kept


def _raw(field: str, text: Any, record: Mapping[str, Any], rules: list[Rule]) -> dict[str, Any]:
    """Return the raw text's field as it may be stored; nothing where the value beside it says it all."""
    if not isinstance(text, str) or record.get(_RAW[field]) is not None:
        return {}
    if _STREAM.search(text):
        return {field: f"[redacted stream, {len(text)} characters]"}
    return {field: _value("", _unescaped(text), rules)}


def _unescaped(text: str) -> str:
    """Undo the escapes behind which JSON could hide an ASCII character."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)


def _value(field: str, value: Any, rules: list[Rule]) -> Any:
    """Redact a value; numbers in lists are passed over, as nothing but token ids comes in such numbers."""
    if isinstance(value, dict):
        return _fields(value, rules)
    if isinstance(value, list):
        return [one if isinstance(one, int | float) else _value(field, one, rules) for one in value]
    if value is None or isinstance(value, bool):
        return value
    text = safe = str(value)
    for rule in rules:
        safe = rule(field, safe)
    return value if safe == text else safe


def _fields(value: dict[str, Any], rules: list[Rule]) -> dict[str, Any]:
    """Redact an object, its names too."""
    kept: dict[str, Any] = {}
    for name, one in value.items():
        kept[_name(name, kept, rules)] = _value(name, one, rules)
    return kept


def _name(name: str, kept: Mapping[str, Any], rules: list[Rule]) -> str:
    """Redact the name of a field; names that became the same keep apart by a number."""
    shown = safe = str(_value("", name, rules))
    while safe in kept:
        safe = f"{shown} {len(kept)}"
    return safe
