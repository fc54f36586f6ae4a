# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What the client may see of a worker's answer, and which coordinates the ledger believes."""

from __future__ import annotations

from typing import Any

import pytest

from gym_objstore.admission import Refusal
from gym_objstore.commit import commit_of, served_answer
from gym_objstore.fingerprint import assistant_fingerprint
from gym_objstore.staged_calls import admit, failed_coords, staged_coords
from gym_objstore.testing.staged_rollouts import admission, staged_call
from gym_objstore.wire_ledger import CaptureLedgerCommit
from gym_objstore.wire_staging import CaptureAdmission

PARENT = staged_call("c1")
CHILD = staged_call("c2", after=[PARENT])
ADMITTED = CaptureAdmission(
    rollout_id="rollout-1",
    model_call_id="c2",
    mode="token_in",
    parent_call_id="c1",
    prev_len=4,
    staging_chain=("k1",),
    parent_chain_hash=PARENT.chain_hash,
)
COORDS = staged_coords(CHILD, "k2").model_dump(mode="json")
SERVED = {"id": "chatcmpl-1", "choices": [{"index": 0, "message": {"role": "assistant", "content": "yo"}}]}
ASKED = [{"role": "user", "content": "hi"}]


def commit(coords: Any = COORDS, served: Any = SERVED, asked: Any = ASKED) -> CaptureLedgerCommit | Refusal:
    answer = {**served, "ng_commit_coords": coords}
    return commit_of(ADMITTED, answer, served=served, request_items=asked, admitted_at=12.5)


def test_a_staged_call_becomes_a_ledger_row():
    said = {"type": "message", "role": "assistant", "content": "yo"}
    found = commit()
    assert isinstance(found, CaptureLedgerCommit)
    assert found.record.model_dump() == {
        "schema_version": 2,
        "digest_version": 2,
        "extras_digest_version": 1,
        "model_call_id": "c2",
        "parent_call_id": "c1",
        "prev_len": 4,
        "delta_len": 4,
        "cum_len": 8,
        "weight_version": 7,
        "digest": CHILD.digest,
        "extras_digest": CHILD.extras_digest,
        "chain_hash": CHILD.chain_hash,
        "cumulative_hash": CHILD.cumulative_hash,
        "staging_key": "k2",
        "mode": "token_in",
        "response_id": "chatcmpl-1",
        "admitted_at": 12.5,
        "output_fingerprint": assistant_fingerprint([said]),
        "continuation_fingerprint": assistant_fingerprint([*ASKED, said]),
        "fingerprint_version": 2,
    }
    assert (found.rollout_id, found.staging_chain) == ("rollout-1", ("k1", "k2"))
    assert (found.request_items, found.response_items) == (tuple(ASKED), (said,))


def test_an_answer_without_coordinates_has_its_own_reason():
    assert commit(None) == Refusal(
        "worker_response_missing_commit_coordinates", "the worker answered without coordinates"
    )


def test_coordinates_of_a_failed_capture_have_their_own_reason():
    failed = failed_coords(admit(admission("c2", after=[PARENT]), 7, None))
    assert commit(failed.model_dump(mode="json")).reason == "worker_capture_failed"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"rollout_id": "rollout-2"}, "rollout_id='rollout-2'"),
        ({"model_call_id": "c9"}, "model_call_id='c9'"),
        ({"parent_call_id": "c0"}, "parent_call_id='c0'"),
        ({"prev_len": 3, "cum_len": 7}, "prev_len=3"),
        ({"parent_call_id": None, "prev_len": 0, "cum_len": 4}, "parent_call_id=None"),
        ({"staging_key": "k1"}, "an ancestor's coordinates again"),
        ({"chain_hash": PARENT.chain_hash}, "the parent's chain_hash again"),
        ({"cum_len": 9}, "cum_len must be"),
        ({"delta_len": 0, "cum_len": 4}, "delta"),
        ({"digest": "xyz"}, "digest"),
        ({"staging_key": None}, "staging_key"),
        ({"schema_version": 3}, "schema_version"),
        ({"newer": 1}, "newer"),
        ({"weight_version": -1}, "weight_version"),
    ],
)
def test_wrong_coordinates_are_refused_and_say_what_is_wrong(wrong, said):
    found = commit({**COORDS, **wrong})
    assert isinstance(found, Refusal)
    assert found.reason == "invalid_worker_commit_coordinates"
    assert said in found.why


@pytest.mark.parametrize("coords", ["text", 5, [], {}])
def test_coordinates_of_another_shape_are_refused(coords):
    assert commit(coords).reason == "invalid_worker_commit_coordinates"


def test_the_coordinates_of_the_call_before_are_refused():
    assert commit(staged_coords(PARENT, "k1").model_dump(mode="json")).reason == "invalid_worker_commit_coordinates"


@pytest.mark.parametrize("identity", [None, "", 7])
def test_a_served_response_without_an_id_is_refused(identity):
    found = commit(served={**SERVED, "id": identity})
    assert (found.reason, "has no id" in found.why) == ("invalid_worker_commit_coordinates", True)


def test_a_namespaced_call_has_the_fingerprint_of_its_joined_name():
    call = {"type": "function_call", "call_id": "f1", "name": "look", "namespace": "maps", "arguments": "{}"}
    joined = {"type": "function_call", "call_id": "f1", "name": "maps__look", "arguments": "{}"}
    found = commit(served={"id": "resp_1", "output": [call]})
    assert found.record.output_fingerprint == assistant_fingerprint([joined])
    assert found.response_items == (call,)


def test_an_answer_in_which_nothing_was_said_has_no_fingerprint():
    found = commit(served={"id": "resp_1", "output": [{"type": "reasoning", "summary": []}]})
    assert (found.record.output_fingerprint, found.record.continuation_fingerprint) == (None, None)


def test_what_cannot_be_hashed_is_refused():
    found = commit(asked=[{"role": "assistant", "content": "\ud800"}])
    assert found.reason == "invalid_worker_commit_coordinates"


def test_tokens_and_internal_fields_do_not_reach_the_client():
    arrays = {
        "prompt_token_ids": [1],
        "generation_token_ids": [2],
        "generation_log_probs": [-1.0],
        "routed_experts": "x",
    }
    message = {"role": "assistant", "content": "yo", "compact_prompt_token_ids": [1], "ng_note": 1, **arrays}
    choice = {"index": 0, "finish_reason": "stop", "logprobs": {"content": []}, "token_ids": [2], "message": message}
    answer = {
        "id": "a",
        "choices": [choice],
        "prompt_token_ids": [1],
        "prompt_logprobs": [],
        "ng_commit_coords": COORDS,
    }
    before = repr(answer)
    assert served_answer(answer) == {
        "id": "a",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "yo"}}],
    }
    assert repr(answer) == before
    assert served_answer({"output": [{"type": "message", **arrays}], "ng_x": 1}) == {"output": [{"type": "message"}]}
    assert served_answer({"content": [{"type": "text", "text": "yo", **arrays}]}) == {
        "content": [{"type": "text", "text": "yo"}]
    }


def test_answers_of_other_shapes_are_left_as_they_are():
    odd = {"choices": [None, "x", {"message": None}], "output": "text", "content": [1]}
    assert served_answer(odd) == odd


def test_a_tool_may_have_an_argument_that_is_named_like_a_token_field():
    block = {"type": "tool_use", "id": "t", "name": "n", "input": {"token_ids": [1], "ng_x": 2}}
    assert served_answer({"content": [block]}) == {"content": [block]}
