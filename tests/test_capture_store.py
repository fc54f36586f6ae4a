# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``CaptureStore``: both forms on every kind of place, many processes, cancellation, spill, redaction, attachment."""

from __future__ import annotations

import asyncio
import multiprocessing
import pickle

import orjson
import pytest

from gym_objstore import (
    CaptureStore,
    aggregate_model_call_metrics,
    read_available_model_call_records,
    read_model_call_records,
)
from gym_objstore.errors import Corrupt, Invalid, NotFound, Unavailable, Unusable
from gym_objstore.redaction import redaction
from gym_objstore.retirement import Removal
from gym_objstore.testing.wrapping import WrappedStore
from tests.places import PLACES, place_of


@pytest.fixture
def place(request):
    return place_of("memory", request)


@pytest.fixture
async def store(place):
    found = CaptureStore(**place)
    yield found
    await found.close()


class Gated(WrappedStore):
    """A store whose captures wait for ``gate`` and then fail with ``error``, if there is one."""

    def __init__(self, store) -> None:
        super().__init__(store)
        self.entered, self.gate = asyncio.Event(), asyncio.Event()
        self.error: Exception | None = None

    async def put_async(self, key, body) -> None:
        if "/records/" in key:
            self.entered.set()
            await self.gate.wait()
            if self.error is not None:
                raise self.error
        await super().put_async(key, body)


@pytest.fixture
def gated(store):
    store.connection.store = Gated(store.connection.store)
    return store


def exchange(call: str = "c1", completed: float = 100.0, **fields) -> dict:
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    response = {"id": "x", "model": "m", "choices": [], "usage": usage}
    return {
        "model_call_id": call,
        "dialect": "chat",
        "model_ref": None,
        "started_at": completed - 1,
        "completed_at": completed,
        "latency_ms": 1000.0,
        "status_code": 200,
        "error_category": None,
        "request": {"model": "m", "messages": []},
        "response": response,
        **fields,
    }


@pytest.mark.parametrize("kind", PLACES)
def test_blocking_calls_on_every_kind_of_place(kind, request):
    store = CaptureStore(**place_of(kind, request))
    store.record("0-0", exchange("c2", 200.0))
    store.record("0-0", exchange("c1", 100.0))
    assert [one["model_call_id"] for one in store.read("0-0")] == ["c1", "c2"]
    assert not store.is_incomplete("0-0")
    store.mark_incomplete("0-0", "c3")
    assert store.is_incomplete("0-0")
    assert store.clear("0-0") == Removal(("0-0",), ())
    assert store.read("0-0") == []
    assert not store.is_incomplete("0-0")
    store.close_now()


@pytest.mark.parametrize("kind", PLACES)
async def test_async_calls_on_every_kind_of_place(kind, request):
    store = CaptureStore(**place_of(kind, request))
    await asyncio.gather(*(store.record_async("0-0", exchange(f"c{n}", float(n))) for n in range(20)))
    assert [one["model_call_id"] for one in await store.read_async("0-0")] == [f"c{n}" for n in range(20)]
    await store.mark_incomplete_async("0-0")
    assert await store.is_incomplete_async("0-0")
    assert await store.clear_async(["0-0", "0-1"]) == Removal(("0-0",), ("0-1",))
    assert await store.read_available_async("0-0") == ([], 0)
    await store.close()


def test_the_seeds_snippet_gives_calls_and_totals(store):
    store.record("0-0", exchange())
    calls = read_model_call_records(store, "0-0")
    totals = aggregate_model_call_metrics(store, "0-0")
    assert [(call.call_index, call.model_call_id, call.tokens_in, call.tokens_out) for call in calls] == [
        (0, "c1", 7, 3)
    ]
    assert totals == {
        "tokens_in": 7,
        "tokens_out": 3,
        "tokens_reasoning": None,
        "tokens_total": 10,
        "cached_tokens": None,
        "latency_total_ms": 1000.0,
        "num_calls": 1,
    }


