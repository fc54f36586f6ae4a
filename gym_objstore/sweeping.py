# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What nothing refers to any more: staged rows without a referrer, and rests behind tombstones.

A row is referred to, one after the other, by its call's intent, its ledger row, the receipt and the list of a
checkpoint. ``sweep`` lists the rows first and the referrers in that order, so that one on its way from one to the
next is seen somewhere; the checkpoints' lists are read last, by whoever is given what was found. Age alone condemns
nothing, and nothing younger than the grace period is looked at. A drop-intent goes only behind the tombstone, after
the data that it names: until then nobody knows whether its consumer is dead or asleep.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gym_objstore import ledger, receipts_published, staging, tokens
from gym_objstore.errors import Invalid
from gym_objstore.flow import Flow, Head, Listing, delete, page, together
from gym_objstore.ids import segment
from gym_objstore.keys import StagingKey, run_prefix, tombstone_key
from gym_objstore.references import (
    Fences,
    below,
    pass_admitted,
    pass_published,
    pass_recorded,
    read_rows,
    staged_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from gym_objstore.store import Meta
    from gym_objstore.store.marks import Marks

ORPHAN, LATE_WRITE, STALE_DROP = "orphan", "late_write", "stale_drop"

_PASSES = ((tokens.FAMILY, pass_admitted), (ledger.FAMILY, pass_recorded), (receipts_published.FAMILY, pass_published))
"""The referrers, in the order in which a row passes from one to the next."""


class Rest(NamedTuple):
    """An object that may be removed: ``kind`` is ``orphan``, ``late_write`` or ``stale_drop``.

    ``rollout`` is a segment, ``name`` what a checkpoint's list would call it: the staging key of a row.
    """

    kind: str
    rollout: str
    name: str
    meta: Meta


class Looked(NamedTuple):
    """How many staged rows a sweep looked at, and how many of them were too young to judge."""

    staged_rows: int
    young_rows: int


class Orphans(NamedTuple):
    """What a sweep found: the rests in the order of their keys, and how many staged rows it looked at."""

    rests: tuple[Rest, ...]
    staged_rows: int
    young_rows: int


def sweep(run_id: str, found: Callable[[Sequence[Rest]], Flow[object]], *, now: float, grace: float) -> Flow[Looked]:
    """Play ``found`` with the rests of a run that are older than ``grace``, a page at a time and in no order.

    ``now`` is Unix time by a clock near the store's, ``grace`` seconds: longer than any call and its
    acknowledgement may take. Four listings, and one read for each receipt and for each ledger row of a call with
    several rows, where these alone can tell; then one more listing of each family that has rests. Changes nothing
    itself. Memory: 50 bytes for each old row, and 17 for each intent, recorded call and rollout.
    Raises: the storage's error for a source that cannot be read, naming it; ``Corrupt`` for one that holds what
    this version cannot read; ``Invalid`` for a negative grace period. Nothing was found then.
    """
    if not grace >= 0:
        raise Invalid(f"the grace period must not be negative, grace={grace}", kind="bad_option")
    before = now - grace
    rows = yield from read_rows(staging.FAMILY, run_id, before)
    fences: dict[str, Fences] = {}
    for family, forget_named in _PASSES:
        fences[family] = yield from forget_named(family, run_id, before, rows)
    if orphans := rows.marks:
        yield from _again(staging.FAMILY, run_id, lambda *one: _orphan(orphans, *one), before, found)
    for family, fenced in fences.items():
        if fenced.has_rests:
            yield from _again(family, run_id, lambda *one, fenced=fenced: _behind(fenced, *one), before, found)
    return Looked(rows.count, rows.young)


def find_orphans(run_id: str, *, now: float, grace: float) -> Flow[Orphans]:
    """Return the rests of a run, all of them in memory; see ``sweep``."""
    rests: list[Rest] = []

    def found(some: Sequence[Rest]) -> Flow[None]:
        rests.extend(some)
        yield from ()

    looked = yield from sweep(run_id, found, now=now, grace=grace)
    return Orphans(tuple(sorted(rests, key=lambda rest: rest.meta.key)), *looked)


def unlisted(rests: Iterable[Rest], kept: Collection[str]) -> list[Rest]:
    """Return the rests that no checkpoint's list names, by staging key or by rollout id."""
    names = frozenset(kept)
    rollouts = {segment(one) for one in names}
    return [rest for rest in rests if rest.name not in names and rest.rollout not in rollouts]


def remove_orphans(orphans: Orphans, kept: Collection[str] = ()) -> Flow[list[Rest]]:
    """Remove what a sweep found, but nothing that ``kept`` names; see ``remove``."""
    return (yield from remove(unlisted(orphans.rests, kept)))


def remove(doomed: Sequence[Rest]) -> Flow[list[Rest]]:
    """Remove rests and return what was removed. What was written again since it was found stays.

    ``doomed`` must leave out what the lists of checkpoints name that were read after it was found.
    Returns when: no listing shows the removed. Repeating: changes nothing. Raises: storage errors, after which
    repeating is safe.
    """
    stones = list(dict.fromkeys(_stone(rest) for rest in doomed if rest.kind != ORPHAN))
    answers = yield from together(map(Head, [*(rest.meta.key for rest in doomed), *stones]))
    standing = {stone for stone, meta in zip(stones, answers[len(doomed) :], strict=True) if meta is not None}
    pairs = zip(doomed, answers[: len(doomed)], strict=True)
    same = [rest for rest, meta in pairs if meta is not None and meta.modified <= rest.meta.modified]
    gone = [rest for rest in same if rest.kind == ORPHAN or _stone(rest) in standing]
    yield from delete(rest.meta.key for rest in gone)
    return gone


def _stone(rest: Rest) -> str:
    return tombstone_key(f"{rest.meta.key.removesuffix(rest.name)}{rest.rollout}/")


def _again(
    family: str,
    run_id: str,
    judge: Callable[[str, str, Meta], Rest | None],
    before: float,
    found: Callable[[Sequence[Rest]], Flow[object]],
) -> Flow[None]:
    """List a family a second time for what was condemned, which is still old, and play ``found`` with it."""
    prefix = run_prefix(family, run_id)
    listing = Listing(prefix)
    while (metas := (yield from page(listing))) is not None:
        judged = (judge(*one) for one in below(prefix, metas) if one[2].modified <= before)
        if rests := [rest for rest in judged if rest is not None]:
            yield from found(rests)


def _orphan(orphans: Marks, rollout: str, name: str, meta: Meta) -> Rest | None:
    staged = staged_name(name)
    if staged is None:
        return None
    key = StagingKey(rollout, staged).text
    return Rest(ORPHAN, rollout, key, meta) if key in orphans else None


def _behind(fences: Fences, rollout: str, name: str, meta: Meta) -> Rest | None:
    if fences.is_late(rollout, name):
        return Rest(LATE_WRITE, rollout, f"{rollout}/{name}", meta)
    return Rest(STALE_DROP, rollout, f"{rollout}/{name}", meta) if fences.is_stale_drop(rollout, name) else None
