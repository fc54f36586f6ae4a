# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What a sweep finds, keeps and refuses, as flows."""

from __future__ import annotations

import time

import orjson
import pytest

from gym_objstore import ledger, tokens
from gym_objstore.digests import sha256_hex
from gym_objstore.errors import Corrupt, Denied, Invalid
from gym_objstore.flow import put, run
from gym_objstore.keys import parse_staging_key, staged_key
from gym_objstore.receipts import build_receipt
from gym_objstore.receipts_published import mark_consumed, publish, retire_consumed
from gym_objstore.retirement import retire
from gym_objstore.store.memory import MemoryStore
from gym_objstore.sweeping import find_orphans, remove_orphans
from gym_objstore.testing.counting import Costs, CountingStore
from gym_objstore.testing.wrapping import WrappedStore
from gym_objstore.tokens import begin_call, put_entry
from tests.entries import make_entry
from tests.finished import RUN, commit_of, finish, record_calls, stage_call
from tests.places import store_of

LATER = time.time() + 1_000_000.0
"""A time at which everything that these tests write is old."""


@pytest.fixture(params=["memory", "file", "seaweedfs"])
def store(request):
    with store_of(request.param, request) as found:
        yield found


@pytest.fixture
def memory():
    return MemoryStore()


def found_in(store, *, now=LATER, grace=3600.0):
    return run(find_orphans(RUN, now=now, grace=grace), store)


def names(orphans):
    return [rest.name for rest in orphans.rests]


def keys_of(store, prefix="staged/"):
    return sorted(meta.key for meta in store.scan(prefix))


def object_key(staging_key):
    return staged_key(RUN, parse_staging_key(staging_key))


def test_exactly_the_rows_without_a_referrer_are_removed(store):
    finish(store, "finished")
    recorded = record_calls(store, "running")
    _, abandoned = stage_call(store, "c0", rollout_id="abandoned")
    _, twin = stage_call(store, "c0", rollout_id="running", generated=(99,))
    found = found_in(store)
    assert names(found) == [abandoned, twin]
    assert (found.staged_rows, found.young_rows) == (6, 0)
    before = keys_of(store)
    assert names(found_in(store)) == [abandoned, twin]
    assert keys_of(store) == before
    assert [rest.name for rest in run(remove_orphans(found), store)] == [abandoned, twin]
    assert set(before) - set(keys_of(store)) == {object_key(abandoned), object_key(twin)}
    assert names(found_in(store)) == []
    assert object_key(recorded[0]) in keys_of(store)


def test_a_row_within_the_grace_period_is_left_alone(memory):
    stage_call(memory, "c0")
    found = found_in(memory, now=time.time() + 60.0, grace=3600.0)
    assert (names(found), found.staged_rows, found.young_rows) == ([], 1, 1)


def test_a_row_of_an_admitted_call_is_left_alone_until_its_rollout_is_retired(memory):
    _, key = stage_call(memory, "c0")
    run(begin_call(RUN, "rollout-1", "c0"), memory)
    assert names(found_in(memory)) == []
    run(retire(tokens.FAMILY, RUN, ["rollout-1"]), memory)
    assert names(found_in(memory)) == [key]


def test_a_receipt_keeps_rows_whose_ledger_is_retired(memory):
    keys = finish(memory)
    _, orphan = stage_call(memory, "c9")
    run(retire(ledger.FAMILY, RUN, ["rollout-1"]), memory)
    assert names(found_in(memory)) == [orphan]
    run(mark_consumed(RUN, ["rollout-1"], "step-1"), memory)
    run(retire_consumed(RUN, ["step-1"]), memory)
    assert names(found_in(memory)) == sorted([*keys, orphan])


def test_what_a_checkpoint_lists_stays(memory):
    keys = finish(memory)
    others = finish(memory, "rollout-2")
    run(mark_consumed(RUN, ["rollout-1", "rollout-2"], "step-1"), memory)
    run(retire_consumed(RUN, ["step-1"]), memory)
    found = found_in(memory)
    assert len(found.rests) == 4
    assert [rest.name for rest in run(remove_orphans(found, {keys[0], "rollout-2"}), memory)] == [keys[1]]
    assert keys_of(memory) == sorted(map(object_key, [keys[0], *others]))


