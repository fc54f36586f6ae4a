# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""From a run's objects to the lines of Gym's files: what each family of a rollout says there. Writes nothing.

What a file cannot hold becomes what makes Gym judge the rollout as our readers do: a marker for a damaged entry or
a conflict, a failure row for a damaged ledger row, a line that is no JSON for a damaged capture.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from gym_objstore import gym_rows, ledger, tokens
from gym_objstore.codec import unpack
from gym_objstore.errors import Corrupt, Invalid
from gym_objstore.flow import Find, Flow, Head, find, head, scan, together
from gym_objstore.ids import identifier, spoken
from gym_objstore.index import read_index
from gym_objstore.keys import entry_key, rollout_prefix, row_key, tombstone_key
from gym_objstore.manifests import Unread, manifest_of
from gym_objstore.objects import read_object
from gym_objstore.reasons import FailureReason
from gym_objstore.tokens import Problem, listed_problems, read_entry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gym_objstore.captures import Stored
    from gym_objstore.index import Index
    from gym_objstore.names import EntryName

_DERIVED = {FailureReason.MISSING_CHAIN_HASH, FailureReason.MISSING_RESPONSE_ID}
"""Failures that Gym finds in the row itself."""


class TokenFiles(NamedTuple):
    """A rollout's tokens as Gym's file store has them.

    ``lines`` are entries, ``intents`` and ``marks`` call ids; ``left_out`` are the objects that have no line, for
    each of which there is a mark. A retired rollout has nothing but the snapshot it was retired with.
    """

    lines: tuple[bytes, ...] = ()
    intents: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    left_out: tuple[Problem, ...] = ()
    retired: bool = False
    snapshot_id: str = ""


class LedgerFiles(NamedTuple):
    """A rollout's ledger as Gym's file store has it; ``damaged`` rows are failures among the lines."""

    lines: tuple[bytes, ...] = ()
    damaged: int = 0
    retired: bool = False


def capture_line(stored: Stored) -> bytes:
    """Return a capture's line, without its end: what was stored, or for a damaged one a line that is no JSON."""
    if stored.text is None:
        return f"damaged capture, sha256={stored.name.digest}: {stored.damage}".encode("ascii", "backslashreplace")
    return stored.text.replace(b"\n", b" ") if b"\n" in stored.text.strip() else stored.text


def token_files(run_id: str, rollout_id: str) -> Flow[TokenFiles]:
    """Return a rollout's tokens, every entry verified, for a freeze that says what ours does. Raises storage errors."""
    rollout = rollout_prefix(tokens.FAMILY, run_id, rollout_id)
    index = yield from read_index(rollout)
    reads = [Find(entry_key(rollout, name), partial(_entry, rollout, name)) for name in index.sound]
    stone, *found = yield from together([Head(tombstone_key(rollout)), *reads])
    if index.tombstone or (yield from _ended(rollout, stone, found)):
        said = yield from find(tombstone_key(rollout), read_object)
        return TokenFiles(retired=True, snapshot_id=str((said or {}).get("snapshot_id", "")))
    judged = [one or Problem("missing", spoken(name.call)) for name, one in zip(index.sound, found, strict=True)]
    entries = sorted(one for one in judged if not isinstance(one, Problem))
    lost = [one for one in (*listed_problems(index), *judged) if isinstance(one, Problem)]
    left_out = tuple(one for one in lost if one.kind not in {"incomplete_marker", "dangling_intent"})
    admitted = _admitted(index)
    intents = yield from _calls(rollout, [(call, f"intents/{call}") for call in admitted])
    markers = yield from _calls(rollout, [(one.call, f"markers/{one.call}.{one.digest}") for one in index.markers])
    unnamed = [
        call for call, one in zip(admitted, intents, strict=True) if call in index.dangling and not _is_line(one)
    ]
    marks = [*markers, *(one.model_call_id for one in left_out), *("" for _ in unnamed)]
    return TokenFiles(
        lines=tuple(one.text for one in entries),
        intents=tuple(one for one in intents if _is_line(one)),
        marks=tuple(one if _is_line(one) else "" for one in marks),
        left_out=left_out,
    )


