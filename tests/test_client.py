# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The trainer's client: what it finds, reads, masks, streams and retires, on every kind of place."""

from __future__ import annotations

import asyncio
import json
import pickle

import pytest

from gym_objstore import CaptureLedger, StagingSink, TrainerClient, build_receipt
from gym_objstore.digests import canonical_json
from gym_objstore.errors import Corrupt, Invalid, NotFound, Retired, Unavailable
from gym_objstore.flow import arun, run
from gym_objstore.keys import parse_staging_key, staged_key
from gym_objstore.receipts_published import publish
from gym_objstore.receipts_reading import Masked, TokenRow, Trainable, read_rows
from gym_objstore.retirement import Removal
from gym_objstore.testing.counting import Costs, CountingStore
from gym_objstore.testing.staged_rollouts import staged_call
from gym_objstore.testing.wrapping import WrappedStore
from tests.finished import RUN, commit_of, finish, receipt_for, record_calls
from tests.places import place_of


@pytest.fixture
def place(request):
    return place_of("memory", request)


@pytest.fixture
async def client(place):
    found = TrainerClient(**place)
    yield found
    await found.close()


@pytest.fixture
def store(client):
    return client.connection.store


class Down(WrappedStore):
    up = False

    async def get_async(self, key):
        if not self.up:
            raise Unavailable("down", key=key)
        return await super().get_async(key)


def damage(store, staging_key: str) -> None:
    key = staged_key(RUN, parse_staging_key(staging_key))
    store.put(key, b"x" * len(store.get(key)))


def codes(outcomes) -> dict[str, str]:
    return {one.rollout_id: one.code if isinstance(one, Masked) else "trainable" for one in outcomes}


@pytest.mark.parametrize("kind", ["memory", "file", "seaweedfs"])
async def test_a_rollout_goes_from_the_worker_to_the_trainer_and_ends(kind, request):
    place = place_of(kind, request)
    sink, ledger, client = StagingSink(**place), CaptureLedger(**place), TrainerClient(**place)
    record = staged_call("c0", rollout_id="r1")
    staged = await asyncio.to_thread(sink.stage, record)
    await ledger.record(commit_of(record, staged.staging_key))
    await client.publish(build_receipt(await ledger.manifest("r1"), 0.5, response={"id": "response-c0"}))
    async with client.stream() as stream:
        (found,) = [one async for one in stream]
    assert (found.receipt.reward, found.row.token_ids) == (0.5, record.token_ids_delta)
    assert found.row.logprobs == record.generation_log_probs_delta
    assert await client.read_tokens(["r1"]) == [TokenRow(found.receipt, record.token_ids_delta)]
    await client.mark_consumed(["r1"], "step-1")
    assert await client.retire_consumed(["step-1"]) == Removal(("r1",), ())
    assert await client.finished() == []
    with pytest.raises(Retired):
        await ledger.manifest("r1")
    for one in (sink, ledger, client):
        await one.close()


async def test_bulk_reading_costs_one_listing_one_read_per_receipt_and_one_per_call(client, store):
    for number in range(20):
        finish(store, f"r{number}", calls=5)
    client.connection.store = counted = CountingStore(store)
    found = await client.finished()
    assert counted.costs == Costs(1, {"LIST": 1})
    read = await arun(read_rows(RUN, found), counted, limit=200)
    assert all(isinstance(one, Trainable) for one in read)
    assert counted.costs == Costs(3, {"LIST": 1, "GET": 20 + 20 * 5})


async def test_reading_by_id_costs_one_listing_each_in_one_more_round_trip(client, store):
    for number in range(4):
        finish(store, f"r{number}", calls=2)
    client.connection.store = counted = CountingStore(store)
    read = await client.read(["r3", "r0"])
    assert [one.rollout_id for one in read] == ["r3", "r0"]
    assert counted.costs == Costs(3, {"LIST": 2, "GET": 2 + 4})


async def test_token_ids_alone_are_read_from_the_terminal_chain_only(client, store):
    keys = record_calls(store, calls=1)
    run(publish(RUN, receipt_for(store)), store)
    finish(store, "r2", calls=3)
    client.connection.store = counted = CountingStore(store)
    one, two = await client.read_tokens(["rollout-1", "r2"])
    assert (one.token_ids, len(two.token_ids)) == ((0, 12, 21, 100), 12)
    assert counted.costs.requests == {"LIST": 2, "GET": 2 + 1 + 3}
    damage(store, keys[0])
    assert codes(await client.read_tokens(["rollout-1", "r2"])) == {"rollout-1": "corrupt", "r2": "trainable"}


