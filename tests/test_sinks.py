# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The token path's components: cancellation, spill and replay, construction, closing, many processes."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import pickle
import threading
import time
import weakref
from weakref import WeakSet

import pytest

from gym_objstore import LineageResolver, TokenSink, TokenSource, connection, sinks
from gym_objstore.errors import Denied, Invalid, Retired, Unavailable, Unusable
from gym_objstore.spill import Spill
from gym_objstore.testing.wrapping import WrappedStore
from tests.entries import make_entry, request_after
from tests.places import place_of


@pytest.fixture
def place(request):
    return place_of("memory", request)


class Faulty(WrappedStore):
    """A store that fails its writes while ``error`` is set, after waiting for ``gate``."""

    error: Exception | None = None
    gate: asyncio.Event | None = None

    async def put_async(self, key, body):
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        await super().put_async(key, body)


@pytest.fixture
async def faulty(place, monkeypatch):
    monkeypatch.setattr(connection, "_REPLAY_PAUSE", 0.01)
    sink = TokenSink(**place)
    sink.connection.store = Faulty(sink.connection.store)
    yield sink
    sink.connection.store.error = None
    await sink.close()


async def settled(sink) -> None:
    for _ in range(500):
        if not len(sink.connection.spill):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the spill was never replayed")


async def problems(place) -> list[tuple[str, str]]:
    snapshot = await TokenSource(**place).freeze("r1")
    return [(one.kind, one.model_call_id) for one in snapshot.problems]


async def test_a_put_whose_request_is_cancelled_still_lands(faulty, place):
    store = faulty.connection.store
    store.gate = asyncio.Event()
    request = asyncio.create_task(faulty.put(make_entry()))
    await asyncio.sleep(0.01)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    store.gate.set()
    assert await faulty.drain("r1")
    assert len((await TokenSource(**place).freeze("r1")).entries) == 1


async def test_a_put_that_fails_after_its_request_was_cancelled_is_marked(faulty, place):
    await faulty.put(make_entry(call="c0"))
    store = faulty.connection.store
    store.gate, store.error = asyncio.Event(), Denied("no")
    request = asyncio.create_task(faulty.put(make_entry()))
    await asyncio.sleep(0.01)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    store.gate.set()
    await faulty.drain("r1")
    store.error = None
    await settled(faulty)
    assert ("incomplete_marker", "c1") in await problems(place)


async def test_what_put_could_not_store_is_kept_and_replayed(faulty, place):
    await faulty.put(make_entry(call="c0"))
    faulty.connection.store.error = Unavailable("down")
    with pytest.raises(Unavailable):
        await faulty.put(make_entry())
    assert len(faulty.connection.spill) == 1
    faulty.connection.store.error = None
    await settled(faulty)
    assert {one.model_call_id for one in (await TokenSource(**place).freeze("r1")).entries} == {"c0", "c1"}


async def test_a_marker_survives_a_store_that_is_down(faulty, place):
    await faulty.put(make_entry())
    faulty.connection.store.error = Unavailable("down")
    await faulty.mark_incomplete("r1", "c2")
    assert len(faulty.connection.spill) == 1
    faulty.connection.store.error = None
    await settled(faulty)
    assert await problems(place) == [("incomplete_marker", "c2")]


async def test_a_marker_does_not_hold_up_its_caller_when_the_store_hangs(faulty, monkeypatch):
    monkeypatch.setattr(connection, "MARK_SECONDS", 0.01)
    faulty.connection.store.gate = asyncio.Event()
    await asyncio.wait_for(faulty.mark_incomplete("r1", "c2"), 5)
    assert len(faulty.connection.spill) == 1
    faulty.connection.store.gate.set()
    await settled(faulty)


async def test_a_marker_that_is_being_offered_is_not_replayed_beside_that(faulty, monkeypatch):
    stored, keep = [], Spill.keep

    def keep_late(self, put):
        path = keep(self, put)
        time.sleep(0.1)  # a busy machine goes on long after the file is there
        return path

    monkeypatch.setattr(Spill, "keep", keep_late)

    class Noting(Faulty):
        async def put_async(self, key, body):
            await super().put_async(key, body)
            stored.append(key.split("/")[3])

    store = faulty.connection.store = Noting(faulty.connection.store)
    store.gate = asyncio.Event()
    marking = asyncio.create_task(faulty.mark_incomplete("r1", "c2"))
    for _ in range(500):
        if len(faulty.connection.spill):
            break
        await asyncio.sleep(0.01)
    faulty.connection.start_replay()
    await asyncio.sleep(0.05)  # time for a replay that must not come
    store.gate.set()
    await marking
    await settled(faulty)
    assert stored.count("markers") == 1


async def test_the_next_process_replays_what_the_last_one_kept(place):
    marker = sinks.mark("run-1", "r1", "c7", {"at": 1.0})
    sink = TokenSink(**place)
    Spill(place["spill_dir"], sink.connection.store.url).keep(marker)
    await sink.begin_call("r1", "c1")
    await settled(sink)
    assert ("incomplete_marker", "c7") in await problems(place)
    await sink.close()


