# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""From the lines of Gym's files to a run's objects: which objects they are, which are missing, storing, verifying.

Every line has one object, whose key follows from the line and, for captures, from the lines before it; so an import
can be repeated, and goes on where it was interrupted. Reading files is ``gym_folder``'s.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from gym_objstore import captures, gym_rows, ledger, tokens
from gym_objstore.captures import Line, capture_name, order_of
from gym_objstore.codec import FORMAT, INTERCHANGE, encode, parse, unpack
from gym_objstore.digests import sha256_hex
from gym_objstore.errors import Conflict, Corrupt, Invalid, Retired
from gym_objstore.flow import Find, Flow, Put, delete, find, scan, together
from gym_objstore.ids import segment
from gym_objstore.keys import FENCES, TOMBSTONE, capture_key, entry_key, rollout_prefix, row_key, tombstone_key
from gym_objstore.names import UNSTAMPED, RowName, parse_capture_name, parse_entry_name, parse_row_name
from gym_objstore.objects import announcement, marker, read_object, write_object
from gym_objstore.reasons import FailureReason
from gym_objstore.records import stored_entry
from gym_objstore.sealing import seal
from gym_objstore.store import joined

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_LAST_SECOND = 9_999_999_000
"""Seconds since the epoch from which on a completion time is taken for none: there must be room behind it."""


class Piece(NamedTuple):
    """An object that an import leaves in the bucket: its key, its text and the SHA-256 of that."""

    key: str
    text: bytes
    digest: str

    @property
    def kind(self) -> str:
        """What kind of object it is."""
        return _kind_of(self.key)

    @property
    def put(self) -> Put:
        """The write that stores it."""
        return Put(self.key, encode(self.text) if _format_of(self.key) == FORMAT else self.text)


class Plan(NamedTuple):
    """What is to be done for one family of a rollout.

    ``missing`` are the keys to store; ``elsewhere`` says under which other key the bucket has the same; ``guarded``
    is whether an import that was interrupted left its guard.
    """

    missing: frozenset[str]
    elsewhere: dict[str, str]
    guarded: bool


def capture_pieces(run_id: str, rollout_id: str, texts: Iterable[bytes]) -> Iterator[Piece]:
    """Yield the capture of each line, in an order that is the file's whatever the calls' clocks said.

    A line that is no JSON object is a capture too: it is stored as it is, and readers count it as damaged.
    """
    rollout, previous = rollout_prefix(captures.FAMILY, run_id, rollout_id), -1
    for text in texts:
        completed, call = _said(text)
        previous = max(previous + 1, order_of(completed, 0.0))
        name = capture_name(Line(text, previous, call))
        yield Piece(capture_key(rollout, name), text, name.digest)


def capture_marker(run_id: str, rollout_id: str) -> Piece:
    """Return the marker of a ``.capture.incomplete`` file."""
    return _note(captures.mark(run_id, rollout_id, "", {"reason": "imported"}))


def entry_piece(run_id: str, rollout_id: str, text: bytes) -> Piece:
    """Return the token entry of a line. Raises ``Invalid`` for one nobody could train on, or of another rollout."""
    try:
        entry = stored_entry(parse(text.strip()))
    except Corrupt as error:
        raise Invalid(f"the line is no token entry: {error.message}", kind="bad_record") from error
    if entry.rollout_id != rollout_id:
        raise Invalid(f"the entry is of another rollout, rollout_id={entry.rollout_id!r}", kind="misplaced")
    fields, canonical = seal(entry)
    name = tokens.entry_name(fields, sha256_hex(canonical))
    return Piece(entry_key(rollout_prefix(tokens.FAMILY, run_id, rollout_id), name), canonical, name.digest)


def intent_piece(run_id: str, rollout_id: str, model_call_id: str) -> Piece:
    """Return the intent of a call."""
    rollout = rollout_prefix(tokens.FAMILY, run_id, rollout_id)
    return _note(tokens.intent_put(rollout, rollout_id, model_call_id))


def token_marker(run_id: str, rollout_id: str, model_call_id: str, number: int) -> Piece:
    """Return the marker of a line of ``.tokens.incomplete``; ``number`` tells equal lines apart."""
    note = {"reason": "imported", "number": number}
    return _note(marker(tokens.FAMILY, run_id, rollout_id, model_call_id, note=note))


