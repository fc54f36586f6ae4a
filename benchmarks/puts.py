# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Writing token entries: throughput beside every rival, the processor time of a put, and the loop's stalls."""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from benchmarks.entries import entry
from benchmarks.harness import Row, Trial, at_least, at_most, interleaved_async, on_loop, p99, rates, trial, turns
from benchmarks.rivals import gym_put, loops, mounted, raw_put
from gym_objstore import TokenEntry, TokenSink
from gym_objstore.tokens import prepare

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from benchmarks.places import Place

RUN = "benchmark"
MOUNTED = 64
"""Callers with whom Gym's file store is compared."""
TICK_SECONDS = 0.001

Operation: TypeAlias = "Callable[[int], Awaitable[object]]"


class Sample:
    """Entries of one size: the same tokens under a new call id each, and their stored form for the rivals."""

    def __init__(self, tokens: int, kind: Any = TokenEntry) -> None:
        self.record = entry(tokens) | {"parent_call_id": "parent", "continuation_context_len": 1}
        self.first = kind.model_validate(self.record)
        self.body = prepare(f"tokens/{RUN}/x/", TokenEntry.model_validate(self.record)).body

    def entry(self, name: str, number: int) -> Any:
        """Return an entry of a rollout of its own; it shares the lists with all others."""
        update = {"rollout_id": f"{name}-{number}", "model_call_id": f"call-{number}"}
        return self.first.model_copy(update=update)

    def putting(self, put: Callable[[Any], Awaitable[object]], name: str, numbers: range) -> Operation:
        """Return the operation that puts an entry which was made before."""
        made = {number: self.entry(name, number) for number in numbers}
        return lambda number: put(made[number])

    def storing(self, put: Callable[[str, bytes], Awaitable[object]], name: str) -> Operation:
        """Return the operation that stores the body under a key of a rival's own."""
        return lambda number: put(f"rivals/{name}/{number}", self.body)


def put_rows(place: Place) -> Iterator[Row]:
    """Yield one row for each latency, size and number of callers."""
    sizes = place.sizes
    for latency in place.latencies:
        for tokens in sizes.put:
            for callers in sizes.callers:
                yield on_loop(_put_row(place.away(latency), latency, tokens, callers))
    yield from mounted_rows(place)


async def _put_row(place: Place, latency: float, tokens: int, callers: int) -> Row:
    sample = Sample(tokens)
    numbers = range(max(min(place.sizes.operations, 16 * callers), callers))
    sink = place.make(TokenSink, RUN)
    async with loops(place, callers) as others:
        contenders = {
            "ours": lambda name: sample.putting(sink.put, name, numbers),
            "raw": lambda name: sample.storing(raw_put(place), name),
            **{one: partial(sample.storing, put) for one, put in others.items()},
        }
        found = await _compared(place, contenders, numbers, callers)
    await sink.close()
    figures = rates(found)
    ours, raw = figures["ours"], figures["raw"]
    bound = 0.85 if latency >= 30 and callers <= 64 else 0.70
    checks = [
        at_least("ours/raw", ours / raw, bound),
        at_most("p99 ours/raw", p99(found["ours"]) / p99(found["raw"]), 1.25),
    ]
    if others:
        checks.append(at_least("ours/best loop", ours / max(figures[one] for one in others), 1.0))
    case = f"{tokens // 1024}k tokens, {callers} callers, {latency:g} ms"
    return Row(case, "put/s", figures, tuple(checks))


async def _compared(place: Place, contenders: Any, numbers: range, callers: int) -> dict[str, list[Trial]]:
    """Return the contenders' turns, after one that only opens connections."""

    async def turn(make: Callable[[str], Operation], some: range) -> Trial:
        return await trial(make(place.name()), some, callers)

    for make in contenders.values():
        await turn(make, numbers[:callers])
    called = {name: partial(turn, make, numbers) for name, make in contenders.items()}
    return await interleaved_async(called, place.sizes.repetitions)


def mounted_rows(place: Place) -> Iterator[Row]:
    """Yield the row of Gym's own file store, on the local disk and on the bucket mounted with JuiceFS."""
    tokens = place.sizes.tokens[1]
    local = place.folder / "local"
    if gym_put(local) is None:
        yield Row("Gym's file store", "put/s", {}, note="not measured: nemo-gym is not installed")
        return
    with mounted(place) as (folder, note):
        yield on_loop(_mounted_row(place, tokens, {"Gym, local disk": local, "Gym, mounted": folder}, note))


