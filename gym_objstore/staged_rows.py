# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The object of one staged row: its record, then its extras, then its attachments; each can be read alone.

Owns the bytes of the first two parts and what ties the three together. The object's name carries the SHA-256 and
the size of the record; the record carries the digests of the rest, so the name covers every byte. A record is a JSON
head and three columns of numbers in the narrowest type that keeps each value, as one zstd frame.
docs/decisions/0003-staged-row-container.md says why. Attachments are ``staged_attachments``' business.
"""

from __future__ import annotations

import hashlib
import struct
import sys
from array import array
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson
from pydantic import BaseModel, ValidationError

from gym_objstore import codec, staged_attachments
from gym_objstore.digests import canonical_json, sha256_hex
from gym_objstore.errors import Corrupt, Invalid
from gym_objstore.ids import segment
from gym_objstore.keys import StagingKey
from gym_objstore.names import StagedName
from gym_objstore.staged_chains import Columns
from gym_objstore.staged_columns import PackedColumns
from gym_objstore.staging_digests import compute_extras_digest
from gym_objstore.wire_staging import StagedCallBaseSnapshot, StagedCallRecord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gym_objstore.staged_attachments import Container

FORMAT: Final = "r1"
"""The format of the objects written here; the last field of their names."""

COLUMNS: Final = PackedColumns._fields

_IDS = ("I", "Q")
_FLOATS = ("f", "d")
_CODES = (_IDS, _FLOATS, _FLOATS)
_HEAD_SIZE = struct.Struct("<I")


class StagedRow(NamedTuple):
    """A row ready to be stored: its key, the object's buffers, and its columns for whoever continues it."""

    key: StagingKey
    body: tuple[bytes | memoryview, ...]
    columns: Columns


class Tail(NamedTuple):
    """Where a row's attachments are in its object, and the digest of their header."""

    start: int
    size: int
    header_bytes: int
    digest: str


def pack(record: Any, attachments: Mapping[str, Any] | None = None) -> StagedRow:
    """Return a staged record, ours or any with the same fields such as nemo-gym's, with its attachments as a row.

    Raises ``Invalid`` for a record that is not sealed, or an attachment or extras that cannot be stored exactly.
    """
    sealed = _sealed(record)
    extras = b"" if sealed.extras is None else _pack_extras(sealed.extras)
    container = None if attachments is None else staged_attachments.pack(attachments)
    stored = _pack_record(sealed, extras, container)
    name = StagedName(segment(sealed.model_call_id), sha256_hex(stored), len(stored), len(extras), FORMAT)
    body: list[bytes | memoryview] = [stored, *([extras] if extras else [])]
    if container:
        body += [container.header, *container.buffers]
    return StagedRow(StagingKey(segment(sealed.rollout_id), name), tuple(body), _chained(sealed))


def unpack_snapshot(key: StagingKey, body: bytes) -> StagedCallBaseSnapshot:
    """Return the base snapshot in a row's record, everything verified. Raises ``Corrupt``."""
    head, columns = _unpack_record(key, body)
    try:
        return StagedCallBaseSnapshot.unpack(head["call"], PackedColumns(*columns))
    except ValidationError as error:
        raise Corrupt("the row is not a sealed staged call", kind="bad_row") from error


def unpack_columns(key: StagingKey, body: bytes) -> Columns:
    """Return the token ids in a row's record without a look at the other columns. Raises ``Corrupt``."""
    head, columns = _unpack_record(key, body, only=1)
    call = head["call"]
    try:
        return Columns(
            call["rollout_id"],
            call["model_call_id"],
            call["parent_call_id"],
            call["prev_len"],
            call["chain_hash"],
            columns[0],
        )
    except KeyError as error:
        raise _unreadable() from error


def unpack_extras(key: StagingKey, body: bytes, committed: str) -> dict[str, Any] | None:
    """Return the extras of a row, given its record and extras, if they are those that were committed.

    ``committed`` is the extras digest of the ledger row. Raises ``Corrupt``.
    """
    head, _ = _unpack_record(key, body[: key.name.record_bytes], only=0)
    stored = _stored_extras(key, head, body)
    extras = codec.decode(stored, codec.FORMAT) if stored else None
    if compute_extras_digest(extras) != committed:
        raise Corrupt("the extras of the row are not those that were committed", kind="extras_digest_mismatch")
    return extras


def _stored_extras(key: StagingKey, head: Mapping[str, Any], body: bytes) -> bytes:
    stored = body[key.name.record_bytes :]
    if len(stored) != key.name.extras_bytes or (sha256_hex(stored) if stored else None) != head.get("extras"):
        raise Corrupt("the extras of the row are damaged")
    return stored


def unpack_tail(key: StagingKey, body: bytes) -> Tail | None:
    """Return where a row's attachments are, given its record; None if it has none. Raises ``Corrupt``."""
    head, _ = _unpack_record(key, body, only=0)
    found = head.get("attachments")
    if found is None:
        return None
    try:
        start = key.name.record_bytes + key.name.extras_bytes
        return Tail(start, int(found["bytes"]), int(found["header_bytes"]), found["sha256"])
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable() from error