def row_piece(run_id: str, rollout_id: str, row: dict[str, Any]) -> Piece:
    """Return the ledger object of a row of a staged call or a failure. Raises ``Invalid``."""
    if gym_rows.is_failure(row):
        return failure_piece(run_id, rollout_id, row["model_call_id"], str(row["failure_reason"]))
    body = gym_rows.ledger_body(rollout_id, row)
    fingerprint = (row.get("fingerprint") or "")[:16] or UNSTAMPED
    name = RowName(segment(row["model_call_id"]), fingerprint, sha256_hex(body))
    return Piece(row_key(rollout_prefix(ledger.FAMILY, run_id, rollout_id), name), body, name.digest)


def failure_piece(run_id: str, rollout_id: str, model_call_id: str, reason: str) -> Piece:
    """Return a failure row, which poisons the rollout unless its reason is the one that does not."""
    return _note(
        ledger.failure_put(rollout_prefix(ledger.FAMILY, run_id, rollout_id), rollout_id, model_call_id, reason)
    )


def fence(family: str, run_id: str, rollout_id: str) -> Piece:
    """Return the tombstone of a rollout that was retired before it was imported."""
    return _note(Put(tombstone_key(rollout_prefix(family, run_id, rollout_id)), write_object(cause="import")))


def plan(run_id: str, rollout_id: str, family: str, wanted: Sequence[Piece]) -> Flow[Plan]:
    """Say which of a family's objects are not in the bucket. Nothing is changed.

    Texts are looked at where they are ledger rows only. Raises ``Retired`` for a rollout that is behind a fence in
    the bucket only, ``Conflict`` where the bucket holds something that the files contradict, and storage errors.
    """
    rollout = rollout_prefix(family, run_id, rollout_id)
    keys = {piece.key for piece in wanted}
    found = {meta.key for meta in (yield from scan(rollout))}
    guard = _guard(family, run_id, rollout_id)
    present = found - {guard.key if guard else ""}
    _require_alike(rollout, keys, present)
    others = present - keys
    if family == captures.FAMILY:
        elsewhere = _captured_elsewhere(wanted, present, others)
    else:
        elsewhere = yield from _recorded_elsewhere(wanted, present, others)
    return Plan(frozenset(keys - present - elsewhere.keys()), elsewhere, present != found)


def announce(run_id: str, families: Iterable[str]) -> Flow[None]:
    """Leave the run's writer markers. Returns when: they are durable. Repeating: changes nothing."""
    yield from together(announcement(family, run_id) for family in families)


def begin(family: str, run_id: str, rollout_id: str) -> Flow[None]:
    """Put up the guard that keeps readers from taking a part of the rollout for the whole; see ``finish``.

    Token entries need none: the intents of all calls are stored before the first entry.
    """
    guard = _guard(family, run_id, rollout_id)
    yield from together([guard] if guard else [])


def finish(family: str, run_id: str, rollout_id: str) -> Flow[None]:
    """Take the guard down, once everything was stored and verified. Repeating: changes nothing."""
    guard = _guard(family, run_id, rollout_id)
    yield from delete([guard.key] if guard else [])


def store(pieces: Sequence[Piece]) -> Flow[None]:
    """Store objects. Returns when: all are durable. Repeating: changes nothing. Raises: storage errors."""
    yield from together(piece.put for piece in pieces)


def verify(pieces: Sequence[Piece], elsewhere: Mapping[str, str]) -> Flow[None]:
    """Read objects back. Raises ``Corrupt`` for the first whose text is not the line's."""
    keys = [elsewhere.get(piece.key, piece.key) for piece in pieces]
    checks = [partial(_says_the_same, piece, _format_of(key)) for piece, key in zip(pieces, keys, strict=True)]
    found = yield from together(Find(key, check) for key, check in zip(keys, checks, strict=True))
    for key, held in zip(keys, found, strict=True):
        if not held:
            state = "absent" if held is None else "damaged"
            raise Corrupt(f"an imported object is {state}", kind="not_verified", key=key, hint="import again")


