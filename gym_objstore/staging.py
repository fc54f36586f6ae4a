# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Staged rows in the bucket: writing one, and reading many, whole or only the part that is needed.

A staging key says where its row is and how long its parts are, so nothing is ever listed and each read is one
request. No write looks for a tombstone: a row that came after retirement is an orphan, which a sweep finds.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from gym_objstore.errors import Corrupt, Invalid, NotFound, ObjstoreError
from gym_objstore.flow import Flow, GetRange, Put, compute, together
from gym_objstore.keys import StagingKey, parse_staging_key, staged_key
from gym_objstore.staged_rows import (
    StagedRow,
    pack,
    unpack_attachments,
    unpack_columns,
    unpack_extras,
    unpack_snapshot,
    unpack_tail,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gym_objstore.staged_chains import Columns
    from gym_objstore.wire_staging import StagedCallBaseSnapshot

T = TypeVar("T")

FAMILY = "staged"

_LARGE = 1 << 20


def stage(
    run_id: str, record: Any, attachments: Mapping[str, Any] | None = None, also: Sequence[Put] = ()
) -> Flow[StagedRow]:
    """Store one call's record with its attachments as one object.

    Returns when: record, extras and every attachment are durable together under the row's key.
    Repeating: the same record and attachments change nothing; others get a key of their own.
    Raises: ``Invalid`` before any request for what cannot be stored exactly; storage errors.
    """
    row = yield from compute(pack, record, attachments, size=_LARGE)
    yield from together([Put(staged_key(run_id, row.key), row.body), *also])
    return row


def fetch(run_id: str, staging_keys: Sequence[str]) -> Flow[list[StagedCallBaseSnapshot]]:
    """Return the base snapshots of rows, one for each key and in the order of the keys, everything verified.

    One request per row, all at the same time; extras and attachments are not read.
    Raises: ``Invalid`` for a key that is asked for twice; ``NotFound`` naming a key that has no row; ``Corrupt``
    naming a key that is none of ours or whose row is not what the key promises; storage errors.
    """
    return (yield from _read(run_id, staging_keys, unpack_snapshot))


def fetch_columns(run_id: str, staging_keys: Sequence[str]) -> Flow[list[Columns]]:
    """Return only the token ids of rows and their places in a chain; otherwise as ``fetch``.

    The bytes are those the key promises; that their hashes fit is verified by ``join_prefix``.
    """
    return (yield from _read(run_id, staging_keys, unpack_columns))


def load_extras(run_id: str, committed: Mapping[str, str]) -> Flow[dict[str, dict[str, Any] | None]]:
    """Return the extras of rows by their staging key, given the extras digest that was committed for each.

    One request per row. Raises ``Corrupt`` naming a key whose extras are not the committed ones; else as ``fetch``.
    """
    keys = _parsed(list(committed))
    decoders = [partial(unpack_extras, key, committed=committed[key.text]) for key in keys]
    sizes = [key.name.record_bytes + key.name.extras_bytes for key in keys]
    found = yield from _together(
        GetRange(staged_key(run_id, key), 0, size, partial(_named, key.text, decode))
        for key, size, decode in zip(keys, sizes, decoders, strict=True)
    )
    return dict(zip(committed, found, strict=True))


def load_attachments(run_id: str, staging_key: str) -> Flow[dict[str, Any]]:
    """Return a row's attachments as they were staged, over the one buffer they were read into; ``{}`` if it has none.

    Two requests, one after another: the record says where they are and what their digests must be.
    Raises ``Corrupt`` naming the key and the attachment that is damaged; ``Unusable`` where the library that made
    one is not installed; else as ``fetch``.
    """
    (key,) = _parsed([staging_key])
    path = staged_key(run_id, key)
    (tail,) = yield from _together([_record(run_id, key, unpack_tail)])
    if tail is None:
        return {}
    decode = partial(_named, key.text, partial(unpack_attachments, tail))
    (found,) = yield from _together([GetRange(path, tail.start, tail.size, decode)])
    return found  # type: ignore[no-any-return]


def _read(run_id: str, staging_keys: Sequence[str], decode: Callable[[StagingKey, bytes], T]) -> Flow[list[T]]:
    keys = _parsed(staging_keys)
    return list((yield from _together(_record(run_id, key, decode) for key in keys)))


def _record(run_id: str, key: StagingKey, decode: Callable[[StagingKey, bytes], Any]) -> GetRange:
    named = partial(_named, key.text, partial(decode, key))
    return GetRange(staged_key(run_id, key), 0, key.name.record_bytes, named)


def _together(reads: Iterable[GetRange]) -> Flow[tuple[Any, ...]]:
    try:
        return (yield from together(reads))
    except NotFound as error:
        raise NotFound(
            "a staged row does not exist",
            kind="no_row",
            key=error.key,
            hint="it was removed, or its worker stages into another store or run",
        ) from error


def _named(staging_key: str, decode: Callable[[bytes], T], body: bytes) -> T:
    """Decode a body; whatever is wrong with it names its key."""
    try:
        return decode(body)
    except ObjstoreError as error:
        error.key = staging_key
        raise


def _parsed(staging_keys: Sequence[str]) -> list[StagingKey]:
    if isinstance(staging_keys, (str, bytes)):
        msg = f"staging keys must be a list of keys, not one {type(staging_keys).__name__}"
        raise TypeError(msg)
    seen: dict[str, StagingKey] = {}
    for text in staging_keys:
        if text in seen:
            raise Invalid("a staging key is asked for twice", kind="duplicate_key", key=text)
        key = parse_staging_key(str(text))
        if key is None:
            raise Corrupt("not a staging key of this package", kind="foreign_key", key=str(text))
        seen[text] = key
    return list(seen.values())
