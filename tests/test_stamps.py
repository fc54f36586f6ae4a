# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Stamping fills in lineage fields that agree with the entry's tokens and messages, or changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from gym_objstore.digests import compute_digest
from gym_objstore.errors import Invalid
from gym_objstore.fingerprint import assistant_fingerprint, conversation_digest
from gym_objstore.records import ParentResolutionStatus, TokenEntry, parse_entry
from gym_objstore.stamps import cumulative_tokens, stamp_continuation, stamp_lineage

RESOLVED = ParentResolutionStatus.RESOLVED
QUESTION = {"role": "user", "content": "What is 2 + 2?"}
ANSWER = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "4"}]}


def entry(**changes: Any) -> TokenEntry:
    return parse_entry(
        {
            "rollout_id": "task-0",
            "model_call_id": "call-1",
            "prompt_token_ids": [1, 2, 3],
            "generation_token_ids": [4],
            "generation_log_probs": [-0.25],
            "output_items": [ANSWER],
            **changes,
        }
    )


def delta() -> TokenEntry:
    return entry(prompt_is_delta=True, parent_call_id="call-0", parent_resolution="resolved")


def test_the_whole_sequence_is_prompt_and_generation() -> None:
    assert cumulative_tokens(entry()) == [1, 2, 3, 4]


def test_a_delta_alone_has_no_whole_sequence() -> None:
    with pytest.raises(Invalid, match="only the end of its prompt, model_call_id='call-1'") as refusal:
        cumulative_tokens(delta())
    assert refusal.value.kind == "delta"


def test_lineage_is_stamped_on_the_entry_itself() -> None:
    stamped = entry()
    assert stamp_lineage(stamped, "call-0", parent_resolution=RESOLVED) is stamped
    assert (stamped.parent_call_id, stamped.parent_resolution, stamped.cum_len) == ("call-0", RESOLVED, 4)
    assert stamped.digest == compute_digest([1, 2, 3, 4])


def test_a_call_without_a_decision_is_stamped_without_one() -> None:
    stamped = stamp_lineage(entry(), None, cumulative=(1, 2, 3, 4))
    assert (stamped.parent_call_id, stamped.parent_resolution, stamped.cum_len) == (None, None, 4)


def test_a_delta_is_stamped_with_the_sequence_it_ends() -> None:
    stamped = stamp_lineage(delta(), "call-0", parent_resolution=RESOLVED, cumulative=[9, 8, 1, 2, 3, 4])
    assert (stamped.cum_len, stamped.digest) == (6, compute_digest([9, 8, 1, 2, 3, 4]))


@pytest.mark.parametrize("whole", [[], [4], [1, 2, 3], [1, 2, 3, 5], [9, 1, 2, 3, 4]])
def test_a_sequence_that_is_not_the_entrys_own_is_refused_and_nothing_is_changed(whole: list[int]) -> None:
    stamped = entry()
    with pytest.raises(Invalid, match="does not end in the entry's own tokens, model_call_id='call-1'"):
        stamp_lineage(stamped, None, cumulative=whole)
    assert stamped == entry()


@pytest.mark.parametrize("whole", [None, [2, 3, 4], [1, 2, 3, 5], [1, 2, 3, 4, 9]])
def test_a_delta_is_refused_without_a_sequence_that_it_ends(whole: list[int] | None) -> None:
    stamped = delta()
    with pytest.raises(Invalid):
        stamp_lineage(stamped, "call-0", parent_resolution=RESOLVED, cumulative=whole)
    assert stamped == delta()


@pytest.mark.parametrize(
    ("status", "parent"),
    [("resolved", None), ("resolved", ""), ("root", "call-0"), ("unresolved", "call-0"), ("unresolved", "")],
)
def test_a_parent_that_contradicts_its_status_is_refused_and_nothing_is_changed(
    status: str, parent: str | None
) -> None:
    stamped = entry()
    with pytest.raises(Invalid, match="parent_call_id"):
        stamp_lineage(stamped, parent, parent_resolution=ParentResolutionStatus(status))
    assert stamped == entry()


def test_a_continuation_stamp_is_the_hash_of_what_a_later_request_begins_with() -> None:
    stamped = entry()
    assert stamp_continuation(stamped, [QUESTION]) is stamped
    assert stamped.continuation_fingerprint == assistant_fingerprint([QUESTION, ANSWER])
    assert stamped.continuation_context_digest == conversation_digest([QUESTION])
    assert (stamped.continuation_context_len, stamped.fingerprint_version) == (1, 2)


def test_messages_that_cannot_be_hashed_are_refused_and_nothing_is_changed() -> None:
    stamped = entry()
    with pytest.raises(Invalid, match="message 1 "):
        stamp_continuation(stamped, [QUESTION, {"role": "user", "content": 5}])
    assert stamped == entry()
