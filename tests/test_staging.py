# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Staged rows in the bucket: one write each, one request per row read, and every bad key named."""

from __future__ import annotations

import numpy as np
import pytest

from gym_objstore.errors import Corrupt, Invalid, NotFound, Unavailable
from gym_objstore.flow import arun, run
from gym_objstore.keys import parse_staging_key, staged_key
from gym_objstore.objects import announcement
from gym_objstore.staging import FAMILY, fetch, fetch_columns, load_attachments, load_extras, stage
from gym_objstore.store.memory import MemoryStore
from gym_objstore.testing.counting import Costs, CountingStore
from gym_objstore.testing.staged_rollouts import staged_call
from gym_objstore.testing.wrapping import WrappedStore
from gym_objstore.wire_staging import StagedCallBaseSnapshot

RUN = "run-1"
EXTRAS = {"media_spans": [{"start": 0, "len": 2}]}


@pytest.fixture
def store():
    return CountingStore(MemoryStore())


def staged(store, record, attachments=None) -> str:
    return run(stage(RUN, record, attachments), store).key.text


def base_of(record) -> StagedCallBaseSnapshot:
    return StagedCallBaseSnapshot(**record.model_dump(exclude={"extras"}))


def object_key(staging_key: str) -> str:
    return staged_key(RUN, parse_staging_key(staging_key))


def damage(store, key: str, position: int) -> None:
    body = bytearray(store.get(key))
    body[position] ^= 1
    store.put(key, bytes(body))


def test_staging_is_one_put_whatever_is_attached(store):
    staged(store, staged_call("c1", extras=EXTRAS), {"a": np.zeros(10), "b": {"c": b"x"}})
    assert store.costs == Costs(1, {"PUT": 1})


def test_the_first_write_leaves_the_writer_marker_in_the_same_round_trip(store):
    run(stage(RUN, staged_call("c1"), None, [announcement(FAMILY, RUN)]), store)
    assert store.costs == Costs(1, {"PUT": 2})
    assert store.head("staged/run-1/!run/writer") is not None


def test_what_cannot_be_stored_costs_no_request(store):
    with pytest.raises(Invalid, match="'/media/1' cannot be stored, type=NoneType"):
        staged(store, staged_call("c1"), {"media": {"0": b"fine", "1": None}})
    assert store.costs == Costs()


def test_staging_again_changes_nothing(store):
    record = staged_call("c1", extras=EXTRAS)
    first = staged(store, record, {"a": b"x"})
    before = store.get(object_key(first))
    assert staged(store, record, {"a": b"x"}) == first
    assert store.get(object_key(first)) == before
    assert len(list(store.scan("staged/"))) == 1


def test_another_payload_of_the_same_call_gets_a_key_of_its_own(store):
    first = staged(store, staged_call("c1"))
    second = staged(store, staged_call("c1", generated=[21, 23]))
    assert first != second
    assert [one.token_ids_delta[-1] for one in run(fetch(RUN, [second, first]), store)] == [23, 22]


def test_base_snapshots_come_in_the_order_of_the_keys_in_one_round_trip(store):
    records = [staged_call(f"c{n}", prompt=[n], extras=EXTRAS, rollout_id=f"r{n % 3}") for n in range(12)]
    keys = [staged(store, one, {"a": b"x"}) for one in records]
    store.reset()
    assert run(fetch(RUN, keys[::-1]), store) == [base_of(one) for one in records[::-1]]
    assert store.costs == Costs(1, {"GET": 12})


async def test_a_whole_group_is_one_round_trip_on_a_loop_too(store):
    keys = [staged(store, staged_call(f"c{n}")) for n in range(40)]
    store.reset()
    assert [one.model_call_id for one in await arun(fetch(RUN, keys), store)] == [f"c{n}" for n in range(40)]
    assert store.costs == Costs(1, {"GET": 40})


class RangesOnly(WrappedStore):
    """A store that remembers which bytes were asked for."""

    def __init__(self, store) -> None:
        super().__init__(store)
        self.ranges: list[tuple[int, int]] = []

    def get(self, key):
        raise AssertionError(f"the whole object was read, key={key}")

    def get_range(self, key, start, length):
        self.ranges.append((start, length))
        return super().get_range(key, start, length)


def test_only_what_is_asked_for_is_read(store):
    record = staged_call("c1", extras=EXTRAS)
    key = staged(store, record, {"a": np.zeros(1 << 16)})
    name = parse_staging_key(key).name
    watched = RangesOnly(store)
    run(fetch(RUN, [key]), watched)
    run(fetch_columns(RUN, [key]), watched)
    run(load_extras(RUN, {key: record.extras_digest}), watched)
    assert watched.ranges == [
        (0, name.record_bytes),
        (0, name.record_bytes),
        (0, name.record_bytes + name.extras_bytes),
    ]


def test_columns_are_token_ids_and_the_place_in_the_chain(store):
    root = staged_call("c1")
    second = staged_call("c2", after=[root])
    (found,) = run(fetch_columns(RUN, [staged(store, second)]), store)
    assert found.token_ids.tolist() == [11, 12, 21, 22]
    assert (found.parent_call_id, found.prev_len, found.chain_hash) == ("c1", 4, second.chain_hash)


def test_nothing_is_fetched_for_no_keys(store):
    assert run(fetch(RUN, []), store) == []
    assert run(load_extras(RUN, {}), store) == {}
    assert store.costs == Costs()


