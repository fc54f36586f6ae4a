# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Reading a run's captures a few at a time, for those who look at many: exports, statistics, searches."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from gym_objstore import captures
from gym_objstore.calls import ModelCallRecord, model_call
from gym_objstore.errors import Corrupt
from gym_objstore.flow import folders, run
from gym_objstore.ids import identifier
from gym_objstore.keys import RUN_FOLDER, run_prefix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gym_objstore.captures import Stored
    from gym_objstore.flow import Flow
    from gym_objstore.keys import CaptureName
    from gym_objstore.store import Store

T = TypeVar("T")
R = TypeVar("R")

BATCH = 32
"""Captures of one rollout that are read, and held in memory, at a time."""
WORKERS = 8
"""Rollouts that are worked on at the same time."""


class ReadCall(NamedTuple):
    """One capture as a call; ``record`` is None where it cannot be read."""

    call_index: int
    name: CaptureName
    record: ModelCallRecord | None


class Rollout(NamedTuple):
    """A rollout's captures by name, in durable order, and whether one was lost."""

    store: Store
    run_id: str
    rollout_id: str
    names: tuple[CaptureName, ...]
    incomplete: bool

    def stored(self) -> Iterator[Stored]:
        """Read the captures, a batch at a time."""
        for start in range(0, len(self.names), BATCH):
            names = self.names[start : start + BATCH]
            yield from run(captures.read_some(self.run_id, self.rollout_id, names), self.store)

    def calls(self) -> Iterator[ReadCall]:
        """Read the captures as calls, a batch at a time."""
        for index, one in enumerate(self.stored()):
            yield read_call(index, one)


def open_rollout(store: Store, run_id: str, rollout_id: str) -> Rollout:
    """List a rollout's captures. Raises ``NotFound`` where nobody captured anything of this run; storage errors."""
    names, incomplete = run(captures.listing(run_id, rollout_id), store)
    return Rollout(store, run_id, rollout_id, names, incomplete)


def read_call(index: int, stored: Stored) -> ReadCall:
    """Return the call of a capture, which took this index whether it can be read or not."""
    try:
        return ReadCall(index, stored.name, model_call(captures.record_of(stored), call_index=index))
    except Corrupt:
        return ReadCall(index, stored.name, None)


def captured_rollouts(run_id: str) -> Flow[tuple[list[str], list[str]]]:
    """Return the ids of the rollouts that have captures, and the segments of those whose ids are too long for one."""
    names = yield from folders(run_prefix(captures.FAMILY, run_id))
    known = {name: identifier(name) for name in names if name != RUN_FOLDER}
    return [one for one in known.values() if one is not None], [name for name, one in known.items() if one is None]


def overlapped(function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield what a function returns for each item, in their order, working on a few of them at the same time."""
    waiting = iter(items)
    with ThreadPoolExecutor(WORKERS, thread_name_prefix="gym-objstore-work") as pool:
        running = deque(pool.submit(function, item) for item in islice(waiting, WORKERS))
        try:
            while running:
                result = running.popleft().result()
                running.extend(pool.submit(function, item) for item in islice(waiting, 1))
                yield result
        finally:
            for future in running:
                future.cancel()
