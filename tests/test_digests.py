# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Digests and canonical JSON are bit for bit those of the golden vectors, and refuse what has none."""

from __future__ import annotations

import json
import subprocess
import sys
from array import array
from enum import IntEnum
from pathlib import Path
from typing import Any

import pytest

from gym_objstore.digests import are_token_ids, canonical_json, compute_digest, encode_token_ids, sha256_hex
from gym_objstore.errors import Invalid

VECTORS = json.loads((Path(__file__).parent / "vectors" / "digests.json").read_text("ascii"))
GOOD = [case for case in VECTORS if case["digest"] is not None]


@pytest.mark.parametrize("case", GOOD, ids=lambda case: case["name"])
def test_a_token_sequence_has_the_digest_of_the_vector(case: dict[str, Any]) -> None:
    assert compute_digest(case["token_ids"]) == case["digest"]
    assert compute_digest(tuple(case["token_ids"])) == case["digest"]
    assert encode_token_ids(case["token_ids"]).hex() == case["encoded"]


@pytest.mark.parametrize("case", [case for case in VECTORS if case not in GOOD], ids=lambda case: case["name"])
def test_what_the_vectors_refuse_is_refused(case: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        compute_digest(case["token_ids"])


def test_the_encoding_is_version_count_and_big_endian_words() -> None:
    assert encode_token_ids([1, 258]).hex() == "01" + "0000000000000002" + "0000000000000001" + "0000000000000102"


def test_the_empty_sequence_hashes_the_domain_alone() -> None:
    assert compute_digest([]) == sha256_hex(b"nemo-gym-tokens")


def test_other_sequences_of_integers_have_the_same_digest() -> None:
    class Token(IntEnum):
        FIRST = 1

    expected = compute_digest([1, 2])
    assert compute_digest(array("Q", [1, 2])) == expected
    assert compute_digest(range(1, 3)) == expected
    assert compute_digest([Token.FIRST, 2]) == expected


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (-1, "token id at position 2 is negative, value=-0x1"),
        (2**64, "token id at position 2 is more than 64 bits, value=0x10000000000000000"),
        pytest.param(10**5000, "token id at position 2 is more than 64 bits, value=0x", id="too long to print"),
        (True, "token id at position 2 must be an integer, type=bool"),
        (False, "token id at position 2 must be an integer, type=bool"),
        (3.0, "token id at position 2 must be an integer, type=float"),
        ("3", "token id at position 2 must be an integer, type=str"),
        (None, "token id at position 2 must be an integer, type=NoneType"),
        ([3], "token id at position 2 must be an integer, type=list"),
    ],
)
def test_a_bad_token_id_is_refused_by_its_position(bad: Any, message: str) -> None:
    ids = [0, 1, bad, -5]
    assert not are_token_ids(ids)
    with pytest.raises(Invalid) as refusal:
        compute_digest(ids)
    assert str(refusal.value).startswith(message)
    assert len(str(refusal.value)) < 120
    assert refusal.value.kind == "bad_token_id"


@pytest.mark.parametrize("value", [[], [0], [2**64 - 1], (1, 2)])
def test_plain_token_ids_are_told(value: Any) -> None:
    assert are_token_ids(value)


@pytest.mark.parametrize("value", [None, 5, "12", {}, {"1": 2}, [[]], [[1]], [1, []], [""], ["1,2"], object()])
def test_anything_else_is_told_apart_from_token_ids(value: Any) -> None:
    assert not are_token_ids(value)


def test_canonical_json_sorts_keys_and_keeps_every_float() -> None:
    value = {"b": [0.1, 1.0, -0.0, 1e-07, 5e-324, 1e22], "a": {"é": None, "Z": True}, "": 2**64 - 1}
    expected = '{"":18446744073709551615,"a":{"Z":true,"é":null},"b":[0.1,1.0,-0.0,1e-7,5e-324,1e+22]}'
    assert canonical_json(value) == expected.encode()


def test_canonical_json_writes_null_for_numbers_that_json_has_not() -> None:
    assert canonical_json([float("nan"), float("inf"), float("-inf")]) == b"[null,null,null]"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": [{"b": "x\ud800"}]}, "a[0].b cannot be written as JSON: str is not valid utf-8"),
        ({"a": {"x\udfff": 1}}, r"a key 'x\udfff' cannot be written as JSON: str is not valid utf-8"),
        ({"a": [0, 2**64]}, "a[1] cannot be written as JSON: integer exceeds 64-bit range"),
        ({"a": [0, {5: 1}]}, "a[1] cannot be written as JSON: dict key must be str"),
        ({"a": {1, 2}}, "a cannot be written as JSON: type is not json serializable: set"),
        (object(), "object cannot be written as JSON: type is not json serializable: object"),
    ],
)
def test_what_json_cannot_hold_is_refused_by_its_path(value: Any, message: str) -> None:
    with pytest.raises(Invalid) as refusal:
        canonical_json(value)
    assert str(refusal.value).startswith(message)
    assert str(refusal.value).isascii()
    assert refusal.value.kind == "not_json"


def test_nesting_is_followed_to_254_levels_and_a_cycle_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(253):
        deep = [deep]
    canonical_json(deep)
    with pytest.raises(Invalid, match="recursion limit"):
        canonical_json([deep, [[deep]]])
    deep[0] = deep
    with pytest.raises(Invalid, match="recursion limit"):
        canonical_json(deep)


def test_a_body_has_the_sha256_everyone_knows() -> None:
    assert sha256_hex(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_digests_and_fingerprints_load_no_model_classes() -> None:
    code = "import sys, gym_objstore.fingerprint, gym_objstore.responses; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
