# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Removing thousands of rollouts, and looking at a million objects: requests, time and memory."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from benchmarks.harness import Row, at_most, timed_async
from benchmarks.staging import committed, place_objects
from gym_objstore import ledger
from gym_objstore.flow import arun, run
from gym_objstore.retirement import delete_rollouts, retire
from gym_objstore.store import DELETE_LIMIT
from gym_objstore.store.memory import MemoryStore
from gym_objstore.sweeping import remove, sweep
from gym_objstore.testing.counting import CountingStore
from gym_objstore.testing.staged_rollouts import staged_call
from gym_objstore.usage import usage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.places import Place

RUN = "benchmark"
DEPTH = {"retire": 3, "delete": 3}
"""Round trips in sequence of each removal, whatever the number of rollouts."""
MB = 2**20


def retire_rows(place: Place) -> Iterator[Row]:
    """Yield what retiring and then deleting thousands of ledgers costs: requests in memory, and time at the place."""
    ids = [f"r{number}" for number in range(place.sizes.removals)]
    store = MemoryStore()
    for rollout in ids:
        run(ledger.record(RUN, committed(staged_call("c0", rollout_id=rollout), f"{rollout}/c0")), store)
    place_objects(place, {meta.key: store.get(meta.key) for meta in store.scan("")})
    for name, removal in {"retire": retire, "delete": delete_rollouts}.items():
        counting = CountingStore(store)
        asyncio.run(arun(removal(ledger.FAMILY, RUN, ids), counting, limit=2 * len(ids)))
        seconds = asyncio.run(timed_async(arun(removal(ledger.FAMILY, RUN, ids), place.store())))
        costs, bulks = counting.costs, -(-len(ids) // DELETE_LIMIT)
        puts = len(ids) if name == "retire" else 0
        checks = (
            at_most("round trips", costs.round_trips, DEPTH[name]),
            at_most("PUT", costs.requests.get("PUT", 0), puts),
            at_most("LIST", costs.requests.get("LIST", 0), len(ids)),
            at_most("DELETE", costs.requests.get("DELETE", 0), bulks * (1 if name == "retire" else 2)),
        )
        yield Row(f"{name} {len(ids):,} rollouts", "rollouts/s", {"ours": len(ids) / seconds}, checks)


def million_rows(place: Place) -> Iterator[Row]:
    """Yield the time and the memory of a sweep and of ``du`` over a store that is made up while it is listed."""
    for name in ("sweep", "du"):
        figures: dict[str, float] = {}
        for objects in (place.sizes.objects // 10, place.sizes.objects):
            command = [sys.executable, "-m", "benchmarks.removal", name, str(objects)]
            took = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            figures |= {
                f"objects/s at {objects:,}": objects / took["seconds"],
                f"MB at {objects:,}": took["bytes"] / MB,
            }
        checks = (at_most("MB", list(figures.values())[-1], 200.0),)
        yield Row(f"{name} over {place.sizes.objects:,} objects", "", figures, checks, "MB: the whole process, at most")


def look(name: str, objects: int) -> dict[str, float]:
    """Sweep or count a made-up store, and return the seconds and the process's largest size."""
    import resource

    from tests.synthetic import RUN as SYNTHETIC
    from tests.synthetic import SyntheticStore

    store, began = SyntheticStore(objects), time.perf_counter()
    if name == "sweep":
        run(sweep(SYNTHETIC, remove, now=1e9, grace=3600.0), store)
    else:
        run(usage(now=1e9), store)
    seconds = time.perf_counter() - began
    unit = 1 if sys.platform == "darwin" else 1024
    return {"seconds": seconds, "bytes": unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}


if __name__ == "__main__":
    print(json.dumps(look(sys.argv[1], int(sys.argv[2]))))
