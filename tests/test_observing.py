# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The hook: what it is told of operations, losses, conflicts, fences and spills, and that it can break nothing."""

from __future__ import annotations

import dataclasses
import logging
import re
from pathlib import Path

import pytest

from gym_objstore import CaptureLedger, CaptureStore, TokenSink, TokenSource, connection
from gym_objstore.errors import Conflict, Retired, Unavailable
from gym_objstore.observing import Event, Operation, Retry, SpillDepth, hooks, observe, place_of
from gym_objstore.spill import Spill
from gym_objstore.testing.wrapping import WrappedStore
from gym_objstore.tokens import mark
from tests.entries import make_entry
from tests.places import place_of as component_place
from tests.test_ledger import ROLLOUT, commit
from tests.test_sinks import Faulty, settled


@pytest.fixture
def place(request):
    return component_place("memory", request)


@pytest.fixture
def told():
    values: list[object] = []
    remove = observe(values.append)
    yield values
    remove()


def events(told) -> list[tuple[str, str, str, str, str]]:
    return [
        (one.name, one.family, one.rollout_id, one.model_call_id, one.kind) for one in told if isinstance(one, Event)
    ]


def test_a_key_is_counted_by_family_and_kind_only():
    assert place_of("tokens/run-1/r1/entries/c1.full.none.0.e1") == ("tokens", "entries")
    assert place_of("tokens/run-1/!run/writer") == ("tokens", "run")
    assert place_of("tokens/run-1/r1/packs/p") == ("tokens", "packs")
    assert place_of("ledger/run-1/r1/") == ("ledger", "")
    assert place_of("staged/") == ("staged", "")
    assert place_of("") == ("other", "")
    assert place_of("my/own/object") == ("other", "")
    assert place_of("my/own/object/in/depth") == ("other", "other")
    assert place_of("tokens/run-1/r1/my-secret/x") == ("tokens", "other")


async def test_each_operation_of_a_component_is_told_once_and_frozen(place, told):
    sink = TokenSink(**place)
    await sink.begin_call("r1", "c1")
    found = {(one.verb, place_of(one.key), one.outcome) for one in told if isinstance(one, Operation)}
    assert found == {
        ("head", ("tokens", "fences"), "ok"),
        ("put", ("tokens", "intents"), "ok"),
        ("put", ("tokens", "run"), "ok"),
    }
    assert len(told) == 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        told[0].key = ""
    await sink.close()


async def test_bytes_and_objects_are_those_of_the_bodies_and_listings(place, told):
    store = TokenSink(**place).connection.store
    store.put("tokens/a/b/entries/c", [b"12", memoryview(b"345")])
    await store.put_async("tokens/a/b/entries/d", b"1234567")
    assert await store.get_async("tokens/a/b/entries/c") == b"12345"
    assert store.get_range("tokens/a/b/entries/d", 2, 3) == b"345"
    assert len(list(store.scan("tokens/"))) == 2
    assert [name async for name in store.folders_async("tokens/")] == ["a"]
    store.delete(["tokens/a/b/entries/c", "tokens/a/b/entries/d"])
    assert [(one.verb, one.bytes, one.objects) for one in told] == [
        ("put", 5, 1),
        ("put", 7, 1),
        ("get", 5, 1),
        ("get", 3, 1),
        ("list", 0, 2),
        ("list", 0, 1),
        ("delete", 0, 2),
    ]
    assert all(one.seconds > 0 for one in told)


def test_a_failure_is_told_by_its_kind_and_moved_no_bytes(place, told):
    sink = TokenSink(**place)
    store = type(sink.connection.store)(Broken(sink.connection.store))
    with pytest.raises(Unavailable):
        store.put("tokens/a/b/entries/c", b"12345")
    with pytest.raises(ZeroDivisionError):
        store.get("tokens/a/b/entries/c")
    assert [(one.verb, one.outcome, one.bytes) for one in told] == [("put", "timeout", 0), ("get", "other", 0)]


class Broken(WrappedStore):
    def put(self, key, body):
        raise Unavailable("no answer", kind="timeout")

    def get(self, key):
        raise ZeroDivisionError