def test_a_key_that_is_asked_for_twice_is_refused_before_any_request(store):
    key = staged(store, staged_call("c1"))
    store.reset()
    for flow in (fetch(RUN, [key, key]), fetch_columns(RUN, [key, key])):
        with pytest.raises(Invalid, match="asked for twice") as caught:
            run(flow, store)
        assert (caught.value.kind, caught.value.key) == ("duplicate_key", key)
    assert store.costs == Costs()


def test_a_bare_string_is_a_type_error(store):
    with pytest.raises(TypeError, match="must be a list of keys, not one str"):
        run(fetch(RUN, "r/c"), store)


def test_a_missing_row_is_a_key_error_that_names_it(store):
    kept, gone = staged(store, staged_call("c1")), staged(store, staged_call("c2"))
    store.delete([object_key(gone)])
    for flow in (fetch(RUN, [kept, gone]), fetch_columns(RUN, [gone]), load_attachments(RUN, gone)):
        with pytest.raises(KeyError) as caught:
            run(flow, store)
        assert isinstance(caught.value, NotFound)
        assert caught.value.key == object_key(gone)


@pytest.mark.parametrize("key", ["rollout-1/c1", "", "../../captures/x", 7, None])
def test_a_foreign_key_is_named_before_any_request(store, key):
    with pytest.raises(Corrupt, match="not a staging key of this package") as caught:
        run(fetch(RUN, [key]), store)
    assert (caught.value.kind, caught.value.key) == ("foreign_key", str(key))
    assert store.costs == Costs()


def test_a_row_of_another_run_is_missing(store):
    key = staged(store, staged_call("c1"))
    with pytest.raises(NotFound):
        run(fetch("run-2", [key]), store)


def test_a_damaged_row_is_corrupt_and_named(store):
    key = staged(store, staged_call("c1", extras=EXTRAS), {"a": b"xyz"})
    damage(store, object_key(key), 5)
    digest = staged_call("c1", extras=EXTRAS).extras_digest
    flows = (fetch(RUN, [key]), fetch_columns(RUN, [key]), load_extras(RUN, {key: digest}), load_attachments(RUN, key))
    for flow in flows:
        with pytest.raises(Corrupt) as caught:
            run(flow, store)
        assert caught.value.key == key


def test_a_row_cut_short_is_corrupt_and_named(store):
    key = staged(store, staged_call("c1"))
    store.put(object_key(key), store.get(object_key(key))[:-1])
    with pytest.raises(Corrupt) as caught:
        run(fetch(RUN, [key]), store)
    assert caught.value.key == key


def test_a_row_copied_under_another_calls_name_is_corrupt(store):
    key = staged(store, staged_call("c1"))
    swapped = key.replace("rollout-1/c1", "rollout-1/c2")
    store.put(object_key(swapped), store.get(object_key(key)))
    with pytest.raises(Corrupt, match="under another call's name"):
        run(fetch(RUN, [swapped]), store)


def test_extras_are_those_that_were_committed_or_corrupt(store):
    record, other = staged_call("c1", extras=EXTRAS), staged_call("c2")
    keys = {staged(store, one): one.extras_digest for one in (record, other)}
    first, second = keys
    assert run(load_extras(RUN, keys), store) == {first: EXTRAS, second: None}
    with pytest.raises(Corrupt, match="not those that were committed") as caught:
        run(load_extras(RUN, {first: keys[first], second: keys[first]}), store)
    assert caught.value.key == second


def test_damaged_extras_do_not_hinder_the_record(store):
    record = staged_call("c1", extras=EXTRAS)
    key = staged(store, record)
    damage(store, object_key(key), -3)
    assert run(fetch(RUN, [key]), store) == [base_of(record)]
    with pytest.raises(Corrupt, match="the extras of the row are damaged"):
        run(load_extras(RUN, {key: record.extras_digest}), store)


def test_attachments_come_back_in_two_round_trips(store):
    key = staged(store, staged_call("c1", extras=EXTRAS), {"a": np.arange(3, dtype=np.float32), "b": {"c": b"x"}})
    store.reset()
    found = run(load_attachments(RUN, key), store)
    assert found["a"].tolist() == [0.0, 1.0, 2.0]
    assert (found["a"].dtype, bytes(found["b"]["c"])) == (np.float32, b"x")
    assert store.costs == Costs(2, {"GET": 2})


def test_a_row_without_attachments_has_none(store):
    assert run(load_attachments(RUN, staged(store, staged_call("c1"))), store) == {}


def test_a_damaged_attachment_is_named_with_its_key(store):
    key = staged(store, staged_call("c1"), {"a": b"xyz", "b": {"c": b"uvw"}})
    damage(store, object_key(key), -1)
    with pytest.raises(Corrupt, match="the bytes of the attachment '/b/c' are damaged") as caught:
        run(load_attachments(RUN, key), store)
    assert caught.value.key == key


class Failing(WrappedStore):
    def put(self, key, body):
        raise Unavailable("down", key=key)


def test_a_storage_error_is_raised(store):
    with pytest.raises(Unavailable):
        run(stage(RUN, staged_call("c1")), Failing(store))


def test_staging_looks_for_no_tombstone(store):
    store.put("ledger/run-1/rollout-1/fences/tombstone", b"{}")
    store.reset()
    assert staged(store, staged_call("c1")).startswith("rollout-1/c1.")
    assert store.costs == Costs(1, {"PUT": 1})
