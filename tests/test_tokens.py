# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Entries are stored exactly, verified on the way back, and everything wrong with a rollout is named."""

from __future__ import annotations

import pytest

from gym_objstore.errors import Corrupt, Invalid, NotFound, Retired
from gym_objstore.flow import run
from gym_objstore.index import read_index
from gym_objstore.keys import tombstone_key
from gym_objstore.objects import announcement
from gym_objstore.store.memory import MemoryStore
from gym_objstore.testing.wrapping import WrappedStore
from gym_objstore.tokens import Problem, begin_call, freeze, mark, prepare, put_entry, read_entry, refusal
from tests.entries import make_entry

RUN, ROLLOUT, PREFIX = "run", "r1", "tokens/run/r1/"


@pytest.fixture
def store():
    found = MemoryStore()
    marker = announcement("tokens", RUN)
    found.put(marker.key, marker.body)
    return found


def entry_keys(store) -> list[str]:
    return sorted(meta.key for meta in store.scan(f"{PREFIX}entries/"))


def problems(store) -> list[Problem]:
    return list(run(freeze(RUN, ROLLOUT), store).problems)


def test_the_name_carries_call_fingerprint_and_digest(store):
    prepared = run(put_entry(RUN, make_entry()), store)
    assert prepared.name.call == "c1"
    assert prepared.name.fingerprint == make_entry().continuation_fingerprint[:16]
    assert len(prepared.name.digest) == 64
    assert entry_keys(store) == [prepared.key]


def test_an_unstamped_entry_can_be_continued_by_nobody(store):
    entry = make_entry()
    entry.continuation_fingerprint = ""
    assert run(put_entry(RUN, entry), store).name.fingerprint == "none"


def test_an_entry_of_another_fingerprint_version_can_be_continued_by_nobody(store):
    entry = make_entry()
    entry.fingerprint_version = 99
    assert run(put_entry(RUN, entry), store).name.fingerprint == "none"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"generation_log_probs": [float("nan"), 0.0]}, "generation_log_probs"),
        ({"prompt_token_ids": [-1]}, "prompt_token_ids"),
        ({"rollout_id": ""}, "rollout id must not be empty"),
        ({"model_call_id": ""}, "model call id must not be empty"),
        ({"model": "\ud800"}, "model cannot be written as JSON"),
    ],
)
def test_what_nobody_could_train_on_is_refused_before_any_request(change, complaint):
    entry = make_entry()
    for name, value in change.items():
        setattr(entry, name, value)
    with pytest.raises(Invalid, match=complaint):
        run(put_entry(RUN, entry), store=None)


def test_a_clean_rollout_has_no_problems(store):
    run(begin_call(RUN, ROLLOUT, "c1"), store)
    run(put_entry(RUN, make_entry()), store)
    snapshot = run(freeze(RUN, ROLLOUT), store)
    assert (snapshot.incomplete, snapshot.problems, snapshot.version) == (False, (), 2)
    assert snapshot.entries == (make_entry(),)


def test_every_kind_of_loss_is_named_by_call(store):
    run(begin_call(RUN, ROLLOUT, "dangling"), store)
    marker = mark(RUN, ROLLOUT, "marked", {"at": 1.0})
    store.put(marker.key, marker.body)
    lone = mark(RUN, ROLLOUT, "", {"at": 2.0})
    store.put(lone.key, lone.body)
    run(put_entry(RUN, make_entry(call="twice")), store)
    run(put_entry(RUN, make_entry(call="twice", text="other")), store)
    store.put(f"{PREFIX}entries/of-tomorrow", b"x")
    assert problems(store) == [
        Problem("incomplete_marker", ""),
        Problem("incomplete_marker", "marked"),
        Problem("dangling_intent", "dangling"),
        Problem("conflict", "twice", "payloads=2"),
        Problem("foreign", "", "entries/of-tomorrow"),
    ]


def test_a_refused_call_is_no_loss(store):
    run(begin_call(RUN, ROLLOUT, "c9"), store)
    settled = refusal(RUN, ROLLOUT, "c9", {"code": "context_length"})
    store.put(settled.key, settled.body)
    assert problems(store) == []


def test_the_other_of_two_payloads_is_not_valid_either(store):
    run(put_entry(RUN, make_entry()), store)
    run(put_entry(RUN, make_entry(text="other")), store)
    assert run(freeze(RUN, ROLLOUT), store).entries == ()


