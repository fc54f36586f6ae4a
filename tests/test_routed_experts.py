# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Routed experts survive their envelope, and nothing else passes for them."""

from __future__ import annotations

from typing import Any

import pytest

from gym_objstore.errors import Invalid
from gym_objstore.routed_experts import (
    classify_route_span,
    decode_routed_experts,
    encode_routed_experts,
    routed_experts_token_count,
)

CUBE = [[[1, 2]], [[3, -4]], [[127, 0]]]
ENVELOPES = {
    "int8": "nrlre1:int8:3x1x2:AQID/H8A",
    "int16": "nrlre1:int16:3x1x2:AQACAAMA/P9/AAAA",
    "int32": "nrlre1:int32:3x1x2:AQAAAAIAAAADAAAA/P///38AAAAAAAAA",
}


@pytest.mark.parametrize("dtype", ENVELOPES)
def test_envelopes_are_pinned_and_read_back(dtype: str) -> None:
    envelope = ENVELOPES[dtype]
    assert encode_routed_experts(CUBE, dtype=dtype) == envelope
    cube = decode_routed_experts(envelope)
    assert (cube.values, cube.dtype, cube.shape) == (CUBE, dtype, (3, 1, 2))
    assert routed_experts_token_count(envelope) == 3


def test_int16_is_the_default() -> None:
    assert encode_routed_experts(CUBE) == ENVELOPES["int16"]


def test_nested_lists_are_the_older_form() -> None:
    cube = decode_routed_experts(CUBE)
    assert (cube.values, cube.dtype, cube.shape) == (CUBE, "legacy-int", (3, 1, 2))
    assert cube.values is not CUBE
    assert routed_experts_token_count(CUBE) == 3


@pytest.mark.parametrize(
    "payload",
    [
        None,
        {},
        (),
        [],
        [[]],
        [[[]]],
        [1],
        [[1]],
        [[[1], 2]],
        [[[1]], [[1], [2]]],
        [[[1], [1, 2]]],
        [[[1.0]]],
        [[[True]]],
        [[["1"]]],
        [((1,),)],
        "",
        "nrlre2:int16:1x1x1:AAA=",
        "nrlre1:int64:1x1x1:AAAAAAAAAAA=",
        "nrlre1:int16:1x1:AAA=",
        "nrlre1:int16:1x1x1x1:AAA=",
        "nrlre1:int16:0x1x1:",
        "nrlre1:int16:-1x-1x1:AAA=",
        "nrlre1:int16:1x1x1.0:AAA=",
        "nrlre1:int16:1x1x\u0661:AAA=",
        "nrlre1:int16:1x1x" + "9" * 5000 + ":AAA=",
        "nrlre1:int16:1x1x1",
        "nrlre1:int16:1x1x1:AAA",
        "nrlre1:int16:1x1x1:A",
        "nrlre1:int16:1x1x1:AA==",
        "nrlre1:int16:1x1x1:AAA=\n",
        "nrlre1:int16:1x1x1:\xe9AA=",
        "nrlre1:int16:2x1x1:AAA=",
        "nrlre1:int16:1x1x1:AAAAAA==",
    ],
)
def test_anything_else_is_refused(payload: Any) -> None:
    with pytest.raises(Invalid) as refused:
        decode_routed_experts(payload)
    assert refused.value.kind == "bad_routed_experts"
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("payload", [None, [], {}, "nrlre1:int16:0x1x1:", "nrlre2:int16:1x1x1:"])
def test_what_has_no_tokens_has_no_token_count(payload: Any) -> None:
    with pytest.raises(Invalid):
        routed_experts_token_count(payload)


@pytest.mark.parametrize(
    ("cube", "dtype"),
    [
        ([[[128]]], "int8"),
        ([[[-32769]]], "int16"),
        ([[[2**31]]], "int32"),
        ([[[1]]], "uint8"),
        ([[[1], [1, 2]]], "int16"),
    ],
)
def test_values_that_do_not_fit_are_refused(cube: list[list[list[int]]], dtype: str) -> None:
    with pytest.raises(Invalid):
        encode_routed_experts(cube, dtype=dtype)


@pytest.mark.parametrize(
    ("carry", "generation", "routes", "expected"),
    [
        (3, 2, 5, "full"),
        (0, 2, 2, "full"),
        (3, 0, 3, "full"),
        (3, 2, 2, "tail"),
        (3, 2, 4, "tail"),
        (3, 2, 6, "tail"),
        (3, 2, 1, "sentinel"),
        (3, 2, 0, "sentinel"),
        (3, 0, 2, "sentinel"),
        (0, 0, 0, "sentinel"),
    ],
)
def test_routes_cover_all_the_generated_part_or_nothing(
    carry: int, generation: int, routes: int, expected: str
) -> None:
    assert classify_route_span(carry_len=carry, generation_len=generation, staged_route_len=routes) == expected


@pytest.mark.parametrize("lengths", [(-1, 0, 0), (0, True, 0), (0, 0, 1.0), (0, None, 0)])
def test_lengths_that_are_no_counts_are_refused(lengths: tuple[Any, Any, Any]) -> None:
    carry, generation, routes = lengths
    with pytest.raises(Invalid, match="lengths must be counts"):
        classify_route_span(carry_len=carry, generation_len=generation, staged_route_len=routes)
