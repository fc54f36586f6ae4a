# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Totals are exact, unknown is never zero, percentiles are within 1 %, and parts merge to the whole."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_objstore.calls import ModelCallRecord
from gym_objstore.calls_stats import CallStats, Histogram, RunStats

LATENCIES = st.lists(st.floats(0.01, 1e7), min_size=1, max_size=60)


def call(**fields) -> ModelCallRecord:
    return ModelCallRecord(call_index=0, **fields)


def histogram(values) -> Histogram:
    found = Histogram()
    for value in values:
        found.add(value)
    return found


@given(LATENCIES, st.sampled_from([1, 50, 90, 99, 100]))
def test_a_percentile_is_within_one_percent_of_the_exact_one(values, percent):
    exact = sorted(values)[math.ceil(len(values) * percent / 100) - 1]
    assert histogram(values).percentile(percent) == pytest.approx(exact, rel=0.0101)


@given(LATENCIES, LATENCIES)
def test_parts_merge_to_the_whole(left, right):
    merged = histogram(left)
    merged.merge(histogram(right))
    assert [merged.percentile(p) for p in (10, 50, 99)] == [histogram(left + right).percentile(p) for p in (10, 50, 99)]


def test_its_memory_does_not_grow_with_the_values():
    found = histogram(10 ** (exponent / 500) for exponent in range(-2_000, 7_000))
    assert len(found._counts) < 1_750


@pytest.mark.parametrize("value", [0.0, -5.0, math.inf, 1e300])
def test_a_clock_that_went_astray_breaks_nothing(value):
    assert histogram([value]).percentile(50) > 0


def test_what_no_call_reported_is_unknown():
    found = CallStats()
    found.add(call(tokens_in=5))
    found.add(call(tokens_in=None, tokens_out=0))
    summary = found.summary()
    assert (summary["tokens_in"], summary["tokens_out"], summary["tokens_reasoning"]) == (5, 0, None)
    assert (summary["latency_p50_ms"], CallStats().summary()["error_rate"]) == (None, None)


def test_errors_are_counted_per_model_and_dialect():
    left, right = RunStats(rollouts=1), RunStats(rollouts=1, incomplete=1, unreadable=2)
    left.add(call(model="m", dialect="chat", error_category="timeout"))
    left.add(call(model="m", dialect="chat"))
    right.add(call(model="m", dialect="chat"))
    right.add(call(dialect="responses", error_category="auth"))
    left.merge(right)
    found = left.summary()
    assert (found["rollouts"], found["incomplete_rollouts"], found["unreadable_captures"]) == (2, 1, 2)
    assert (found["errors"], found["error_rate"]) == (2, 0.5)
    assert found["error_categories"] == {"auth": 1, "timeout": 1}
    assert [(one["model"], one["dialect"], one["calls"], one["error_rate"]) for one in found["groups"]] == [
        ("", "responses", 1, 1.0),
        ("m", "chat", 3, 0.3333),
    ]