def verify(key: StagingKey, body: bytes) -> None:
    """Raise ``Corrupt`` unless every byte of a row's object is what its name promises."""
    size = key.name.record_bytes
    head, _ = _unpack_record(key, body[:size], only=0)
    _stored_extras(key, head, body[: size + key.name.extras_bytes])
    tail, rest = unpack_tail(key, body[:size]), body[size + key.name.extras_bytes :]
    if len(rest) != (tail.size if tail else 0):
        raise Corrupt("the attachments of the row are cut short, or something follows them")
    if tail is not None:
        staged_attachments.verify(rest, tail.header_bytes, tail.digest)


def unpack_attachments(tail: Tail, body: bytes) -> dict[str, Any]:
    """Return a row's attachments over the bytes of its tail; see ``staged_attachments.unpack``."""
    if len(body) != tail.size:
        raise Corrupt("the attachments of the row are cut short")
    return staged_attachments.unpack(body, tail.header_bytes, tail.digest)


def _sealed(record: Any) -> StagedCallRecord:
    if isinstance(record, StagedCallRecord):
        # Its extras are the one part that may have been changed since it was sealed.
        if record.extras is not None and compute_extras_digest(record.extras) != record.extras_digest:
            raise Invalid("the extras were changed after the record was sealed", kind="bad_record")
        return record
    try:
        # Dumping would copy every number of the columns once more.
        return StagedCallRecord.model_validate(dict(record) if isinstance(record, BaseModel) else record.model_dump())
    except (AttributeError, ValidationError) as error:
        reason = f"not a sealed staged call, type={type(record).__name__}"
        raise Invalid(reason, kind="bad_record", hint="pass a StagedCallRecord") from error


def _pack_extras(extras: dict[str, Any]) -> bytes:
    return codec.encode(canonical_json(extras))


def _chained(record: StagedCallRecord) -> Columns:
    return Columns(
        record.rollout_id,
        record.model_call_id,
        record.parent_call_id,
        record.prev_len,
        record.chain_hash,
        record.packed.token_ids_delta,
    )


def _pack_record(record: StagedCallRecord, extras: bytes, container: Container | None) -> bytes:
    columns = record.packed
    head: dict[str, Any] = {
        "call": {name: value for name, value in record if name not in (*COLUMNS, "extras")},
        "columns": "".join(column.typecode for column in columns),
    }
    if extras:
        head["extras"] = sha256_hex(extras)
    if container:
        head["attachments"] = {
            "bytes": container.size,
            "header_bytes": len(container.header),
            "sha256": container.digest,
        }
    text = canonical_json(head)
    plain = b"".join([_HEAD_SIZE.pack(len(text)), text, *(_little_endian(column) for column in columns)])
    return codec.encode(plain)


def _unpack_record(key: StagingKey, body: bytes, only: int | None = None) -> tuple[dict[str, Any], list[array[Any]]]:
    """Return the head of a record and its columns, or only the first few of them."""
    name = key.name
    if name.format != FORMAT:
        raise Corrupt(
            f"this version cannot read the row, format={name.format}",
            kind="newer_format",
            hint="upgrade gym_objstore",
        )
    if len(body) != name.record_bytes or hashlib.sha256(body).hexdigest() != name.digest:
        raise Corrupt("the record of the row is damaged")
    plain = codec.unpack(body, codec.FORMAT)
    try:
        end = _HEAD_SIZE.size + _HEAD_SIZE.unpack_from(plain)[0]
        head: dict[str, Any] = orjson.loads(plain[_HEAD_SIZE.size : end])
        call = head["call"]
        if (segment(call["rollout_id"]), segment(call["model_call_id"])) != (key.rollout, name.call):
            raise Corrupt("the row is under another call's name", kind="misplaced")
        codes = list(zip(head["columns"], _CODES, strict=True))[:only]
        if not all(code in known for code, known in codes):
            raise _unreadable()
        return head, _read_columns([code for code, _ in codes], call["delta_len"], plain[end:])
    except (struct.error, orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, Corrupt):
            raise
        raise _unreadable() from error


def _read_columns(codes: Sequence[str], count: int, packed: bytes) -> list[array[Any]]:
    columns = []
    for code in codes:
        column = array(code)
        size = count * column.itemsize
        column.frombytes(packed[:size])
        packed = packed[size:]
        if len(column) != count:
            raise _unreadable()
        columns.append(_little_endian(column))
    return columns


def _little_endian(column: array[Any]) -> array[Any]:
    """Return a column in the byte order of objects, from this machine's or back."""
    if sys.byteorder == "little":
        return column
    swapped = column[:]
    swapped.byteswap()
    return swapped


def _unreadable() -> Corrupt:
    return Corrupt("the record of the row cannot be read", kind="bad_row")