def test_a_row_that_was_written_again_meanwhile_stays(memory):
    _, key = stage_call(memory, "c0")
    found = found_in(memory)
    time.sleep(0.01)
    stage_call(memory, "c0")
    assert run(remove_orphans(found), memory) == []
    assert keys_of(memory) == [object_key(key)]


def test_late_writes_behind_a_tombstone_are_removed_and_the_fence_stays(memory):
    finish(memory)
    entry = make_entry("rollout-1", "c0")
    late = [commit_of(*stage_call(memory, "c0"))]
    run(mark_consumed(RUN, ["rollout-1"], "step-1"), memory)
    run(retire_consumed(RUN, ["step-1"]), memory)
    with pytest.raises(RuntimeError):
        run(put_entry(RUN, entry), memory)
    row = ledger.prepare_row(f"ledger/{RUN}/rollout-1/", late[0])
    memory.put(row.key, row.body)
    with pytest.raises(RuntimeError):
        run(publish(RUN, receipt_of(late[0])), memory)
    found = found_in(memory)
    late_keys = [rest.meta.key for rest in found.rests if rest.kind == "late_write"]
    assert [key.split("/")[0] for key in late_keys] == ["ledger", "manifests", "tokens"]
    run(remove_orphans(found), memory)
    assert sorted(key.split("/", 2)[2] for key in keys_of(memory, "")) == ["rollout-1/fences/tombstone"] * 3


def receipt_of(commit):
    return build_receipt({"rollout_id": commit.rollout_id, "records": [commit.record.model_dump(mode="json")]}, 1.0)


class Refusing(WrappedStore):
    """A store that refuses to list or read below one prefix."""

    def __init__(self, store, prefix):
        super().__init__(store)
        self.prefix = prefix

    def scan(self, prefix):
        if prefix.startswith(self.prefix):
            raise Denied("no permission to list", key=prefix)
        return super().scan(prefix)

    def get(self, key):
        if key.startswith(self.prefix):
            raise Denied("no permission to read", key=key)
        return super().get(key)


@pytest.mark.parametrize("family", ["staged", "tokens", "ledger", "manifests"])
def test_a_source_that_cannot_be_listed_is_named_and_nothing_is_swept(memory, family):
    stage_call(memory, "c0")
    with pytest.raises(Denied, match=f"source={family}/run-1/") as refused:
        found_in(Refusing(memory, f"{family}/"))
    assert refused.value.kind == "denied"


def test_a_receipt_that_cannot_be_read_is_named_and_nothing_is_swept(memory):
    finish(memory)
    stage_call(memory, "c9")

    class Unreadable(Refusing):
        scan = WrappedStore.scan

    with pytest.raises(Denied, match="source=manifests/run-1/rollout-1/receipts/"):
        found_in(Unreadable(memory, "manifests/"))


@pytest.mark.parametrize("name", ["receipts/other.json", "receipts/" + 64 * "0"])
def test_a_receipt_that_is_none_of_ours_stops_the_sweep(memory, name):
    stage_call(memory, "c0")
    memory.put(f"manifests/{RUN}/rollout-1/{name}", b"{}")
    with pytest.raises(Corrupt, match=name):
        found_in(memory)


@pytest.mark.parametrize("staging_key", [{}, None, 7, ["r/c"]])
def test_a_ledger_row_that_names_its_staged_row_by_no_text_stops_the_sweep(memory, staging_key):
    # Two rows of one call, so that what refers to them is read.
    stage_call(memory, "c0")
    stage_call(memory, "c0", generated=(99,))
    body = orjson.dumps({"record": {"staging_key": staging_key}})
    memory.put(f"ledger/{RUN}/rollout-1/rows/c0/none.{sha256_hex(body)}", body)
    with pytest.raises(Corrupt, match="cannot be read") as refused:
        found_in(memory)
    assert refused.value.kind == "foreign_object"


