# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""JSON that every reader can read, out of JSON that only Python reads.

Bodies of model calls may hold what Python's parser accepts and others refuse: lone surrogates, ``NaN``,
integers beyond 64 bits, hundreds of nested levels. A record built of them could not be stored, or not be
read back. This file decides what they become, and says when a value had to change so that the caller can
keep the original text beside it.

=========================  =========================================================
in the body                in the record
=========================  =========================================================
surrogate pair in halves   the one character they stand for
lone surrogate             U+FFFD
``NaN``, ``Infinity``      ``null``
integer beyond 64 bits     the nearest double, as JavaScript reads it; else ``null``
``1e400``                  infinity, which is written as ``null`` (the one change not said)
nested over 200 levels     not JSON: only the text is kept
=========================  =========================================================
"""

from __future__ import annotations

import json
import math
from typing import Any

import orjson

_LEVELS = 200
"""orjson writes at most 254 levels; the rest is room for the record and the documents around a body."""
_INT64 = range(-(2**63), 2**64)


def parse(body: bytes | str) -> tuple[Any, bool]:
    """Return a JSON text's value and whether it is exactly what the text says.

    Raises ``ValueError`` for text that is not JSON or is nested too deep.
    """
    constants: list[str] = []
    value, unchanged = portable(_loads(body, constants))
    return value, unchanged and not constants


def loads(text: str) -> Any:
    """Return a JSON text's value fast and unchanged: ``portable`` is still to be applied to what is kept.

    Raises ``ValueError`` for text that is not JSON.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return _loads(text, [])


def portable(value: Any) -> tuple[Any, bool]:
    """Return a value every JSON reader can read, and whether it is the very value given.

    Raises ``ValueError`` if it is nested too deep.
    """
    try:
        orjson.dumps(_wrapped(value))
    except TypeError:
        return _copied(value, _LEVELS), False
    return value, True


def _loads(body: bytes | str, constants: list[str]) -> Any:
    try:
        return json.loads(body, parse_constant=constants.append)
    except RecursionError as error:
        msg = "nested too deep to be read"
        raise ValueError(msg) from error


def _wrapped(value: Any) -> Any:
    """Nest a value so that orjson's limit falls where ours is."""
    for _ in range(254 - _LEVELS):
        value = [value]
    return value


def _copied(value: Any, levels: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int):
        return value if value in _INT64 else _double(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict | list | tuple) and not levels:
        msg = f"nested deeper than {_LEVELS} levels"
        raise ValueError(msg)
    if isinstance(value, dict):
        return {_text(str(key)): _copied(one, levels - 1) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_copied(one, levels - 1) for one in value]
    return _text(str(value))


def _text(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _double(number: int) -> float | None:
    try:
        return float(number)
    except OverflowError:
        return None
