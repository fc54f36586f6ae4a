# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Every line has one object, whose place in the durable order is the line's place in its file."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_objstore.captures import read
from gym_objstore.errors import Conflict, Corrupt
from gym_objstore.exporting import capture_line, ledger_files
from gym_objstore.flow import run
from gym_objstore.gym_rows import gym_row, parse_row
from gym_objstore.importing import announce, capture_pieces, entry_piece, plan, row_piece, store, verify
from gym_objstore.ledger import record
from gym_objstore.objects import read_object
from gym_objstore.sealing import seal
from gym_objstore.store.memory import MemoryStore
from gym_objstore.testing.counting import Costs, CountingStore
from tests.entries import make_entry
from tests.gym_files import commit

RUN, ROLLOUT = "run-1", "0-0"
TIMES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.sampled_from([1.0, 2.0, 1e10, 9.9e9, 1e16]),
)
LINES = st.lists(
    st.one_of(
        st.builds(
            lambda at, call: orjson.dumps({"completed_at": at, "model_call_id": call}), TIMES, st.text(max_size=3)
        ),
        st.binary(max_size=8).map(lambda text: text.replace(b"\n", b"") or b"x"),
        st.sampled_from([b"{}", b"[]", b'{"completed_at":1e400}']),
    ),
    max_size=8,
)


@pytest.fixture
def bucket():
    found = CountingStore(MemoryStore())
    run(announce(RUN, ["captures", "ledger", "tokens"]), found)
    return found


@given(LINES)
def test_captures_keep_the_order_of_their_file_and_come_out_as_they_went_in(lines):
    bucket = MemoryStore()
    pieces = list(capture_pieces(RUN, ROLLOUT, lines))
    run(announce(RUN, ["captures"]), bucket)
    run(store(pieces), bucket)
    run(verify(pieces, {}), bucket)
    assert [capture_line(one) for one in run(read(RUN, ROLLOUT), bucket).captures] == lines
    assert [one.key for one in capture_pieces(RUN, ROLLOUT, lines)] == [one.key for one in pieces]


def test_an_entry_is_the_object_that_a_sink_would_have_stored():
    text = seal(make_entry(ROLLOUT)).canonical
    piece = entry_piece(RUN, ROLLOUT, b" " + text + b"\r")
    assert (piece.text, piece.key.startswith("tokens/run-1/0-0/entries/c1.full.")) == (text, True)


def test_a_row_is_the_object_that_a_ledger_would_have_stored(bucket):
    run(record(RUN, commit(ROLLOUT, "c1")), bucket)
    (key,) = [meta.key for meta in bucket.scan("ledger/run-1/0-0/rows/")]
    piece = row_piece(RUN, ROLLOUT, gym_row(read_object(bucket.get(key))))
    assert (piece.key, piece.text) == (key, bucket.get(key))


def test_a_row_with_another_version_of_the_same_fingerprint_is_the_same_call(bucket):
    """A ledger object says by which version it was found; Gym's row has one version for everything."""
    run(record(RUN, commit(ROLLOUT, "c1", fingerprint_version=0)), bucket)
    (line,) = run(ledger_files(RUN, ROLLOUT), bucket).lines
    piece = row_piece(RUN, ROLLOUT, parse_row(line))
    found = run(plan(RUN, ROLLOUT, "ledger", [piece]), bucket)
    assert (found.missing, list(found.elsewhere)) == (frozenset(), [piece.key])
    run(verify([piece], found.elsewhere), bucket)
    other = row_piece(RUN, ROLLOUT, {**parse_row(line), "weight_version": 99})
    with pytest.raises(Conflict, match="another record of this call"):
        run(plan(RUN, ROLLOUT, "ledger", [other]), bucket)


def test_what_is_read_back_must_be_what_was_stored(bucket):
    pieces = list(capture_pieces(RUN, ROLLOUT, [b"{}", b"[]"]))
    run(store(pieces), bucket)
    bucket.put(pieces[1].key, bucket.get(pieces[0].key))
    with pytest.raises(Corrupt, match="an imported object is damaged"):
        run(verify(pieces, {}), bucket)
    bucket.delete([pieces[1].key])
    with pytest.raises(Corrupt, match="an imported object is absent"):
        run(verify(pieces, {}), bucket)


def test_a_rollout_is_planned_with_one_listing_stored_and_verified_with_one_round_trip_each(bucket):
    pieces = list(capture_pieces(RUN, ROLLOUT, [b"{%d}" % number for number in range(20)]))
    bucket.reset()
    run(plan(RUN, ROLLOUT, "captures", pieces), bucket)
    run(store(pieces), bucket)
    run(verify(pieces, {}), bucket)
    assert bucket.costs == Costs(3, {"LIST": 1, "PUT": 20, "GET": 20})
