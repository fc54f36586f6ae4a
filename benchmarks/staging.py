# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Staged rows: writing them from many threads beside raw PUTs, and a trainer's epochs beside raw GETs."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import fsspec
import numpy as np
import obstore

from benchmarks.harness import (
    Row,
    Trial,
    at_least,
    at_most,
    interleaved,
    interleaved_async,
    medians,
    on_loop,
    p99,
    rates,
    timed,
    trial,
)
from gym_objstore import StagingSink, TrainerClient, ledger, staging
from gym_objstore.flow import run
from gym_objstore.receipts import build_receipt
from gym_objstore.receipts_published import list_published, publish
from gym_objstore.receipts_reading import Trainable, read_rows
from gym_objstore.staged_rows import pack
from gym_objstore.store.memory import MemoryStore
from gym_objstore.testing.staged_rollouts import ledger_row, staged_call
from gym_objstore.testing.wrapping import WrappedStore
from gym_objstore.wire_ledger import CaptureLedgerCommit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from benchmarks.places import Place
    from gym_objstore.wire_staging import StagedCallRecord

RUN = "benchmark"
SECOND_EPOCH = 20
"""Rollouts that are read through a cache twice."""


def stage_rows(place: Place) -> Iterator[Row]:
    """Yield staging beside raw PUTs of the same bytes, without and with attachments."""
    sizes = place.sizes
    records = [made_up(f"r{number}", sizes.tokens[-1], number) for number in range(sizes.rows)]
    image = {"pixels": np.zeros(sizes.attachments // 4, dtype="float32")}
    for attachments in (None, image):
        some = records[: sizes.rows // 4] if attachments else records
        for threads in sizes.threads:
            yield _stage_row(place, some, attachments, threads)


def made_up(rollout: str, tokens: int, seed: int) -> StagedCallRecord:
    """Return a row of so many tokens, an eighth of them generated, with log probabilities of float32."""
    source = np.random.default_rng(seed)
    ids = source.zipf(1.3, tokens).clip(0, 151_000).tolist()
    cut = tokens - tokens // 8
    probs = (-source.exponential(0.5, tokens - cut)).astype("float32").tolist()
    return staged_call("call-1", rollout_id=rollout, prompt=ids[:cut], generated=ids[cut:], logprobs=probs)


def _stage_row(place: Place, records: list[StagedCallRecord], attachments: Any, threads: int) -> Row:
    body = b"".join(map(bytes, pack(records[0], attachments).body))
    raw = place.raw()

    def theirs() -> Trial:
        name = place.name()
        return in_threads(threads, len(records), lambda n: obstore.put(raw, f"rivals/{name}/{n}", body))

    def ours() -> Trial:
        sink = place.make(StagingSink, place.name())
        found = in_threads(threads, len(records), lambda n: _stage(sink, records[n], attachments))
        sink.close_now()
        return found

    found = interleaved({"ours": ours, "raw": theirs}, place.sizes.repetitions)
    figures = rates(found)
    extra = f"{place.sizes.attachments / 1e6:g} MB of attachments" if attachments else "no attachments"
    tail = p99(found["ours"]) / p99(found["raw"])
    return Row(
        f"{place.sizes.tokens[-1] // 1024}k tokens, {extra}, {threads} threads",
        "rows/s",
        figures,
        (at_least("ours/raw", figures["ours"] / figures["raw"], 0.85),),
        note=f"p99 ours/raw {tail:.2f}",
    )


def _stage(sink: StagingSink, record: StagedCallRecord, attachments: Any) -> None:
    result = sink.stage(record, attachments=attachments) if attachments else sink.stage(record)
    if not result.ok:
        raise AssertionError(result.error)


def in_threads(threads: int, count: int, work: Callable[[int], object]) -> Trial:
    """Do work for every number in so many threads."""
    with ThreadPoolExecutor(threads) as pool:
        began = time.perf_counter()
        times = list(pool.map(lambda number: timed(partial(work, number)), range(count)))
        return Trial(time.perf_counter() - began, times)


def trainer_rows(place: Place) -> Iterator[Row]:
    """Yield a trainer's epoch beside raw GETs of the same objects, and a second one from a cache."""
    count, calls = place.sizes.rollouts
    run_id = place.name()
    objects = finished(run_id, count, calls)
    place_objects(place, objects)
    yield on_loop(_epoch_row(place, run_id, objects))
    if place.scheme in ("s3", "file"):
        yield _second_epoch_row(place, run_id)


def finished(run_id: str, count: int, calls: int) -> dict[str, bytes]:
    """Return the objects of finished rollouts as a worker, a model server and a collector leave them."""
    store = MemoryStore()
    for number in range(count):
        rollout, chain = f"t{number}", list[Any]()
        for call in range(calls):
            ids: dict[str, Any] = {"prompt": range(call, call + 200), "generated": range(100), "rollout_id": rollout}
            record = staged_call(f"c{call}", after=chain, **ids)
            chain.append(record)
            key = run(staging.stage(run_id, record), store).key.text
            run(ledger.record(run_id, committed(record, key)), store)
        run(publish(run_id, build_receipt(run(ledger.manifest(run_id, rollout), store), 1.0)), store)
    return {meta.key: store.get(meta.key) for meta in store.scan("") if not meta.key.startswith("ledger/")}


def committed(record: StagedCallRecord, staging_key: str) -> CaptureLedgerCommit:
    """Return what a model server tells the ledger of a staged call."""
    return CaptureLedgerCommit(
        rollout_id=record.rollout_id,
        record=ledger_row(record, staging_key=staging_key, admitted_at=1.0),
        staging_chain=(staging_key,),
        request_items=(),
        response_items=(),
    )


def place_objects(place: Place, objects: Mapping[str, bytes]) -> None:
    """Put objects into a place as fast as it takes them."""
    store, keys = place.store(), list(objects)

    async def put_all() -> None:
        await trial(lambda number: store.put_async(keys[number], objects[keys[number]]), range(len(keys)), 64)
        await store.close_async()

    on_loop(put_all())


async def _epoch_row(place: Place, run_id: str, objects: Mapping[str, bytes]) -> Row:
    count, calls = place.sizes.rollouts
    keys, raw, store = [key for key in objects if "!run" not in key], place.raw(), place.store()
    get = store.get_async if place.scheme == "memory" else partial(_get, raw)
    client = place.make(TrainerClient, run_id)

    async def theirs() -> float:
        return count / (await trial(lambda number: get(keys[number]), range(len(keys)), 64)).seconds

    async def ours() -> float:
        began, read = time.perf_counter(), 0
        async with client.stream() as stream:
            async for one in stream:
                read += isinstance(one, Trainable)
        if read != count:
            raise AssertionError(read)
        return count / (time.perf_counter() - began)

    figures = medians(await interleaved_async({"ours": ours, "raw": theirs}, place.sizes.repetitions))
    await client.close()
    checks = (at_least("ours/raw", figures["ours"] / figures["raw"], 0.8),)
    return Row(f"{count} rollouts of {calls} calls", "rollouts/s", figures, checks)


async def _get(raw: Any, key: str) -> None:
    await (await obstore.get_async(raw, key)).bytes_async()


class CachedReads(WrappedStore):
    """Reads of whole objects through fsspec's cache."""

    def __init__(self, place: Place, folder: Path) -> None:
        super().__init__(place.store())
        self._options = {"simplecache": {"cache_storage": str(folder)}, place.scheme: fsspec_options(place)}
        self._url, self._folder = f"simplecache::{place.url}", folder

    @property
    def kept(self) -> int:
        """The number of objects that are in the cache."""
        return sum(1 for _ in self._folder.glob("*"))

    def get(self, key: str) -> bytes:  # noqa: D102 - the protocol documents these
        with fsspec.open(f"{self._url}/{key}", "rb", **self._options) as file:
            return bytes(file.read())

    def get_range(self, key: str, start: int, length: int) -> bytes:  # noqa: D102
        return self.get(key)[start : start + length]


def fsspec_options(place: Place) -> dict[str, Any]:
    """Return what fsspec needs to reach the place."""
    options = place.options
    if place.scheme != "s3":
        return {}
    secret = options.secret_access_key
    return {
        "key": options.access_key_id,
        "secret": secret.reveal() if secret else None,
        "endpoint_url": options.endpoint,
        "client_kwargs": {"region_name": options.region},
    }


def _second_epoch_row(place: Place, run_id: str) -> Row:
    store = CachedReads(place, place.folder / f"cache-{run_id}")
    listed = run(list_published(run_id), place.store())[:SECOND_EPOCH]

    def epoch() -> tuple[float, int]:
        before = store.kept
        seconds = timed(lambda: run(read_rows(run_id, listed), store))
        return len(listed) / seconds, store.kept - before

    (first, asked), (second, again) = epoch(), epoch()
    checks = (at_most("requests of the second epoch", float(again), 0.0),)
    figures = {"first epoch": first, "second epoch": second}
    case = f"{len(listed)} rollouts through fsspec's cache"
    return Row(case, "rollouts/s", figures, checks, f"first epoch: {asked} requests")
