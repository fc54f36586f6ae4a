# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Captures are stored as the line they are, ordered by when their calls completed, and damage hides nothing."""

from __future__ import annotations

import orjson
import pytest

from gym_objstore.captures import Line, capture_put, clear, is_incomplete, line_of, mark, order_of, read, record_of
from gym_objstore.errors import Corrupt, Invalid, NotFound
from gym_objstore.flow import run
from gym_objstore.ids import segment
from gym_objstore.objects import announcement, write
from gym_objstore.retirement import Removal
from gym_objstore.store.memory import MemoryStore
from gym_objstore.testing.counting import Costs, CountingStore
from tests.whole_run import Crash, Crashing, contents

RUN, ROLLOUT, PREFIX = "run", "0-0", "captures/run/0-0/"
EXCHANGE = {"model_call_id": "c1", "completed_at": 1786032154.96, "status_code": 200, "request": {"b": 1, "a": 2}}


@pytest.fixture
def store():
    found = MemoryStore()
    marker = announcement("captures", RUN)
    found.put(marker.key, marker.body)
    return found


def put(store, exchange, rollout_id=ROLLOUT, now=0.0) -> str:
    written = capture_put(RUN, rollout_id, line_of(exchange, now))
    run(write(written), store)
    return written.key


def read_all(store, rollout_id=ROLLOUT) -> list[dict]:
    return [record_of(one) for one in run(read(RUN, rollout_id), store).captures]


def test_the_key_says_when_who_and_what(store):
    key = put(store, EXCHANGE)
    name = key.removeprefix(f"{PREFIX}records/").split(".")
    assert name[:2] == ["1786032154960000", "c1"]
    assert (len(name[2]), name[3]) == (64, "zst")


def test_the_stored_text_is_the_line_that_gym_would_write(store):
    put(store, EXCHANGE)
    (found,) = run(read(RUN, ROLLOUT), store).captures
    assert found.text == orjson.dumps(EXCHANGE)


def test_unknown_fields_and_their_order_are_kept_byte_for_byte(store):
    exchange = {"z": [1.0, -0.0, 1e22], "model_call_id": "c1", "a": {"ünï": "\u2028"}, "completed_at": 1.0}
    put(store, exchange)
    (found,) = run(read(RUN, ROLLOUT), store).captures
    assert found.text == orjson.dumps(exchange)
    assert list(record_of(found)) == ["z", "model_call_id", "a", "completed_at"]


def test_the_order_is_that_of_completion_whoever_wrote_first(store):
    for call, completed in (("late", 30.5), ("early", 2.25), ("middle", 30.499999)):
        put(store, {"model_call_id": call, "completed_at": completed})
    assert [one["model_call_id"] for one in read_all(store)] == ["early", "middle", "late"]


def test_the_same_exchange_again_changes_nothing(store):
    assert put(store, EXCHANGE) == put(store, EXCHANGE)
    assert len(read_all(store)) == 1


@pytest.mark.parametrize("completed", [None, "soon", float("nan"), float("inf"), True])
def test_an_exchange_that_does_not_say_when_it_completed_is_placed_at_its_writing(store, completed):
    key = put(store, {"model_call_id": "c1", "completed_at": completed}, now=12.5)
    assert key.startswith(f"{PREFIX}records/0000000012500000.c1.")


@pytest.mark.parametrize(("seconds", "order"), [(-5, 0), (1e300, 9999999999999999), (0, 0), (1.5, 1500000)])
def test_any_time_has_a_place_of_sixteen_digits(seconds, order):
    assert order_of(seconds, 7.0) == order


def test_what_json_cannot_hold_becomes_what_every_reader_reads(store):
    exchange = {"model_call_id": "c1", "completed_at": 1.0, "text": "a\ud800b", "big": 2**70, 7: {1, 2}.__class__}
    put(store, exchange)
    (found,) = read_all(store)
    assert found["text"] == "a\ufffdb"
    assert found["big"] == float(2**70)
    assert found["7"] == "<class 'set'>"


@pytest.mark.parametrize("exchange", [None, [], "text", 7])
def test_what_is_no_mapping_is_refused(exchange):
    with pytest.raises(Invalid, match="a capture must be a mapping, type="):
        line_of(exchange, 0.0)


