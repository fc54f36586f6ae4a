# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""An entry's canonical bytes are those of the golden vectors, with unknown fields, or it is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gym_objstore.errors import Invalid
from gym_objstore.records import TokenEntry, parse_entry
from gym_objstore.sealing import seal
from tests.entries import CALL

VECTORS = json.loads((Path(__file__).parent / "vectors" / "entries.json").read_text("ascii"))
GOOD = [case for case in VECTORS if case["canonical"] is not None]


def entry(**changes: Any) -> TokenEntry:
    return parse_entry({**CALL, **changes})


def canonical(given: Any) -> bytes:
    return seal(given).canonical


@pytest.mark.parametrize("case", GOOD, ids=lambda case: case["name"])
def test_an_entry_has_the_canonical_bytes_of_the_vector_and_reads_back(case: dict[str, Any]) -> None:
    text = canonical(parse_entry(case["fields"]))
    assert text.decode() == case["canonical"]
    assert canonical(parse_entry(json.loads(text))) == text


def test_unknown_fields_are_kept_and_written_back() -> None:
    extra = {"zeta": {"b": [1, 2.5, None], "a": "é"}, "alpha": None}
    read = entry(**extra)
    assert {name: seal(read).fields[name] for name in extra} == extra
    assert canonical(read).startswith(b'{"alpha":null,')


def test_free_fields_are_what_pydantic_makes_of_them_for_json() -> None:
    plain = seal(entry(routed_experts=(1, math.nan), output_items=[{1: b"x"}])).fields
    assert json.dumps(plain["routed_experts"]).replace("NaN", "null") == "[1, null]"
    assert plain["output_items"] == [{"1": "x"}]
    assert b'"routed_experts":[1,null]' in canonical(entry(routed_experts=(1, math.nan)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "\ud800"}, "model cannot be written as JSON"),
        ({"output_items": [{"content": [{"text": "a\udc00"}]}]}, "output_items[0].content[0].text cannot be written"),
        ({"extra": {"a": 2**64}}, "extra.a cannot be written as JSON: integer exceeds 64-bit range"),
        ({"cum_len": 2**64}, "cum_len cannot be written as JSON: integer exceeds 64-bit range"),
        ({"output_items": [{"\ud800": 1}]}, "not a token entry that can be written as JSON, type=TokenEntry"),
        ({"extra": b"\xff"}, "not a token entry that can be written as JSON, type=TokenEntry"),
        ({"extra": object()}, "not a token entry that can be written as JSON, type=TokenEntry"),
    ],
)
def test_what_has_no_canonical_bytes_is_refused_by_its_path(changes: dict[str, Any], message: str) -> None:
    read = entry(**changes)
    with pytest.raises(Invalid) as refusal:
        canonical(read)
    assert str(refusal.value).startswith(message)
    assert str(refusal.value).isascii()


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("generation_log_probs", [math.nan, 0.0], r"generation_log_probs\[0\]: input should be a finite number"),
        ("prompt_token_ids", [-1], r"prompt_token_ids\[0\]: input should be greater than or equal to 0"),
        ("prompt_is_delta", True, "a delta needs a resolved parent"),
        ("generation_token_ids", [4], "each generated token must have one log probability"),
    ],
)
def test_an_entry_that_was_changed_is_checked_again(field: str, value: Any, message: str) -> None:
    changed = entry()
    setattr(changed, field, value)
    with pytest.raises(Invalid, match=message):
        canonical(changed)


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_numbers_as_text_are_not_stored() -> None:
    changed = entry()
    changed.prompt_token_ids = ["1"]  # type: ignore[list-item]
    with pytest.raises(Invalid, match="prompt_token_ids must hold numbers only"):
        canonical(changed)


@pytest.mark.parametrize("given", [None, {}, CALL, SimpleNamespace(model_dump=lambda mode: [mode])])
def test_what_is_no_entry_is_refused(given: Any) -> None:
    with pytest.raises(Invalid):
        canonical(given)


def test_an_entry_of_another_class_is_taken_by_its_dump() -> None:
    other = SimpleNamespace(model_dump=lambda mode: {**CALL, "mode": mode})
    assert canonical(other) == (
        b'{"generation_log_probs":[-0.25,-1.5],"generation_token_ids":[4,5],"mode":"json",'
        b'"model_call_id":"call-1","prompt_token_ids":[1,2,3],"rollout_id":"task-0"}'
    )