def _said(text: bytes) -> tuple[Any, str]:
    """Return when a capture's call completed and its id, as far as the line says."""
    try:
        record = parse(text.strip())
    except Corrupt:
        return 0.0, ""
    completed, call = record.get("completed_at"), record.get("model_call_id")
    known = isinstance(completed, int | float) and completed < _LAST_SECOND
    return completed if known else 0.0, call if isinstance(call, str) else ""


def _note(put: Put) -> Piece:
    body = joined(put.body)
    return Piece(put.key, body, sha256_hex(body))


def _guard(family: str, run_id: str, rollout_id: str) -> Put | None:
    if family == captures.FAMILY:
        return captures.mark(run_id, rollout_id, "", {"reason": "import unfinished"})
    if family == ledger.FAMILY:
        rollout = rollout_prefix(family, run_id, rollout_id)
        return ledger.failure_put(rollout, rollout_id, "import-unfinished", FailureReason.INVALID_MANIFEST_ROW)
    return None


def _require_alike(rollout: str, keys: set[str], present: set[str]) -> None:
    """Refuse to fence what lives in the bucket, and to write behind a fence."""
    stone = tombstone_key(rollout)
    if stone in present and stone not in keys:
        hint = "delete it to use its id again, or import into another run"
        raise Retired("the rollout is retired in the bucket, and the files do not say so", key=stone, hint=hint)
    if stone in keys and any(not key.startswith(f"{rollout}{FENCES}/") for key in present):
        hint = "retire or delete it in the bucket first"
        raise Conflict("the files say that the rollout is retired, the bucket holds data of it", key=stone, hint=hint)


def _captured_elsewhere(wanted: Sequence[Piece], present: set[str], others: set[str]) -> dict[str, str]:
    """Find captures that have another place in the bucket's order: they were captured there, not imported."""
    spare: dict[str, list[str]] = {}
    for key in sorted(others, reverse=True):
        name = parse_capture_name(key.rpartition("/")[2])
        if name is not None:
            spare.setdefault(name.digest, []).append(key)
    absent = [piece for piece in wanted if piece.key not in present]
    return {piece.key: spare[piece.digest].pop() for piece in absent if spare.get(piece.digest)}


def _recorded_elsewhere(wanted: Sequence[Piece], present: set[str], others: set[str]) -> Flow[dict[str, str]]:
    """Find calls of which the bucket says the same in other bytes; raise ``Conflict`` if it says something else."""
    rivals = {call: key for key in sorted(others) if (call := _call_of(key))}
    elsewhere = {}
    for piece in wanted:
        rival = rivals.get(_call_of(piece.key))
        if piece.key in present or rival is None:
            continue
        if not (yield from find(rival, partial(_says_the_same, piece, _format_of(rival)))):
            hint = "import into another run, or delete the rollout there"
            raise Conflict("the bucket holds another record of this call", kind="other_record", key=rival, hint=hint)
        elsewhere[piece.key] = rival
    return elsewhere


def _call_of(key: str) -> tuple[str, ...]:
    """Return the kind and the call of an object that a call has one of; nothing of others."""
    kind, name = key.split("/", 4)[3:]
    if kind == "entries" and (entry := parse_entry_name(name)):
        return kind, entry.call
    if kind == "rows" and (row := parse_row_name(name)):
        return kind, row.call
    return ()


def _format_of(key: str) -> str:
    """Return how an object is encoded: records say so at the end of their names, everything else is JSON."""
    return key.rpartition(".")[2] if _kind_of(key) in {"records", "entries"} else INTERCHANGE


def _kind_of(key: str) -> str:
    return key.split("/", 4)[3]


def _says_the_same(piece: Piece, extension: str, body: bytes) -> bool:
    """Say whether a body is what a line asks for: the same text, a row that is the same to Gym, or any tombstone."""
    if piece.key.endswith(f"/{FENCES}/{TOMBSTONE}"):
        return True
    try:
        if sha256_hex(unpack(body, extension)) == piece.digest:
            return True
        rows = _call_of(piece.key)[:1] == ("rows",)
        return rows and gym_rows.gym_row(read_object(body)) == gym_rows.gym_row(read_object(piece.text))
    except Corrupt:
        return False
