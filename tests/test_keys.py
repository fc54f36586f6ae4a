# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Keys are built and parsed in one module, and their form is part of the format."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_objstore import keys, names
from gym_objstore.errors import Invalid

DIGEST = "ab" * 32
LONG = "x" * 300


def entry(call: str = "c1", parent: str = names.FULL, fingerprint: str = "0123456789abcdef") -> names.EntryName:
    return names.EntryName(call, parent, fingerprint, DIGEST, "json")


def test_the_keys_of_a_rollout_have_this_form():
    rollout = keys.rollout_prefix("tokens", "Run 1", "0-0")
    assert rollout == "tokens/!52un!201/0-0/"
    assert keys.entry_key(rollout, entry()) == f"{rollout}entries/c1.full.0123456789abcdef.{DIGEST}.json"
    assert keys.intent_key(rollout, "c1") == f"{rollout}intents/c1"
    assert keys.note_key(rollout, "markers", "", b"x") == f"{rollout}markers/!.2d711642b726b044"
    assert keys.tombstone_key(rollout) == f"{rollout}fences/tombstone"
    assert keys.drop_key(rollout, names.DropName(DIGEST, "0" * 16)) == f"{rollout}fences/drop.{DIGEST}.{'0' * 16}"
    assert keys.writer_key("tokens", "Run 1") == "tokens/!52un!201/!run/writer"


def test_the_longest_keys_stay_within_the_limits():
    rollout = keys.rollout_prefix("manifests", LONG, LONG)
    key = keys.entry_key(rollout, entry(keys.segment(LONG), "0" * 12)._replace(format="abcdef"))
    assert max(len(part) for part in key.split("/")) <= 200
    assert len(key) <= 500


@given(
    st.text(max_size=60), st.sampled_from([names.FULL, "0123456789ab"]), st.sampled_from([names.UNSTAMPED, "f" * 16])
)
def test_an_entry_name_parses_back_whatever_the_call_id(call, parent, fingerprint):
    name = entry(keys.segment(call), parent, fingerprint)
    assert names.parse_entry_name(name.text) == name


@pytest.mark.parametrize(
    "name", ["c1", f"c1.{DIGEST}.json", f".full.none.{DIGEST}.json", f"c1.full.none.{DIGEST}.JSON"]
)
def test_other_names_are_no_entries(name):
    assert names.parse_entry_name(name) is None


def test_notes_and_drop_intents_parse_back():
    assert names.parse_note_name("!.2d711642b726b044") == names.NoteName("!", "2d711642b726b044")
    assert names.parse_note_name("c1") is None
    assert names.parse_drop_name(f"drop.{DIGEST}.{'0' * 16}") == names.DropName(DIGEST, "0" * 16)
    assert names.parse_drop_name("tombstone") is None


def test_a_key_splits_into_its_parts():
    assert keys.parse("tokens/run/0-0/entries/x") == keys.Parts("tokens", "run", "0-0", "entries", "x")


@pytest.mark.parametrize(
    "key", ["", "tokens", "tokens/r/o/entries/", "other/r/o/entries/x", "tokens/r/!run/writer/x", "tokens/r/o/e//y"]
)
def test_foreign_keys_are_refused(key):
    with pytest.raises(Invalid, match="not an object key"):
        keys.parse(key)


@pytest.mark.parametrize(("run", "rollout"), [("", "r"), ("run", "")])
def test_empty_run_and_rollout_ids_are_refused(run, rollout):
    with pytest.raises(Invalid, match="must not be empty"):
        keys.rollout_prefix("tokens", run, rollout)


def test_a_call_is_pointed_at_by_twelve_digits():
    assert names.call_mark("c1") == "d0f631ca1ddb"