async def test_what_may_not_be_trained_is_masked_with_its_reason_and_alone(client, store):
    for number in range(8):
        finish(store, f"good-{number}")
    damage(store, finish(store, "damaged")[1])
    missing = finish(store, "missing")
    store.delete([staged_key(RUN, parse_staging_key(missing[0]))])
    record_calls(store, "poisoned")
    poisoned = receipt_for(store, "poisoned", declared_response_id="other")
    run(publish(RUN, poisoned), store)
    finish(store, "torn")
    run(publish(RUN, receipt_for(store, "torn", reward=0.0)), store)
    read = await client.read([*await client.finished(), "never"])
    assert codes(read) == {
        **{f"good-{number}": "trainable" for number in range(8)},
        "damaged": "corrupt",
        "missing": "no_row",
        "poisoned": "rollout_failed",
        "torn": "conflicting_receipts",
        "never": "not_published",
    }
    details = {one.rollout_id: one.detail for one in read if isinstance(one, Masked)}
    assert "failure_reason=declared_terminal_not_captured" in details["poisoned"]
    assert "damaged/c1." in details["damaged"]


async def test_a_receipt_of_a_newer_version_or_with_damage_masks(client, store):
    finish(store, "r1")
    (key,) = [meta.key for meta in store.scan(f"manifests/{RUN}/r1/receipts/")]
    store.put(key, b"{}")
    assert codes(await client.read(["r1"])) == {"r1": "damaged_receipt"}


async def test_rows_of_another_rollout_mask(client, store):
    finish(store, "r1")
    record_calls(store, "r2")
    stolen = receipt_for(store, "r2")
    others = receipt_for(store, "r1")
    rows = tuple(
        row.model_copy(update={"staging_key": other.staging_key})
        for row, other in zip(stolen.manifest, others.manifest, strict=True)
    )
    run(publish(RUN, stolen.model_copy(update={"manifest": rows})), store)
    assert codes(await client.read(["r1", "r2"])) == {"r1": "trainable", "r2": "wrong_rollout"}
    assert codes(await client.read_tokens(["r1", "r2"])) == {"r1": "trainable", "r2": "wrong_rollout"}


async def test_publishing_twice_changes_nothing(client, store):
    record_calls(store)
    receipt = receipt_for(store)
    assert await client.publish(receipt) == await client.publish(receipt)
    assert codes(await client.read(["rollout-1"])) == {"rollout-1": "trainable"}


async def test_a_retired_rollout_cannot_be_published_again(client, store):
    finish(store)
    receipt = receipt_for(store)
    await client.mark_consumed(["rollout-1"], "step-1")
    await client.retire_consumed(["step-1"])
    with pytest.raises(Retired):
        await client.publish(receipt)
    assert codes(await client.read(["rollout-1"])) == {"rollout-1": "retired"}


async def test_a_run_that_nobody_wrote_to_is_not_found(client):
    with pytest.raises(NotFound) as missing:
        await client.finished()
    assert missing.value.kind == "no_writer"


async def test_a_run_without_finished_rollouts_is_empty(client, place):
    sink = StagingSink(**place)
    await asyncio.to_thread(sink.stage, staged_call("c0"))
    assert await client.finished() == []


async def test_a_stream_resumes_behind_what_its_cursor_says(client, store):
    for number in range(5):
        finish(store, f"r{number}")
    async with client.stream(prefetch=2) as stream:
        first = [(await anext(stream)).rollout_id for _ in range(3)]
        cursor = json.loads(json.dumps(stream.cursor))
    finish(store, "r5")
    resumed = [one.rollout_id async for one in client.stream(cursor)]
    assert (first, resumed) == (["r0", "r1", "r2"], ["r3", "r4", "r5"])


async def test_a_second_receipt_brings_a_rollout_back_as_masked(client, store):
    finish(store, "r1")
    stream = client.stream()
    assert codes([one async for one in stream]) == {"r1": "trainable"}
    run(publish(RUN, receipt_for(store, "r1", reward=0.0)), store)
    assert codes([one async for one in client.stream(stream.cursor)]) == {"r1": "conflicting_receipts"}