def ledger_files(run_id: str, rollout_id: str) -> Flow[LedgerFiles]:
    """Return a rollout's ledger rows, parents first, for a manifest that says what ours does. Raises storage errors."""
    rollout = rollout_prefix(ledger.FAMILY, run_id, rollout_id)
    listing = ledger.list_keys(rollout, [meta.key for meta in (yield from scan(rollout))])
    single = {row_key(rollout, names[0]) for names in listing.rows.values() if len(names) == 1}
    keys = [*sorted(single), *(f"{rollout}{name}" for name in listing.failures)]
    stone, *bodies = yield from together([Head(tombstone_key(rollout)), *(Find(key, bytes) for key in keys)])
    if listing.tombstone or (yield from _ended(rollout, stone, bodies)):
        return LedgerFiles(retired=True)
    unread = [Unread(key[len(rollout) :], body or b"") for key, body in zip(keys, bodies, strict=True)]
    conflicts = [call for call, names in listing.rows.items() if len(names) > 1]
    said = manifest_of(rollout_id, unread, conflicts, listing.foreign)
    rows = {row["model_call_id"]: row for one in unread if (row := _row(one)) is not None}
    derived = [one.model_call_id for one in said.failures if one.reason in _DERIVED]
    ordered = {call: rows[call] for call in (*(one.model_call_id for one in said.records), *derived) if call in rows}
    failures = [
        (one.model_call_id, one.reason)
        for one in said.failures
        if one.reason not in _DERIVED or one.model_call_id not in ordered
    ]
    failures += [
        (one.model_call_id, FailureReason.INVALID_MANIFEST_ROW) for one in said.records if one.model_call_id not in rows
    ]
    lines = [*ordered.values(), *({"model_call_id": call, "failure_reason": str(reason)} for call, reason in failures)]
    damaged = len(conflicts) + len(listing.foreign) + len(single) - len(ordered)
    return LedgerFiles(tuple(gym_rows.row_text(line) for line in lines), damaged)


def _identifier(name: str) -> str | None:
    try:
        return identifier(name)
    except Invalid:
        return None


class _Entry(NamedTuple):
    """An entry's line, and by what it is put in order: parents are not younger than their children, and shorter."""

    created_at: float
    cum_len: int
    model_call_id: str
    text: bytes


def _entry(rollout: str, name: EntryName, body: bytes) -> _Entry | Problem:
    try:
        entry = read_entry(rollout, name, body)
    except Corrupt as error:
        return Problem("newer_format" if error.kind == "newer_format" else "corrupt", spoken(name.call), error.message)
    return _Entry(entry.created_at, entry.cum_len or 0, entry.model_call_id, unpack(body, name.format))


def _admitted(index: Index) -> list[str]:
    """Return the calls with an intent, but those whose engine refused them: Gym's files cannot settle an intent."""
    return sorted(index.intents - (index.refusals - index.entries.keys()))


def _calls(rollout: str, named: Sequence[tuple[str, str]]) -> Flow[list[str]]:
    """Return the call ids of segments; read from the object, beside it, where the segment has only a hash."""
    calls = {name: _identifier(call) for call, name in named}
    hashed = [name for name, call in calls.items() if call is None]
    found = yield from together(Find(f"{rollout}{name}", _named_call) for name in hashed)
    calls |= dict(zip(hashed, found, strict=True))
    return [call or "" for call in calls.values()]


def _named_call(body: bytes) -> str:
    try:
        return str(read_object(body).get("model_call_id", ""))
    except Corrupt:
        return ""


def _is_line(call: str) -> bool:
    """Say whether a call id can be a line of a file and be read back."""
    return bool(call) and call == call.strip() and call.isprintable()


def _ended(rollout: str, stone: Any, found: Sequence[Any]) -> Flow[bool]:
    """Say whether a rollout was retired while it was read: a tombstone is put before anything behind it goes."""
    return stone is not None or (None in found and (yield from head(tombstone_key(rollout))) is not None)


def _row(one: Unread) -> dict[str, Any] | None:
    try:
        return gym_rows.gym_row(read_object(one.body)) if one.name.startswith("rows/") else None
    except Corrupt:
        return None