def test_a_loop_replays_what_a_closed_loop_could_not(place, monkeypatch):
    monkeypatch.setattr(connection, "_REPLAY_PAUSE", 0.01)
    sink = TokenSink(**place)
    store = sink.connection.store = Faulty(sink.connection.store)
    store.error = Unavailable("down")
    loop = asyncio.new_event_loop()
    loop.run_until_complete(sink.mark_incomplete("r1", "c1"))
    loop.close()
    store.error = None

    async def write():
        await sink.begin_call("r1", "c2")
        await settled(sink)
        await sink.close()

    asyncio.run(write())


async def test_a_replay_ends_when_its_store_was_closed(faulty):
    faulty.connection.store.error = Unavailable("down")
    await faulty.mark_incomplete("r1", "c1")
    faulty.connection.store.error = Unusable("closed", kind="closed")
    await asyncio.wait_for(faulty.connection._replaying, 30)
    assert len(faulty.connection.spill) == 1


async def test_a_write_is_no_failure_because_the_spill_cannot_be_read(place, monkeypatch):
    def refused(self):
        raise PermissionError("not yours")

    monkeypatch.setattr(Spill, "_files", refused)
    sink = TokenSink(**place)
    await sink.begin_call("r1", "c1")
    await sink.close()


async def test_a_kept_write_for_a_retired_rollout_is_discarded_with_a_warning(faulty, place, caplog):
    await faulty.put(make_entry(call="c0"))
    faulty.connection.store.error = Unavailable("down")
    await faulty.mark_incomplete("r1", "c2")
    faulty.connection.store.store.put("tokens/run-1/r1/fences/tombstone", b"x")
    faulty.connection.store.error = None
    with caplog.at_level(logging.WARNING, "gym_objstore"):
        await settled(faulty)
    assert "a kept write came after retirement and was discarded, key=tokens/run-1/r1/markers/c2" in caplog.text


async def test_a_marker_reaches_the_store_when_the_disk_is_full(place, monkeypatch, caplog):
    sink = TokenSink(**place)

    def full(self, put):
        raise Unavailable("the spill is full")

    monkeypatch.setattr(Spill, "keep", full)
    await sink.mark_incomplete("r1", "c1")
    assert await problems(place) == [("incomplete_marker", "c1")]
    assert "could not be kept on disk" in caplog.text


@pytest.mark.parametrize("given", [None, {}, {"rollout_id": "r1"}, "r1"])
async def test_what_is_no_entry_is_refused_by_its_type(faulty, given):
    with pytest.raises(Invalid, match=f"not a token entry, type={type(given).__name__}") as refused:
        await faulty.put(given)
    assert "parse_entry" in refused.value.hint


async def test_a_bad_entry_reaches_neither_store_nor_spill(faulty):
    entry = make_entry()
    entry.generation_log_probs[0] = float("inf")
    with pytest.raises(Invalid):
        await faulty.put(entry)
    assert len(faulty.connection.spill) == 0
    assert list(faulty.connection.store.scan("")) == []


async def test_a_put_into_a_retired_rollout_is_not_kept(faulty):
    await faulty.put(make_entry())
    faulty.connection.store.store.put("tokens/run-1/r1/fences/tombstone", b"x")
    with pytest.raises(Retired):
        await faulty.put(make_entry(call="c2"))
    assert len(faulty.connection.spill) == 0


async def test_a_resolver_of_the_same_process_remembers_what_the_sink_wrote(place):
    sink, resolver = TokenSink(**place), LineageResolver(**place)
    assert sink.connection is resolver.connection
    await sink.put(make_entry())
    resolver.connection.store = WrappedStore(resolver.connection.store)
    resolver.connection.store.get_async = None
    found = await resolver.resolve("r1", request_after("hi"))
    assert found.match.cumulative_token_ids == (1, 2, 7, 8)


async def test_a_resolver_says_when_the_store_is_down_instead_of_no_match(place):
    class Down(WrappedStore):
        def scan_async(self, prefix):
            raise Unavailable("down")

    resolver = LineageResolver(**place)
    resolver.connection.store = Down(resolver.connection.store)
    with pytest.raises(Unavailable):
        await resolver.resolve("r1", request_after("hi"))
    await resolver.close()


def test_a_missing_run_id_says_why_it_matters(place):
    with pytest.raises(Invalid, match="without one two runs would mix") as refused:
        TokenSink(place["url"])
    assert "GYM_OBJSTORE_RUN_ID" in refused.value.hint


def test_url_and_run_id_come_from_the_environment_where_no_argument_is(monkeypatch):
    monkeypatch.setenv("GYM_OBJSTORE_URL", "memory://from-env")
    monkeypatch.setenv("GYM_OBJSTORE_RUN_ID", "run-env")
    assert (TokenSource().settings.store.url, TokenSource().settings.run_id) == ("memory://from-env", "run-env")
    assert TokenSource("memory://given", "run-given").settings.run_id == "run-given"


