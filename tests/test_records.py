# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A token entry is what the golden vectors say, and is refused where it would train wrong."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from gym_objstore.errors import Invalid
from gym_objstore.records import (
    LineageMatch,
    LineageResolution,
    ParentResolutionStatus,
    TokenEntry,
    parse_entry,
)
from tests.entries import CALL

VECTORS = json.loads((Path(__file__).parent / "vectors" / "entries.json").read_text("ascii"))
GOOD = [case for case in VECTORS if case["canonical"] is not None]
MATCH = LineageMatch("call-0", (1, 2), "0" * 64)


def entry(**changes: Any) -> TokenEntry:
    return parse_entry({**CALL, **changes})


@pytest.mark.parametrize("case", [case for case in VECTORS if case not in GOOD], ids=lambda case: case["name"])
def test_what_the_vectors_refuse_is_refused(case: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match=r"^the token entry is refused: "):
        parse_entry(case["fields"])


def test_the_least_entry_has_the_defaults_of_the_wire() -> None:
    assert entry().model_dump(mode="json") == {
        **CALL,
        "schema_version": 1,
        "model": "",
        "routed_experts": None,
        "output_items": [],
        "token_item_index": None,
        "response_id": None,
        "created_at": 0.0,
        "parent_call_id": None,
        "cum_len": None,
        "digest": None,
        "parent_resolution": None,
        "continuation_fingerprint": "",
        "continuation_context_len": 0,
        "continuation_context_digest": "",
        "parent_resolution_reason": "",
        "fingerprint_version": None,
        "prompt_is_delta": False,
        "prefix_requested": False,
        "prefix_supplied": False,
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompt_token_ids": [1, -1]}, "prompt_token_ids[1]: input should be greater than or equal to 0, value=-1"),
        ({"prompt_token_ids": [1, 2**64]}, "prompt_token_ids[1]: input should be less than 18446744073709551616"),
        ({"prompt_token_ids": [1, True]}, "prompt_token_ids[1]: must not be a bool, value=True"),
        ({"prompt_token_ids": [1.0]}, "prompt_token_ids[0]: must not be a float, value=1.0"),
        ({"prompt_token_ids": ["one"]}, "prompt_token_ids[0]: input should be a valid integer"),
        ({"prompt_token_ids": {1, 2}}, "prompt_token_ids: a set has no order"),
        ({"prompt_token_ids": None}, "prompt_token_ids: input should be a valid list"),
        ({"prompt_token_ids": "123"}, "prompt_token_ids: input should be a valid list"),
        ({"generation_token_ids": [4, -5]}, "generation_token_ids[1]: input should be greater than or equal to 0"),
        (
            {"generation_log_probs": [0.0, math.nan]},
            "generation_log_probs[1]: input should be a finite number, value=nan",
        ),
        (
            {"generation_log_probs": [-math.inf, 0.0]},
            "generation_log_probs[0]: input should be a finite number, value=-inf",
        ),
        (
            {"generation_log_probs": ["nan", 0.0]},
            "generation_log_probs[0]: input should be a finite number, value='nan'",
        ),
        ({"generation_log_probs": [True, 0.0]}, "generation_log_probs[0]: must not be a bool, value=True"),
        (
            {"generation_log_probs": [0.0]},
            "record: each generated token must have one log probability, tokens=2, log_probs=1",
        ),
        ({"created_at": math.nan}, "created_at: input should be a finite number, value=nan"),
        (
            {"output_items": [{}], "token_item_index": 1},
            "record: token_item_index is outside output_items, index=1, items=1",
        ),
        ({"parent_resolution": "resolved"}, "record: a resolved call must name its parent_call_id"),
        (
            {"parent_resolution": "root", "parent_call_id": "c"},
            "record: a call that is root must not name a parent_call_id",
        ),
        ({"prompt_is_delta": True, "parent_call_id": "c"}, "record: a prompt that is a delta needs a resolved parent"),
        ({"schema_version": 0}, "schema_version: no such schema was ever written, schema_version=0"),
        ({"model": 5}, "model: input should be a valid string, value=5"),
        ({"rollout_id": None}, "rollout_id: input should be a valid string"),
        ({"\ud800": 1}, "record: input should be a valid string, unable to parse raw data as a unicode string"),
        ({7: 1}, "[7]: keys should be strings, value=7"),
    ],
)
def test_an_unfit_entry_is_refused_by_field_and_position(changes: dict[Any, Any], message: str) -> None:
    with pytest.raises(Invalid) as refusal:
        parse_entry({**CALL, **changes})
    assert str(refusal.value).removeprefix("the token entry is refused: ").startswith(message)
    assert str(refusal.value).isascii()
    assert len(str(refusal.value)) < 250
    assert refusal.value.kind == "bad_record"


def test_a_newer_schema_is_refused_as_such_whatever_else_is_new() -> None:
    with pytest.raises(Invalid, match="newer schema") as refusal:
        entry(schema_version=2, prompt_token_ids={"columns": 2})
    assert refusal.value.kind == "newer_schema"
    assert "upgrade" in refusal.value.hint


@pytest.mark.parametrize("given", [None, 5, [], "{}", object()])
def test_what_is_no_mapping_is_refused(given: Any) -> None:
    with pytest.raises(Invalid):
        parse_entry(given)


def test_a_huge_number_is_refused_without_printing_it() -> None:
    with pytest.raises(Invalid, match=r"prompt_token_ids\[0\]: .*616$"):
        entry(prompt_token_ids=[10**5000])


def test_numbers_as_text_and_other_sequences_become_lists_of_numbers() -> None:
    read = entry(prompt_token_ids=("1", 2), generation_log_probs=["-0.5", 0])
    assert read.prompt_token_ids == [1, 2]
    assert read.generation_log_probs == [-0.5, 0.0]
    assert parse_entry(MappingProxyType(CALL)).model_call_id == "call-1"


def test_an_entry_does_not_follow_the_lists_it_was_built_from() -> None:
    prompt, probs = [1, 2], [-0.25, -1.5]
    built = TokenEntry(**{**CALL, "prompt_token_ids": prompt, "generation_log_probs": probs})
    prompt.append(3)
    probs.append(0.0)
    assert built.prompt_token_ids == [1, 2]
    assert built.generation_log_probs == [-0.25, -1.5]


def test_a_resolution_has_a_match_exactly_when_it_is_resolved() -> None:
    assert LineageResolution(ParentResolutionStatus.RESOLVED, MATCH).reason == ""
    assert LineageResolution(ParentResolutionStatus.UNRESOLVED, reason="ambiguous").match is None
    with pytest.raises(Invalid, match="status=resolved"):
        LineageResolution(ParentResolutionStatus.RESOLVED)
    with pytest.raises(Invalid, match="status=root"):
        LineageResolution(ParentResolutionStatus.ROOT, MATCH)


def test_matches_and_resolutions_are_frozen_values() -> None:
    resolution = LineageResolution(ParentResolutionStatus.RESOLVED, MATCH)
    assert pickle.loads(pickle.dumps(resolution)) == resolution
    assert (MATCH.staging_chain, MATCH.prev_len, MATCH.chain_hash) == ((), 0, "")
    with pytest.raises(AttributeError):
        MATCH.prev_len = 1  # type: ignore[misc]


def test_an_entry_survives_pickling() -> None:
    assert pickle.loads(pickle.dumps(entry(extra=1))) == entry(extra=1)
