# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Identifiers of runs, rollouts and calls, and how each becomes one path segment.

Any non-empty string is a valid id. ``segment`` is injective and its result is safe everywhere: lower-case
ASCII letters, digits and ``. _ - !`` only, so that stores which fold case (a laptop's file system) keep
twins apart, and at most ``SEGMENT_LIMIT`` bytes. Other bytes become ``!hh``; an id too long for that keeps
a readable head and ends in ``!h`` and its SHA-256, and is read back from the records that carry it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from gym_objstore.errors import Invalid

SEGMENT_LIMIT = 96
"""Bytes of one id in a key; with the digests of an object name it stays below 200."""

_EMPTY = "!"
_HASHED = "!h"
_HEAD = SEGMENT_LIMIT - len(_HASHED) - 64
_UNSAFE = re.compile(rb"[^a-z0-9._-]")
_ESCAPED = re.compile(r"!([0-9a-f]{2})")
_SEGMENT = re.compile(r"(?:[a-z0-9._-]|![0-9a-f]{2})*")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def segment(identifier: str) -> str:
    """Return the path segment of an id. Distinct ids have distinct segments; ``""`` has one too."""
    if not isinstance(identifier, str):
        raise Invalid(f"an id must be a string, type={type(identifier).__name__}", kind="bad_id")
    if not identifier:
        return _EMPTY
    raw = identifier.encode("utf-8", "surrogatepass")
    text = _UNSAFE.sub(lambda m: b"!%02x" % m.group()[0], raw).decode("ascii")
    if text.startswith("."):
        text = "!2e" + text[1:]
    if len(text) <= SEGMENT_LIMIT:
        return text
    head = re.sub(r"![0-9a-f]?$", "", text[:_HEAD])
    return f"{head}{_HASHED}{hashlib.sha256(raw).hexdigest()}"


def identifier(text: str) -> str | None:
    """Return the id whose segment this is; ``None`` where only its SHA-256 is in the segment.

    Raises ``Invalid`` for text that no id has as its segment.
    """
    if text == _EMPTY:
        return ""
    if is_hashed(text):
        return None
    try:
        if not _SEGMENT.fullmatch(text):
            raise ValueError(text)
        raw = _ESCAPED.sub(lambda m: chr(int(m.group(1), 16)), text).encode("latin-1")
        found = raw.decode("utf-8", "surrogatepass")
        if segment(found) == text:
            return found
    except ValueError:
        pass
    raise Invalid(f"not a segment of this format, segment={text!r}", kind="foreign_segment")


def is_hashed(text: str) -> bool:
    """Say whether a segment is that of an id of which it has only the SHA-256."""
    head, mark, digest = text.rpartition(_HASHED)
    return bool(mark and _SHA256.fullmatch(digest) and _SEGMENT.fullmatch(head))


def spoken(call: str) -> str:
    """Return the id a segment stands for, or the segment where only its hash is known."""
    try:
        found = identifier(call)
    except Invalid:
        return call
    return call if found is None else found


def known_as(identifier: str) -> set[str]:
    """Return what listings may call an id: itself, or where it is too long its segment."""
    return {identifier, spoken(segment(identifier))}


def require_id(identifier: str, what: str) -> str:
    """Return a non-empty id unchanged; raise ``Invalid`` naming ``what`` for anything else."""
    if not isinstance(identifier, str):
        found = type(identifier).__name__
        raise Invalid(f"{what} must be a string, type={found}", kind="bad_id", hint="in YAML, put it into quotes")
    if not identifier:
        raise Invalid(f"{what} must not be empty", kind="bad_id")
    return identifier


def require_ids(identifiers: Iterable[str], what: str) -> tuple[str, ...]:
    """Return the distinct ids in first-seen order, after all of them were checked.

    A bare string is a ``TypeError``: it would be read as a list of one-letter ids.
    """
    if isinstance(identifiers, (str, bytes)):
        msg = f"{what} must be a list of ids, not one {type(identifiers).__name__}"
        raise TypeError(msg)
    return tuple(dict.fromkeys([require_id(one, what) for one in identifiers]))