def test_a_ledger_row_of_a_newer_format_stops_the_sweep(memory):
    record_calls(memory)
    stage_call(memory, "c0", generated=(99,))
    memory.put(f"ledger/{RUN}/rollout-1/rows/c0.v2", b"{}")
    with pytest.raises(Corrupt, match=r"c0\.v2"):
        found_in(memory)


def test_what_is_no_row_of_ours_is_left_alone(memory):
    memory.put(f"staged/{RUN}/rollout-1/rows/notes.txt", b"x")
    memory.put(f"staged/{RUN}/rollout-1/other", b"x")
    assert found_in(memory).staged_rows == 0


def test_a_negative_grace_period_is_refused(memory):
    for grace in (-1.0, float("nan")):
        with pytest.raises(Invalid, match="must not be negative"):
            found_in(memory, grace=grace)


def test_a_sweep_costs_four_listings_and_reads_only_what_is_in_doubt(memory):
    for number in range(50):
        finish(memory, f"r{number}")
    counted = CountingStore(memory)
    found_in(counted)
    assert counted.costs == Costs(4, {"LIST": 4})
    stage_call(memory, "c9", rollout_id="r7")
    counted.reset()
    found_in(counted)
    assert counted.costs == Costs(6, {"LIST": 5, "GET": 1})


def drop_intent(rollout="rollout-1"):
    return f"tokens/{RUN}/{rollout}/fences/drop.{64 * 'a'}.{16 * 'b'}"


def test_a_drop_intent_stays_while_its_rollout_is_not_retired_however_old_it_is(memory):
    """Its consumer may be asleep: without it a rival could retire another snapshot."""
    run(begin_call(RUN, "rollout-1", "c0"), memory)
    memory.put(drop_intent(), b"{}")
    assert found_in(memory).rests == ()
    run(retire(tokens.FAMILY, RUN, ["rollout-1"]), memory)
    memory.put(drop_intent(), b"{}")
    assert [rest.kind for rest in found_in(memory).rests] == ["stale_drop"]
    assert found_in(memory, now=time.time()).rests == ()


def test_a_drop_intent_whose_tombstone_was_lifted_meanwhile_stays(memory):
    run(retire(tokens.FAMILY, RUN, ["rollout-1"]), memory)
    memory.put(drop_intent(), b"{}")
    found = found_in(memory)
    memory.delete([f"tokens/{RUN}/rollout-1/fences/tombstone"])
    assert run(remove_orphans(found), memory) == []


def test_a_drop_intent_behind_a_tombstone_goes_after_the_data_it_names(memory):
    run(retire(tokens.FAMILY, RUN, ["rollout-1"]), memory)
    memory.put(drop_intent(), b"{}")
    run(put_late(memory), memory)
    found = found_in(memory)
    assert [rest.kind for rest in found.rests] == ["late_write"]
    run(remove_orphans(found), memory)
    found = found_in(memory)
    assert [rest.meta.key for rest in found.rests] == [drop_intent()]
    run(remove_orphans(found), memory)
    assert keys_of(memory, "") == [f"tokens/{RUN}/rollout-1/fences/tombstone"]


def put_late(memory):
    return put(f"tokens/{RUN}/rollout-1/intents/c9", b"{}")


def test_a_late_write_whose_tombstone_was_lifted_meanwhile_stays(memory):
    run(retire(tokens.FAMILY, RUN, ["rollout-1"]), memory)
    run(put_late(memory), memory)
    found = found_in(memory)
    memory.delete([f"tokens/{RUN}/rollout-1/fences/tombstone"])
    assert run(remove_orphans(found), memory) == []


def test_rows_that_come_after_the_first_listing_are_not_condemned(memory):
    stage_call(memory, "c0")

    class Growing(WrappedStore):
        def scan(self, prefix):
            found = list(super().scan(prefix))
            if prefix.startswith("manifests/"):
                stage_call(self.store, "c1")
            return iter(found)

    found = found_in(Growing(memory))
    assert [name.split("/")[1].split(".")[0] for name in names(found)] == ["c0"]
    assert len(keys_of(memory)) == 2