async def test_following_waits_for_the_first_writer_and_for_every_new_rollout(client, store):
    async with client.follow(poll_seconds=0.001) as stream:
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0.01)
        finish(store, "r1")
        assert (await waiting).rollout_id == "r1"
        finish(store, "r0")
        assert (await anext(stream)).rollout_id == "r0"


async def test_a_wait_that_was_cancelled_does_not_end_a_stream(client, store):
    finish(store, "r1")
    async with client.follow(poll_seconds=0.001) as stream:
        assert (await anext(stream)).rollout_id == "r1"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(stream), 0.02)
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0.01)
        with pytest.raises(RuntimeError, match="already running"):
            await anext(stream)
        finish(store, "r0")
        assert (await waiting).rollout_id == "r0"


async def test_a_stream_goes_on_after_an_error_and_leaves_nothing_out(client, store):
    for number in range(3):
        finish(store, f"r{number}")
    client.connection.store = down = Down(store)
    async with client.stream(prefetch=1) as stream:
        for _ in range(2):
            with pytest.raises(Unavailable):
                await anext(stream)
        down.up = True
        assert [one.rollout_id async for one in stream] == ["r0", "r1", "r2"]
        with pytest.raises(StopAsyncIteration):
            await anext(stream)


async def test_the_cursor_forgets_what_is_retired(client, store):
    for one in ("r1", "r2"):
        finish(store, one)
    async with client.follow(poll_seconds=0.001) as stream:
        for _ in range(2):
            await anext(stream)
        await client.mark_consumed(["r1"], "step-1")
        await client.retire_consumed(["step-1"])
        finish(store, "r3")
        assert (await anext(stream)).rollout_id == "r3"
        assert list(stream.cursor["delivered"]) == ["r2", "r3"]


@pytest.mark.parametrize(
    "cursor", [{}, {"format": 2, "run_id": RUN, "delivered": {}}, {"format": 1, "run_id": "run-2", "delivered": {}}]
)
async def test_a_cursor_of_another_run_or_version_is_refused(client, cursor):
    with pytest.raises(Invalid) as refused:
        client.stream(cursor)
    assert refused.value.kind == "bad_cursor"


async def test_marking_removes_nothing_and_only_its_checkpoint_retires(client, store):
    for one in ("r1", "r2", "r3"):
        finish(store, one)
    assert await client.mark_consumed(["r1", "r1", "r2"], "step-1") == ("r1", "r2")
    await client.mark_consumed(["r3"], "step-2")
    assert len(await client.finished()) == 3
    assert await client.retire_consumed(["step-1"]) == Removal(("r1", "r2"), ())
    assert [one.rollout_id for one in await client.finished()] == ["r3"]
    assert await client.retire_consumed(["step-1"]) == Removal((), ())
    assert await client.mark_consumed(["r1", "r3"], "step-2") == ("r3",)
    assert len(list(store.scan(f"staged/{RUN}/"))) == 6


def test_a_trainer_without_a_loop_marks_and_retires_too(place):
    client = TrainerClient(**place)
    store = client.connection.store
    for one in ("r1", "r2"):
        finish(store, one)
    assert client.mark_consumed_now(["r1"], "step-1") == ("r1",)
    assert [one.checkpoints for one in client.finished_now()] == [("step-1",), ()]
    assert client.retire_consumed_now(["step-1"]) == Removal(("r1",), ())
    assert [one.rollout_id for one in client.finished_now()] == ["r2"]
    assert client.mark_consumed_now(["r1"], "step-2") == ()
    client.close_now()


@pytest.mark.parametrize(
    "hostile", ["a/b c", "..", ".hidden", "UPPER", "\u00e9\u4e2d+%=", "!run", "r1/receipts/" + 64 * "0"]
)
async def test_any_id_is_published_read_and_retired(client, store, hostile):
    finish(store, hostile)
    (found,) = await client.finished()
    assert codes(await client.read([found])) == codes(await client.read([hostile])) == {hostile: "trainable"}
    assert found.rollout_id == hostile
    await client.mark_consumed([hostile], "../step 1")
    assert await client.retire_consumed(["../step 1"]) == Removal((hostile,), ())


