# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Two columnar forms of a record, as rivals of the codec that ships. They trust their input; a product could not.

Both store top-level lists of numbers as fixed-width columns behind a JSON header. ``narrow`` takes the narrowest
machine type per column; ``planes`` takes 8 bytes per number and drops the byte planes that are all zeros, which makes
three bytes of a token id and five of a float32 without looking for the narrowest type.
"""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING, Any

import orjson

from gym_objstore.digests import canonical_json

if TYPE_CHECKING:
    from collections.abc import Callable

Record = dict[str, Any]
_ARRAY = "*"
_DIGITS = b"0123456789,"


def narrow_encode(record: Record, _canonical: bytes) -> bytes:
    """Store columns in the narrowest machine type."""
    return _write(record, _narrow)


def narrow_decode(body: bytes) -> Record:
    """Return the record that ``narrow_encode`` stored."""

    def read(code: str, count: int, rest: bytes) -> tuple[list[Any], int]:
        size = count * array(code).itemsize
        return array(code, rest[:size]).tolist(), size

    return _read(body, read)


def planes_encode(record: Record, canonical: bytes) -> bytes:
    """Store columns as the byte planes that are not all zeros."""
    return _write(record, lambda name, values: _planes(name, values, canonical))


def planes_decode(body: bytes) -> Record:
    """Return the record that ``planes_encode`` stored."""

    def read(code: str, count: int, rest: bytes) -> tuple[list[Any], int]:
        kept = [plane for plane in range(8) if int(code[1:]) >> plane & 1]
        raw = bytearray(8 * count)
        for position, plane in enumerate(kept):
            raw[plane::8] = rest[position * count : (position + 1) * count]
        return array(code[0], bytes(raw)).tolist(), count * len(kept)

    return _read(body, read)


def _write(record: Record, column_of: Callable[[str, Any], tuple[str, bytes] | None]) -> bytes:
    head: Record = {}
    columns = []
    for name in sorted(record):
        head[name] = record[name]
        if column := column_of(name, record[name]):
            head[name] = [_ARRAY, column[0], len(record[name])]
            columns.append(column[1])
    text = canonical_json(head)
    return b"".join([struct.pack("<I", len(text)), text, *columns])


def _read(body: bytes, column: Callable[[str, int, bytes], tuple[list[Any], int]]) -> Record:
    (size,) = struct.unpack_from("<I", body)
    record: Record = orjson.loads(body[4 : 4 + size])
    rest = body[4 + size :]
    for name, value in record.items():
        if isinstance(value, list) and value[:1] == [_ARRAY]:
            record[name], used = column(value[1], value[2], rest)
            rest = rest[used:]
    return record


def _narrow(_name: str, values: Any) -> tuple[str, bytes] | None:
    if not isinstance(values, list) or not values:
        return None
    types = set(map(type, values))
    if types == {float}:
        single = array("f", values)
        return ("f", single.tobytes()) if single.tolist() == values else ("d", array("d", values).tobytes())
    if types == {int} and min(values) >= 0:
        width = max(values).bit_length()
        code = next(code for code in "BHIQ" if width <= 8 * array(code).itemsize)
        return code, array(code, values).tobytes()
    return None


def _planes(name: str, values: Any, canonical: bytes) -> tuple[str, bytes] | None:
    if not isinstance(values, list) or not values:
        return None
    if set(map(type, values[:1])) == {float} and set(map(type, values)) == {float}:
        code = "d"
    elif isinstance(values[0], int) and _unsigned(name, canonical):
        code = "Q"
    else:
        return None
    raw = array(code, values).tobytes()
    zeros = bytes(len(values))
    planes = [raw[number::8] for number in range(8)]
    kept = [number for number in range(8) if planes[number] != zeros]
    return f"{code}{sum(1 << number for number in kept)}", b"".join([planes[number] for number in kept])


def _unsigned(name: str, canonical: bytes) -> bool:
    # The text is at hand and shows booleans and signs in a quarter of the time that a look at each value takes.
    start = canonical.index(canonical_json(name) + b":[")
    inside = canonical[canonical.index(b"[", start) + 1 : canonical.index(b"]", start)]
    return not inside.translate(None, _DIGITS)
