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
from gym_objstore.checking import rollouts
from gym_objstore.errors import Corrupt
from gym_objstore.flow import run
from gym_objstore.keys import rollout_prefix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from gym_objstore.captures import Stored
    from gym_objstore.names import CaptureName
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


class Named(NamedTuple):
    """The rollouts of a run by their ids, and by their segments where only a hash of the id is known."""

    ids: list[str]
    unnamed: list[str]


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


def named_rollouts(store: Store, run_id: str, families: Sequence[str] = (captures.FAMILY,)) -> Named:
    """Return the rollouts of which these families hold something."""
    ids: set[str] = set()
    unnamed: set[str] = set()
    for family in families:
        for name, prefix in run(rollouts(family, run_id), store).items():
            (ids if prefix == rollout_prefix(family, run_id, name) else unnamed).add(name)
    return Named(sorted(ids), sorted(unnamed))


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
