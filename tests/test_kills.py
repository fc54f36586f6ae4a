# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Processes that are killed or starved, and servers that go away: what was acknowledged is there, what was not shows.

A full disk is a limit on the size of files (``RLIMIT_FSIZE``), which the kernel enforces without root; ``ENOSPC``
itself is raised in place of ``fsync``.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
from pathlib import Path

import pytest

from gym_objstore import TokenSink, TokenSource, connection, staging, tokens
from gym_objstore.checking import check_rollout
from gym_objstore.errors import Retired, Unavailable
from gym_objstore.flow import run
from gym_objstore.index import read_index
from gym_objstore.keys import rollout_prefix
from gym_objstore.spill import Spill
from gym_objstore.store.opening import open_store
from gym_objstore.testing.faulty_proxy import FaultyProxy
from gym_objstore.testing.servers import make_bucket, seaweedfs
from gym_objstore.testing.staged_rollouts import staged_call
from tests import doomed
from tests.doomed import Child, large
from tests.entries import make_entry
from tests.places import place_of

RUN = "run-1"
PLACES = [
    pytest.param("file", 6, id="file"),
    pytest.param("seaweedfs", 3, id="seaweedfs"),
    pytest.param("file", 100, id="file-often", marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
    pytest.param("seaweedfs", 30, id="seaweedfs-often", marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
]


def store_at(place):
    return open_store(**{name: value for name, value in place.items() if name not in ("run_id", "spill_dir")})


def prefix_of(rollout):
    return rollout_prefix(tokens.FAMILY, RUN, rollout)


def moments(count, most):
    """Return some of the moments at which a process may die, the same in every run, early and late ones."""
    return sorted(random.Random(most).choices(range(most), k=count))


def check(store, rollout):
    """Return the kinds of what a full re-read of a rollout finds."""
    return {finding.kind for finding in run(check_rollout(rollout, prefix_of(rollout)), store).findings}


@pytest.mark.parametrize(("kind", "kills"), PLACES)
def test_a_writer_that_is_killed_anywhere_loses_nothing_that_was_acknowledged(kind, kills, request):
    place, died = place_of(kind, request), 0
    for number, moment in enumerate(moments(kills, 200 if kind == "file" else 70)):
        one = {**place, "url": f"{place['url']}/{number}"}
        writer = Child(doomed.write_rollouts, one, moment)
        died += writer.killed
        store = store_at(one)
        for what, rollout, said in writer.said:
            index = run(read_index(prefix_of(rollout)), store)
            match what:
                case "begin":
                    assert said in index.intents
                case "put":
                    assert said in index.entries
                case "mark":
                    assert {note.call for note in index.markers} == {said}
                case "stage":
                    assert [row.delta_len for row in run(staging.fetch(RUN, [said]), store)] == [4]
        for rollout in ("r0", "r1"):
            assert check(store, rollout) <= {"dangling_intent", "incomplete_marker"}
        again = Child(doomed.write_rollouts, one, 1_000_000)
        assert (again.killed, len(again.said)) == (False, 14), again.said
        assert check(store, "r0") == {"incomplete_marker"}
        store.close()
    assert died >= kills / 2


@pytest.mark.parametrize(("kind", "kills"), PLACES)
def test_a_trainer_that_is_killed_in_the_middle_of_a_drop_leaves_all_or_nothing(kind, kills, request):
    place, died = place_of(kind, request), 0
    for number, moment in enumerate(moments(kills, 60 if kind == "file" else 20)):
        one = {**place, "url": f"{place['url']}/{number}"}
        store = store_at(one)
        for rollout in ("r0", "r1"):
            for call in "abc":
                run(tokens.put_entry(RUN, make_entry(rollout, call)), store)
            run(tokens.put_entry(RUN, make_entry(rollout, "d"), [connection.announcement(tokens.FAMILY, RUN)]), store)
        trainer = Child(doomed.drop_rollouts, one, moment)
        died += trainer.killed
        frozen, *dropped = trainer.said
        assert all(answer for _, answer in dropped)
        for rollout, (snapshot_id, version) in frozen.items():
            try:
                seen = run(tokens.freeze(RUN, rollout), store)
                assert (seen.snapshot_id, len(seen.entries), seen.incomplete) == (snapshot_id, 4, False)
                assert rollout not in dict(dropped)
            except Retired:
                pass
            assert asyncio.run(drop(one, rollout, snapshot_id, version))
            assert run(read_index(prefix_of(rollout)), store).state == []
        store.close()
    assert died >= kills / 2


async def drop(place, rollout, snapshot_id, version):
    source = TokenSource(**place)
    dropped = await source.drop(rollout, snapshot_id=snapshot_id, version=version)
    await source.close()
    return dropped


@pytest.mark.parametrize(("kind", "kills"), PLACES)
def test_a_sweeper_that_is_killed_has_removed_nothing_that_is_needed(kind, kills, request):
    place, died = place_of(kind, request), 0
    for number, moment in enumerate(moments(kills, 24 if kind == "file" else 8)):
        one = {**place, "url": f"{place['url']}/{number}"}
        store = store_at(one)
        run(tokens.begin_call(RUN, "r0", "needed"), store)
        needed = run(staging.stage(RUN, staged_call("needed", rollout_id="r0")), store).key.text
        for call in "abcd":
            run(staging.stage(RUN, staged_call(call, rollout_id="r0")), store)
        died += Child(doomed.sweep_run, one, moment).killed
        assert len(run(staging.fetch(RUN, [needed]), store)) == 1
        assert check(store, "r0") == {"dangling_intent"}
        assert Child(doomed.sweep_run, one, 1_000_000).said[-1] == "swept"
        assert [meta.key for meta in store.scan("staged/")] == [f"staged/{RUN}/{needed.replace('/', '/rows/', 1)}"]
        store.close()
    assert died >= kills / 4


def test_a_store_that_goes_away_and_comes_back_under_its_writers(tmp_path):
    """What was acknowledged is there; what was not is marked or on disk, and the next process replays it."""
    access = {"accessKey": "writer", "secretKey": "writers-secret"}
    identities = [{"name": "writer", "credentials": [access], "actions": ["Admin"]}]
    (tmp_path / "server").mkdir()
    place = {
        "url": "s3://lasting/prefix",
        "run_id": RUN,
        "spill_dir": str(tmp_path / "spill"),
        "region": "us-east-1",
        "access_key_id": access["accessKey"],
        "secret_access_key": access["secretKey"],
        "retry_seconds": 0,
    }

    async def write(sink, rollout, calls):
        for call in calls:
            try:
                await sink.put(make_entry(rollout, call))
            except Unavailable:
                await sink.mark_incomplete(rollout, call)
            else:
                yield call

    async def write_all(calls):
        sink = TokenSink(**place, endpoint=proxy.endpoint)
        done = {rollout: [call async for call in write(sink, rollout, calls)] for rollout in ("r0", "r1")}
        kept = len(sink.connection.spill)
        replaying = sink.connection._replaying
        if replaying and proxy.target != gone:
            await replaying
        left = len(sink.connection.spill)
        await sink.close()
        return done, kept, left

    gone = "http://127.0.0.1:1"
    with FaultyProxy(gone) as proxy:
        with seaweedfs(tmp_path / "server", identities=identities) as server:
            make_bucket(server, "lasting")
            proxy.target = server.endpoint
            assert asyncio.run(write_all(["a", "b"]))[0] == {"r0": ["a", "b"], "r1": ["a", "b"]}
        proxy.target = gone
        done, kept, _ = asyncio.run(write_all(["c"]))
        assert (done, kept) == ({"r0": [], "r1": []}, 4)
        with seaweedfs(tmp_path / "server", identities=identities) as server:
            proxy.target = server.endpoint
            done, _, left = asyncio.run(write_all(["d"]))
            assert (done, left) == ({"r0": ["d"], "r1": ["d"]}, 0)
            store = store_at({**place, "endpoint": proxy.endpoint})
            for rollout in ("r0", "r1"):
                index = run(read_index(prefix_of(rollout)), store)
                assert sorted(index.entries) == ["a", "b", "c", "d"]
                assert check(store, rollout) == {"incomplete_marker"}
            store.close()


def test_files_that_may_not_grow_fail_what_is_too_large_and_nothing_else(tmp_path):
    place = {"url": f"file://{tmp_path}/store", "run_id": RUN, "spill_dir": str(tmp_path / "spill")}
    writer = Child(doomed.write_small_files, place)
    assert writer.said == ["done", "spill_failed", "done", "done", "done"]
    assert check(store_at(place), "r0") == {"incomplete_marker"}
    assert sorted(run(read_index(prefix_of("r0")), store_at(place)).entries) == ["large", "small"]


@pytest.mark.parametrize("spill_is_full_too", [False, True])
def test_a_full_disk_fails_the_write_at_once_and_leaves_no_part(tmp_path, monkeypatch, spill_is_full_too):
    place = {"url": f"file://{tmp_path}/store", "run_id": RUN, "spill_dir": str(tmp_path / "spill")}

    async def write(sink, call):
        await sink.begin_call("r0", call)
        with monkeypatch.context() as full:
            full.setattr(os, "fsync", no_room)
            with pytest.raises(Unavailable) as caught:
                await sink.put(make_entry("r0", call))
            if spill_is_full_too:
                with pytest.raises(Unavailable):
                    await sink.mark_incomplete("r0", call)
            await sink.close()
        return caught.value.kind

    def no_room(descriptor):
        where = Path(f"/proc/self/fd/{descriptor}").readlink()
        if "spill" not in str(where) or spill_is_full_too:
            raise OSError(errno.ENOSPC, "no room")

    kind = asyncio.run(write(TokenSink(**place), "a"))
    assert kind == ("spill_failed" if spill_is_full_too else "disk_full")
    assert check(store_at(place), "r0") == {"dangling_intent"}
    assert [path.name for path in (tmp_path / "store").rglob("*") if path.name.startswith("\N{SECTION SIGN}")] == []
    assert list((tmp_path / "spill").rglob("*.part")) == []
    assert len(Spill(tmp_path / "spill", place["url"])) == (0 if spill_is_full_too else 1)


@pytest.mark.parametrize("kind", ["file", "seaweedfs"])
def test_without_file_descriptors_a_write_fails_and_the_next_one_works(kind, request):
    place = {**place_of(kind, request), **({"retry_seconds": 0} if kind == "seaweedfs" else {})}
    before, during, _, mark_again, after = Child(doomed.write_without_descriptors, place).said
    assert (before, mark_again, after) == ("done", "done", "done")
    store = store_at(place)
    assert check(store, "r0") == {"incomplete_marker"}
    entries = run(read_index(prefix_of("r0")), store).entries
    assert entries.keys() >= {"before", "after"}
    assert ("during" in entries) >= (during == "done")
    store.close()


@pytest.mark.parametrize("spare", [32 << 20, 64 << 20, 256 << 20])
def test_a_reader_with_little_memory_fails_and_takes_nothing_sound_for_damaged(tmp_path, spare):
    place = {"url": f"file://{tmp_path}/store", "run_id": RUN, "spill_dir": str(tmp_path / "spill")}
    store = store_at(place)
    run(tokens.put_entry(RUN, make_entry("small"), [connection.announcement(tokens.FAMILY, RUN)]), store)
    for call in "abcd":
        run(tokens.put_entry(RUN, large("large", call, 2_000_000)), store)
    reader = Child(doomed.read_with_little_memory, place, spare)
    if reader.code == 0:  # orjson may also end the process, having been refused memory
        ((starved, fed),) = reader.said
        assert starved in ("MemoryError", "RuntimeError", (4, ()))
        assert fed == (4, ())


@pytest.mark.parametrize("kind", ["file", "seaweedfs"])
def test_components_that_were_used_before_a_fork_write_in_both_processes(kind, request):
    place = place_of(kind, request)
    assert Child(doomed.use_and_fork, place).said == ["done", "done"]
    store = store_at(place)
    assert sorted(run(read_index(prefix_of("r0")), store).entries) == ["before", "child", "parent"]
    store.close()


@pytest.mark.parametrize("kind", ["file", "seaweedfs"])
def test_a_loop_that_ends_under_its_writes_leaves_each_whole_or_announced(kind, request):
    place = place_of(kind, request)
    sink = TokenSink(**place)

    async def leave_in_the_middle():
        for number in range(20):
            await sink.begin_call("r0", f"c{number}")
        for number in range(20):
            asyncio.ensure_future(sink.put(make_entry("r0", f"c{number}")))  # noqa: RUF006 - nobody waits for it
        await asyncio.sleep(0)

    asyncio.run(leave_in_the_middle())
    store = store_at(place)
    found = check(store, "r0")
    assert found <= {"dangling_intent", "incomplete_marker"}
    asyncio.run(sink.put(make_entry("r1", "afterwards")))
    asyncio.run(sink.close())
    assert check(store, "r1") == set()
    store.close()


@pytest.mark.parametrize(("kind", "calls"), [("memory", 2000), ("seaweedfs", 200)])
def test_every_write_whose_call_was_cancelled_is_finished(kind, calls, request):
    place, chance = place_of(kind, request), random.Random(1)
    started = []

    async def put(sink, number):
        rollout = f"r{number % 20}"
        await sink.begin_call(rollout, f"c{number}")
        started.append(number)
        await sink.put(make_entry(rollout, f"c{number}"))

    async def cancel_most():
        sink = TokenSink(**place)
        tasks = [asyncio.create_task(put(sink, number)) for number in range(calls)]
        while len(started) < calls // 4:  # noqa: ASYNC110 - turns of the loop, not time
            await asyncio.sleep(0)
        for task in tasks:
            if chance.random() < 0.9:
                task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert await sink.drain(timeout=60)
        await sink.close()
        return sum(isinstance(one, asyncio.CancelledError) for one in ended)

    assert asyncio.run(cancel_most()) > calls / 3
    store = store_at(place)
    landed = set()
    for rollout in (f"r{number}" for number in range(20)):
        assert check(store, rollout) <= {"dangling_intent"}
        landed |= run(read_index(prefix_of(rollout)), store).entries.keys()
    assert landed >= {f"c{number}" for number in started}
    store.close()
