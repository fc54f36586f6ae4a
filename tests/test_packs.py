# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A pack gives exactly what the entries give, is verified to the byte, is never needed, and goes with its rollout."""

from __future__ import annotations

import threading

import pytest

from gym_objstore import TokenSource
from gym_objstore.errors import Corrupt, Invalid, NotFound, Retired
from gym_objstore.flow import arun, run
from gym_objstore.index import read_index
from gym_objstore.keys import pack_key
from gym_objstore.names import PackName, parse_pack_name
from gym_objstore.objects import announcement, write
from gym_objstore.packs import read
from gym_objstore.retirement import Claim, Removal, delete_rollouts, drop, retire
from gym_objstore.store.memory import MemoryStore
from gym_objstore.testing.counting import Costs, CountingStore
from gym_objstore.tokens import begin_call, freeze, mark, publish, put_entry, read_text
from tests.entries import make_entry
from tests.places import PLACES, place_of

RUN, ROLLOUT, PREFIX = "run", "r1", "tokens/run/r1/"


@pytest.fixture
def store():
    found = MemoryStore()
    marker = announcement("tokens", RUN)
    found.put(marker.key, marker.body)
    for turn in range(5):
        run(put_entry(RUN, make_entry(call=f"c{turn}", text=f"t{turn}", created_at=float(turn))), found)
    return found


def packs(store) -> list[str]:
    return sorted(meta.key for meta in store.scan(f"{PREFIX}packs/"))


def replace(store, key: str, body: bytes) -> None:
    store.delete([key])
    store.put(key, body)


def by_call(snapshot):
    return {entry.model_call_id: entry for entry in snapshot.entries}


def test_a_packed_snapshot_is_the_snapshot(store):
    before = run(freeze(RUN, ROLLOUT), store)
    assert run(publish(RUN, ROLLOUT), store) == before.snapshot_id
    after = run(freeze(RUN, ROLLOUT), store)
    assert (after.snapshot_id, after.version, after.problems) == (before.snapshot_id, before.version, ())
    assert by_call(after) == by_call(before)


def test_reading_a_packed_snapshot_costs_one_get_at_any_length(store):
    run(publish(RUN, ROLLOUT), store)
    counted = CountingStore(store)
    run(freeze(RUN, ROLLOUT), counted)
    assert counted.costs == Costs(2, {"LIST": 1, "HEAD": 1, "GET": 1})


async def test_a_pack_is_read_beside_the_event_loop(store):
    run(publish(RUN, ROLLOUT), store)
    where = set()

    def verify(name, text):
        where.add(threading.current_thread().name)
        return read_text(PREFIX, name, text)

    assert len(await arun(packs_of(verify), store)) == 5
    assert where == {"gym-objstore-cpu_0"}


def packs_of(verify):
    index = yield from read_index(PREFIX)
    return (yield from read(index, verify))


def test_publishing_again_writes_nothing(store):
    run(publish(RUN, ROLLOUT), store)
    counted = CountingStore(store)
    run(publish(RUN, ROLLOUT), counted)
    assert counted.costs.requests == {"LIST": 1, "GET": 5}
    assert len(packs(store)) == 1


def test_a_write_after_the_pack_is_seen(store):
    packed = run(publish(RUN, ROLLOUT), store)
    run(put_entry(RUN, make_entry(call="late", text="late")), store)
    found = run(freeze(RUN, ROLLOUT), store)
    assert found.snapshot_id != packed
    assert "late" in by_call(found)
    run(write(mark(RUN, ROLLOUT, "", {"at": 1.0})), store)
    assert run(freeze(RUN, ROLLOUT), store).incomplete


def test_what_the_listing_says_is_wrong_is_said_of_a_packed_snapshot_too(store):
    run(begin_call(RUN, ROLLOUT, "lost"), store)
    run(publish(RUN, ROLLOUT), store)
    counted = CountingStore(store)
    assert [one.kind for one in run(freeze(RUN, ROLLOUT), counted).problems] == ["dangling_intent"]
    assert counted.costs.requests["GET"] == 1


