# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A copied run is the run, and before it is whole no reader takes a part of it for the whole."""

from __future__ import annotations

import itertools
import threading

import pytest

from gym_objstore import tokens
from gym_objstore.copying import copy_run
from gym_objstore.errors import Conflict, NotFound, Retired
from gym_objstore.flow import run
from gym_objstore.retirement import retire
from gym_objstore.runs import close_run, create_run, require_descriptor
from gym_objstore.store.joined_store import JoinedStore
from gym_objstore.store.memory import MemoryStore
from gym_objstore.store.opening import open_store
from gym_objstore.testing.wrapping import WrappedStore
from gym_objstore.tokens import put_entry
from tests.entries import make_entry
from tests.finished import RUN
from tests.places import place_of
from tests.synthetic import SyntheticStore, peak_of
from tests.whole_run import Crash, Crashing, contents, make_run, partial, views


@pytest.fixture
def source():
    return make_run()


def copy(source, target, to=RUN):
    return run(copy_run(RUN, to), JoinedStore({"source": source, "target": target}))


@pytest.mark.parametrize("kind", ["memory", "file", "seaweedfs"])
def test_a_copy_is_the_run_and_repeating_it_copies_nothing(source, kind, request):
    place = place_of(kind, request)
    for name in ("run_id", "spill_dir"):
        del place[name]
    target = open_store(place.pop("url"), **place)
    first = copy(source, target)
    assert (first.failed, first.present) == (0, 0)
    assert contents(target) == contents(source)
    again = copy(source, target)
    assert (again.objects, again.bytes, again.failed) == (0, 0, 0)
    assert again.present == first.objects
    assert contents(target) == contents(source)
    target.close()


def test_a_copy_may_have_another_run_id(source):
    target = MemoryStore()
    run(close_run(RUN), source)
    copy(source, target, "run-2")
    assert views(target, "run-2") == views(source)
    with pytest.raises(Retired, match="closed"):
        run(require_descriptor("run-2", {"seed": 1}), target)
    assert not list(target.scan(f"tokens/{RUN}/"))


def test_a_copy_that_ends_at_any_write_shows_no_part_as_the_whole_and_is_finished_by_repeating(source):
    whole, writes = views(source), 0
    for writes in itertools.count():
        target = MemoryStore()
        try:
            copy(source, Crashing(target, writes))
        except Crash:
            assert not partial(whole, views(target)), f"after {writes} writes"
            copy(source, target)
            assert contents(target) == contents(source), f"after {writes} writes"
        else:
            break
    assert writes > 30


def test_a_copy_of_a_copy_that_has_not_ended_shows_no_part_as_the_whole(source):
    whole, hidden = views(source), 0
    for writes in itertools.count():
        middle, target = MemoryStore(), MemoryStore()
        try:
            copy(source, Crashing(middle, writes))
        except Crash:
            for _ in range(2):
                told = copy(middle, target)
                assert not partial(whole, views(target)), f"after {writes} writes"
            hidden += told.failed > 0
            copy(source, middle)
            assert copy(middle, target).failed == 0
            assert contents(target) == contents(source), f"after {writes} writes"
        else:
            break
    assert hidden > 10


def test_what_readers_see_at_any_moment_is_the_whole_or_nothing(source):
    whole, target, wrong = views(source), MemoryStore(), []

    class Watching(WrappedStore):
        def __init__(self, store):
            super().__init__(store)
            self.lock = threading.Lock()

        def put(self, key, body):
            with self.lock:
                super().put(key, body)
                wrong.extend(partial(whole, views(self.store)))

    copy(source, Watching(target))
    assert not wrong


def test_without_guards_a_part_would_be_taken_for_the_whole(source, monkeypatch):
    monkeypatch.setattr("gym_objstore.copying.guard", lambda *_: None)
    whole, wrong = views(source), []
    for writes in range(0, 60, 3):
        target = MemoryStore()
        try:
            copy(source, Crashing(target, writes))
        except Crash:
            wrong += partial(whole, views(target))
    assert wrong


def damage(store, prefix):
    key = next(meta.key for meta in store.scan(prefix) if "fences" not in meta.key)
    body = store.get(key)
    store.put(key, bytes([body[0] ^ 1]) + body[1:])
    return key


