# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Every metric of the package, and what an observation adds to them: the one list behind Prometheus and OpenTelemetry.

Names and labels are an interface that is only added to; ``docs/metrics.md`` is for its readers. A label takes a
few words of ours only: no key, run, rollout, call or url ever labels a metric.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gym_objstore.observing import OTHER, Event, Observation, Operation, Retry, SpillDepth, place_of

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the buckets of every histogram."""


class Metric(NamedTuple):
    """One metric. ``type`` is ``counter``, ``gauge`` or ``histogram``; ``unit`` a UCUM unit."""

    name: str
    type: str
    unit: str
    labels: tuple[str, ...]
    about: str


class Measurement(NamedTuple):
    """What to add to a counter or histogram, or the new value of a gauge, with one value for each label."""

    name: str
    amount: float
    labels: dict[str, str]


METRICS = tuple(
    Metric(f"gym_objstore.{name}", type_, unit, tuple(labels.split()), about)
    for name, type_, unit, labels, about in (
        ("operations", "counter", "{operation}", "verb family kind outcome", "Store operations that ended."),
        ("operation.duration", "histogram", "s", "verb family", "Time of store operations, retries included."),
        ("bytes", "counter", "By", "verb family", "Bytes of bodies that were stored (put) or read (get)."),
        ("retries", "counter", "{retry}", "verb family", "Attempts that got no answer and were repeated."),
        ("losses", "counter", "{call}", "family kind", "Calls whose record was lost, or cannot be trusted."),
        ("conflicts", "counter", "{call}", "family", "Calls with two different payloads."),
        ("fence.hits", "counter", "{operation}", "family", "Operations refused because their rollout is retired."),
        ("late.writes", "counter", "{write}", "family", "Writes that came after retirement and were discarded."),
        ("spilled", "counter", "{write}", "family", "Writes kept on disk because the store did not take them."),
        ("replayed", "counter", "{write}", "family", "Writes that had been kept on disk and are stored now."),
        ("spill.depth", "gauge", "{write}", "", "Writes that wait on this machine's disk for their store."),
    )
)

_COUNTED = {
    "loss": "gym_objstore.losses",
    "conflict": "gym_objstore.conflicts",
    "fence_hit": "gym_objstore.fence.hits",
    "late_write_discarded": "gym_objstore.late.writes",
    "spilled": "gym_objstore.spilled",
    "replayed": "gym_objstore.replayed",
}


class Measuring:
    """Turns observations into measurements. Remembers the depth of every spill folder, to give their sum."""

    def __init__(self) -> None:
        self._depths: dict[str, int] = {}

    def __call__(self, value: Observation) -> Iterator[Measurement]:
        """Yield what one observation changes."""
        match value:
            case Operation():
                yield from _of_operation(value)
            case Retry(verb, key):
                yield Measurement("gym_objstore.retries", 1, {"verb": verb, "family": place_of(key).family})
            case SpillDepth(folder, writes):
                self._depths[folder] = writes
                yield Measurement("gym_objstore.spill.depth", sum(self._depths.values()), {})
            case Event(name) if name in _COUNTED:
                labels = {"family": value.family or OTHER}
                yield Measurement(
                    _COUNTED[name], 1, {**labels, "kind": value.kind or OTHER} if name == "loss" else labels
                )


def _of_operation(value: Operation) -> Iterator[Measurement]:
    place = place_of(value.key)
    labels = {"verb": value.verb, "family": place.family}
    yield Measurement("gym_objstore.operations", 1, {**labels, "kind": place.kind, "outcome": value.outcome})
    yield Measurement("gym_objstore.operation.duration", value.seconds, labels)
    if value.bytes:
        yield Measurement("gym_objstore.bytes", value.bytes, labels)
