# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from gym_objstore.errors import Denied, ObjstoreError, Unavailable
from gym_objstore.store.memory import MemoryStore
from gym_objstore.testing.faulty import Faults, FaultyStore

EVERYTHING = Faults(*(0.1,) * 13)


def filled(count=20):
    store = MemoryStore()
    for number in range(count):
        store.put(f"a/{number:02}", b"0123456789")
    return store


def faulty(store=None, *, seed=1, **faults):
    return FaultyStore(store or filled(), seed=seed, faults=Faults(**faults))


def answers(store):
    """Return what every kind of request says, twenty times each, in the blocking form."""
    said = []
    for number in range(20):
        key = f"a/{number:02}"
        for ask in (
            lambda key=key: store.put(key, b"new"),
            lambda key=key: store.get(key),
            lambda key=key: store.head(key) and True,
            lambda: [meta.key for meta in store.scan("a/")],
            lambda key=key: store.delete([key]),
        ):
            try:
                said.append(ask())
            except ObjstoreError as error:
                said.append(error.kind)
    return said


def outcome(store, key):
    try:
        return store.get(key)
    except ObjstoreError as error:
        return error.kind


def test_without_faults_it_is_the_store_in_another_order():
    store = faulty()
    assert sorted(meta.key for meta in store.scan("")) == [f"a/{number:02}" for number in range(20)]
    assert store.get("a/07") == b"0123456789"
    assert store.get_range("a/07", 2, 3) == b"234"
    assert store.happened == []


def test_one_seed_gives_the_same_faults_again_and_another_one_others():
    first, again, other = (FaultyStore(filled(), seed=seed, faults=EVERYTHING) for seed in (1, 1, 2))
    assert answers(first) == answers(again)
    assert first.happened == again.happened
    assert answers(other) != answers(FaultyStore(filled(), seed=1, faults=EVERYTHING))


def test_faults_of_a_request_do_not_depend_on_what_others_ask_meanwhile():
    keys = [f"a/{number:02}" for number in range(20)]
    one, other = faulty(refused=0.4, corrupted=0.3), faulty(refused=0.4, corrupted=0.3)
    with ThreadPoolExecutor(8) as threads:
        in_threads = list(threads.map(lambda key: outcome(one, key), keys))
    assert in_threads == [outcome(other, key) for key in keys]


def test_both_forms_meet_the_same_faults():
    async def wait(store, key):
        try:
            return await store.get_async(key)
        except ObjstoreError as error:
            return error.kind

    blocking, waiting = faulty(refused=0.3, truncated=0.3), faulty(refused=0.3, truncated=0.3)
    for number in range(20):
        key = f"a/{number:02}"
        assert outcome(blocking, key) == asyncio.run(wait(waiting, key))


@pytest.mark.parametrize(
    ("fault", "error", "kind", "stored"),
    [
        ("refused", Unavailable, "server_error", False),
        ("lost", Unavailable, "timeout", True),
        ("late", Unavailable, "timeout", False),
        ("expired", Denied, "expired_token", False),
        ("full", Unavailable, "disk_full", False),
        ("denied", Denied, "access_denied", False),
    ],
)
def test_a_put_fails_before_or_after_it_is_done(fault, error, kind, stored):
    store = faulty(**{fault: 1.0})
    with pytest.raises(error) as caught:
        store.put("a/x", b"x")
    assert caught.value.kind == kind
    with pytest.raises(error):
        asyncio.run(store.put_async("a/y", b"x"))
    assert (store.store.head("a/x") is not None, store.store.head("a/y") is not None) == (stored, stored)


def test_a_late_write_arrives_when_nobody_waits_for_it_any_more():
    store = faulty(late=1.0)
    with pytest.raises(Unavailable):
        store.put("a/x", b"x")
    for _ in range(12):
        store.head("a/00")
    assert store.store.get("a/x") == b"x"
    with pytest.raises(Unavailable):
        store.delete(["a/x"])
    store.heal()
    assert store.store.head("a/x") is None


def test_a_lost_permission_comes_back_and_leaves_other_verbs_alone():
    store = faulty(denied=1.0)
    with pytest.raises(Denied):
        store.get("a/00")
    store.faults = Faults()
    assert store.head("a/00")
    refusals = 0
    while True:
        try:
            store.get("a/00")
            break
        except Denied:
            refusals += 1
    assert refusals < 8


def test_a_full_disk_still_gives_what_it_has():
    store = faulty(full=1.0)
    assert store.get("a/00") == b"0123456789"
    with pytest.raises(Unavailable, match="full"):
        store.put("a/00", b"x")


def test_what_is_read_is_cut_or_has_one_bit_changed():
    assert len(faulty(truncated=1.0).get("a/00")) < 10
    damaged = faulty(corrupted=1.0).get("a/00")
    assert sum((one ^ other).bit_count() for one, other in zip(damaged, b"0123456789", strict=True)) == 1


def test_listings_break_repeat_leave_out_and_are_behind():
    keys = {f"a/{number:02}" for number in range(20)}
    with pytest.raises(Unavailable):
        list(faulty(broken=1.0).scan("a/"))
    twice = [meta.key for meta in faulty(repeated=1.0).scan("a/")]
    assert len(twice) > 20
    assert set(twice) == keys
    assert {meta.key for meta in faulty(short=1.0).scan("a/")} < keys
    behind = faulty(stale=1.0)
    behind.put("a/new", b"x")
    behind.delete(["a/00"])
    shown = {meta.key for meta in behind.scan("a/")}
    assert "a/00" in shown
    assert shown - keys <= {"a/new"}


def test_heal_ends_every_fault():
    store = FaultyStore(filled(), seed=3, faults=EVERYTHING)
    answers(store)
    store.heal()
    happened = list(store.happened)
    answers(store)
    assert store.happened == happened
    assert "seed=3" in repr(store)
