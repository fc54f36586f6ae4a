# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of Gym's ``<rollout_id>.lineage.jsonl`` and the ledger objects of a bucket, each from the other.

Both say the same of a staged call under different names: Gym's row is flat and has one fingerprint version, a
ledger object holds the call's record whole. Rows that only lineage wrote, without a staged call, have no counterpart
here. Where objects are and what they are called is ``ledger``'s.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import orjson
from pydantic import ValidationError

from gym_objstore.errors import Corrupt, Invalid
from gym_objstore.objects import write_object
from gym_objstore.wire_ledger import CallRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

_PLACE = ("fingerprint", "context_len", "context_digest")
"""What a row says for the resolution of later calls."""
_AS_IT_IS = (
    "admitted_at",
    "chain_hash",
    "continuation_fingerprint",
    "cum_len",
    "cumulative_hash",
    "delta_len",
    "extras_digest",
    "fingerprint_version",
    "mode",
    "model_call_id",
    "output_fingerprint",
    "parent_call_id",
    "prev_len",
    "response_id",
    "staging_key",
    "weight_version",
)
_DIGEST = re.compile("[0-9a-f]{64}")
_COLUMNS = {*_AS_IT_IS, *_PLACE, "digest", "staging_chain", "staging_digest"}
_OPTIONAL = ("response_id", "chain_hash", "cumulative_hash")
"""What a manifest turns into a failure where it is missing, on both sides."""
_STANDING = {"response_id": "absent", "chain_hash": "0" * 64, "cumulative_hash": "0" * 64}
_CONSTANTS = {"schema_version": 2, "digest_version": 2, "extras_digest_version": 1}


def row_text(record: Mapping[str, Any]) -> bytes:
    """Return a row's line as Gym writes it, without its end: keys sorted, no spaces, ASCII."""
    return json.dumps(record, sort_keys=True, separators=(",", ":")).encode("ascii")


def parse_row(text: bytes) -> dict[str, Any]:
    """Return the row of a line. Raises ``Invalid`` for what is no row of a staged call, a failure, or of lineage."""
    try:
        row = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Invalid(f"not JSON: {error}", kind="bad_row") from error
    if not isinstance(row, dict) or not isinstance(row.get("model_call_id"), str) or not row["model_call_id"]:
        raise Invalid("no row of a capture ledger: it names no model_call_id", kind="bad_row")
    return row


def is_failure(row: Mapping[str, Any]) -> bool:
    """Say whether a row records a call that did not commit."""
    return row.get("failure_reason") is not None


def is_staged(row: Mapping[str, Any]) -> bool:
    """Say whether a row records a staged call; without a staging key it belongs to lineage alone."""
    return row.get("staging_key") is not None


def ledger_body(rollout_id: str, row: Mapping[str, Any]) -> bytes:
    """Return the ledger object of a staged call's row. Raises ``Invalid`` naming what does not fit."""
    unknown = sorted(set(row) - _COLUMNS)
    if unknown:
        msg = f"the row has columns that this version does not know, columns={', '.join(unknown)}"
        raise Invalid(msg, kind="newer_schema", hint="upgrade gym_objstore")
    record = {name: row.get(name) for name in _AS_IT_IS} | {"digest": row.get("staging_digest")} | _CONSTANTS
    record["fingerprint_version"] = row.get("fingerprint_version") or 0
    _require_record(record)
    _require_place(row)
    return write_object(
        rollout_id=rollout_id,
        record=record,
        staging_chain=row.get("staging_chain") or [],
        fingerprint_version=record["fingerprint_version"],
        **{name: row.get(name) for name in _PLACE},
    )


def gym_row(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return Gym's row of a ledger object. Raises ``Corrupt`` for an object that is none."""
    try:
        record = said["record"]
        return {
            **{name: record.get(name) for name in _AS_IT_IS},
            **{name: said[name] for name in _PLACE},
            "digest": record.get("cumulative_hash"),
            "staging_chain": list(said["staging_chain"]),
            "staging_digest": record["digest"],
        }
    except (AttributeError, KeyError, TypeError) as error:
        raise Corrupt(f"the object is no ledger row: {error!r}", kind="bad_row") from error


def _require_place(row: Mapping[str, Any]) -> None:
    """Refuse what no later call could be resolved by."""
    chain, length = row.get("staging_chain") or [], row.get("context_len")
    sound = {
        "fingerprint": _is_digest(row.get("fingerprint")) or row.get("fingerprint") == "",
        "context_digest": _is_digest(row.get("context_digest")),
        "context_len": type(length) is int and length >= 0,
        "staging_chain": isinstance(chain, list) and all(isinstance(one, str) for one in chain),
    }
    wrong = [name for name, is_sound in sound.items() if not is_sound]
    if wrong:
        raise Invalid(
            f"no row of a staged call: these columns are not sound, columns={', '.join(wrong)}", kind="bad_row"
        )


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def _require_record(record: Mapping[str, Any]) -> None:
    """Refuse what no manifest would take, except for columns whose absence a manifest reports."""
    absent = {name: _STANDING[name] for name in _OPTIONAL if not record.get(name)}
    try:
        CallRecord.model_validate({**record, **absent})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "row"
        raise Invalid(f"no row of a staged call: {where}: {first['msg'].lower()}", kind="bad_row") from error