async def _mounted_row(place: Place, tokens: int, folders: dict[str, Any], note: str) -> Row:
    from nemo_gym.token_id_capture.records import TokenEntry as GymEntry

    ours, theirs = Sample(tokens), Sample(tokens, GymEntry)
    callers = min(MOUNTED, 2 * max(place.sizes.callers))
    numbers = range(callers)
    sink = place.make(TokenSink, RUN)
    contenders = {"ours": lambda name: ours.putting(sink.put, name, numbers)}
    for name, folder in folders.items():
        if folder is not None and (put := gym_put(folder)):
            contenders[name] = partial(theirs.putting, put, numbers=numbers)
    figures = rates(await _compared(place, contenders, numbers, callers))
    await sink.close()
    mount = figures.get("Gym, mounted")
    checks = (at_least("ours/Gym, mounted", figures["ours"] / mount, 15.0),) if mount else ()
    return Row(f"{tokens // 1024}k tokens, {callers} callers, beside Gym's file store", "put/s", figures, checks, note)


def cpu_rows(place: Place) -> Iterator[Row]:
    """Yield the processor time of one put beside the raw client's, per size of entry."""
    for tokens in place.sizes.tokens:
        yield on_loop(_cpu_row(place, tokens, judged=tokens == place.sizes.tokens[1]))


async def _cpu_row(place: Place, tokens: int, *, judged: bool) -> Row:
    sample, sink, raw = Sample(tokens), place.make(TokenSink, RUN), raw_put(place)
    numbers = range(place.sizes.operations)
    found: dict[str, list[float]] = {"raw": [], "ours": []}
    await trial(sample.putting(sink.put, place.name(), numbers[:16]), numbers[:16], 16)
    for _, name in turns(list(found), place.sizes.repetitions + 2):
        under = place.name()
        operation = sample.storing(raw, under) if name == "raw" else sample.putting(sink.put, under, numbers)
        with frozen():
            began = time.process_time()
            await trial(operation, numbers, 16)
            found[name].append(1e3 * (time.process_time() - began) / len(numbers))
    await sink.close()
    # The cheapest turn of each: what else the machine does can only add.
    figures = {name: min(some) for name, some in found.items()}
    added = figures["ours"] - figures["raw"]
    checks = (at_most("ours - raw", added, 1.0),) if judged else ()
    return Row(f"{tokens // 1024}k tokens, 16 callers", "ms CPU/put", figures | {"ours - raw": added}, checks)


@contextmanager
def frozen() -> Iterator[None]:
    """Keep what exists out of the collector's sight: the sample's lists are not what is measured."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def stall_rows(place: Place) -> Iterator[Row]:
    """Yield the longest time that the event loop stood still while many puts of the largest entries are under way."""
    yield on_loop(_stall_row(place))


async def _stall_row(place: Place) -> Row:
    tokens, callers = place.sizes.tokens[-1], place.sizes.burst
    sample, sink, numbers = Sample(tokens), place.make(TokenSink, RUN), range(callers)
    contenders: dict[str, Callable[[str], Operation]] = {
        "ours": lambda name: sample.putting(sink.put, name, numbers),
        "raw": lambda name: sample.storing(raw_put(place), name),
        "nothing": lambda _: lambda _: asyncio.sleep(0.5),
    }
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for repetition, name in turns(list(contenders), place.sizes.repetitions + 2):
        operation = contenders[name](place.name())
        with frozen():
            stall = await _longest_stall(trial(_one_by_one(operation), numbers, callers))
        if repetition:  # the first turn opens connections
            found[name].append(stall)
    await sink.close()
    figures = {name: statistics.median(some) for name, some in found.items()}
    case = f"{callers} puts of {tokens // 1024}k tokens at once"
    return Row(case, "ms, longest stall", figures, (at_most("ours", figures["ours"], 5.0),))


def _one_by_one(operation: Operation) -> Operation:
    """Return an operation that begins some time after the one before: to begin 256 puts takes any client 10 ms."""

    async def later(number: int) -> None:
        await asyncio.sleep(number * TICK_SECONDS)
        await operation(number)

    return later


async def _longest_stall(work: Awaitable[object]) -> float:
    """Return the milliseconds of the longest tick beyond its due time while the work goes on."""
    task, longest = asyncio.ensure_future(work), 0.0
    while not task.done():
        began = time.perf_counter()
        await asyncio.sleep(TICK_SECONDS)
        longest = max(longest, time.perf_counter() - began - TICK_SECONDS)
    await task
    return 1e3 * longest