@pytest.mark.parametrize("damage", [lambda b: b[:-3], lambda _: b"", lambda b: b[:40] + b"\x00" + b[41:]])
def test_a_damaged_pack_is_not_believed(store, damage):
    before = run(freeze(RUN, ROLLOUT), store)
    run(publish(RUN, ROLLOUT), store)
    (key,) = packs(store)
    replace(store, key, damage(store.get(key)))
    counted = CountingStore(store)
    assert by_call(run(freeze(RUN, ROLLOUT), counted)) == by_call(before)
    assert counted.costs.requests["GET"] == 6


def test_a_pack_under_another_snapshots_name_is_not_believed(store):
    run(publish(RUN, ROLLOUT), store)
    (old,) = packs(store)
    run(put_entry(RUN, make_entry(call="c9", text="t9")), store)
    named = parse_pack_name(old.removeprefix(PREFIX))
    now = run(read_index(PREFIX), store).snapshot_id
    store.put(pack_key(PREFIX, named._replace(snapshot=now)), store.get(old))
    assert "c9" in by_call(run(freeze(RUN, ROLLOUT), store))


def test_a_forged_entry_in_a_well_formed_pack_is_not_believed(store):
    index = run(read_index(PREFIX), store)
    forged = b'[["' + index.sound[0].text.encode() + b'",2]]\n{}'
    from gym_objstore.codec import encode
    from gym_objstore.digests import sha256_hex

    store.put(pack_key(PREFIX, PackName(index.snapshot_id, sha256_hex(forged), "zst")), encode(forged))
    assert len(run(freeze(RUN, ROLLOUT), store).entries) == 5


@pytest.mark.parametrize("name", ["packs/readme", "packs/", "packs/" + "a" * 64 + ".zst"])
def test_foreign_objects_among_the_packs_change_nothing(store, name):
    before = run(freeze(RUN, ROLLOUT), store)
    store.put(f"{PREFIX}{name}x", b"hello")
    after = run(freeze(RUN, ROLLOUT), store)
    assert (after.snapshot_id, after.version, after.incomplete) == (before.snapshot_id, before.version, False)


def test_a_damaged_entry_is_not_packed(store):
    entry = next(meta.key for meta in store.scan(f"{PREFIX}entries/"))
    replace(store, entry, b"damage")
    with pytest.raises(Corrupt):
        run(publish(RUN, ROLLOUT), store)
    assert packs(store) == []


def test_a_rollout_too_large_to_pack_says_so(store, monkeypatch):
    monkeypatch.setattr("gym_objstore.packs.LIMIT", 100)
    with pytest.raises(Invalid, match="the rollout is too large to be packed") as told:
        run(publish(RUN, ROLLOUT), store)
    assert told.value.kind == "too_large"
    assert packs(store) == []


def test_a_retired_rollout_is_not_packed(store):
    run(retire("tokens", RUN, [ROLLOUT]), store)
    with pytest.raises(Retired):
        run(publish(RUN, ROLLOUT), store)
    with pytest.raises(NotFound):
        run(publish("nobody", ROLLOUT), store)


def test_a_drop_of_the_packed_snapshot_takes_the_pack_with_it(store):
    run(publish(RUN, ROLLOUT), store)
    found = run(freeze(RUN, ROLLOUT), store)
    assert run(drop(Claim(PREFIX, found.snapshot_id, found.version, "0" * 16)), store)
    assert [meta.key for meta in store.scan(PREFIX)] == [f"{PREFIX}fences/tombstone"]


@pytest.mark.parametrize("remove", [retire, delete_rollouts])
def test_retire_and_delete_take_the_pack_with_them(store, remove):
    run(publish(RUN, ROLLOUT), store)
    assert run(remove("tokens", RUN, [ROLLOUT]), store) == Removal((ROLLOUT,), ())
    assert packs(store) == []


@pytest.mark.parametrize("kind", PLACES)
async def test_publishing_on_every_kind_of_place(kind, request):
    from gym_objstore import TokenSink

    place = place_of(kind, request)
    sink, source = TokenSink(**place), TokenSource(**place)
    for call in range(3):
        await sink.put(make_entry(call=f"c{call}", text=f"t{call}"))
    published = await source.publish("r1")
    found = await source.freeze("r1")
    assert found.snapshot_id == published
    assert set(by_call(found)) == {"c0", "c1", "c2"}
    assert await source.drop("r1", snapshot_id=found.snapshot_id, version=found.version)
    for component in (sink, source):
        await component.close()