async def test_ids_that_are_close_to_each_other_do_not_meet(client, store):
    for one in ("r1", "r10", "r1-a1", "R1"):
        finish(store, one, reward=float(len(one)))
    await client.mark_consumed(["r1"], "step-1")
    await client.mark_consumed(["r10"], "step-10")
    await client.retire_consumed(["step-1"])
    assert sorted(one.rollout_id for one in await client.finished()) == ["R1", "r1-a1", "r10"]


def test_a_rollout_id_that_utf_8_cannot_hold_is_refused():
    with pytest.raises(Invalid, match="field=rollout_id"):
        build_receipt({"rollout_id": "a\ud800", "records": []}, 1.0)


async def test_following_a_place_that_does_not_exist_raises(client, store):
    class Nowhere(WrappedStore):
        def scan_async(self, prefix):
            raise NotFound("no such bucket", kind="no_bucket")

    client.connection.store = Nowhere(store)
    with pytest.raises(NotFound):
        await anext(client.follow(poll_seconds=0.001))


async def test_an_id_that_only_its_hash_stands_for_is_retired(client, store):
    long = "x" * 200
    finish(store, long)
    await client.mark_consumed([long], "step-1")
    assert await client.retire_consumed(["step-1"]) == Removal((long,), ())
    assert codes(await client.read([long])) == {long: "retired"}


@pytest.mark.parametrize("said", ["x" * 199 + "y", "another", "", None])
async def test_a_marker_that_names_another_rollout_than_its_own_retires_none(client, store, said):
    """Where the id is too long for its segment, the marker is read for it; one damaged byte would name another."""
    long = "x" * 200
    for rollout in (long, "another"):
        finish(store, rollout)
    await client.mark_consumed([long], "step-1")
    (key,) = [meta.key for meta in store.scan(f"manifests/{RUN}/") if "/consumed/" in meta.key]
    store.put(key, canonical_json({"format": 1, "rollout_id": said, "checkpoint_id": "step-1"}))
    with pytest.raises(Corrupt):
        await client.retire_consumed(["step-1"])
    assert codes(await client.read([long, "another"])) == {long: "trainable", "another": "trainable"}


class Breaking(WrappedStore):
    """A store that takes so many operations and then answers no more."""

    def __init__(self, store, left):
        super().__init__(store)
        self.left = left

    def _take(self):
        self.left -= 1
        if self.left < 0:
            raise Unavailable("down")

    async def put_async(self, key, body):
        self._take()
        await super().put_async(key, body)

    async def delete_async(self, keys):
        self._take()
        await super().delete_async(keys[:1])
        self._take()
        await super().delete_async(keys)


@pytest.mark.parametrize("left", range(12))
async def test_an_interrupted_retirement_is_finished_by_repeating_it(client, store, left):
    for one in ("r1", "r2"):
        finish(store, one)
    await client.mark_consumed(["r1", "r2"], "step-1")
    client.connection.store = Breaking(store, left)
    try:
        await client.retire_consumed(["step-1"])
    except Unavailable:
        client.connection.store = store
        await client.retire_consumed(["step-1"])
    client.connection.store = store
    assert await client.finished() == []
    left_over = [meta.key for family in ("ledger", "manifests", "tokens") for meta in store.scan(f"{family}/{RUN}/")]
    assert sorted(key.split("/", 2)[2] for key in left_over if "/!run/" not in key) == sorted(
        f"{one}/fences/tombstone" for one in ("r1", "r2") for _ in range(3)
    )


async def test_a_bare_string_is_no_list(client):
    for call in (client.read, client.retire_consumed, lambda ids: client.mark_consumed(ids, "step-1")):
        with pytest.raises(TypeError):
            await call("r1")


async def test_a_storage_that_does_not_answer_raises(client, store):
    finish(store)
    (found,) = await client.finished()
    client.connection.store = Down(store)
    with pytest.raises(Unavailable):
        await client.read([found])


def test_a_client_travels_to_other_processes_with_what_it_found(place):
    client = TrainerClient(**place)
    finish(client.connection.store)
    found = client.finished_now()
    there, carried = pickle.loads(pickle.dumps((client, found)))
    assert codes(there.read_now(carried)) == {"rollout-1": "trainable"}
    client.close_now()
