# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What one call costs, at any length of its rollout: the table of docs/design.md."""

from __future__ import annotations

import pytest

from gym_objstore.cache import ParentMemory
from gym_objstore.flow import arun, run
from gym_objstore.lineage import ContextMatcher, Resolver
from gym_objstore.retirement import Claim, delete_rollouts, drop, retire
from gym_objstore.store.memory import MemoryStore
from gym_objstore.testing.counting import Costs, CountingStore
from gym_objstore.tokens import begin_call, freeze, mark, put_entry
from tests.entries import make_chain, make_entry, request_after

LENGTHS = pytest.mark.parametrize("length", [10, 1000])
RUN, ROLLOUT = "run", "r1"
PREFIX = "tokens/run/r1/"


@pytest.fixture(scope="module")
def rollouts():
    """Stores that hold a rollout of 10 and of 1,000 calls, written once."""
    made = {}
    for length in (10, 1000):
        made[length] = MemoryStore()
        for turn in range(length):
            run(put_entry(RUN, make_entry(call=f"c{turn}", text=f"t{turn}", created_at=float(turn))), made[length])
    return made


@pytest.fixture
def counted(rollouts, length):
    copy = MemoryStore()
    copy._objects = dict(rollouts[length]._objects)
    return CountingStore(copy)


def resolver(cache=None) -> Resolver:
    return Resolver(RUN, ContextMatcher(), cache or ParentMemory())


@LENGTHS
async def test_put_is_one_put_and_one_head_in_one_round_trip(counted):
    await arun(put_entry(RUN, make_entry(call="another")), counted)
    assert counted.costs == Costs(1, {"PUT": 1, "HEAD": 1})


@LENGTHS
async def test_begin_call_is_one_put_and_one_head_in_one_round_trip(counted):
    await arun(begin_call(RUN, ROLLOUT, "another"), counted)
    assert counted.costs == Costs(1, {"PUT": 1, "HEAD": 1})


@LENGTHS
async def test_a_request_without_model_history_costs_nothing(counted):
    await arun(resolver().resolve(ROLLOUT, [{"role": "user", "content": "hello"}]), counted)
    assert counted.costs == Costs(0, {})


@LENGTHS
async def test_a_parent_written_elsewhere_is_one_list_and_one_get(counted):
    found = await arun(resolver().resolve(ROLLOUT, request_after("t7")), counted)
    assert found.match.model_call_id == "c7"
    assert counted.costs == Costs(2, {"LIST": 1, "GET": 1})


@LENGTHS
async def test_a_parent_that_is_remembered_is_one_list(counted):
    cache = ParentMemory()
    await arun(resolver(cache).resolve(ROLLOUT, request_after("t7")), counted)
    counted.reset()
    await arun(resolver(cache).resolve(ROLLOUT, request_after("t7")), counted)
    assert counted.costs == Costs(1, {"LIST": 1})


async def test_a_delta_is_materialized_in_the_same_two_round_trips():
    counted = CountingStore(MemoryStore())
    for entry in make_chain(ROLLOUT, 30, delta=True):
        await arun(put_entry(RUN, entry), counted)
    counted.reset()
    found = await arun(resolver().resolve(ROLLOUT, request_after(*(f"t{turn}" for turn in range(30)))), counted)
    assert len(found.match.cumulative_token_ids) == 90
    assert counted.costs == Costs(2, {"LIST": 1, "GET": 30})


@LENGTHS
async def test_freeze_is_the_listing_and_parallel_reads(counted, length):
    snapshot = await arun(freeze(RUN, ROLLOUT), counted, limit=length + 1)
    assert len(snapshot.entries) == length
    assert counted.costs == Costs(2, {"LIST": 1, "HEAD": 1, "GET": length})


@pytest.mark.parametrize(("length", "pages"), [(10, 2), (1000, 3)])
async def test_drop_is_two_listings_a_look_two_writes_and_two_removals(counted, pages):
    snapshot = await arun(freeze(RUN, ROLLOUT), counted)
    counted.reset()
    assert await arun(drop(Claim(PREFIX, snapshot.snapshot_id, snapshot.version, "0" * 16)), counted)
    assert counted.costs == Costs(5 + pages, {"LIST": pages, "GET": 1, "PUT": 2, "DELETE": 2})


async def test_a_marker_is_one_put():
    counted = CountingStore(MemoryStore())
    marker = mark(RUN, ROLLOUT, "c1", {"at": 1.0})
    await counted.put_async(marker.key, marker.body)
    assert counted.costs == Costs(1, {"PUT": 1})


async def test_retiring_many_rollouts_is_three_round_trips_deep():
    counted, rollouts = CountingStore(MemoryStore()), [f"{number}-0" for number in range(300)]
    for rollout in rollouts:
        await arun(begin_call(RUN, rollout, "c1"), counted.store)
    counted.reset()
    await arun(retire("tokens", RUN, rollouts), counted, limit=300)
    assert counted.costs == Costs(3, {"PUT": 300, "LIST": 300, "DELETE": 1})


async def test_deleting_many_rollouts_is_three_round_trips_deep():
    counted, rollouts = CountingStore(MemoryStore()), [f"{number}-0" for number in range(300)]
    await arun(retire("tokens", RUN, rollouts), counted, limit=300)
    counted.reset()
    await arun(delete_rollouts("tokens", RUN, rollouts), counted, limit=300)
    assert counted.costs == Costs(2, {"LIST": 300, "DELETE": 1})
