# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The end of a run: nothing of it is left, and before that no reader takes a part of it for the whole."""

from __future__ import annotations

import itertools

import pytest

from gym_objstore.flow import run
from gym_objstore.keys import drop_key, rollout_prefix, staged_key
from gym_objstore.names import DropName
from gym_objstore.run_keys import closed_key
from gym_objstore.run_removal import has_expired, remove_run, spares
from gym_objstore.runs import close_run, create_run
from gym_objstore.staging import parse_staging_key
from gym_objstore.store.memory import MemoryStore
from gym_objstore.store.opening import open_store
from gym_objstore.testing.counting import CountingStore
from tests.finished import RUN, finish
from tests.places import place_of
from tests.synthetic import SyntheticStore, peak_of
from tests.whole_run import Crash, Crashing, contents, make_run, partial, views

DAY = 86_400.0


def remove_all(store, run_id=RUN):
    return run(remove_run(run_id, doomed=lambda _: True), store)


@pytest.mark.parametrize("kind", ["memory", "file", "seaweedfs"])
def test_nothing_of_a_run_is_left_and_its_neighbour_is_not_touched(kind, request):
    place = place_of(kind, request)
    for name in ("run_id", "spill_dir"):
        del place[name]
    store = open_store(place.pop("url"), **place)
    finish(store, "r1", run_id="run-10")
    neighbour = contents(store)
    make_run(store)
    removed = len(contents(store)) - len(neighbour)
    assert remove_all(store) >= removed
    assert contents(store) == neighbour
    assert remove_all(store) == 0
    assert contents(store) == neighbour
    store.close()


def test_a_removal_that_ends_at_any_write_shows_no_part_as_the_whole_and_is_finished_by_repeating():
    whole = views(make_run())
    for writes in itertools.count():
        store = make_run()
        try:
            remove_all(Crashing(store, writes))
        except Crash:
            assert not partial(whole, views(store)), f"after {writes} writes"
            assert any(f"/{RUN}/" in meta.key for meta in store.scan(""))
            assert writes == 0 or store.head(closed_key(RUN)) or not views(store)["good"].get("receipts")
            remove_all(store)
            assert contents(store) == {}, f"after {writes} writes"
        else:
            break
    assert writes > 30


def test_a_drop_that_never_ended_is_no_guard():
    whole = views(make_run())
    for writes in itertools.count():
        store = make_run()
        store.put(drop_key(rollout_prefix("tokens", RUN, "good"), DropName("a" * 64, "b" * 16)), b"{}")
        try:
            remove_all(Crashing(store, writes))
        except Crash:
            assert not partial(whole, views(store)), f"after {writes} writes"
        else:
            break
    assert writes > 30


def test_without_guards_a_part_would_be_taken_for_the_whole(monkeypatch):
    monkeypatch.setattr("gym_objstore.run_removal.guard", lambda *_: None)
    whole, wrong = views(make_run()), []
    for writes in range(0, 40, 3):
        store = make_run()
        try:
            remove_all(Crashing(store, writes))
        except Crash:
            wrong += partial(whole, views(store))
    assert wrong


def test_what_checkpoints_list_stays_with_the_runs_own_objects():
    store = MemoryStore()
    run(create_run(RUN, {}), store)
    keys, others = finish(store, "r1"), finish(store, "r2")
    spared = spares({keys[0], "r2"})
    run(remove_run(RUN, doomed=lambda meta: not spared(meta)), store)
    left = {meta.key for meta in store.scan("")}
    assert {key for key in left if key.startswith("staged/")} == {
        staged_key(RUN, parse_staging_key(key)) for key in (keys[0], *others)
    }
    assert closed_key(RUN) in left
    assert not [key for key in left if key.startswith((f"ledger/{RUN}/r1", f"manifests/{RUN}/r1"))]
    assert [key for key in left if key.startswith(f"manifests/{RUN}/r2/receipts/")]


def test_a_rollout_keeps_its_fence_while_it_keeps_anything_else():
    store = make_run()
    run(remove_run(RUN, doomed=lambda meta: "/late/" not in meta.key), store)
    kept = sorted(meta.key.split("/", 3)[3].split("/")[0] for meta in store.scan(f"tokens/{RUN}/late/"))
    assert kept == ["entries", "fences"]
    assert not list(store.scan(f"tokens/{RUN}/good/"))


def test_a_run_expires_after_its_last_write_unless_it_was_closed():
    store = SyntheticStore(3_000, modified=100 * DAY)
    assert run(has_expired(RUN, before=99 * DAY), store) is False
    assert run(has_expired(RUN, before=100 * DAY), store) is True
    closed = make_run()
    run(close_run(RUN), closed)
    at = closed.head(closed_key(RUN)).modified
    finish(closed, "later")
    assert run(has_expired(RUN, before=at - 1.0), closed) is False
    assert run(has_expired(RUN, before=at), closed) is True


def test_a_run_of_which_nothing_is_there_has_not_expired():
    assert run(has_expired(RUN, before=1e12), MemoryStore()) is False


def test_one_listing_tells_that_a_large_run_lives():
    store = CountingStore(SyntheticStore(300_000, modified=100 * DAY))
    assert run(has_expired(RUN, before=99 * DAY), store) is False
    assert store.costs.requests == {"HEAD": 1, "LIST": 2}


def test_memory_hardly_grows_with_the_run():
    def removed(objects):
        assert remove_all(SyntheticStore(objects)) >= objects

    small, large = peak_of(lambda: removed(6_000)), peak_of(lambda: removed(60_000))
    assert large - small < 3 << 20