def test_a_damaged_capture_consumes_its_index(store):
    for call in range(3):
        store.record("0-0", exchange(f"c{call}", float(call)))
    memory = store.connection.store
    key = next(meta.key for meta in memory.scan("captures/run-1/0-0/records/") if ".c1." in meta.key)
    memory.delete([key])
    memory.put(key, b"damage")
    found = read_available_model_call_records(store, "0-0")
    assert ([call.call_index for call in found.calls], found.unreadable) == ([0, 2], 1)
    for reading in (store.read, lambda rollout: read_model_call_records(store, rollout)):
        with pytest.raises(Corrupt, match="the capture is damaged"):
            reading("0-0")


def write_some(place, writer: int) -> None:
    store = CaptureStore(**place)
    for number in range(10):
        store.record("0-0", exchange(f"w{writer}-{number}", float(number)))
    store.close_now()


def test_many_processes_write_to_one_rollout(request):
    place = place_of("file", request)
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=write_some, args=(place, writer)) for writer in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    found = CaptureStore(**place).read("0-0")
    assert len({one["model_call_id"] for one in found}) == 30
    assert [one["completed_at"] for one in found] == sorted(one["completed_at"] for one in found)


async def test_a_cancelled_callers_write_lands_and_is_waited_for(gated):
    caller = asyncio.create_task(gated.record_async("0-0", exchange()))
    await gated.connection.store.entered.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert not await gated.drain("0-0", timeout=0.01)
    gated.connection.store.gate.set()
    assert await gated.drain("0-0", timeout=10)
    assert len(await gated.read_async("0-0")) == 1
    assert not await gated.is_incomplete_async("0-0")


async def test_a_caller_that_is_cancelled_at_once_loses_nothing(gated):
    gated.connection.store.gate.set()
    caller = asyncio.create_task(gated.record_async("0-0", exchange()))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert await gated.drain("0-0", timeout=10)
    assert len(await gated.read_async("0-0")) == 1


async def test_a_cancelled_callers_write_that_fails_leaves_a_marker(gated):
    gated.connection.store.error = Invalid("refused")
    caller = asyncio.create_task(gated.record_async("0-0", exchange()))
    await gated.connection.store.entered.wait()
    caller.cancel()
    gated.connection.store.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert await gated.drain("0-0", timeout=10)
    assert await gated.is_incomplete_async("0-0")


async def test_a_slow_store_is_waited_for_no_longer_than_was_said(gated):
    with pytest.raises(Unavailable, match="did not take a capture in time, so it is kept on disk"):
        await gated.record_async("0-0", exchange(), within=0.05)
    assert [kept.put.key.split("/")[2] for kept in gated.connection.spill.kept()] == ["0-0"]


async def test_what_was_kept_is_replayed(gated):
    with pytest.raises(Unavailable):
        await gated.record_async("0-0", exchange(), within=0.05)
    gated.connection.store.gate.set()
    (kept,) = gated.connection.spill.kept()
    await gated.connection.replay(kept)
    assert [one["model_call_id"] for one in await gated.read_async("0-0")] == ["c1"]
    assert len(gated.connection.spill) == 0


async def test_a_store_that_is_down_leaves_the_capture_on_disk(gated):
    gated.connection.store.gate.set()
    gated.connection.store.error = Unavailable("down")
    with pytest.raises(Unavailable, match="down"):
        await gated.record_async("0-0", exchange())
    assert len(gated.connection.spill) == 1


def test_a_blocking_write_that_fails_is_kept_as_well(store):
    class Down(WrappedStore):
        def put(self, key, body) -> None:
            raise Unavailable("down", key=key)

    store.connection.store = Down(store.connection.store)
    with pytest.raises(Unavailable):
        store.record("0-0", exchange())
    store.mark_incomplete("0-0")
    assert [kept.put.key.split("/")[3] for kept in store.connection.spill.kept()] == ["records", "markers"]


@pytest.mark.parametrize("bad", ["", None, 7])
async def test_an_id_that_is_none_is_refused_before_anything_happens(store, bad):
    for refused in (store.record, store.mark_incomplete):
        with pytest.raises(Invalid):
            refused(bad, exchange()) if refused == store.record else refused(bad)
    with pytest.raises(Invalid):
        await store.record_async(bad, exchange())
    with pytest.raises((Invalid, TypeError)):
        store.clear([bad])
    assert list(store.connection.store.scan("")) == []