def test_a_listing_that_its_reader_leaves_is_no_failure(place, told):
    store = TokenSink(**place).connection.store
    store.put("tokens/a/b/entries/c", b"1")
    listing = store.scan("tokens/")
    next(listing)
    listing.close()
    assert (told[-1].verb, told[-1].outcome, told[-1].objects) == ("list", "ok", 1)


def test_each_repeated_attempt_is_told_at_once(told):
    from gym_objstore.store.retrying import RetryingStore

    class Down(WrappedStore):
        def put(self, key, body):
            raise Unavailable("no answer", kind="timeout")

    store = RetryingStore(Down(None), seconds=0.2, limit=1)
    with pytest.raises(Unavailable):
        store.put("tokens/a/b/entries/c", b"")
    assert told
    assert {(type(one), one.verb, one.key, one.kind) for one in told} == {
        (Retry, "put", "tokens/a/b/entries/c", "timeout")
    }


async def test_a_hook_that_fails_is_logged_once_and_fails_nothing(place, caplog):
    def broken(value):
        raise RuntimeError("a bug in a hook")

    seen: list[object] = []
    removals = [observe(broken), observe(seen.append)]
    sink = TokenSink(**place)
    await sink.put(make_entry())
    for remove in removals:
        remove()
        remove()
    await sink.put(make_entry(call="c2"))
    assert len(seen) == 3
    assert [one.getMessage().split(",")[0] for one in caplog.records] == ["a hook failed"]
    assert hooks == []
    await sink.close()


async def test_without_a_hook_the_inner_stores_own_coroutine_is_returned(place):
    store = TokenSink(**place).connection.store
    operation = store.put_async("tokens/a/b/entries/c", b"1")
    assert operation.__qualname__ == "MemoryStore.put_async"
    await operation


async def test_a_marked_call_is_a_loss(place, told):
    sink = TokenSink(**place)
    await sink.mark_incomplete("r1", "c1")
    CaptureStore(**place).mark_incomplete("r2", "c2", reason="a client's own text")
    ledger = CaptureLedger(**place)
    await ledger.record_failure("r3", "c3", "worker_capture_failed")
    await ledger.record_failure("r3", "c4", "a client's own text")
    assert events(told) == [
        ("loss", "tokens", "r1", "c1", "incomplete_marker"),
        ("loss", "captures", "r2", "c2", "incomplete_marker"),
        ("loss", "ledger", "r3", "c3", "worker_capture_failed"),
        ("loss", "ledger", "r3", "c4", "other"),
    ]
    await sink.close()


async def test_a_freeze_tells_conflicts_and_the_losses_that_nobody_marked(place, told):
    sink = TokenSink(**place)
    await sink.put(make_entry())
    await sink.put(make_entry(text="something else"))
    await sink.begin_call("r1", "c2")
    await sink.mark_incomplete("r1", "c3")
    await TokenSource(**place).freeze("r1")
    assert sorted(events(told)) == [
        ("conflict", "tokens", "r1", "c1", ""),
        ("loss", "tokens", "r1", "c2", "dangling_intent"),
        ("loss", "tokens", "r1", "c3", "incomplete_marker"),
    ]
    await sink.close()


async def test_a_second_ledger_row_is_a_conflict(place, told):
    ledger = CaptureLedger(**place)
    await ledger.record(commit("c1"))
    with pytest.raises(Conflict):
        await ledger.record(commit("c1", staging_key="another"))
    assert events(told) == [("conflict", "ledger", ROLLOUT, "", "ledger_row")]


async def test_what_meets_a_fence_is_told_as_refused_or_as_discarded(place, told, caplog):
    sink, ledger = TokenSink(**place), CaptureLedger(**place)
    await TokenSource(**place).retire(["r1"])
    await ledger.retire([ROLLOUT])
    with caplog.at_level(logging.INFO, "gym_objstore"):
        with pytest.raises(Retired):
            await sink.put(make_entry())
        await ledger.record(commit("c1"))
        await ledger.record_failure(ROLLOUT, "c2", "worker_capture_failed")
    assert events(told) == [
        ("fence_hit", "tokens", "r1", "", "retired"),
        ("late_write_discarded", "ledger", ROLLOUT, "c1", ""),
        ("late_write_discarded", "ledger", ROLLOUT, "c2", ""),
    ]
    assert [one.levelname for one in caplog.records] == ["INFO", "WARNING", "WARNING"]
    await sink.close()


