# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of Gym's ledger become ours and Gym's again, and what is no row is refused by name, never by a crash."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_objstore.errors import Corrupt, Invalid
from gym_objstore.gym_rows import gym_row, ledger_body, parse_row, row_text
from gym_objstore.importing import entry_piece, row_piece
from gym_objstore.objects import read_object
from tests.gym_files import ledger_file
from tests.model_traffic import JSON


@pytest.fixture(scope="module")
def lines(tmp_path_factory) -> list[bytes]:
    folder = tmp_path_factory.mktemp("ledger")
    store = ledger_file(folder, "0-0")
    assert asyncio.run(store.has_rows("0-0"))
    return (folder / "0-0.lineage.jsonl").read_bytes().splitlines()


def test_a_row_is_the_same_line_after_it_was_an_object(lines):
    for line in lines[:2]:
        assert row_text(gym_row(read_object(ledger_body("0-0", parse_row(line))))) == line


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fingerprint": 5}, "columns=fingerprint"),
        ({"fingerprint": "zz"}, "columns=fingerprint"),
        ({"context_len": None, "context_digest": ""}, "columns=context_digest, context_len"),
        ({"context_len": True}, "columns=context_len"),
        ({"staging_chain": ["k", 1]}, "columns=staging_chain"),
        ({"weight_version": "7"}, "weight_version: input should be a valid integer"),
        ({"cum_len": 1}, "cum_len must be prev_len"),
        ({"capture_key": "k"}, "columns=capture_key"),
    ],
)
def test_what_does_not_fit_is_named(lines, change, message):
    with pytest.raises(Invalid, match=message):
        ledger_body("0-0", {**parse_row(lines[0]), **change})


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"{}", b'{"model_call_id":""}', b'{"model_call_id":5}'])
def test_what_names_no_call_is_no_row(text):
    with pytest.raises(Invalid):
        parse_row(text)


@given(column=st.integers(0, 19), value=JSON, reason=JSON)
def test_no_value_in_a_row_is_more_than_refused(lines, column, value, reason):
    row = parse_row(lines[0])
    name = sorted(row)[column % len(row)]
    for strange in ({**row, name: value}, {**row, "failure_reason": reason}):
        try:
            row_piece("run", "0-0", parse_row(json.dumps(strange).encode()))
        except Invalid:
            continue


@given(JSON | st.fixed_dictionaries({"rollout_id": JSON, "model_call_id": JSON, "prompt_token_ids": JSON}))
def test_no_value_in_a_token_line_is_more_than_refused(value):
    with pytest.raises(Invalid):
        entry_piece("run", "0-0", json.dumps(value).encode())


@pytest.mark.parametrize("said", [{}, {"record": 5}, {"record": {}}, {"record": {"digest": "d"}, "staging_chain": []}])
def test_an_object_that_is_no_row_is_corrupt(said):
    with pytest.raises(Corrupt):
        gym_row(said)
