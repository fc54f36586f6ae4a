# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What nothing refers to any more: staged rows without a referrer, and late writes behind a tombstone.

A row is referred to, one after the other, by its call's intent, its ledger row, the receipt and the list of a
checkpoint. ``find_orphans`` lists the rows first and the referrers in that order, so that one on its way from
one to the next is seen somewhere; the checkpoints' lists are read last, by the caller, and given to
``remove_orphans``. Age alone condemns nothing, and nothing younger than the grace period is looked at.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import orjson

from gym_objstore import ledger, receipts_published, staging, tokens
from gym_objstore.errors import Corrupt, Invalid, ObjstoreError
from gym_objstore.flow import Find, Flow, Head, delete, scan, together
from gym_objstore.ids import segment
from gym_objstore.keys import (
    FENCES,
    RECEIPTS,
    RUN_FOLDER,
    TOMBSTONE,
    StagingKey,
    kind_prefix,
    parse_receipt_name,
    parse_row_name,
    parse_staged_name,
    run_prefix,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from gym_objstore.store import Meta

ORPHAN, LATE_WRITE = "orphan", "late_write"

_ROWS = "rows"


class Rest(NamedTuple):
    """An object that may be removed: ``kind`` is ``orphan`` or ``late_write``.

    ``rollout`` is a segment, ``name`` what a checkpoint's list would call it: the staging key of a row.
    """

    kind: str
    rollout: str
    name: str
    meta: Meta


class Orphans(NamedTuple):
    """What a sweep found: the rests in the order of their keys, and how many staged rows it looked at."""

    rests: tuple[Rest, ...]
    staged_rows: int
    young_rows: int


class _Family(NamedTuple):
    """One family of a run as listed: its objects by rollout and by name below it, and which rollouts are retired."""

    objects: dict[str, dict[str, Meta]]
    retired: frozenset[str]

    def live(self, rollout: str, kind: str) -> Iterator[str]:
        """Yield the names of one kind that a rollout has, as long as no tombstone stands."""
        if rollout not in self.retired:
            start = kind_prefix("", kind)
            yield from (name[len(start) :] for name in self.objects.get(rollout, ()) if name.startswith(start))


def find_orphans(run_id: str, *, now: float, grace: float) -> Flow[Orphans]:
    """Return the staged rows and late writes of a run that nothing refers to and that are older than ``grace``.

    ``now`` is Unix time by a clock near the store's, ``grace`` seconds: longer than any call and its
    acknowledgement may take. Four listings, and one read for each receipt and for each ledger row of a call with
    several rows, where these alone can tell. Changes nothing.
    Raises: the storage's error for a source that cannot be read, naming it; ``Corrupt`` for one that holds what
    this version cannot read; ``Invalid`` for a negative grace period. Nothing may be removed then.
    """
    if not grace >= 0:
        raise Invalid(f"the grace period must not be negative, grace={grace}", kind="bad_option")
    families = {}
    # Rows first, then their referrers in the order in which a row passes from one to the next.
    for name in (staging.FAMILY, tokens.FAMILY, ledger.FAMILY, receipts_published.FAMILY):
        families[name] = yield from _list_family(name, run_id)
    staged, referrers = families.pop(staging.FAMILY), families
    rows = [rest for rollout, found in staged.objects.items() for rest in _staged_rests(rollout, found)]
    old = [row for row in rows if row.meta.modified <= now - grace]
    doubtful = _unadmitted(old, referrers[tokens.FAMILY])
    doubtful = yield from _unrecorded(run_id, doubtful, referrers[ledger.FAMILY])
    orphans = yield from _unpublished(run_id, doubtful, referrers[receipts_published.FAMILY])
    late = [rest for family in referrers.values() for rest in _late(family) if rest.meta.modified <= now - grace]
    rests = sorted([*orphans, *late], key=lambda rest: rest.meta.key)
    return Orphans(tuple(rests), len(rows), len(rows) - len(old))


def unlisted(rests: Iterable[Rest], kept: Collection[str]) -> list[Rest]:
    """Return the rests that no checkpoint's list names, by staging key or by rollout id."""
    names = frozenset(kept)
    rollouts = {segment(one) for one in names}
    return [rest for rest in rests if rest.name not in names and rest.rollout not in rollouts]


def remove_orphans(orphans: Orphans, kept: Collection[str] = ()) -> Flow[list[Rest]]:
    """Remove what a sweep found, but nothing that ``kept`` names, and return what was removed.

    ``kept`` are the staging keys and rollout ids of every checkpoint that may still be restored, read after the
    orphans were found. What was written again since then stays.
    Returns when: no listing shows the removed. Repeating: changes nothing. Raises: storage errors, after which
    repeating is safe.
    """
    doomed = unlisted(orphans.rests, kept)
    now = yield from together(Head(rest.meta.key) for rest in doomed)
    pairs = zip(doomed, now, strict=True)
    same = [rest for rest, meta in pairs if meta is not None and meta.modified <= rest.meta.modified]
    yield from delete(rest.meta.key for rest in same)
    return same


def _list_family(family: str, run_id: str) -> Flow[_Family]:
    prefix = run_prefix(family, run_id)
    try:
        found = yield from scan(prefix)
    except ObjstoreError as error:
        raise _unread(error, prefix) from error
    objects: defaultdict[str, dict[str, Meta]] = defaultdict(dict)
    for meta in found:
        rollout, _, name = meta.key[len(prefix) :].partition("/")
        if rollout != RUN_FOLDER and name and not name.endswith("/"):
            objects[rollout][name] = meta
    stone = f"{FENCES}/{TOMBSTONE}"
    return _Family(objects, frozenset(rollout for rollout, names in objects.items() if stone in names))


def _unread(error: ObjstoreError, source: str) -> ObjstoreError:
    reason = f"nothing is swept, because a source of references cannot be read, source={source}, error={error.message}"
    return type(error)(reason, kind=error.kind, key=error.key, hint=error.hint)


def _staged_rests(rollout: str, found: dict[str, Meta]) -> Iterator[Rest]:
    """Yield the staged rows among a rollout's staged objects; what is no row of this format is left alone."""
    start = kind_prefix("", _ROWS)
    for name, meta in found.items():
        parsed = parse_staged_name(name[len(start) :]) if name.startswith(start) else None
        if parsed is not None:
            yield Rest(ORPHAN, rollout, StagingKey(rollout, parsed).text, meta)


def _unadmitted(rows: list[Rest], admitted: _Family) -> list[Rest]:
    """Return the rows without a standing intent."""
    standing = {(rollout, call) for rollout in admitted.objects for call in admitted.live(rollout, "intents")}
    return [row for row in rows if (row.rollout, _call(row)) not in standing]


def _call(row: Rest) -> str:
    """Return the segment of a staged row's call."""
    name = parse_staged_name(row.name.partition("/")[2])
    return name.call if name else ""


def _unrecorded(run_id: str, rows: list[Rest], recorded: _Family) -> Flow[list[Rest]]:
    """Return the rows that no ledger row names. A call's only row is taken to be the one that is meant."""
    calls: defaultdict[tuple[str, str], list[Rest]] = defaultdict(list)
    for row in rows:
        calls[row.rollout, _call(row)].append(row)
    ledger_rows = {call: found for call in calls if (found := _ledger_rows(run_id, call, recorded))}
    several = [key for call, keys in ledger_rows.items() if len(calls[call]) > 1 for key in keys]
    named = yield from _named_by(several, _row_key)
    return [
        row
        for call, found in calls.items()
        for row in found
        if call not in ledger_rows or (len(found) > 1 and row.name not in named)
    ]


def _ledger_rows(run_id: str, call: tuple[str, str], recorded: _Family) -> list[str]:
    rollout, wanted = call
    prefix = f"{run_prefix(ledger.FAMILY, run_id)}{rollout}/{_ROWS}/"
    names = list(recorded.live(rollout, _ROWS))
    if unknown := [name for name in names if parse_row_name(name) is None]:
        raise _foreign(f"{prefix}{unknown[0]}")
    return [f"{prefix}{name}" for name in names if name.partition("/")[0] == wanted]


def _unpublished(run_id: str, rows: list[Rest], published: _Family) -> Flow[list[Rest]]:
    """Return the rows that no receipt names."""
    keys = []
    for rollout in dict.fromkeys(row.rollout for row in rows):
        prefix = f"{run_prefix(receipts_published.FAMILY, run_id)}{rollout}/{RECEIPTS}/"
        for name in published.live(rollout, RECEIPTS):
            if parse_receipt_name(name) is None:
                raise _foreign(f"{prefix}{name}")
            keys.append(f"{prefix}{name}")
    named = yield from _named_by(keys, _receipt_keys)
    return [row for row in rows if row.name not in named]


def _named_by(keys: list[str], names: Callable[[str, bytes], Iterable[str]]) -> Flow[frozenset[str]]:
    """Return what objects name. One that is gone since it was listed was retired, and names nothing any more."""
    try:
        found = yield from together(Find(key, partial(names, key)) for key in keys)
    except ObjstoreError as error:
        raise _unread(error, error.key) from error
    return frozenset(name for one in found if one is not None for name in one)


def _row_key(key: str, body: bytes) -> tuple[str, ...]:
    try:
        return (orjson.loads(body)["record"]["staging_key"],)
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise _foreign(key) from error


def _receipt_keys(key: str, body: bytes) -> tuple[str, ...]:
    try:
        return tuple(row["staging_key"] for row in orjson.loads(body)["receipt"]["manifest"])
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise _foreign(key) from error


def _foreign(key: str) -> Corrupt:
    reason = "nothing is swept, because an object that may refer to staged rows cannot be read"
    return Corrupt(reason, kind="foreign_object", key=key, hint="upgrade gym_objstore, or remove or retire it")


def _late(family: _Family) -> Iterator[Rest]:
    """Yield what stands behind a tombstone, but for the fences."""
    for rollout in family.retired:
        for name, meta in family.objects[rollout].items():
            if not name.startswith(kind_prefix("", FENCES)):
                yield Rest(LATE_WRITE, rollout, f"{rollout}/{name}", meta)