@pytest.mark.parametrize("rollout_id", ["a/b", "..", ".hidden", "ÄÖ %+= x", "R", "x" * 300, "\ud800"])
def test_any_other_text_is_an_id(store, rollout_id):
    store.record(rollout_id, exchange())
    store.record("other", exchange("c2"))
    assert [one["model_call_id"] for one in store.read(rollout_id)] == ["c1"]


def test_a_large_record_is_stored_whole(store):
    image = "A" * 50_000_000
    store.record("0-0", exchange(request={"messages": [{"role": "user", "content": image}]}))
    (found,) = store.read("0-0")
    assert found["request"]["messages"][0]["content"] == image


def test_redaction_happens_before_anything_is_written(place):
    store = CaptureStore(**place, redact=redaction("emails"))
    store.record("0-0", exchange(request={"messages": [{"role": "user", "content": "ask bob@example.com"}]}))
    text = orjson.dumps(store.read("0-0"))
    assert b"bob@example.com" not in text
    assert b"[redacted e-mail]" in text
    again = pickle.loads(pickle.dumps(store))
    assert again._redact is not None
    store.close_now()


def test_a_redaction_that_fails_stores_nothing_and_quotes_nothing(place):
    def fail(record):
        raise ValueError(record["request"]["secret"])

    store = CaptureStore(**place, redact=fail)
    with pytest.raises(Invalid, match="the redaction failed, so the capture is not stored, error=ValueError") as told:
        store.record("0-0", exchange(request={"secret": "hunter2"}))
    assert "hunter2" not in f"{told.value!r} {told.value.__cause__!r} {told.value.__suppress_context__}"
    assert list(store.connection.store.scan("")) == []
    store.close_now()


async def test_the_attachment_says_what_was_captured(store):
    store.record("0-0", exchange())
    found = store.attachment("0-0")
    assert found == await store.attachment_async("0-0")
    assert (found["rollout_id"], found["metrics"]["tokens_in"], len(found["calls"])) == ("0-0", 7, 1)
    assert "gaps" not in found
    assert "request" not in found["calls"][0]
    assert store.attachment("0-0", payloads=True)["calls"][0]["request"] == {"model": "m", "messages": []}


async def test_the_attachment_says_what_is_missing(gated):
    store = gated
    store.record("other", exchange())
    assert store.attachment("0-0")["gaps"] == [{"code": "model_call_capture_no_records"}]
    store.mark_incomplete("0-0")
    assert store.attachment("0-0")["gaps"] == [{"code": "model_call_capture_incomplete"}]
    caller = asyncio.create_task(store.record_async("0-0", exchange()))
    await store.connection.store.entered.wait()
    found = await store.attachment_async("0-0", wait=0.01)
    assert found["gaps"] == [{"code": "model_call_capture_incomplete"}, {"code": "model_call_capture_pending"}]
    store.connection.store.gate.set()
    await caller


async def test_captures_that_cannot_be_read_are_a_gap(store):
    class Down(WrappedStore):
        def scan(self, prefix):
            raise Unavailable("down")

        def scan_async(self, prefix):
            raise Unavailable("down")

    store.record("0-0", exchange())
    store.connection.store = Down(store.connection.store)
    assert store.attachment("0-0")["gaps"] == [{"code": "model_call_capture_unreadable"}]
    assert (await store.attachment_async("0-0"))["gaps"] == [{"code": "model_call_capture_unreadable"}]


def test_a_run_that_nobody_captured_has_no_records(store):
    assert store.attachment("0-0")["gaps"] == [{"code": "model_call_capture_no_records"}]
    with pytest.raises(NotFound, match="run_id=run-1"):
        store.read("0-0")


async def test_a_closed_store_says_so(place):
    store = CaptureStore(**place)
    await store.close()
    await store.close()
    with pytest.raises(Unusable, match="this CaptureStore is closed"):
        store.record("0-0", exchange())
