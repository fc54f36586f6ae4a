# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Bringing what is kept on disk into the store: one write, and one look through all of them.

Owns how far a look goes when the store refuses a write, or is silent. When to look again is for ``connection``.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from gym_objstore.errors import Denied, Invalid, Retired
from gym_objstore.observing import Event, report
from gym_objstore.spill import forget, replay

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from gym_objstore.errors import ObjstoreError
    from gym_objstore.flow import Flow
    from gym_objstore.spill import Spill, Spilled


async def replay_one(kept: Spilled, play: Callable[[Flow[None]], Awaitable[None]]) -> None:
    """Store one kept write and let go of it; behind a tombstone it is discarded with a warning."""
    try:
        await play(replay(kept.put))
    except Retired as error:
        said = "a kept write came after retirement and was discarded, key=%s, error=%s"
        report(Event("late_write_discarded", key=kept.put.key, detail=str(error)), said, kept.put.key, error)
    else:
        event = Event("replayed", key=kept.put.key)
        report(event, "a kept write is in the store, key=%s", kept.put.key, level=logging.INFO)
    forget(kept.path)


async def replay_each(kept: Iterable[Spilled], replay: Callable[[Spilled], Awaitable[None]]) -> None:
    """Replay every kept write that the store takes.

    A refused one holds up no other, and its error is raised at the end. A store that does not answer ends it at once.
    """
    refused: ObjstoreError | None = None
    denied = set[tuple[str, ...]]()  # access is given by prefix, so one answer speaks for a family of a run
    for one in kept:
        prefix = tuple(one.put.key.split("/")[:2])
        if prefix in denied:
            continue
        try:
            await replay(one)
        except (Denied, Invalid) as error:
            refused = refused or error
            if isinstance(error, Denied):
                denied.add(prefix)
    if refused is not None:
        raise refused


def waiting_in(spill: Spill) -> int:
    """Return how many writes are kept; none, with a warning, where the folder cannot be read."""
    try:
        return len(spill)
    except OSError as error:
        report_postponed(error, spill.folder)
        return 0


def report_postponed(error: ObjstoreError | OSError, folder: object) -> None:
    """Report that what is kept stays on disk for now: the store does not take it, or the disk does not give it."""
    event = Event("replay_postponed", kind=getattr(error, "kind", "io_error"), detail=str(error))
    report(event, "kept writes cannot be replayed yet, folder=%s, error=%s", folder, error)