def test_a_flipped_byte_is_found_or_changes_nothing(store):
    entry = make_entry()
    run(put_entry(RUN, entry), store)
    (key,) = entry_keys(store)
    body = store.get(key)
    for position in range(len(body)):
        damaged = bytearray(body)
        damaged[position] ^= 0x10
        store.put(key, bytes(damaged))
        snapshot = run(freeze(RUN, ROLLOUT), store)
        found = [(problem.kind, problem.model_call_id) for problem in snapshot.problems]
        assert found == [("corrupt", "c1")] or snapshot.entries == (entry,), position


def test_a_truncated_body_is_found(store):
    run(put_entry(RUN, make_entry()), store)
    (key,) = entry_keys(store)
    store.put(key, store.get(key)[:-1])
    assert [one.kind for one in problems(store)] == ["corrupt"]


def test_an_entry_under_another_rollout_or_call_is_misplaced(store):
    prepared = prepare("tokens/run/r2/", make_entry("r2"))
    store.put(f"{PREFIX}entries/{prepared.name.text}", prepared.body)
    assert [(one.kind, one.detail) for one in problems(store)] == [("corrupt", "the record belongs under another name")]
    elsewhere = prepared.name._replace(call="c2")
    with pytest.raises(Corrupt, match="belongs under another name"):
        read_entry("tokens/run/r2/", elsewhere, prepared.body)


def test_a_body_of_a_newer_format_is_said_to_be_that(store):
    prepared = prepare(PREFIX, make_entry())
    store.put(f"{PREFIX}entries/{prepared.name._replace(format='zz9').text}", prepared.body)
    assert [one.kind for one in problems(store)] == ["newer_format"]


def test_a_listed_entry_that_is_gone_is_missing(store):
    run(put_entry(RUN, make_entry()), store)
    (key,) = entry_keys(store)

    class Gone(MemoryStore):
        def get(self, wanted):
            return super().get(wanted if wanted != key else "tokens/none")

    gone = Gone()
    gone._objects = store._objects
    assert problems(gone) == [Problem("missing", "c1")]


def test_folder_marks_of_other_clients_are_no_objects(store):
    run(put_entry(RUN, make_entry()), store)
    before = run(freeze(RUN, ROLLOUT), store)
    store._objects[f"{PREFIX}entries/"] = (b"", 0.0)
    after = run(freeze(RUN, ROLLOUT), store)
    assert (after.snapshot_id, after.version) == (before.snapshot_id, before.version)


def test_a_run_that_nobody_wrote_to_is_said_not_shown_empty():
    with pytest.raises(NotFound, match="nothing was ever written to this run here, run_id=run") as refused:
        run(freeze(RUN, ROLLOUT), MemoryStore())
    assert refused.value.kind == "no_writer"
    assert "same url and run id" in refused.value.hint


def test_a_retired_rollout_can_neither_be_written_nor_frozen(store):
    store.put(tombstone_key(PREFIX), b"x")
    for flow in (put_entry(RUN, make_entry()), begin_call(RUN, ROLLOUT, "c2"), freeze(RUN, ROLLOUT)):
        with pytest.raises(Retired, match="the rollout is retired"):
            run(flow, store)


def test_the_snapshot_id_follows_from_the_contents_alone(store):
    run(put_entry(RUN, make_entry()), store)
    index = run(read_index(PREFIX), store)
    assert run(freeze(RUN, ROLLOUT), store).snapshot_id == index.snapshot_id
    other = MemoryStore()
    run(put_entry(RUN, make_entry()), other)
    assert run(read_index(PREFIX), other).snapshot_id == index.snapshot_id
    run(put_entry(RUN, make_entry(call="c2")), other)
    assert run(read_index(PREFIX), other).snapshot_id != index.snapshot_id


def test_an_entry_that_only_arrived_damaged_is_read_again(store):
    class Noisy(WrappedStore):
        reads = 0

        def get(self, key):
            body = super().get(key)
            self.reads += "/entries/" in key
            return body[:-9] if self.reads == 1 else body

    run(put_entry(RUN, make_entry()), store)
    noisy = Noisy(store)
    found = run(freeze(RUN, ROLLOUT), noisy)
    assert (found.problems, len(found.entries), noisy.reads) == ((), 1, 2)
