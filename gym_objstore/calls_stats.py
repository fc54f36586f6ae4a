# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What many calls add up to: tokens, latencies and errors, per model and dialect, in memory that does not grow.

Parts counted apart, on several rollouts or machines, merge to the very same as counted in one. Percentiles are of
logarithmic buckets, at most 1,750 of them: each is within 1 % of a latency that was measured.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gym_objstore.calls import ModelCallRecord

ACCURACY = 0.01
"""How far a percentile may be from a value that was measured, relative to it."""

_GROWTH = (1 + ACCURACY) / (1 - ACCURACY)
_SMALLEST, _LARGEST = 1e-3, 1e12
_PERCENTILES = (50, 90, 99)
_SUMMED = ("tokens_in", "tokens_out", "cached_tokens", "tokens_reasoning")


class Histogram:
    """Counts of milliseconds in buckets whose bounds grow by 2 %, between a microsecond and 30 years."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, value: float) -> None:
        """Count one value."""
        self._counts[math.ceil(math.log(min(max(value, _SMALLEST), _LARGEST), _GROWTH))] += 1

    def merge(self, other: Histogram) -> None:
        """Count what another histogram counted."""
        self._counts.update(other._counts)

    def percentile(self, percent: float) -> float | None:
        """Return the value that this share of all values does not exceed, within ``ACCURACY``; None without any."""
        rank, seen = math.ceil(self._counts.total() * percent / 100), 0
        for bucket, count in sorted(self._counts.items()):
            seen += count
            if seen >= rank:
                return float(2 * _GROWTH**bucket / (_GROWTH + 1))
        return None


@dataclass(slots=True)
class CallStats:
    """Totals of some calls. A total of tokens that no call reported is None, never zero."""

    calls: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    sums: Counter[str] = field(default_factory=Counter)
    latency: Histogram = field(default_factory=Histogram)
    first_token: Histogram = field(default_factory=Histogram)

    def add(self, call: ModelCallRecord) -> None:
        """Count one call."""
        self.calls += 1
        if call.error_category is not None:
            self.errors[call.error_category] += 1
        self.sums.update({name: value for name in _SUMMED if (value := getattr(call, name)) is not None})
        if call.latency_total_ms is not None:
            self.latency.add(call.latency_total_ms)
        if call.latency_ttft_ms is not None:
            self.first_token.add(call.latency_ttft_ms)

    def merge(self, other: CallStats) -> None:
        """Count what was counted elsewhere."""
        self.calls += other.calls
        self.errors.update(other.errors)
        self.sums.update(other.sums)
        self.latency.merge(other.latency)
        self.first_token.merge(other.first_token)

    def summary(self) -> dict[str, Any]:
        """Return the totals as plain fields; latencies in milliseconds."""
        failed = self.errors.total()
        return {
            "calls": self.calls,
            **{name: self.sums.get(name) for name in _SUMMED},
            **{f"latency_p{percent}_ms": _rounded(self.latency.percentile(percent)) for percent in _PERCENTILES},
            **{f"ttft_p{percent}_ms": _rounded(self.first_token.percentile(percent)) for percent in _PERCENTILES},
            "errors": failed,
            "error_rate": round(failed / self.calls, 4) if self.calls else None,
            "error_categories": dict(sorted(self.errors.items())),
        }


@dataclass(slots=True)
class RunStats:
    """Totals of some rollouts: of all calls, of each model and dialect, and what is missing."""

    rollouts: int = 0
    incomplete: int = 0
    unreadable: int = 0
    total: CallStats = field(default_factory=CallStats)
    groups: dict[tuple[str, str], CallStats] = field(default_factory=dict)

    def add(self, call: ModelCallRecord) -> None:
        """Count one call."""
        self.total.add(call)
        self.groups.setdefault((call.model or "", call.dialect or ""), CallStats()).add(call)

    def merge(self, other: RunStats) -> None:
        """Count what was counted elsewhere."""
        self.rollouts += other.rollouts
        self.incomplete += other.incomplete
        self.unreadable += other.unreadable
        self.total.merge(other.total)
        for group, stats in other.groups.items():
            self.groups.setdefault(group, CallStats()).merge(stats)

    def summary(self) -> dict[str, Any]:
        """Return the totals as plain fields."""
        return {
            "rollouts": self.rollouts,
            "incomplete_rollouts": self.incomplete,
            "unreadable_captures": self.unreadable,
            **self.total.summary(),
            "groups": [
                {"model": model, "dialect": dialect, **stats.summary()}
                for (model, dialect), stats in sorted(self.groups.items())
            ],
        }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
