# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What a workload is, how its rivals take turns, and how a figure is judged. Owns no workload and no server."""

from __future__ import annotations

import asyncio
import importlib.util
import statistics
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.places import Place

T = TypeVar("T")


def on_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on uvloop's event loop, which nemo-gym's servers have, or where it is not installed asyncio's."""
    make = importlib.import_module("uvloop").new_event_loop if importlib.util.find_spec("uvloop") else None
    with asyncio.Runner(loop_factory=make) as runner:
        return runner.run(work)


class Check(NamedTuple):
    """One figure that is judged: ``value`` must be at least ``limit``, or at most where ``at_least`` is false."""

    name: str
    value: float
    limit: float
    at_least: bool = True

    @property
    def met(self) -> bool:
        """Whether the target is met."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    @property
    def text(self) -> str:
        """The figure, its limit and the verdict, as tables show them."""
        sign, verdict = "≥" if self.at_least else "≤", "met" if self.met else "MISSED"
        return f"{self.name} {number(self.value)} ({sign} {number(self.limit)}: {verdict})"


@dataclass(frozen=True)
class Row:
    """The medians of one case, by contender, and what is judged of them. A row without checks is for information."""

    case: str
    unit: str
    figures: Mapping[str, float]
    checks: tuple[Check, ...] = ()
    note: str = ""


class Workload(NamedTuple):
    """A family of cases: its name on the command line, its target in words, and what measures it."""

    name: str
    target: str
    rows: Callable[[Place], Iterator[Row]]


class Trial(NamedTuple):
    """What one contender did in one turn: how long all of it took, and each operation."""

    seconds: float
    times: Sequence[float]

    @property
    def rate(self) -> float:
        """Operations per second."""
        return len(self.times) / self.seconds


def at_least(name: str, value: float, limit: float) -> Check:
    """Return a check that a figure is large enough."""
    return Check(name, value, limit)


def at_most(name: str, value: float, limit: float) -> Check:
    """Return a check that a figure is small enough."""
    return Check(name, value, limit, at_least=False)


def turns(names: Sequence[str], repetitions: int) -> Iterator[tuple[int, str]]:
    """Yield whose turn it is: each contender once per repetition, each time another one first."""
    for repetition in range(repetitions):
        first = repetition % len(names)
        yield from ((repetition, name) for name in (*names[first:], *names[:first]))


def interleaved(contenders: Mapping[str, Callable[[], T]], repetitions: int) -> dict[str, list[T]]:
    """Return what the contenders' turns gave."""
    found: dict[str, list[T]] = {name: [] for name in contenders}
    for _, name in turns(list(contenders), repetitions):
        found[name].append(contenders[name]())
    return found


async def interleaved_async(
    contenders: Mapping[str, Callable[[], Awaitable[T]]], repetitions: int
) -> dict[str, list[T]]:
    """Return what the contenders' turns gave, on the running loop; see ``interleaved``."""
    found: dict[str, list[T]] = {name: [] for name in contenders}
    for _, name in turns(list(contenders), repetitions):
        found[name].append(await contenders[name]())
    return found


async def trial(operation: Callable[[int], Awaitable[object]], numbers: range, concurrency: int) -> Trial:
    """Do an operation for every number, so many at a time."""
    waiting, times = iter(numbers), []

    async def work() -> None:
        for one in waiting:
            began = time.perf_counter()
            await operation(one)
            times.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(min(concurrency, len(numbers)))))
    return Trial(time.perf_counter() - began, times)


def rates(trials: Mapping[str, Sequence[Trial]]) -> dict[str, float]:
    """Return each contender's median rate."""
    return {name: statistics.median(one.rate for one in some) for name, some in trials.items()}


def p99(trials: Sequence[Trial]) -> float:
    """Return the 99th percentile of all operations in milliseconds."""
    times = sorted(seconds for one in trials for seconds in one.times)
    return 1e3 * times[min(len(times) - 1, int(0.99 * len(times)))]


def medians(found: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return each contender's median figure."""
    return {name: statistics.median(some) for name, some in found.items()}


def timed(call: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


async def timed_async(call: Awaitable[object]) -> float:
    """Return the seconds that an awaitable takes."""
    began = time.perf_counter()
    await call
    return time.perf_counter() - began


def number(value: float) -> str:
    """Return a figure as tables show it: three digits, or all of those before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
