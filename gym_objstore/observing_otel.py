# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The metrics of ``metrics``, spans of store operations and span events, for OpenTelemetry. Needs the extra ``otel``.

Only OpenTelemetry's API is used: the application chooses the SDK and its exporters. Names follow its conventions
(units, ``error.type``); there is no convention for object stores as such, so attributes are ``gym_objstore.*``.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from gym_objstore.errors import Unusable
from gym_objstore.metrics import METRICS, SECONDS, Measuring, Metric
from gym_objstore.observing import OK, Event, Operation, Retry, place_of

try:
    from opentelemetry import metrics, trace
except ModuleNotFoundError as missing:
    raise Unusable(
        "the otel observer needs opentelemetry-api", kind="missing_extra", hint="pip install 'gym-objstore[otel]'"
    ) from missing

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter, MeterProvider
    from opentelemetry.trace import TracerProvider

    from gym_objstore.observing import Observation

_SCOPE = "gym_objstore"
_FINE = frozenset({OK, "notfound"})
"""Outcomes that are answers: asking for what does not exist is no error of the storage."""


class OtelTelemetry:
    """A hook that measures and traces with the providers given, or with those the application has set.

    A span is made when its operation has ended, below the span that is current there; its attributes hold the key,
    the attributes of metrics do not.
    """

    def __init__(self, *, tracers: TracerProvider | None = None, meters: MeterProvider | None = None) -> None:
        meter = metrics.get_meter(_SCOPE, meter_provider=meters)
        self._tracer = trace.get_tracer(_SCOPE, tracer_provider=tracers)
        self._measure = Measuring()
        self._record = {metric.name: _instrument(metric, meter) for metric in METRICS}

    def __call__(self, value: Observation) -> None:
        """Measure and trace one observation."""
        for name, amount, labels in self._measure(value):
            self._record[name](amount, {f"gym_objstore.{label}": word for label, word in labels.items()})
        match value:
            case Operation():
                self._trace(value)
            case Retry(verb, key, kind, pause):
                attributes = {"gym_objstore.verb": verb, "gym_objstore.key": key, "error.type": kind}
                _annotate("gym_objstore.retry", {**attributes, "gym_objstore.pause": pause})
            case Event(name):
                said = {f"gym_objstore.{field}": text for field, text in value.fields.items() if text}
                _annotate(f"gym_objstore.{name}", said)

    def _trace(self, value: Operation) -> None:
        end, place = time.time_ns(), place_of(value.key)
        span = self._tracer.start_span(
            f"{value.verb} {place.family}",
            kind=trace.SpanKind.CLIENT,
            start_time=end - int(value.seconds * 1e9),
            attributes={
                "gym_objstore.verb": value.verb,
                "gym_objstore.family": place.family,
                "gym_objstore.kind": place.kind,
                "gym_objstore.key": value.key,
                "gym_objstore.bytes": value.bytes,
                "gym_objstore.objects": value.objects,
            },
        )
        if value.outcome not in _FINE:
            span.set_attribute("error.type", value.outcome)
            span.set_status(trace.Status(trace.StatusCode.ERROR))
        span.end(end)


def _annotate(name: str, attributes: dict[str, Any]) -> None:
    trace.get_current_span().add_event(name, attributes)


def _instrument(metric: Metric, meter: Meter) -> Any:
    """Return the call that records into a metric."""
    said = (metric.name, metric.unit, metric.about)
    match metric.type:
        case "counter":
            return meter.create_counter(*said).add
        case "histogram":
            return meter.create_histogram(*said, explicit_bucket_boundaries_advisory=SECONDS).record
        case _:
            return meter.create_gauge(*said).set