@pytest.mark.parametrize(
    ("prefix", "what"),
    [
        (f"tokens/{RUN}/good/entries/", "tokens"),
        (f"ledger/{RUN}/good/rows/", "ledger"),
        (f"captures/{RUN}/good/records/", "captures"),
        (f"staged/{RUN}/good/rows/", "ledger"),
        (f"manifests/{RUN}/good/receipts/", "receipts"),
    ],
)
def test_what_is_damaged_is_named_and_its_rollout_stays_hidden(source, prefix, what):
    whole = views(source)
    key, target = damage(source, prefix), MemoryStore()
    copied = copy(source, target)
    assert [one.key for one in copied.failures if one.key == key] == [key]
    now = views(target)
    assert not partial(whole, now)
    seen = now["good"][what]
    assert seen in ("Retired", ()) or seen[1] is True
    assert now["marked"] == whole["marked"]


def test_a_rollout_that_is_retired_meanwhile_stays_hidden_and_is_retired_by_repeating(source):
    class Retiring(WrappedStore):
        retired = False

        def get(self, key):
            if "/good/entries/" in key and not self.retired:
                self.retired = True
                run(retire(tokens.FAMILY, RUN, ["good"]), self.store)
            return super().get(key)

    target = MemoryStore()
    assert copy(Retiring(source), target).failed > 0
    assert views(target)["good"]["tokens"] == "Retired"
    assert copy(source, target).failed == 0
    assert target.get(f"tokens/{RUN}/good/fences/tombstone") == source.get(f"tokens/{RUN}/good/fences/tombstone")


def test_a_rollout_that_is_written_to_meanwhile_stays_hidden_until_it_is_copied_whole(source):
    class Growing(WrappedStore):
        grown = False

        def get(self, key):
            found = super().get(key)
            if "/good/entries/" in key and not self.grown:
                self.grown = True
                run(put_entry(RUN, make_entry("good", "c9")), self.store)
            return found

    target = MemoryStore()
    copied = copy(Growing(source), target)
    assert [one.key for one in copied.failures] == [f"tokens/{RUN}/good/"]
    assert views(target)["good"]["tokens"] == "Retired"
    assert copy(source, target).failed == 0
    assert views(target) == views(source)


def test_a_rollout_that_the_source_lost_stays_hidden(source):
    guarded, writes = [], 0
    while not guarded:
        target, writes = MemoryStore(), writes + 1
        with pytest.raises(Crash):
            copy(source, Crashing(target, writes))
        guarded = [meta.key for meta in target.scan(f"captures/{RUN}/good/markers/")]
    source.delete([meta.key for meta in source.scan("captures/")])
    copy(source, target)
    assert [meta.key for meta in target.scan(f"captures/{RUN}/good/markers/")] == guarded


def test_a_copy_into_a_run_with_other_settings_is_refused_before_anything_changes(source):
    target = MemoryStore()
    run(create_run(RUN, {"seed": 2}), target)
    before = contents(target)
    with pytest.raises(Conflict, match="other settings"):
        copy(source, target)
    assert contents(target) == before


def test_drop_intents_stay_behind(source):
    source.put(f"tokens/{RUN}/good/fences/drop.{64 * 'a'}.{16 * 'b'}", b"{}")
    target = MemoryStore()
    assert copy(source, target).failed == 0
    assert not [meta.key for meta in target.scan("") if "drop." in meta.key]


def test_a_tombstone_of_the_copy_itself_stays(source):
    target = MemoryStore()
    run(retire(tokens.FAMILY, RUN, ["good"]), target)
    copy(source, target)
    assert views(target)["good"]["tokens"] == "Retired"


def test_bodies_are_copied_in_portions():
    from gym_objstore.copying import PORTION_BYTES, _portions
    from gym_objstore.store import Meta

    metas = [Meta(str(n), PORTION_BYTES // 2, 0.0) for n in range(5)]
    assert [len(one) for one in _portions(metas)] == [2, 2, 1]
    assert [len(one) for one in _portions([Meta("big", 5 * PORTION_BYTES, 0.0)])] == [1]
    assert [len(one) for one in _portions([Meta(str(n), 1, 0.0) for n in range(130)])] == [64, 64, 2]


def test_nothing_is_there_to_copy():
    target = MemoryStore()
    assert copy(MemoryStore(), target).objects == 0
    assert contents(target) == {}
    with pytest.raises(NotFound):
        run(require_descriptor(RUN, {}), target)


def test_memory_hardly_grows_with_the_run():
    def copied(objects):
        assert copy(SyntheticStore(objects), SyntheticStore(objects)).present == objects

    small, large = peak_of(lambda: copied(6_000)), peak_of(lambda: copied(60_000))
    assert large - small < 4 << 20
