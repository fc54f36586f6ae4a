# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""External staging on a real SeaweedFS: staging against raw PUTs of the same bytes, reading, and retiring.

Run: ``python -m benchmarks.staging [--quick]``. Ratios count, not absolutes: server and client share the machine.
The figures of one line are taken interleaved, best of the repetitions.
"""

from __future__ import annotations

import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import obstore

from gym_objstore import StagingSink, ledger, staging
from gym_objstore.flow import run
from gym_objstore.receipts import build_receipt
from gym_objstore.receipts_published import list_published, publish
from gym_objstore.receipts_reading import read_rows
from gym_objstore.retirement import delete_rollouts, retire
from gym_objstore.staged_rows import pack
from gym_objstore.store.obstore_client import connect
from gym_objstore.store.opening import open_store
from gym_objstore.store.options import StoreOptions
from gym_objstore.testing import servers
from gym_objstore.testing.staged_rollouts import ledger_row, staged_call
from gym_objstore.wire_ledger import CaptureLedgerCommit

if TYPE_CHECKING:
    from collections.abc import Callable

    from gym_objstore.store import Store
    from gym_objstore.wire_staging import StagedCallRecord

QUICK = "--quick" in sys.argv
TOKENS = 32_000
ROWS = 64 if QUICK else 256
REPETITIONS = 1 if QUICK else 3
ROLLOUTS, CALLS = (100, 5) if QUICK else (1000, 5)
REMOVALS = 512 if QUICK else 4096
RUN = "benchmark"


def rows() -> list[StagedCallRecord]:
    """Return rows of 32,000 tokens, an eighth of them generated."""
    source = np.random.default_rng(1)
    made = []
    for number in range(ROWS):
        ids = source.zipf(1.3, TOKENS).clip(0, 151_000).tolist()
        cut = TOKENS - TOKENS // 8
        log_probs = [-0.5] * (TOKENS - cut)
        fields = {"prompt": ids[:cut], "generated": ids[cut:], "logprobs": log_probs}
        made.append(staged_call(f"c{number}", rollout_id=f"r{number}", **fields))
    return made


def in_threads(threads: int, work: Callable[[int], Any]) -> tuple[float, float]:
    """Do work for every row in so many threads; return rows per second and the 99th percentile in ms."""
    times: list[float] = []

    def timed(number: int) -> None:
        began = time.perf_counter()
        work(number)
        times.append(time.perf_counter() - began)

    began = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(timed, range(ROWS)))
    return ROWS / (time.perf_counter() - began), 1000 * float(np.percentile(times, 99))


def compare(options: StoreOptions, settings: dict[str, Any], attachments: dict[str, Any] | None) -> None:
    """Print staging beside raw PUTs of the same bytes, from 1 to 64 threads."""
    records = rows()
    bodies = [b"".join(map(bytes, pack(one, attachments).body)) for one in records]
    raw, sink = connect(options), StagingSink(options.url, RUN, **settings)
    extra = "8 MB of attachments" if attachments else "no attachments"
    print(f"stage, {TOKENS} tokens, {extra}, {len(bodies[0])} bytes a row")
    for threads in (1, 8, 64):
        for_raw, for_ours = [], []
        for _ in range(REPETITIONS):
            for_raw.append(in_threads(threads, lambda n: obstore.put(raw, f"raw/{n}", bodies[n])))
            for_ours.append(in_threads(threads, lambda n: sink.stage(records[n], attachments=attachments)))
        theirs, ours = max(for_raw), max(for_ours)
        print(
            f"  {threads:3} threads: raw {theirs[0]:7.1f}/s p99 {theirs[1]:7.1f} ms, ours {ours[0]:7.1f}/s "
            f"p99 {ours[1]:7.1f} ms, ratio {ours[0] / theirs[0]:.2f}"
        )


def fill(store: Store) -> None:
    """Stage, record and publish rollouts of short calls."""

    def one(number: int) -> None:
        rollout, chain, keys = f"t{number}", [], []
        for call in range(CALLS):
            record = staged_call(
                f"c{call}", after=chain, prompt=range(100 * call, 100 * call + 200), rollout_id=rollout
            )
            keys.append(run(staging.stage(RUN, record), store).key.text)
            row = ledger_row(record, staging_key=keys[-1], admitted_at=float(call))
            commit = CaptureLedgerCommit(
                rollout_id=rollout, record=row, staging_chain=tuple(keys), request_items=(), response_items=()
            )
            run(ledger.record(RUN, commit), store)
            chain.append(record)
        run(publish(RUN, build_receipt(run(ledger.manifest(RUN, rollout), store), 1.0)), store)

    with ThreadPoolExecutor(32) as pool:
        list(pool.map(one, range(ROLLOUTS)))


def timed(what: str, count: int, work: Callable[[], Any]) -> Any:
    """Print how long some work took."""
    began = time.perf_counter()
    answer = work()
    seconds = time.perf_counter() - began
    print(f"{what}: {seconds:.2f} s, {count / seconds:.0f}/s")
    return answer


def main() -> None:
    """Start a server and print every figure."""
    with tempfile.TemporaryDirectory() as folder, servers.seaweedfs(Path(folder)) as server:
        url, settings = f"s3://{servers.make_bucket(server, 'benchmark')}", server.settings()
        options = StoreOptions.of(url, **settings)
        compare(options, settings, None)
        compare(options, settings, {"pixels": np.zeros((2, 1024, 1024), dtype="float32")})
        store = open_store(options)
        timed(f"stage, record and publish {ROLLOUTS} rollouts of {CALLS} calls", ROLLOUTS, lambda: fill(store))
        found = timed("list them", ROLLOUTS, lambda: run(list_published(RUN), store))
        read = timed("fetch, verify and linearize them", ROLLOUTS, lambda: run(read_rows(RUN, found), store))
        print(f"  {sum(len(one.row.token_ids) for one in read)} tokens")
        ids = [f"t{number}" for number in range(REMOVALS)]
        timed(f"retire {REMOVALS} ledgers", REMOVALS, lambda: run(retire(ledger.FAMILY, RUN, ids), store))
        timed(f"delete {REMOVALS} ledgers", REMOVALS, lambda: run(delete_rollouts(ledger.FAMILY, RUN, ids), store))


if __name__ == "__main__":
    main()
