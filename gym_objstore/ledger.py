# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The capture ledger: which calls of a rollout were staged, which failed, and who continues whom.

Rows are token-free. Their names carry the fingerprint, so a parent is found by one listing and one read;
two different rows of one call stay beside each other and void both. Retirement is in ``retirement``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from gym_objstore.digests import sha256_hex
from gym_objstore.errors import Conflict, Corrupt, Unavailable
from gym_objstore.fingerprint import FINGERPRINT_VERSION, assistant_fingerprint, conversation_digest
from gym_objstore.flow import Find, Flow, Head, Put, Scan, compute, delete, find, head, scan, together
from gym_objstore.ids import require_id, segment
from gym_objstore.keys import FENCES, TOMBSTONE, kind_prefix, note_key, rollout_prefix, row_key, tombstone_key
from gym_objstore.manifests import Unread, manifest_of
from gym_objstore.names import UNSTAMPED, RowName, parse_row_name
from gym_objstore.objects import read_object, retired, write_object
from gym_objstore.records import LineageMatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gym_objstore.wire_ledger import RolloutManifest

FAMILY = "ledger"

_ITEM_SIZE = 2048


class Row(NamedTuple):
    """A ledger row ready to be stored."""

    key: str
    name: RowName
    body: bytes


@dataclass(slots=True)
class Listing:
    """One rollout's ledger as its listing shows it."""

    rollout: str
    rows: dict[str, list[RowName]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    tombstone: bool = False


def prepare_row(rollout: str, commit: Any) -> Row:
    """Return what is stored for a commit: ours, or any object with the same fields, such as nemo-gym's."""
    request, response = list(commit.request_items), list(commit.response_items)
    fingerprint = assistant_fingerprint([*request, *response])
    body = write_object(
        rollout_id=commit.rollout_id,
        record=commit.record.model_dump(mode="json"),
        staging_chain=list(commit.staging_chain),
        fingerprint=fingerprint,
        fingerprint_version=FINGERPRINT_VERSION,
        context_len=len(request),
        context_digest=conversation_digest(request),
    )
    call = segment(require_id(commit.record.model_call_id, "model call id"))
    name = RowName(call, fingerprint[:16] or UNSTAMPED, sha256_hex(body))
    return Row(row_key(rollout, name), name, body)


def record(run_id: str, commit: Any, also: Sequence[Put] = ()) -> Flow[bool]:
    """Record a staged call; False if the rollout is retired and the row was discarded.

    Returns when: the row is durable and every server resolves it, or none of it is left.
    Repeating: the same commit, all fields, changes nothing.
    Raises: ``Conflict`` if the call already has another row; both then stay and void the call in the
    manifest. Storage errors, after which repeating is safe.
    """
    rollout = rollout_prefix(FAMILY, run_id, commit.rollout_id)
    size = _ITEM_SIZE * len(commit.request_items)
    row = yield from compute(prepare_row, rollout, commit, size=size)
    siblings = kind_prefix(kind_prefix(rollout, "rows"), row.name.call)
    tombstone, listed, *_ = yield from together(
        [Head(tombstone_key(rollout)), Scan(siblings), Put(row.key, row.body), *also]
    )
    if tombstone is not None:
        yield from delete([row.key])
        return False
    if {meta.key for meta in listed} - {row.key}:
        call = commit.record.model_call_id
        raise Conflict(f"the call has another ledger row, model_call_id={call}", kind="ledger_row", key=row.key)
    return True


def record_failure(
    run_id: str, rollout_id: str, model_call_id: str, *, reason: str, also: Sequence[Put] = ()
) -> Flow[bool]:
    """Record that a call did not commit; False if the rollout is retired and the row was discarded.

    Returns when: the failure is durable and poisons the manifest, unless its reason is the one that does not.
    Repeating: the same call and reason change nothing. Raises: storage errors only.
    """
    rollout = rollout_prefix(FAMILY, run_id, rollout_id)
    failure = failure_put(rollout, rollout_id, model_call_id, reason)
    tombstone, *_ = yield from together([Head(tombstone_key(rollout)), failure, *also])
    if tombstone is not None:
        yield from delete([failure.key])
    return tombstone is None


def failure_put(rollout: str, rollout_id: str, model_call_id: str, reason: str) -> Put:
    """Return the write that says a call did not commit."""
    require_id(model_call_id, "model call id")
    body = write_object(rollout_id=rollout_id, model_call_id=model_call_id, reason=require_id(reason, "reason"))
    return Put(note_key(rollout, "failures", model_call_id, body), body)


def manifest(run_id: str, rollout_id: str) -> Flow[RolloutManifest]:
    """Return a rollout's token-free description, parents before children. Reading changes nothing.

    Rows that cannot be trusted become failures under their call: two rows for one call, damaged rows, rows
    without response id or chain hashes. Raises ``Retired`` behind a tombstone, storage errors.
    """
    rollout = rollout_prefix(FAMILY, run_id, rollout_id)
    listing = yield from _list(rollout)
    if listing.tombstone:
        raise retired(rollout)
    keys = [row_key(rollout, names[0]) for names in listing.rows.values() if len(names) == 1]
    keys += [f"{rollout}{name}" for name in listing.failures]
    # Asked for after the listing, whose pages are of different times: see tokens.read_snapshot.
    tombstone, *bodies = yield from together([Head(tombstone_key(rollout)), *(Find(key, bytes) for key in keys)])
    if tombstone is not None:
        raise retired(rollout)
    if None in bodies:
        yield from _explain_missing(rollout, keys[bodies.index(None)])
    conflicts = [call for call, names in listing.rows.items() if len(names) > 1]
    found = [Unread(key[len(rollout) :], body) for key, body in zip(keys, bodies, strict=True)]
    size = sum(len(one.body) for one in found)
    return (yield from compute(manifest_of, rollout_id, found, conflicts, listing.foreign, size=size))


def has_rows(run_id: str, rollout_id: str) -> Flow[bool]:
    """Say whether the ledger holds any row, of a commit or a failure. Raises ``Retired`` behind a tombstone."""
    rollout = rollout_prefix(FAMILY, run_id, rollout_id)
    listing = yield from _list(rollout)
    found = bool(listing.rows or listing.failures or listing.foreign)
    if listing.tombstone or (not found and (yield from head(tombstone_key(rollout))) is not None):
        raise retired(rollout)
    return found


def resolve_row(run_id: str, rollout_id: str, items: list[dict[str, Any]]) -> Flow[LineageMatch | None]:
    """Return the one staged call that a request continues, or None. Raises storage errors and ``Corrupt``.

    Exactly one row with the request's fingerprint must exist, and its context must begin the request.
    A call with two rows is none, and so is everything behind a tombstone.
    """
    rollout = rollout_prefix(FAMILY, run_id, rollout_id)
    size = _ITEM_SIZE * len(items)
    fingerprint = yield from compute(assistant_fingerprint, items, size=size)
    if not fingerprint:
        return None
    listing = yield from _list(rollout)
    fits = [name for names in listing.rows.values() for name in names if name.fingerprint == fingerprint[:16]]
    if listing.tombstone or len(fits) != 1 or len(listing.rows[fits[0].call]) > 1:
        return None
    key = row_key(rollout, fits[0])
    row = yield from find(key, partial(_read_row, key, fits[0].digest))
    if row is None or (row["fingerprint"], row["fingerprint_version"]) != (fingerprint, FINGERPRINT_VERSION):
        return None
    context = items[: row["context_len"]]
    digest = yield from compute(conversation_digest, context, size=size)
    if len(context) != row["context_len"] or digest != row["context_digest"]:
        return None
    return _match(row)


def _read_row(key: str, digest: str, body: bytes) -> dict[str, Any]:
    if sha256_hex(body) != digest:
        raise Corrupt("a ledger row is damaged", key=key, hint="retire the rollout")
    row = read_object(body)
    match row:
        case {
            "record": {"model_call_id": _, "cumulative_hash": _, "cum_len": _, "chain_hash": _},
            "staging_chain": list(),
            "context_len": int(),
            "context_digest": _,
            "fingerprint": _,
            "fingerprint_version": _,
        }:
            return row
    raise Corrupt("the object is no ledger row", kind="foreign_object", key=key, hint="retire the rollout")


def _match(row: dict[str, Any]) -> LineageMatch:
    said = row["record"]
    return LineageMatch(
        model_call_id=said["model_call_id"],
        cumulative_token_ids=(),
        digest=said["cumulative_hash"] or "",
        staging_chain=tuple(row["staging_chain"]),
        prev_len=said["cum_len"],
        chain_hash=said["chain_hash"] or "",
    )


def _list(rollout: str) -> Flow[Listing]:
    found = yield from scan(rollout)
    return list_keys(rollout, (meta.key for meta in found))


def list_keys(rollout: str, keys: Iterable[str]) -> Listing:
    """Sort the listed keys of a rollout's ledger out. Keys that end in ``/`` are folder marks, ignored."""
    listing = Listing(rollout)
    for relative in sorted(key[len(rollout) :] for key in keys if not key.endswith("/")):
        kind, _, name = relative.partition("/")
        if kind == FENCES:
            listing.tombstone |= name == TOMBSTONE
        elif kind == "rows" and (row := parse_row_name(name)):
            listing.rows.setdefault(row.call, []).append(row)
        elif kind == "failures":
            listing.failures.append(relative)
        else:
            listing.foreign.append(relative)
    return listing


def _explain_missing(rollout: str, key: str) -> Flow[None]:
    """Raise for an object that was listed and is not there: it was retired meanwhile, or the store is behind."""
    if (yield from _list(rollout)).tombstone:
        raise retired(rollout)
    raise Unavailable("a listed object cannot be read", kind="listed_but_missing", key=key)
