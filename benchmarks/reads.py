# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Reading token entries: resolving a parent and freezing, in rollouts of a few and of many calls."""

from __future__ import annotations

import struct
from functools import partial
from typing import TYPE_CHECKING, Any

import obstore

from benchmarks.entries import entry
from benchmarks.harness import Row, at_least, at_most, interleaved_async, medians, on_loop, timed_async, trial
from gym_objstore import TokenEntry, TokenSink, TokenSource
from gym_objstore.cache import ParentMemory
from gym_objstore.flow import arun
from gym_objstore.keys import rollout_prefix
from gym_objstore.lineage import ContextMatcher, Resolver
from gym_objstore.records import ParentResolutionStatus
from gym_objstore.stamps import stamp_continuation, stamp_lineage
from gym_objstore.testing.counting import CountingStore
from gym_objstore.tokens import FAMILY, freeze

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.places import Place

RUN = "benchmark"
STEP = 16
"""Tokens by which each call's prompt is ahead of the one before."""


def rollout(name: str, calls: int, tokens: int) -> Iterator[TokenEntry]:
    """Yield the calls of a rollout whose prompts are mostly each other's, each a root of a text of its own."""
    ids = entry(2 * (tokens + STEP * calls))["prompt_token_ids"]
    generated = tokens // 8
    for number in range(calls):
        start = STEP * number
        probs = struct.unpack(f"{generated}f", struct.pack(f"{generated}f", *([-0.5 - number / 7] * generated)))
        made = TokenEntry(
            rollout_id=name,
            model_call_id=f"call-{number}",
            prompt_token_ids=ids[start : start + tokens - generated],
            generation_token_ids=ids[start : start + generated],
            generation_log_probs=list(probs),
            output_items=_said(number),
            token_item_index=0,
        )
        stamp_continuation(made, _asked(number))
        yield stamp_lineage(made, None, parent_resolution=ParentResolutionStatus.ROOT)


def _asked(number: int) -> list[dict[str, Any]]:
    return [{"role": "user", "content": f"question {number}"}]


def _said(number: int) -> list[dict[str, Any]]:
    return [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": f"answer {number}"}]}]


async def written(place: Place, calls: int) -> str:
    """Put the calls of a rollout and return its id."""
    name, sink = place.name(), place.make(TokenSink, RUN)
    made = list(rollout(name, calls, place.sizes.tokens[0]))
    await trial(lambda number: sink.put(made[number]), range(calls), 64)
    await sink.close()
    return name


def resolve_rows(place: Place) -> Iterator[Row]:
    """Yield the round trips of one resolution, and its time with the longest latency, per length of rollout."""
    shortest: dict[str, float] = {}
    for calls in place.sizes.calls:
        figures, trips = on_loop(_resolved(place, calls))
        shortest = shortest or figures
        checks = [
            at_most(f"round trips, {kind}", count, limit)
            for (kind, count), limit in zip(trips.items(), (2, 1), strict=True)
        ]
        if calls == place.sizes.calls[-1]:
            checks += [
                at_most(f"time to {place.sizes.calls[0]} calls, {one}", figures[one] / shortest[one], 1.5)
                for one in trips
            ]
        yield Row(f"{calls} calls, {max(place.latencies):g} ms", "ms", figures, tuple(checks))


async def _resolved(place: Place, calls: int) -> tuple[dict[str, float], dict[str, float]]:
    name, number = await written(place, calls), calls // 2
    items = [*_asked(number), *_said(number), {"role": "user", "content": "and then?"}]
    known = ParentMemory()
    caches: dict[str, Callable[[], ParentMemory]] = {"fresh process": ParentMemory, "same process": lambda: known}

    async def once(store: Any, kind: str) -> None:
        found = await arun(Resolver(RUN, ContextMatcher(), caches[kind]()).resolve(name, items), store)
        if found.match is None or found.match.model_call_id != f"call-{number}":
            raise AssertionError(found)

    counting, trips = CountingStore(place.store()), {}
    await once(counting, "same process")
    for kind in caches:
        counting.reset()
        await once(counting, kind)
        trips[kind] = float(counting.costs.round_trips)
    store = place.farthest.store()
    turns = {kind: partial(_milliseconds, once, store, kind) for kind in caches}
    await interleaved_async(turns, 2)
    return medians(await interleaved_async(turns, 4 * place.sizes.repetitions)), trips


async def _milliseconds(call: Any, *arguments: Any) -> float:
    return 1e3 * await timed_async(call(*arguments))


def freeze_rows(place: Place) -> Iterator[Row]:
    """Yield the time of a freeze beside a bare LIST with concurrent GETs, without and with a published snapshot."""
    for calls in place.sizes.calls:
        yield on_loop(_freeze_row(place, calls))


async def _freeze_row(place: Place, calls: int) -> Row:
    name, store, raw = await written(place, calls), place.store(), place.raw()
    prefix = rollout_prefix(FAMILY, RUN, name)

    async def bare() -> None:
        keys = [one["path"] async for page in obstore.list(raw, prefix) for one in page]
        found = await trial(lambda number: _get(raw, keys[number]), range(len(keys)), 64)
        if len(found.times) != calls:
            raise AssertionError(keys)

    async def ours() -> None:
        if len((await arun(freeze(RUN, name), store)).entries) != calls:
            raise AssertionError(name)

    timing = {"ours": partial(_milliseconds, ours), "raw": partial(_milliseconds, bare)}
    if place.scheme == "memory":
        del timing["raw"]  # the raw client has a memory of its own
    await interleaved_async(timing, 1)
    figures = medians(await interleaved_async(timing, place.sizes.repetitions + 2))
    source = place.make(TokenSource, RUN)
    await source.publish(name)
    await source.close()
    published = {"published": partial(_milliseconds, ours)}
    figures |= medians(await interleaved_async(published, place.sizes.repetitions + 2))
    checks = [at_most("ours/raw", figures["ours"] / figures.get("raw", figures["ours"]), 1.2)]
    if calls == place.sizes.calls[-1]:
        checks.append(at_least("ours/published", figures["ours"] / figures["published"], 5.0))
    return Row(f"{calls} entries of {place.sizes.tokens[0] // 1024}k tokens", "ms", figures, tuple(checks))


async def _get(raw: Any, key: str) -> None:
    await (await obstore.get_async(raw, key)).bytes_async()
