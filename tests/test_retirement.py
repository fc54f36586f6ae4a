# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""drop, retire and delete: what each removes, what it keeps, and how it is finished after a crash."""

from __future__ import annotations

import contextlib

import pytest

from gym_objstore.errors import NotFound, Retired
from gym_objstore.flow import Delete, perform, run
from gym_objstore.retirement import Claim, Removal, delete_rollouts, drop, retire
from gym_objstore.store.memory import MemoryStore
from gym_objstore.tokens import begin_call, freeze, put_entry
from tests.entries import make_entry

RUN, ROLLOUT, PREFIX = "run", "r1", "tokens/run/r1/"
TOMBSTONE = f"{PREFIX}fences/tombstone"
FAMILY = "tokens"


@pytest.fixture
def store():
    found = MemoryStore()
    run(begin_call(RUN, ROLLOUT, "c1"), found)
    run(put_entry(RUN, make_entry()), found)
    return found


def claim(store, consumer="0" * 16, **changes) -> Claim:
    snapshot = run(freeze(RUN, ROLLOUT), store)
    return Claim(PREFIX, snapshot.snapshot_id, snapshot.version, consumer)._replace(**changes)


def keys(store) -> list[str]:
    return sorted(meta.key for meta in store.scan(PREFIX))


def play_until(flow, store, steps: int) -> None:
    """Play the first operations of a flow and then crash."""
    answer = None
    for _ in range(steps):
        answer = perform(flow.send(answer), store)


def test_a_dropped_rollout_leaves_its_tombstone_and_nothing_else(store):
    assert run(drop(claim(store)), store)
    assert keys(store) == [TOMBSTONE]


@pytest.mark.parametrize("changes", [{"version": 3}, {"snapshot_id": "ab" * 32}])
def test_another_snapshot_or_version_is_refused_and_everything_kept(store, changes):
    before = keys(store)
    assert not run(drop(claim(store, **changes)), store)
    assert keys(store) == before


def test_a_later_write_makes_the_drop_fail(store):
    stale = claim(store)
    run(put_entry(RUN, make_entry(call="c2")), store)
    assert not run(drop(stale), store)
    assert len(run(freeze(RUN, ROLLOUT), store).entries) == 2


@pytest.mark.parametrize("steps", range(1, 9))
def test_a_drop_that_crashed_anywhere_is_finished_by_another_consumer(store, steps):
    wanted = claim(store)
    with contextlib.suppress(StopIteration):
        play_until(drop(wanted), store, steps)
    assert run(drop(wanted._replace(consumer="1" * 16)), store)
    assert [key for key in keys(store) if "/fences/drop." not in key] == [TOMBSTONE]


def test_a_half_deleted_rollout_is_behind_the_fence(store):
    play_until(drop(claim(store)), store, 5)
    perform(Delete((keys(store)[0],)), store)
    with pytest.raises(Retired):
        run(freeze(RUN, ROLLOUT), store)


def test_finishing_a_drop_deletes_nothing_that_came_later(store):
    wanted = claim(store)
    play_until(drop(wanted), store, 5)
    with pytest.raises(Retired):
        run(put_entry(RUN, make_entry(call="late")), store)
    assert run(drop(wanted._replace(consumer="1" * 16)), store)
    assert [key for key in keys(store) if "/entries/late." in key]


def test_a_drop_intent_for_another_snapshot_stops_a_drop(store):
    play_until(drop(claim(store, consumer="a" * 16)), store, 2)
    run(put_entry(RUN, make_entry(call="c2")), store)
    assert not run(drop(claim(store, consumer="b" * 16)), store)
    assert len(run(freeze(RUN, ROLLOUT), store).entries) == 2


def test_a_drop_after_a_retire_is_refused(store):
    wanted = claim(store)
    run(retire(FAMILY, RUN, [ROLLOUT]), store)
    assert not run(drop(wanted), store)


def test_an_empty_snapshot_can_be_dropped_to_fence_its_rollout(store):
    run(drop(Claim("tokens/run/r2/", *_empty(store), "0" * 16)), store)
    with pytest.raises(Retired):
        run(put_entry(RUN, make_entry("r2")), store)


def _empty(store):
    snapshot = run(freeze(RUN, "r2"), _announced(store))
    return snapshot.snapshot_id, snapshot.version


def _announced(store):
    store.put("tokens/run/!run/writer", b"x")
    return store


def test_retire_reports_each_rollout_once_and_fences_unknown_ones(store):
    assert run(retire(FAMILY, RUN, [ROLLOUT, "unknown"]), store) == Removal((ROLLOUT,), ("unknown",))
    assert run(retire(FAMILY, RUN, [ROLLOUT, "unknown"]), store) == Removal((), (ROLLOUT, "unknown"))
    for rollout in (ROLLOUT, "unknown"):
        with pytest.raises(Retired):
            run(put_entry(RUN, make_entry(rollout)), store)


def test_retire_removes_the_rest_of_an_abandoned_drop(store):
    play_until(drop(claim(store)), store, 2)
    run(retire(FAMILY, RUN, [ROLLOUT]), store)
    assert keys(store) == [TOMBSTONE]


def test_delete_lifts_the_fence_last_and_frees_the_id(store):
    run(retire(FAMILY, RUN, [ROLLOUT]), store)
    assert run(delete_rollouts(FAMILY, RUN, [ROLLOUT, "unknown"]), store) == Removal((ROLLOUT,), ("unknown",))
    assert keys(store) == []
    run(put_entry(RUN, make_entry(text="again")), store)
    assert len(run(freeze(RUN, ROLLOUT), store).entries) == 1


@pytest.mark.parametrize("retired_before", [True, False])
def test_a_delete_that_crashed_leaves_the_fence(store, retired_before):
    if retired_before:
        run(retire(FAMILY, RUN, [ROLLOUT]), store)
        with pytest.raises(Retired):
            run(put_entry(RUN, make_entry(call="late")), store)
    play_until(delete_rollouts(FAMILY, RUN, [ROLLOUT]), store, 3)
    assert keys(store) == [TOMBSTONE]


def test_other_rollouts_are_left_alone(store):
    run(put_entry(RUN, make_entry("r10")), store)
    run(put_entry(RUN, make_entry("r1-a1")), store)
    run(delete_rollouts(FAMILY, RUN, [ROLLOUT]), store)
    for rollout in ("r10", "r1-a1"):
        assert len(run(freeze(RUN, rollout), _announced(store)).entries) == 1


def test_more_than_a_thousand_objects_are_removed(store):
    for number in range(1100):
        store.put(f"{PREFIX}intents/c{number}", b"x")
    run(retire(FAMILY, RUN, [ROLLOUT]), store)
    assert keys(store) == [TOMBSTONE]
    with pytest.raises(NotFound):
        store.get(f"{PREFIX}intents/c7")
