# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The staging digests are the pinned ones, and values without bytes are refused."""

from __future__ import annotations

import enum
import json
import math
from pathlib import Path
from typing import Any

import pytest

from gym_objstore.errors import Invalid
from gym_objstore.staging_digests import (
    EMPTY_EXTRAS_DIGEST,
    compute_chain_hash,
    compute_extras_digest,
    compute_staging_digest,
    hash_token_ids,
)

VECTORS = json.loads((Path(__file__).parent / "vectors" / "staging-digests.json").read_text())

CALL: dict[str, Any] = {
    "schema_version": 2,
    "digest_version": 2,
    "extras_digest_version": 1,
    "rollout_id": "rollout-1",
    "model_call_id": "call-1",
    "parent_call_id": "parent-1",
    "mode": "token_in",
    "prev_len": 3,
    "delta_len": 2,
    "cum_len": 5,
    "weight_version": 7,
    "token_ids_delta": [10, 11],
    "token_mask_delta": [0.0, 1.0],
    "generation_log_probs_delta": [0.0, -0.25],
    "extras_digest": "032024e899456be6e9a78c6d0399c5112d2ca7fa18d4ea9cf0d8cb7d0094f3a3",
    "chain_hash": "1" * 64,
    "cumulative_hash": "2" * 64,
}


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


class Expert(enum.IntEnum):
    FIRST = 1


@pytest.mark.parametrize("case", VECTORS["cumulative"], ids=lambda case: str(len(case["token_ids"])))
def test_cumulative_hashes_are_pinned(case: dict[str, Any]) -> None:
    assert hash_token_ids(case["token_ids"]) == case["hash"]


@pytest.mark.parametrize("case", VECTORS["chain"])
def test_chain_hashes_are_pinned(case: dict[str, Any]) -> None:
    assert compute_chain_hash(case["parent"], case["token_ids"]) == case["hash"]


@pytest.mark.parametrize("case", VECTORS["extras"])
def test_extras_digests_are_pinned(case: dict[str, Any]) -> None:
    assert compute_extras_digest(case["extras"]) == case["digest"]


def test_no_extras_have_the_pinned_digest() -> None:
    assert VECTORS["empty_extras_digest"] == EMPTY_EXTRAS_DIGEST


def test_the_digest_of_a_staged_call_is_pinned() -> None:
    assert compute_staging_digest(CALL) == "1122c7fe7e914c809eb9b1c09b26d94a50c1eb2790e7430fbcd8363b846ccf27"


def test_fields_outside_the_layout_do_not_change_the_digest() -> None:
    assert compute_staging_digest({**CALL, "extras": {"a": 1}}) == compute_staging_digest(CALL)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rollout_id", "rollout-2"),
        ("model_call_id", "call-2"),
        ("parent_call_id", None),
        ("parent_call_id", "parent-2"),
        ("mode", "text"),
        ("prev_len", 4),
        ("delta_len", 3),
        ("cum_len", 6),
        ("weight_version", 8),
        ("token_ids_delta", [10, 12]),
        ("token_ids_delta", [10]),
        ("token_mask_delta", [1.0, 1.0]),
        ("generation_log_probs_delta", [-0.0, -0.25]),
        ("extras_digest", "3" * 64),
        ("chain_hash", "3" * 64),
        ("cumulative_hash", "3" * 64),
        ("schema_version", 3),
        ("digest_version", 3),
        ("extras_digest_version", 2),
    ],
)
def test_the_digest_covers_every_field(field: str, value: object) -> None:
    assert compute_staging_digest({**CALL, field: value}) != compute_staging_digest(CALL)


def test_log_probs_are_covered_to_32_bits() -> None:
    near = math.nextafter(-0.25, -1.0)
    assert compute_staging_digest({**CALL, "generation_log_probs_delta": [0.0, near]}) == compute_staging_digest(CALL)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rollout_id", "lone \ud800"),
        ("rollout_id", 1),
        ("parent_call_id", b"parent-1"),
        ("prev_len", -1),
        ("prev_len", 2**64),
        ("prev_len", True),
        ("schema_version", 256),
        ("schema_version", 2.0),
        ("token_ids_delta", [10, -1]),
        ("token_ids_delta", [10, 2**64]),
        ("token_ids_delta", [10, True]),
        ("token_ids_delta", [10, 11.0]),
        ("token_mask_delta", [0, 1.0]),
        ("generation_log_probs_delta", [0.0, math.nan]),
        ("generation_log_probs_delta", [0.0, -math.inf]),
        ("generation_log_probs_delta", [math.inf, -math.inf]),
        ("generation_log_probs_delta", [0.0, 1e39]),
        ("generation_log_probs_delta", [1e308, 1e308]),
        ("extras_digest", "A" * 64),
        ("chain_hash", "1" * 63),
        ("cumulative_hash", None),
    ],
)
def test_values_without_bytes_are_refused(field: str, value: object) -> None:
    with pytest.raises(Invalid):
        compute_staging_digest({**CALL, field: value})


@pytest.mark.parametrize(
    "value",
    [
        (1, 2),
        b"bytes",
        {1: "integer key"},
        {None: "no key"},
        {"lone \ud800": 1},
        "lone \udfff",
        math.nan,
        -math.inf,
        2**63,
        -(2**63) - 1,
        10**5000,
        Expert.FIRST,
        {1, 2},
        1j,
        nested(100_000),
    ],
    ids=lambda value: type(value).__name__,
)
def test_extras_of_other_types_are_refused_at_any_depth(value: object) -> None:
    with pytest.raises(Invalid) as refused:
        compute_extras_digest({"outer": [{"inner": value}]})
    assert refused.value.kind in {"bad_extras", "bad_text"}


def test_extras_that_contain_themselves_are_refused() -> None:
    extras: dict[str, Any] = {}
    extras["again"] = extras
    with pytest.raises(Invalid, match="nested too deeply or contain themselves"):
        compute_extras_digest(extras)


def test_a_refused_extra_is_named_by_its_path() -> None:
    with pytest.raises(Invalid, match=r"extras\['a'\]\['b'\] holds an unsupported type, type=tuple"):
        compute_extras_digest({"a": {"b": ()}})


def test_extras_must_be_a_mapping() -> None:
    with pytest.raises(Invalid, match="type=list"):
        compute_extras_digest([("a", 1)])


def test_the_order_of_keys_does_not_change_the_extras_digest() -> None:
    assert compute_extras_digest({"a": 1, "b": 2}) == compute_extras_digest({"b": 2, "a": 1})


@pytest.mark.parametrize(("one", "other"), [(1, 1.0), (1, True), (0.0, -0.0), ("1", 1), ([], {}), (None, [])])
def test_values_that_python_calls_equal_or_empty_have_different_digests(one: object, other: object) -> None:
    assert compute_extras_digest({"value": one}) != compute_extras_digest({"value": other})


def test_a_root_and_a_continuation_of_zeros_have_different_chain_hashes() -> None:
    assert compute_chain_hash(None, [1]) != compute_chain_hash("0" * 64, [1])


@pytest.mark.parametrize("parent", ["", "0" * 63, "G" * 64, "0" * 64 + "\n"])
def test_a_chain_hash_continues_hex_digests_only(parent: str) -> None:
    with pytest.raises(Invalid, match="parent_chain_hash must be 64 lower-case hex digits"):
        compute_chain_hash(parent, [1])
