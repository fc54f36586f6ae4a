# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The metrics of ``metrics`` for Prometheus. Needs prometheus-client, the extra ``prometheus``.

They are registered and counted here; serving them is the application's part. Where a server has several worker
processes, set ``PROMETHEUS_MULTIPROC_DIR`` before they start and serve ``MultiProcessCollector``'s registry from
any one of them: counters and histograms are then summed, and the spill depth, which all processes of a machine
share, is the largest that a living process saw.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gym_objstore.errors import Unusable
from gym_objstore.metrics import METRICS, SECONDS, Measuring, Metric

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
except ModuleNotFoundError as missing:
    raise Unusable(
        "the prometheus observer needs prometheus-client",
        kind="missing_extra",
        hint="pip install 'gym-objstore[prometheus]'",
    ) from missing

if TYPE_CHECKING:
    from collections.abc import Callable

    from gym_objstore.observing import Observation

_UNITS = {"s": "_seconds", "By": ""}


def prometheus_name(metric: Metric) -> str:
    """Return the name under which Prometheus shows a metric."""
    name = metric.name.replace(".", "_") + _UNITS.get(metric.unit, "")
    return f"{name}_total" if metric.type == "counter" else name


class PrometheusMetrics:
    """A hook that counts into a registry, Prometheus' own where none is given. One for each registry."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._measure = Measuring()
        self._instruments = {metric.name: _instrument(metric, registry) for metric in METRICS}
        # Finding a series costs several times what counting into it does, and there are few.
        self._records: dict[tuple[str, ...], Callable[[float], None]] = {}

    def __call__(self, value: Observation) -> None:
        """Count one observation."""
        for name, amount, labels in self._measure(value):
            key = (name, *labels.values())
            record = self._records.get(key)
            if record is None:
                record = self._records[key] = _record(self._instruments[name], labels)
            record(amount)


def _record(instrument: Any, labels: dict[str, str]) -> Callable[[float], None]:
    """Return the call that records into one series."""
    series = instrument.labels(**labels) if labels else instrument
    match instrument:
        case Counter():
            record = series.inc
        case Histogram():
            record = series.observe
        case _:
            record = series.set
    return record  # type: ignore[no-any-return]


def _instrument(metric: Metric, registry: CollectorRegistry) -> Any:
    name, labels = prometheus_name(metric), metric.labels
    match metric.type:
        case "counter":
            return Counter(name, metric.about, labels, registry=registry)
        case "histogram":
            return Histogram(name, metric.about, labels, buckets=SECONDS, registry=registry)
        case _:
            return Gauge(name, metric.about, labels, registry=registry, multiprocess_mode="livemax")