async def test_a_log_line_of_an_event_has_its_fields(place, caplog):
    sink = TokenSink(**place)
    await sink.mark_incomplete("r1", "c1")
    (line,) = caplog.records
    assert line.getMessage() == "a call is lost, rollout_id=r1, model_call_id=c1, kind=incomplete_marker"
    fields = ("event", "family", "rollout_id", "model_call_id", "key", "kind", "detail")
    assert [getattr(line, name) for name in fields] == ["loss", "tokens", "r1", "c1", "", "incomplete_marker", ""]
    await sink.close()


async def test_a_spill_is_told_with_its_depth_and_so_is_its_end(place, told, monkeypatch):
    monkeypatch.setattr(connection, "_REPLAY_PAUSE", 0.01)
    sink = TokenSink(**place)
    await sink.put(make_entry())
    sink.connection.store = Faulty(sink.connection.store)
    sink.connection.store.error = Unavailable("down", kind="unreachable")
    told.clear()
    with pytest.raises(Unavailable):
        await sink.put(make_entry(call="c2"))
    folder = str(sink.connection.spill.folder)
    assert events(told) == [("spilled", "tokens", "r1", "", "")]
    assert [one for one in told if isinstance(one, SpillDepth)][:1] == [SpillDepth(folder, 1)]
    sink.connection.store.error = None
    await settled(sink)
    await sink.close()
    assert ("replayed", "tokens", "r1", "", "") in events(told)


async def test_the_depth_is_told_as_zero_when_nothing_waits_any_more(place, told, monkeypatch):
    monkeypatch.setattr(connection, "_REPLAY_PAUSE", 0.001)
    sink = TokenSink(**place)
    Spill(place["spill_dir"], sink.connection.store.url).keep(mark("run-1", "r1", "c1", {"at": 1.0}))
    await sink.connection._replay()
    depths = [one.writes for one in told if isinstance(one, SpillDepth)]
    assert (depths[0], depths[-1]) == (1, 0)
    await sink.close()


async def test_a_write_that_neither_store_nor_disk_takes_is_told(place, told, monkeypatch):
    def full(self, put):
        raise Unavailable("the spill is full", kind="spill_failed")

    monkeypatch.setattr(Spill, "keep", full)
    sink = TokenSink(**place)
    await sink.mark_incomplete("r1", "c1")
    assert [one[0] for one in events(told)] == ["loss", "spill_failed"]
    await sink.close()


async def test_hostile_ids_stay_on_one_line_that_every_exporter_can_encode(place, told, caplog):
    hostile = "r1\nERROR forged \x1b[2J"
    sink = TokenSink(**place)
    await sink.mark_incomplete(hostile, "c1")
    (line,) = caplog.records
    assert line.getMessage().startswith(r"a call is lost, rollout_id=r1\nERROR forged \x1b[2J, model_call_id=c1")
    assert line.rollout_id == r"r1\nERROR forged \x1b[2J"
    assert Event("loss", "\ud800").fields["rollout_id"] == r"\ud800"
    assert [one.rollout_id for one in told if isinstance(one, Event)] == [hostile]
    await sink.close()


def test_every_log_line_about_records_has_fields():
    """What is logged of a call, a row or a capture goes through ``report``; the rest is about processes."""
    about_processes = {"observing.py", "observing_logging.py", "proxy.py", "proxy_forwarding.py", "captures.py"}
    root = Path(__file__).parents[1]
    loose = [
        f"{path.name}: {line.strip()}"
        for top in ("gym_objstore", "adapters")
        for path in sorted((root / top).rglob("*.py"))
        if path.name not in about_processes
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"_?log(?:ger)?\.(?:warning|error|exception|log)\(", line)
    ]
    assert loose == [
        f"capture_calls.py: _log.warning({said})"
        for said in (
            '"nothing was ever captured here, url=%s, run_id=%s: %s", *where, error',
            '"a model call failed after its client had left, error=%s", type(error).__name__',
        )
    ]
