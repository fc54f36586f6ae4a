# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Sequences are rebuilt from proven links only."""

from __future__ import annotations

import random

import pytest

from gym_objstore.trajectories import Trajectory, rebuild
from tests.entries import make_chain, make_entry


@pytest.mark.parametrize("delta", [False, True])
def test_a_chain_is_one_sequence_with_prompts_masked_out(delta):
    entries = make_chain("r1", 3, delta=delta)
    random.Random(7).shuffle(entries)
    rebuilt = rebuild(entries)
    assert rebuilt.unplaced == {}
    assert rebuilt.trajectories == (
        Trajectory(
            model_call_ids=("c0", "c1", "c2"),
            token_ids=(100, 1000, 2000, 101, 1001, 2001, 102, 1002, 2002),
            mask=(0, 1, 1, 0, 1, 1, 0, 1, 1),
            log_probs=(0.0, -0.5, -0.25, 0.0, -0.5, -0.25, 0.0, -0.5, -0.25),
        ),
    )


def test_a_branch_gives_a_sequence_each_longest_first():
    entries = make_chain("r1", 3)
    branch = make_chain("r1", 2)[1].model_copy(update={"model_call_id": "b1"})
    rebuilt = rebuild([*entries, branch])
    assert [one.model_call_ids for one in rebuilt.trajectories] == [("c0", "c1", "c2"), ("c0", "b1")]


def test_a_missing_parent_displaces_all_that_follow():
    entries = make_chain("r1", 4)
    del entries[1]
    rebuilt = rebuild(entries)
    assert rebuilt.unplaced == {"c2": "missing_parent", "c3": "parent_refused"}
    assert [one.model_call_ids for one in rebuilt.trajectories] == [("c0",)]


def test_a_prompt_that_does_not_continue_its_parent_is_refused():
    entries = make_chain("r1", 2)
    entries[1].prompt_token_ids[0] = 5
    assert rebuild(entries).unplaced == {"c1": "not_a_continuation"}


def test_tokens_that_fail_their_digest_are_refused():
    entries = make_chain("r1", 2)
    entries[1].generation_token_ids[0] = 5
    assert rebuild(entries).unplaced == {"c1": "digest_mismatch"}


def test_an_unresolved_call_is_never_attached():
    entry = make_entry()
    entry.parent_resolution = "unresolved"
    assert rebuild([entry]) == ((), {"c1": "unresolved_parent"})


def test_a_cycle_is_named():
    entries = make_chain("r1", 3, delta=True)[1:]
    entries[0].parent_call_id = "c2"
    assert set(rebuild(entries).unplaced) == {"c1", "c2"}
    assert "cycle" in rebuild(entries).unplaced.values()


def test_thousands_of_turns_need_no_recursion():
    entries = make_chain("r1", 1500, delta=True, stamped=False)
    (only,) = rebuild(reversed(entries)).trajectories
    assert len(only.token_ids) == 4500


def test_no_entries_no_sequences():
    assert rebuild([]) == ((), {})
