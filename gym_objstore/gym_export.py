# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Writing a run into Gym's files, rollout by rollout, each file whole and read back.

What the lines are is ``exporting``'s, how files are written ``gym_folder``'s.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

import orjson

from gym_objstore import captures, exporting, gym_folder, ledger, tokens
from gym_objstore.errors import NotFound
from gym_objstore.flow import run
from gym_objstore.reading import open_rollout

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from gym_objstore.reading import Rollout
    from gym_objstore.store import Store


FAMILIES = (captures.FAMILY, tokens.FAMILY, ledger.FAMILY)
"""What Gym has files for."""

Files: TypeAlias = "Iterator[tuple[str, Iterable[bytes]]]"
"""Kinds of files and their lines, in the order in which they are to be written."""


def export_rollout(run_id: str, rollout_id: str, folder: Path, *, store: Store) -> Counter[str]:
    """Write a rollout's files into a folder.

    Returns when: each file is whole, durable and was read back. Repeating: changes nothing; files that have grown
    since are replaced. Counts ``files``, ``unchanged`` ones, ``bytes``, ``captures``, ``damaged_captures``,
    ``entries``, ``rows``, ``retired``, and ``left_out``: objects that no file can hold, which are marked instead.
    Raises ``Conflict`` for a file with other contents, which is kept, and storage errors.
    """
    done: Counter[str] = Counter()
    for write in (_captures, _tokens, _ledger):
        for kind, lines in write(run_id, rollout_id, store=store, done=done):
            written = gym_folder.write_file(folder / f"{rollout_id}{kind}", lines)
            done.update(files=1, unchanged=int(written.unchanged), bytes=written.size)
    return done


def _captures(run_id: str, rollout_id: str, *, store: Store, done: Counter[str]) -> Files:
    try:
        rollout = open_rollout(store, run_id, rollout_id)
    except NotFound:
        return
    if rollout.incomplete:
        yield gym_folder.CAPTURES_INCOMPLETE, ()
    if rollout.names:
        yield gym_folder.CAPTURES, _capture_lines(rollout, done)


def _capture_lines(rollout: Rollout, done: Counter[str]) -> Iterator[bytes]:
    for stored in rollout.stored():
        done.update(captures=1, damaged_captures=int(stored.text is None))
        yield exporting.capture_line(stored)


def _tokens(run_id: str, rollout_id: str, *, store: Store, done: Counter[str]) -> Files:
    """Yield what masks the rollout before its entries, so that nobody takes a part of them for all."""
    found = run(exporting.token_files(run_id, rollout_id), store)
    done.update(entries=len(found.lines), left_out=len(found.left_out), retired=int(found.retired))
    if found.marks or found.retired:
        yield gym_folder.STATE, [_state(retired=found.retired, snapshot_id=found.snapshot_id)]
    for kind, calls in ((gym_folder.TOKENS_INCOMPLETE, found.marks), (gym_folder.INTENTS, found.intents)):
        if calls:
            yield kind, [call.encode() for call in calls]
    if found.lines:
        yield gym_folder.TOKENS, found.lines


def _ledger(run_id: str, rollout_id: str, *, store: Store, done: Counter[str]) -> Files:
    found = run(exporting.ledger_files(run_id, rollout_id), store)
    done.update(rows=len(found.lines), left_out=found.damaged, retired=int(found.retired))
    if found.retired:
        yield gym_folder.LEDGER_RETIRED, ()
    elif found.lines:
        yield gym_folder.LEDGER, found.lines


def _state(*, retired: bool, snapshot_id: str) -> bytes:
    """Return the state that makes Gym's store refuse a retired rollout and mask an incomplete one."""
    state = {
        "entry_digests": {},
        "frozen": retired,
        "incomplete": not retired,
        "indexed_size": 0,
        "retired": retired,
        "snapshot_id": snapshot_id,
        "version": 1,
    }
    return orjson.dumps(state, option=orjson.OPT_SORT_KEYS)
