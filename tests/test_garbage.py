# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What may go by a policy, and that only what was reported and still may go goes."""

from __future__ import annotations

import time

import pytest

from gym_objstore import tokens
from gym_objstore.errors import Denied
from gym_objstore.flow import run
from gym_objstore.garbage import Policy, find_garbage, named, remove_garbage
from gym_objstore.retirement import retire
from gym_objstore.store.marks import Marks
from gym_objstore.store.memory import MemoryStore
from gym_objstore.store.opening import open_store
from gym_objstore.testing.wrapping import WrappedStore
from gym_objstore.tokens import begin_call
from tests.finished import RUN, finish, stage_call
from tests.places import place_of
from tests.whole_run import contents, make_run

LATER = time.time() + 1_000_000.0
SWEEP = Policy(grace=3600.0)
EXPIRY = Policy(grace=3600.0, expire_after=7200.0)


def found_in(store, policy=SWEEP, *, now=LATER, kept=tuple):
    found = []
    run(find_garbage(RUN, policy, found.extend, now=now, kept=kept), store)
    return sorted(found, key=lambda one: one.key)


def removed_of(store, reported, policy=SWEEP, *, now=LATER, kept=tuple):
    keys = Marks()
    for one in reported:
        keys.add(named(one.reason, one.key))
    return run(remove_garbage(RUN, policy, keys, now=now, kept=kept), store)


@pytest.mark.parametrize("kind", ["memory", "file", "seaweedfs"])
def test_what_was_found_goes_and_nothing_else(kind, request):
    place = place_of(kind, request)
    for name in ("run_id", "spill_dir"):
        del place[name]
    store = open_store(place.pop("url"), **place)
    make_run(store)
    stage_call(store, "c9", rollout_id="abandoned")
    before = contents(store)
    found = found_in(store)
    assert [(one.reason, one.key.split("/")[0]) for one in found] == [("orphan", "staged"), ("late_write", "tokens")]
    assert contents(store) == before
    assert removed_of(store, found) == 2
    assert before.keys() - contents(store).keys() == {one.key for one in found}
    assert removed_of(store, found) == 0
    store.close()


def test_what_was_not_reported_stays():
    store = MemoryStore()
    stage_call(store, "c0")
    found = found_in(store)
    stage_call(store, "c1")
    assert removed_of(store, found) == 1
    assert [one.key.split("/")[-1].split(".")[0] for one in found_in(store)] == ["c1"]


def test_what_somebody_needs_again_stays():
    store = MemoryStore()
    _, key = stage_call(store, "c0")
    found = found_in(store)
    run(begin_call(RUN, "rollout-1", "c0"), store)
    assert removed_of(store, found) == 0
    run(retire(tokens.FAMILY, RUN, ["rollout-1"]), store)
    assert removed_of(store, found, kept=lambda: {key}) == 0
    assert removed_of(store, found, now=time.time()) == 0
    assert removed_of(store, found) == 1


def test_a_reference_that_cannot_be_read_any_more_stops_the_removal():
    store = MemoryStore()
    stage_call(store, "c0")
    found = found_in(store)

    class Refusing(WrappedStore):
        def scan(self, prefix):
            if prefix.startswith("manifests/"):
                raise Denied("no permission to list", key=prefix)
            return super().scan(prefix)

    with pytest.raises(Denied, match="nothing is swept"):
        removed_of(Refusing(store), found)
    assert len(found_in(store)) == 1


def test_an_expired_run_goes_whole():
    store = make_run()
    found = found_in(store, EXPIRY)
    assert {one.key for one in found} == set(contents(store))
    assert {one.reason for one in found} == {"expired"}
    removed_of(store, found, EXPIRY)
    assert contents(store) == {}


def test_a_run_that_is_written_to_again_does_not_go():
    store = make_run()
    found, now = found_in(store, EXPIRY), time.time()
    finish(store, "new")
    before = contents(store)
    assert removed_of(store, found, EXPIRY, now=now + 7000.0) == 0
    assert contents(store) == before


def test_captures_of_an_expired_run_may_stay():
    store = make_run()
    policy = EXPIRY._replace(keep_captures=True)
    captured = {key for key in contents(store) if key.startswith("captures/")}
    removed_of(store, found_in(store, policy), policy)
    left = set(contents(store))
    assert captured <= left
    assert {key.split("/")[2] for key in left - captured} == {"!run"}
    assert found_in(store, policy) == []


def test_rows_that_a_checkpoint_lists_outlive_their_run():
    store = MemoryStore()
    keys = finish(store, "r1")
    found = found_in(store, EXPIRY, kept=lambda: {keys[0]})
    assert not [one for one in found if one.key.endswith(keys[0].split("/")[1])]
    everything = found_in(store, EXPIRY)
    removed_of(store, everything, EXPIRY, kept=lambda: {keys[0]})
    assert [key for key in contents(store) if key.startswith("staged/")] == [f"staged/{RUN}/r1/rows/{keys[0][3:]}"]


def test_checkpoints_are_read_after_the_store():
    said = []

    class Telling(WrappedStore):
        def scan(self, prefix):
            said.append(prefix.split("/")[0])
            return super().scan(prefix)

    store = MemoryStore()
    stage_call(store, "c0")
    found_in(Telling(store), kept=lambda: said.append("checkpoints") or ())
    assert said == ["staged", "tokens", "ledger", "manifests", "staged", "checkpoints"]
