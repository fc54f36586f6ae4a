# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Token counts are read from every provider's usage, and what was not said is unknown."""

from __future__ import annotations

from typing import Any

import pytest

from gym_objstore.calls_usage import Usage, usage_of

UNKNOWN = Usage(None, None, None, None, None, None, None)


def test_responses_usage() -> None:
    usage = {
        "input_tokens": 94,
        "output_tokens": 28,
        "total_tokens": 122,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 12},
    }
    assert usage_of(usage) == Usage(94, 28, 12, 122, cache_hit=False, cached_tokens=0)


def test_chat_usage() -> None:
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 7},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }
    assert usage_of(usage) == Usage(10, 4, 0, 14, cache_hit=True, cached_tokens=7)


def test_anthropic_usage_counts_cached_tokens_into_the_prompt() -> None:
    usage = {"input_tokens": 5, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20, "output_tokens": 3}
    expected = Usage(125, 3, None, 128, cache_hit=True, cached_tokens=100, cache_creation_tokens=20)
    assert usage_of(usage) == expected


@pytest.mark.parametrize(
    ("usage", "tokens_in"),
    [
        ({"cache_read_input_tokens": 0}, None),
        ({"cache_read_input_tokens": 9}, 9),
        ({"input_tokens": 0, "cache_creation_input_tokens": 0}, 0),
        ({"input_tokens": -1, "prompt_tokens": 8}, 8),
    ],
)
def test_zero_cached_tokens_alone_are_no_prompt_size(usage: dict[str, Any], tokens_in: int | None) -> None:
    assert usage_of(usage).tokens_in == tokens_in


@pytest.mark.parametrize("count", [None, -1, 2.0, "7", True, [1]])
def test_what_is_no_count_is_unknown_and_not_zero(count: Any) -> None:
    assert usage_of({"input_tokens": count, "output_tokens": count, "total_tokens": count}) == UNKNOWN


@pytest.mark.parametrize("usage", [None, {}, [], "none", {"input_tokens_details": 7}])
def test_no_usage_is_unknown(usage: Any) -> None:
    assert usage_of(usage) == UNKNOWN


@pytest.mark.parametrize(
    ("usage", "reasoning", "cached"),
    [
        ({"reasoning_output_tokens": 6, "cached_input_tokens": 2}, 6, 2),
        ({"completion_tokens_details": {"reasoning_tokens": 5}, "output_tokens_details": {}}, 5, None),
        ({"input_tokens_details": {"cached_input_tokens": 3}, "prompt_tokens_details": None}, None, 3),
    ],
)
def test_other_names_of_the_same_counts_are_known(
    usage: dict[str, Any], reasoning: int | None, cached: int | None
) -> None:
    assert usage_of(usage)[2] == reasoning
    assert usage_of(usage).cached_tokens == cached
