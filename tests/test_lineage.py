# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A parent is proven or not named at all."""

from __future__ import annotations

import pytest

from gym_objstore.cache import ParentMemory
from gym_objstore.errors import Corrupt, Unavailable
from gym_objstore.flow import run
from gym_objstore.lineage import ContextMatcher, Resolver, parent_of
from gym_objstore.store.memory import MemoryStore
from gym_objstore.tokens import put_entry
from tests.entries import QUESTION, answer, make_chain, make_entry, request_after

RUN = "run"


@pytest.fixture
def store():
    return MemoryStore()


def resolve(store, items, rollout="r1"):
    return run(Resolver(RUN, ContextMatcher(), ParentMemory()).resolve(rollout, items), store)


def put_all(store, entries):
    for entry in entries:
        run(put_entry(RUN, entry), store)


def entry_key(store, call):
    return next(meta.key for meta in store.scan("tokens/") if f"/entries/{call}." in meta.key)


@pytest.mark.parametrize("delta", [False, True])
def test_every_turn_of_a_chain_resolves_to_the_one_before(store, delta):
    put_all(store, make_chain("r1", 6, delta=delta))
    for turn in range(1, 7):
        found = resolve(store, request_after(*(f"t{before}" for before in range(turn))))
        assert found.match.model_call_id == f"c{turn - 1}"
        assert len(found.match.cumulative_token_ids) == 3 * turn


def test_an_empty_rollout_resolves_nothing(store):
    found = resolve(store, request_after("hi"))
    assert (found.status, found.reason) == ("unresolved", "no_match")


def test_calls_of_other_rollouts_are_no_candidates(store):
    put_all(store, [make_entry("r10")])
    assert resolve(store, request_after("hi")).status == "unresolved"


def test_a_context_that_was_shortened_or_changed_is_unresolved(store):
    put_all(store, make_chain("r1", 3))
    request = request_after("t0", "t1", "t2")
    assert resolve(store, request[1:]).status == "unresolved"
    assert resolve(store, [{"role": "user", "content": "SUMMARY"}, *request[1:]]).status == "unresolved"


def test_equal_siblings_collapse_to_the_smallest_id(store):
    put_all(store, [make_entry(call="b"), make_entry(call="a"), make_entry(call="c")])
    assert resolve(store, request_after("hi")).match.model_call_id == "a"


def test_different_siblings_are_ambiguous(store):
    put_all(store, [make_entry(call="a"), make_entry(call="b", generation_token_ids=[7, 9])])
    found = resolve(store, request_after("hi"))
    assert (found.status, found.reason) == ("unresolved", "ambiguous")


def test_a_call_with_two_payloads_is_no_candidate_and_its_sibling_is_not_thereby_chosen_wrongly(store):
    put_all(store, [make_entry(call="a"), make_entry(call="a", created_at=1.0)])
    assert resolve(store, request_after("hi")).status == "unresolved"
    put_all(store, [make_entry(call="b")])
    assert resolve(store, request_after("hi")).match.model_call_id == "b"


def test_a_damaged_candidate_raises_instead_of_leaving_the_other_one(store):
    put_all(store, [make_entry(call="a"), make_entry(call="b", generation_token_ids=[7, 9])])
    key = entry_key(store, "a")
    store.put(key, store.get(key)[:-1])
    with pytest.raises(Corrupt):
        resolve(store, request_after("hi"))


def test_a_candidate_that_vanished_is_unresolved(store):
    put_all(store, [make_entry(call="a")])

    class Vanishing(MemoryStore):
        def get(self, key):
            return super().get("tokens/none")

    vanishing = Vanishing()
    vanishing._objects = store._objects
    found = resolve(vanishing, request_after("hi"))
    assert (found.status, found.reason) == ("unresolved", "candidate_missing")


def test_a_delta_whose_chain_is_broken_is_an_error_not_a_shorter_sequence(store):
    put_all(store, make_chain("r1", 4, delta=True))
    store.delete([entry_key(store, "c1")])
    with pytest.raises(Corrupt, match="the tokens of the parent's chain fail its digest"):
        resolve(store, request_after("t0", "t1", "t2", "t3"))


def test_a_storage_error_is_an_error(store):
    class Down(MemoryStore):
        def scan(self, prefix):
            raise Unavailable("down")

    with pytest.raises(Unavailable):
        resolve(Down(), request_after("hi"))


def test_dialects_of_one_conversation_resolve_alike(store):
    put_all(store, [make_entry()])
    chat = [*QUESTION, {"role": "assistant", "content": "hi"}, {"role": "user", "content": "more"}]
    anthropic = [*QUESTION, {"role": "assistant", "content": [{"type": "text", "text": "hi"}]}]
    for items in (chat, anthropic, [*QUESTION, *answer("hi")]):
        assert resolve(store, items).match.model_call_id == "c1"


def test_a_remembered_parent_is_not_read_again(store):
    put_all(store, [make_entry()])
    memory = ParentMemory()
    first = run(Resolver(RUN, ContextMatcher(), memory).resolve("r1", request_after("hi")), store)
    store.get = None
    assert run(Resolver(RUN, ContextMatcher(), memory).resolve("r1", request_after("hi")), store) == first


def test_short_parents_are_no_more_than_gym_remembers_rollouts():
    memory = ParentMemory()
    parent = parent_of(make_entry())
    for number in range(65_536):
        memory.put(str(number), parent)
    assert memory.get("0") is None
    assert memory.get("65535") == parent
