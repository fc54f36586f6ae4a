# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What a store holds, counted from listings alone: objects and bytes by run, family, state and age, and their price.

A rollout's state is what its listing in one family shows. Memory: some 350 bytes for each rollout of a family.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gym_objstore.errors import Invalid
from gym_objstore.flow import Flow, fold
from gym_objstore.keys import CONSUMED, FAMILIES, FENCES, RUN_FOLDER, TOMBSTONE, run_prefix
from gym_objstore.runs import name_runs
from gym_objstore.store.marks import mark_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gym_objstore.store import Meta

AGES: Final = ("up to 1d", "up to 7d", "up to 30d", "older")
STATES: Final = ("live", "consumed", "retired", "late", "run")
"""``consumed``: published, and marked as learned from; ``retired``: the fences of a rollout that has ended; ``late``:
what stands behind them, for ``gc``; ``run``: what belongs to no rollout."""

_LIMITS = (86_400, 7 * 86_400, 30 * 86_400)
_RETIRED, _CONSUMED = 1, 2
_RECORD = 2 + 4 * len(AGES)
_GB = 2**30
_MILLION = 1_000_000


class Used(NamedTuple):
    """What one run has in one family, in one state and of one age."""

    run_id: str
    family: str
    state: str
    age: str
    objects: int
    bytes: int


class Prices(NamedTuple):
    """Dollars: of a GB (2**30 bytes) for a month, and of a million requests. These are S3 Standard's."""

    storage_gb_month: float = 0.023
    put_million: float = 5.0
    get_million: float = 0.40

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Prices:
        """Return the prices of a table, those it leaves out as they are. Raises ``Invalid`` naming a wrong one."""
        for name, price in table.items():
            number = isinstance(price, int | float) and not isinstance(price, bool)
            if name not in cls._fields or not number or not 0 <= price < float("inf"):
                hint = f"a table has {', '.join(cls._fields)}, each a number of dollars"
                raise Invalid(f"not a price, name={name}, value={price!r}", kind="bad_price", hint=hint)
        return cls(**table)

    def monthly(self, size: int) -> float:
        """Return what bytes cost in a month."""
        return size / _GB * self.storage_gb_month

    def written(self, objects: int) -> float:
        """Return what it cost to write objects, one request each."""
        return objects / _MILLION * self.put_million

    def read(self, objects: int) -> float:
        """Return what it costs to read objects once."""
        return objects / _MILLION * self.get_million


def usage(run_id: str | None = None, *, now: float) -> Flow[list[Used]]:
    """Count what a run has, or every run of the store; ``now`` is Unix time by a clock near the store's.

    One request per thousand objects, at least one for each family, and those of ``name_runs``. Changes nothing.
    Raises: storage errors.
    """
    total: Counter[tuple[str, str, str, str, str]] = Counter()
    for family in FAMILIES:
        counted = _Family(now)
        yield from fold(run_prefix(family, run_id) if run_id else f"{family}/", counted.take)
        counted.settle(family, total)
    named = yield from name_runs(dict.fromkeys(run for run, *_ in total))
    keys = dict.fromkeys(key[:4] for key in total)
    found = [Used(*key, total[*key, "objects"], total[*key, "bytes"]) for key in keys]
    return sorted(one._replace(run_id=named[one.run_id]) for one in found)


class _Family:
    """One family's objects by rollout, until it is known which rollouts are retired or consumed.

    A record is the run's number, flags, and for fences and for the rest the objects and the bytes of each age.
    """

    def __init__(self, now: float) -> None:
        self._now = now
        self._runs: dict[str, int] = {}
        self._rollouts: dict[bytes, array[int]] = {}
        self._own: Counter[tuple[str, str, str]] = Counter()
        self._last: tuple[str, str] = ("", "")
        self._record = array("q")

    def take(self, metas: Iterable[Meta]) -> None:
        for key, size, modified in metas:
            _, run, rollout, *rest = [*key.split("/", 3), "", ""]
            age = bisect_left(_LIMITS, self._now - modified)
            if rollout == RUN_FOLDER or not rest[0]:
                self._own[run, AGES[age], "objects"] += 1
                self._own[run, AGES[age], "bytes"] += size
                continue
            record, fence = self._of(run, rollout), rest[0].startswith(f"{FENCES}/")
            if fence and rest[0] == f"{FENCES}/{TOMBSTONE}":
                record[1] |= _RETIRED
            elif rest[0].startswith(f"{CONSUMED}/"):
                record[1] |= _CONSUMED
            at = 2 + 2 * (age + len(AGES) * (not fence))
            record[at] += 1
            record[at + 1] += size

    def _of(self, run: str, rollout: str) -> array[int]:
        if (run, rollout) != self._last:
            self._last = run, rollout
            number = self._runs.setdefault(run, len(self._runs))
            blank = array("q", [number, *[0] * (_RECORD - 1)])
            self._record = self._rollouts.setdefault(mark_of(f"{run}/{rollout}"), blank)
        return self._record

    def settle(self, family: str, total: Counter[tuple[str, str, str, str, str]]) -> None:
        """Add what was counted to a total."""
        for (run, age, unit), count in self._own.items():
            total[run, family, "run", age, unit] += count
        runs = list(self._runs)
        for record in self._rollouts.values():
            for fence, state in enumerate(_states(record[1])):
                for number, age in enumerate(AGES):
                    at = 2 + 2 * (number + len(AGES) * fence)
                    if record[at]:
                        total[runs[record[0]], family, state, age, "objects"] += record[at]
                        total[runs[record[0]], family, state, age, "bytes"] += record[at + 1]


def _states(flags: int) -> Sequence[str]:
    """Return the states of a rollout's fences and of everything else."""
    if flags & _RETIRED:
        return "retired", "late"
    return ("consumed", "consumed") if flags & _CONSUMED else ("live", "live")