def test_construction_does_no_io_and_needs_no_loop(tmp_path):
    TokenSink(f"file://{tmp_path}/nowhere", "run")
    TokenSink("s3://bucket-that-does-not-exist/x", "run", endpoint="http://127.0.0.1:9")
    assert list(tmp_path.iterdir()) == []


def test_a_component_shows_where_it_works_and_no_secret():
    sink = TokenSink("s3://bucket/x", "run", access_key_id="AKID", secret_access_key="canary-secret")
    assert repr(sink) == "TokenSink(url='s3://bucket/x', run_id='run')"
    assert b"canary-secret" not in pickle.dumps(sink)
    assert "canary-secret" not in repr(sink.settings)


async def test_a_closed_component_says_so_and_others_go_on(place):
    sink, source = TokenSink(**place), TokenSource(**place)
    await sink.put(make_entry())
    assert len((await source.freeze("r1")).entries) == 1
    await sink.close()
    await sink.close()
    with pytest.raises(Unusable, match="this TokenSink is closed"):
        await sink.put(make_entry(call="c2"))
    assert len((await source.freeze("r1")).entries) == 1


def test_a_component_that_comes_while_the_last_one_leaves_has_an_open_store(request):
    place = place_of("file", request)
    last, other = TokenSink(**place), TokenSink(**place)
    found = []
    coming = threading.Thread(target=lambda: found.append(other.connection))

    class Users(WeakSet):
        def __len__(self):
            left = super().__len__()
            if not coming.is_alive():
                coming.start()
                coming.join(0.1)
            return left

    last.connection.users = Users([last])
    last.close_now()
    coming.join()
    assert found[0].store.head("a/b") is None
    other.close_now()


async def test_close_waits_for_writes_of_cancelled_requests(place):
    sink = TokenSink(**place)
    slow = sink.connection.store = Faulty(sink.connection.store)
    slow.gate = asyncio.Event()
    request = asyncio.create_task(sink.put(make_entry()))
    await asyncio.sleep(0.01)
    request.cancel()
    asyncio.get_running_loop().call_later(0.05, slow.gate.set)
    await sink.close()
    assert len((await TokenSource(**place).freeze("r1")).entries) == 1


def write_one(sink, call):
    asyncio.run(sink.put(make_entry(call=call)))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_sink_that_was_used_works_in_a_child_process(method, request):
    place = place_of("file", request)
    sink = TokenSink(**place)
    write_one(sink, "parent")
    child = multiprocessing.get_context(method).Process(target=write_one, args=(sink, "child"))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    snapshot = asyncio.run(TokenSource(**place).freeze("r1"))
    assert {one.model_call_id for one in snapshot.entries} == {"parent", "child"}


def test_a_forked_child_lets_go_of_nothing_that_its_parent_opened(place):
    sink = TokenSink(**place)
    opened = weakref.ref(sink.connection)
    child = multiprocessing.get_context("fork").Process(target=lambda: os._exit(0 if opened() is not None else 1))
    child.start()
    child.join(60)
    assert child.exitcode == 0


def test_is_process_shared_tells_the_truth(place, tmp_path):
    assert not LineageResolver(**place).is_process_shared()
    assert LineageResolver(f"file://{tmp_path}", "run").is_process_shared()
    assert LineageResolver("s3://bucket/prefix", "run").is_process_shared()


async def test_two_hundred_cancelled_calls_leave_two_hundred_entries(faulty, place):
    store = faulty.connection.store
    store.gate = asyncio.Event()
    calls = [asyncio.create_task(faulty.put(make_entry(call=f"c{number}"))) for number in range(200)]
    await asyncio.sleep(0.05)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    store.gate.set()
    assert await faulty.drain()
    assert len((await TokenSource(**place).freeze("r1")).entries) == 200


async def test_a_large_entry_becomes_a_parent_off_the_event_loop(place, monkeypatch):
    made = []
    real = sinks.parent_of
    monkeypatch.setattr(sinks, "parent_of", lambda entry: made.append(threading.current_thread()) or real(entry))
    sink, resolver = TokenSink(**place), LineageResolver(**place)
    await sink.put(make_entry(prompt_token_ids=list(range(20_000))))
    assert made
    assert threading.main_thread() not in made
    found = await resolver.resolve("r1", request_after("hi"))
    assert len(found.match.cumulative_token_ids) == 20_002


async def test_an_entry_that_did_not_reach_the_store_is_no_parent(place, faulty):
    await faulty.put(make_entry(call="c0"))
    faulty.connection.store.error = Unavailable("down", kind="timeout")
    with pytest.raises(Unavailable):
        await faulty.put(make_entry(call="c1", text="lost"))
    assert (await LineageResolver(**place).resolve("r1", request_after("lost"))).match is None
