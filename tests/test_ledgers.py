# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The capture ledger as a component: warnings for late rows, cancellation, refused lists, resolving both families."""

from __future__ import annotations

import asyncio
import logging
import pickle

import pytest

from gym_objstore import CaptureLedger, TokenSink
from gym_objstore.errors import Conflict, Invalid, Retired
from gym_objstore.ledger import FAMILY
from gym_objstore.records import ParentResolutionStatus
from gym_objstore.testing.counting import Costs, CountingStore
from gym_objstore.testing.wrapping import WrappedStore
from tests.entries import QUESTION, make_entry, request_after
from tests.places import PLACES, place_of
from tests.test_ledger import CONTINUED, ROLLOUT, commit


@pytest.fixture
def place(request):
    return place_of("memory", request)


@pytest.fixture
async def ledger(place):
    found = CaptureLedger(**place)
    yield found
    await found.close()


async def test_only_the_first_row_of_a_process_leaves_the_writer_marker(ledger):
    ledger.connection.store = CountingStore(ledger.connection.store)
    await ledger.record(commit("c1"))
    await ledger.record(commit("c2"))
    assert ledger.connection.store.costs == Costs(2, {"PUT": 3, "HEAD": 2, "LIST": 2})


async def test_the_manifest_is_plain_data(ledger):
    await ledger.record(commit())
    found = await ledger.manifest(ROLLOUT)
    assert found["records"] == [commit().record.model_dump(mode="json")]
    assert (found["schema_version"], found["rollout_id"], found["failures"]) == (2, ROLLOUT, [])


async def test_a_late_row_is_discarded_with_a_warning_that_names_its_staging_key(ledger, caplog):
    await ledger.retire([ROLLOUT])
    with caplog.at_level(logging.WARNING, "gym_objstore"):
        await ledger.record(commit(staging_key="the/staging.key"))
        await ledger.record_failure(ROLLOUT, "c2", "worker_capture_failed")
    late, failure = [one.getMessage() for one in caplog.records]
    assert "discarded" in late
    assert "staging_key=the/staging.key" in late
    assert "model_call_id=c2" in failure
    assert [meta.key for meta in ledger.connection.store.scan(f"{FAMILY}/run-1/{ROLLOUT}/")] == [
        f"{FAMILY}/run-1/{ROLLOUT}/fences/tombstone"
    ]


async def test_reading_a_retired_rollout_raises_and_admits_nothing(ledger):
    await ledger.record(commit())
    await ledger.retire([ROLLOUT])
    for reading in (ledger.manifest, ledger.has_rows):
        with pytest.raises(Retired):
            await reading(ROLLOUT)
    assert (await ledger.resolve(ROLLOUT, CONTINUED)).status is ParentResolutionStatus.UNRESOLVED


@pytest.mark.parametrize("operation", ["retire", "delete"])
async def test_lists_are_checked_whole_before_anything_happens(ledger, operation):
    await ledger.record(commit())
    ledger.connection.store = CountingStore(ledger.connection.store)
    with pytest.raises(TypeError, match="must be a list of ids, not one str"):
        await getattr(ledger, operation)(ROLLOUT)
    for bad in ("", None, 7):
        with pytest.raises(Invalid):
            await getattr(ledger, operation)([ROLLOUT, bad])
    assert ledger.connection.store.costs == Costs()


async def test_duplicates_are_reported_once(ledger):
    await ledger.record(commit())
    found = await ledger.retire([ROLLOUT, "x", ROLLOUT, "x"])
    assert (found.removed, found.absent) == ((ROLLOUT,), ("x",))


async def test_retire_of_4096_rollouts_is_a_few_round_trips_deep(ledger):
    ids = [f"r{number}" for number in range(4096)]
    store = ledger.connection.store
    for one in ids[:64]:
        store.put(f"{FAMILY}/run-1/{one}/failures/c.0123456789abcdef", b"{}")
    found = await ledger.retire(ids)
    assert (len(found.removed), len(found.absent)) == (64, 4032)
    assert len(list(store.scan(f"{FAMILY}/run-1/"))) == 4096


async def test_resolving_falls_back_on_token_entries(ledger, place):
    sink = TokenSink(**place)
    await sink.put(make_entry(rollout=ROLLOUT))
    found = await ledger.resolve(ROLLOUT, request_after("hi"))
    assert (found.match.model_call_id, found.match.cumulative_token_ids) == ("c1", (1, 2, 7, 8))
    assert (await ledger.resolve(ROLLOUT, QUESTION)).status is ParentResolutionStatus.ROOT
    await sink.close()


async def test_a_staged_parent_has_a_chain_and_no_tokens(ledger):
    await ledger.record(commit(chain=("k1",)))
    found = await ledger.resolve(ROLLOUT, CONTINUED)
    assert (found.status, found.match.staging_chain) == (ParentResolutionStatus.RESOLVED, ("k1",))
    assert found.match.cumulative_token_ids == ()


async def test_a_row_whose_request_is_cancelled_still_lands(ledger):
    gate = asyncio.Event()

    class Slow(WrappedStore):
        async def put_async(self, key, body):
            await gate.wait()
            await super().put_async(key, body)

    ledger.connection.store = Slow(ledger.connection.store)
    request = asyncio.create_task(ledger.record(commit()))
    await asyncio.sleep(0.01)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    gate.set()
    assert await ledger.connection.writer.drain(ROLLOUT, timeout=5)
    assert len((await ledger.manifest(ROLLOUT))["records"]) == 1


def test_it_travels_to_another_process(place):
    ledger = CaptureLedger(**place)
    assert pickle.loads(pickle.dumps(ledger)).settings == ledger.settings
    assert ledger.is_process_shared() is False
    assert CaptureLedger("s3://bucket", "run").is_process_shared() is True


@pytest.mark.parametrize("kind", PLACES)
async def test_a_ledger_lives_and_ends_on_every_store(kind, request):
    place = place_of(kind, request)
    ledger, other = CaptureLedger(**place), CaptureLedger(**{**place, "concurrency": 9})
    await asyncio.gather(*(ledger.record(commit(f"c{n}", text=f"said {n}")) for n in range(12)))
    await asyncio.gather(*(ledger.record_failure(ROLLOUT, "lost", "worker_capture_failed") for _ in range(2)))
    with pytest.raises(Conflict):
        await other.record(commit("c3", text="said 3", response_id="another"))
    found = await other.manifest(ROLLOUT)
    assert sorted(one["model_call_id"] for one in found["records"]) == sorted(f"c{n}" for n in range(12) if n != 3)
    assert [(one["model_call_id"], one["reason"]) for one in found["failures"]] == [
        ("c3", "conflicting_ledger_rows"),
        ("lost", "worker_capture_failed"),
    ]
    assert await other.has_rows(ROLLOUT)
    assert (await other.resolve(ROLLOUT, request_after("said 5"))).match.model_call_id == "c5"
    removed = await other.retire([ROLLOUT, "unknown"])
    assert (removed.removed, removed.absent) == ((ROLLOUT,), ("unknown",))
    with pytest.raises(Retired):
        await ledger.manifest(ROLLOUT)
    assert (await ledger.delete([ROLLOUT, "unknown"])).removed == (ROLLOUT, "unknown")
    assert await ledger.has_rows(ROLLOUT) is False
    await ledger.close()
    await other.close()
