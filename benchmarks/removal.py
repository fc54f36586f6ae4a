# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Removing thousands of rollouts: requests and time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.harness import Row, at_most, on_loop, timed_async
from benchmarks.staging import committed, place_objects
from gym_objstore import ledger
from gym_objstore.flow import arun, run
from gym_objstore.retirement import delete_rollouts, retire
from gym_objstore.store import DELETE_LIMIT
from gym_objstore.store.memory import MemoryStore
from gym_objstore.testing.counting import CountingStore
from gym_objstore.testing.staged_rollouts import staged_call

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.places import Place

RUN = "benchmark"
DEPTH = {"retire": 3, "delete": 3}
"""Round trips in sequence of each removal, whatever the number of rollouts."""


def retire_rows(place: Place) -> Iterator[Row]:
    """Yield what retiring and then deleting thousands of ledgers costs: requests in memory, and time at the place."""
    ids = [f"r{number}" for number in range(place.sizes.removals)]
    store = MemoryStore()
    for rollout in ids:
        run(ledger.record(RUN, committed(staged_call("c0", rollout_id=rollout), f"{rollout}/c0")), store)
    place_objects(place, {meta.key: store.get(meta.key) for meta in store.scan("")})
    for name, removal in {"retire": retire, "delete": delete_rollouts}.items():
        counting = CountingStore(store)
        on_loop(arun(removal(ledger.FAMILY, RUN, ids), counting, limit=2 * len(ids)))
        seconds = on_loop(timed_async(arun(removal(ledger.FAMILY, RUN, ids), place.store())))
        costs, bulks = counting.costs, -(-len(ids) // DELETE_LIMIT)
        puts = len(ids) if name == "retire" else 0
        checks = (
            at_most("round trips", costs.round_trips, DEPTH[name]),
            at_most("PUT", costs.requests.get("PUT", 0), puts),
            at_most("LIST", costs.requests.get("LIST", 0), len(ids)),
            at_most("DELETE", costs.requests.get("DELETE", 0), bulks * (1 if name == "retire" else 2)),
        )
        yield Row(f"{name} {len(ids):,} rollouts", "rollouts/s", {"ours": len(ids) / seconds}, checks)
