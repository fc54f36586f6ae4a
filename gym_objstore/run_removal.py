# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The end of a run: when it has expired, and removing it so that no reader takes a part of it for the whole.

Every rollout is guarded before the first of its objects goes, guards go when nothing is left behind them, and the
run's own objects last: while anything is there, the run is listed and closed, and repeating finishes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gym_objstore import captures, ledger, receipts_published, staging, tokens
from gym_objstore.flow import Flow, Listing, delete, fold, head, page, together
from gym_objstore.guards import guard, is_guard, keeps_readers_off
from gym_objstore.ids import segment
from gym_objstore.keys import RUN_FOLDER, run_prefix
from gym_objstore.names import parse_staged_name
from gym_objstore.references import below
from gym_objstore.run_keys import closed_key, run_folder
from gym_objstore.runs import close_run
from gym_objstore.store.marks import Marks

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from gym_objstore.store import Meta

ORDER = (receipts_published.FAMILY, tokens.FAMILY, ledger.FAMILY, captures.FAMILY, staging.FAMILY)
"""The families, each before those that it refers to."""


def has_expired(run_id: str, *, before: float) -> Flow[bool]:
    """Say whether a run was closed, or else written to for the last time, before a time. One without objects was not.

    A listing ends at the first object that is newer: one request tells of most live runs.
    """
    closed = yield from head(closed_key(run_id))
    if closed is not None:
        return closed.modified <= before
    empty = True
    for family in ORDER:
        listing = Listing(run_prefix(family, run_id))
        while (metas := (yield from page(listing))) is not None:
            empty = False
            if any(meta.modified > before for meta in metas):
                return False
    return not empty


def list_run(
    run_id: str, found: Callable[[Sequence[Meta]], Flow[object]], *, doomed: Callable[[Meta], bool]
) -> Flow[None]:
    """Play ``found`` with every object of a run that is doomed, a page at a time. Changes nothing itself."""
    for family in ORDER:
        listing = Listing(run_prefix(family, run_id))
        while (metas := (yield from page(listing))) is not None:
            if some := [meta for meta in metas if doomed(meta)]:
                yield from found(some)


def spares(kept: Collection[str]) -> Callable[[Meta], bool]:
    """Return what says whether the lists of checkpoints name an object, by its staging key or its rollout's id."""
    names, rollouts = frozenset(kept), {segment(one) for one in kept}

    def spared(meta: Meta) -> bool:
        family, _, rollout, *rest = [*meta.key.split("/", 4), "", ""]
        if rollout in rollouts:
            return True
        row = rest[1] if family == staging.FAMILY else ""
        return parse_staged_name(row) is not None and f"{rollout}/{row}" in names

    return spared


def remove_run(run_id: str, *, doomed: Callable[[Meta], bool]) -> Flow[int]:
    """Close a run and remove what is doomed of it; return how many objects were removed.

    A rollout keeps its guard while it keeps anything else, and the run its own objects while it has any rollout.
    Safe only once nothing writes to the run or reads it.
    Returns when: no listing shows the removed. Repeating: finishes what was interrupted.
    Raises: storage errors only.
    """
    if (yield from _is_empty(run_id)):
        return 0
    yield from close_run(run_id)
    removed = 0
    for family in ORDER:
        yield from _guard(family, run_id, doomed)
    for family in ORDER:
        removed += yield from _remove(family, run_id, doomed)
    for family in ORDER:
        removed += yield from _remove_guards(family, run_id)
    if (yield from _has_rollouts(run_id)):
        return removed
    for family in reversed(ORDER):  # the descriptor and the closed marker are the last
        removed += yield from _remove_below(run_folder(family, run_id), lambda _: True)
    return removed


def _is_empty(run_id: str) -> Flow[bool]:
    for family in ORDER:
        if (yield from page(Listing(run_prefix(family, run_id)))) is not None:
            return False
    return True


def _guard(family: str, run_id: str, doomed: Callable[[Meta], bool]) -> Flow[None]:
    """Put a guard before every rollout that is about to lose something and has none."""
    prefix, guarded = run_prefix(family, run_id), Marks()
    listing = Listing(prefix)
    while (metas := (yield from page(listing))) is not None:
        objects = list(below(prefix, metas))
        for rollout, name, _ in objects:
            if keeps_readers_off(family, name):
                guarded.add(rollout)
        losing = dict.fromkeys(r for r, name, meta in objects if not is_guard(family, name) and doomed(meta))
        puts = [guard(family, f"{prefix}{rollout}/", "delete") for rollout in losing if guarded.add(rollout)]
        if writes := [one for one in puts if one is not None]:
            yield from together(writes)


def _remove(family: str, run_id: str, doomed: Callable[[Meta], bool]) -> Flow[int]:
    prefix = run_prefix(family, run_id)

    def goes(meta: Meta) -> bool:
        rollout, _, name = meta.key[len(prefix) :].partition("/")
        return rollout != RUN_FOLDER and not is_guard(family, name) and doomed(meta)

    return (yield from _remove_below(prefix, goes))


def _remove_guards(family: str, run_id: str) -> Flow[int]:
    """Remove the guards of rollouts that have nothing else any more."""
    prefix, occupied, guards = run_prefix(family, run_id), Marks(), Marks()

    def take(metas: Iterable[Meta]) -> None:
        for rollout, name, _ in below(prefix, metas):
            (guards if is_guard(family, name) else occupied).add(rollout)

    yield from fold(prefix, take)
    if not guards:
        return 0

    def goes(meta: Meta) -> bool:
        rollout, _, name = meta.key[len(prefix) :].partition("/")
        return rollout != RUN_FOLDER and is_guard(family, name) and rollout not in occupied

    return (yield from _remove_below(prefix, goes))


def _has_rollouts(run_id: str) -> Flow[bool]:
    for family in ORDER:
        prefix = run_prefix(family, run_id)
        listing = Listing(prefix)
        while (metas := (yield from page(listing))) is not None:
            if any(not meta.key.startswith(f"{prefix}{RUN_FOLDER}/") for meta in metas):
                return True
    return False


def _remove_below(prefix: str, goes: Callable[[Meta], bool]) -> Flow[int]:
    removed = 0
    listing = Listing(prefix)
    while (metas := (yield from page(listing))) is not None:
        keys = [meta.key for meta in metas if goes(meta)]
        yield from delete(keys)
        removed += len(keys)
    return removed
