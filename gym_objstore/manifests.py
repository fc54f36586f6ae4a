# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""From the objects of a rollout's ledger to its manifest: what may be trusted becomes a record, the rest a failure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from gym_objstore.digests import sha256_hex
from gym_objstore.errors import Corrupt
from gym_objstore.ids import segment, spoken
from gym_objstore.names import parse_note_name, parse_row_name
from gym_objstore.objects import read_object
from gym_objstore.reasons import FailureReason
from gym_objstore.wire_ledger import CallRecord, ManifestFailure, RolloutManifest

if TYPE_CHECKING:
    from collections.abc import Sequence


class Unread(NamedTuple):
    """A ledger object as it was stored, under its name relative to the rollout."""

    name: str
    body: bytes


def manifest_of(
    rollout_id: str, found: Sequence[Unread], conflicts: Sequence[str], foreign: Sequence[str]
) -> RolloutManifest:
    """Return the manifest of a rollout's objects; ``conflicts`` are the segments of calls with two rows."""
    judged = [_judge(rollout_id, one) for one in found]
    failures = [one for one in judged if isinstance(one, ManifestFailure)]
    failures += [_failure(spoken(call), FailureReason.CONFLICTING_ROWS) for call in conflicts]
    failures += [_failure(name, FailureReason.INVALID_MANIFEST_ROW) for name in foreign]
    return RolloutManifest(
        rollout_id=rollout_id,
        records=tuple(parents_first([one for one in judged if isinstance(one, CallRecord)])),
        failures=tuple(sorted(failures, key=lambda one: (one.model_call_id, one.reason))),
    )


def parents_first(records: Sequence[CallRecord]) -> list[CallRecord]:
    """Return records in the order of admission, but never a call before its parent, whatever the clocks said."""
    by_id = {one.model_call_id: one for one in records}
    ordered: dict[str, CallRecord] = {}
    for one in sorted(records, key=lambda one: (one.admitted_at or 0.0, one.prev_len, one.model_call_id)):
        path: dict[str, CallRecord] = {}
        current: CallRecord | None = one
        while current is not None and current.model_call_id not in ordered and current.model_call_id not in path:
            path[current.model_call_id] = current
            current = by_id.get(current.parent_call_id or "")
        ordered.update(reversed(path.items()))
    return list(ordered.values())


def _judge(rollout_id: str, one: Unread) -> CallRecord | ManifestFailure:
    kind, _, name = one.name.partition("/")
    row = parse_row_name(name) if kind == "rows" else None
    note = parse_note_name(name) if kind == "failures" else None
    named = row or note
    call = spoken(named.call) if named else name
    try:
        said = read_object(one.body)
        if named is None or said["rollout_id"] != rollout_id or not sha256_hex(one.body).startswith(named.digest):
            raise Corrupt("the object is damaged or belongs to another rollout", kind="misplaced")
        found = _failure(said["model_call_id"], said["reason"]) if note else _record(said["record"])
        if segment(found.model_call_id) != named.call:
            raise Corrupt("the object belongs to another call", kind="misplaced")
    except (Corrupt, AttributeError, KeyError, TypeError, ValidationError):
        return _failure(call, FailureReason.INVALID_MANIFEST_ROW)
    return found


def _record(said: dict[str, Any]) -> CallRecord | ManifestFailure:
    if not said.get("response_id"):
        return _failure(said["model_call_id"], FailureReason.MISSING_RESPONSE_ID)
    if not said.get("chain_hash") or not said.get("cumulative_hash"):
        return _failure(said["model_call_id"], FailureReason.MISSING_CHAIN_HASH)
    return CallRecord.model_validate(said)


def _failure(call: str, reason: str) -> ManifestFailure:
    return ManifestFailure(model_call_id=call or "unknown", reason=str(reason))