def test_a_record_nested_too_deep_is_refused():
    nested: list = []
    for _ in range(300):
        nested = [nested]
    with pytest.raises(Invalid, match="cannot be written as JSON"):
        line_of({"request": nested}, 0.0)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda body: body[:-4], "the body is damaged"),
        (lambda _: b"", "the body is damaged"),
        (lambda _: capture_put(RUN, ROLLOUT, Line(b'{"forged":1}', 1)).body, "its digest is not its name's"),
    ],
)
def test_a_damaged_capture_takes_its_index_and_hides_no_other(store, damage, said):
    put(store, {"model_call_id": "c0", "completed_at": 1.0})
    key = put(store, {"model_call_id": "c1", "completed_at": 2.0})
    put(store, {"model_call_id": "c2", "completed_at": 3.0})
    body = store.get(key)
    store.delete([key])
    store.put(key, damage(body))
    found = run(read(RUN, ROLLOUT), store).captures
    assert [one.text is None for one in found] == [False, True, False]
    assert said in found[1].damage
    with pytest.raises(Corrupt, match="the capture is damaged"):
        record_of(found[1])


def test_a_line_that_is_no_record_is_kept_as_it_is(store):
    run(write(capture_put(RUN, ROLLOUT, Line(b'{"half', 5))), store)
    (found,) = run(read(RUN, ROLLOUT), store).captures
    assert found.text == b'{"half'
    with pytest.raises(Corrupt):
        record_of(found)


def test_a_newer_format_is_counted_as_unreadable(store):
    key = put(store, EXCHANGE)
    store.put(key.removesuffix("zst") + "br2", store.get(key))
    found = run(read(RUN, ROLLOUT), store).captures
    assert ["cannot read the format" in one.damage for one in found] == [True, False]


def test_foreign_objects_are_no_captures(store):
    store.put(f"{PREFIX}records/readme.txt", b"hello")
    store.put(f"{PREFIX}other/1", b"hello")
    put(store, EXCHANGE)
    assert len(read_all(store)) == 1


def test_a_marker_makes_a_rollout_incomplete_and_no_other(store):
    run(write(mark(RUN, ROLLOUT, "c1", {"reason": "lost", "at": 1.0})), store)
    assert run(is_incomplete(RUN, ROLLOUT), store)
    assert run(read(RUN, ROLLOUT), store) == ((), True)
    assert not run(is_incomplete(RUN, "0-1"), store)


def test_a_rollout_without_captures_is_empty_in_a_run_that_has_some(store):
    assert run(read(RUN, "0-9"), store) == ((), False)


def test_a_run_nobody_wrote_to_is_said(store):
    with pytest.raises(NotFound, match="nothing was ever written to this run here, run_id=other") as told:
        run(read("other", ROLLOUT), store)
    assert told.value.kind == "no_writer"


def test_clear_removes_exactly_the_given_rollouts_with_their_markers(store):
    for rollout_id in ("r1", "r10", "r1-a1", "R1"):
        put(store, EXCHANGE, rollout_id)
        run(write(mark(RUN, rollout_id, "c1", {"at": 1.0})), store)
    assert run(clear(RUN, ("r1", "unknown")), store) == Removal(("r1",), ("unknown",))
    left = {meta.key.split("/")[2] for meta in store.scan("captures/run/")}
    assert left == {"!run", "r10", "r1-a1", segment("R1")}
    assert run(clear(RUN, ("r1",)), store) == Removal((), ("r1",))


def test_clearing_a_whole_collection_costs_one_listing_where_nothing_is_there(store):
    counted = CountingStore(store)
    wanted = tuple(f"{task}-0" for task in range(4096))
    assert run(clear(RUN, wanted), counted).removed == ()
    assert counted.costs == Costs(1, {"LIST": 1})


def test_clearing_lists_only_the_rollouts_that_exist(store):
    for task in range(20):
        put(store, EXCHANGE, f"{task}-0")
    counted = CountingStore(store)
    removed = run(clear(RUN, tuple(f"{task}-0" for task in range(10, 500))), counted).removed
    assert len(removed) == 10
    assert counted.costs.requests == {"LIST": 11, "DELETE": 1}


def test_an_incomplete_rollout_is_incomplete_as_long_as_anything_is_left_to_clear(store):
    for call in range(3):
        put(store, {"model_call_id": f"c{call}", "completed_at": float(call)})
    run(write(mark(RUN, ROLLOUT, "c9", {"at": 1.0})), store)
    objects = contents(store)
    for writes in range(5):
        crashed = MemoryStore()
        for key, body in objects.items():
            crashed.put(key, body)
        try:
            run(clear(RUN, (ROLLOUT,)), Crashing(crashed, writes))
        except Crash:
            found = run(read(RUN, ROLLOUT), crashed)
            assert found.incomplete, f"after {writes} writes"
            assert run(clear(RUN, (ROLLOUT,)), crashed).removed == (ROLLOUT,)
        assert run(read(RUN, ROLLOUT), crashed) == ((), False)


def test_reading_costs_one_listing_and_one_get_for_each_capture(store):
    for call in range(5):
        put(store, {"model_call_id": f"c{call}", "completed_at": float(call)})
    counted = CountingStore(store)
    run(read(RUN, ROLLOUT), counted)
    assert counted.costs == Costs(2, {"LIST": 1, "GET": 5})
