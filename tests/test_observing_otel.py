# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""OpenTelemetry, with its real SDK and exporters in memory."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from gym_objstore import TokenSink
from gym_objstore.observing import Event, Operation, Retry, SpillDepth, observe
from gym_objstore.observing_otel import OtelTelemetry
from tests.entries import make_entry
from tests.places import place_of

KEY = "tokens/run-1/r1/entries/c1"


class Told:
    def __init__(self) -> None:
        self._reader, self._exporter = InMemoryMetricReader(), InMemorySpanExporter()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.hook = OtelTelemetry(tracers=self.tracers, meters=MeterProvider([self._reader], shutdown_on_exit=False))

    @property
    def spans(self):
        return self._exporter.get_finished_spans()

    def points(self, name: str) -> list[tuple[dict[str, object], object]]:
        """Return the attributes and the value of every point of a metric."""
        found = [
            metric
            for resource in self._reader.get_metrics_data().resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
        ]
        return [
            (dict(point.attributes), getattr(point, "value", getattr(point, "count", None)))
            for metric in found
            for point in metric.data.data_points
        ]


@pytest.fixture
def told():
    return Told()


async def test_after_three_puts_the_counter_is_three_and_there_are_spans_below_the_current_one(told, request):
    remove = observe(told.hook)
    sink = TokenSink(**place_of("memory", request))
    with told.tracers.get_tracer("test").start_as_current_span("rollout") as outer:
        for call in ("c1", "c2", "c3"):
            await sink.put(make_entry(call=call))
    remove()
    of_entries = {
        "gym_objstore.verb": "put",
        "gym_objstore.family": "tokens",
        "gym_objstore.kind": "entries",
        "gym_objstore.outcome": "ok",
    }
    assert (of_entries, 3) in told.points("gym_objstore.operations")
    puts = [one for one in told.spans if one.name == "put tokens"]
    assert len(puts) == 4
    assert {one.parent.span_id for one in puts} == {outer.get_span_context().span_id}
    assert {one.kind for one in puts} == {SpanKind.CLIENT}
    await sink.close()


def test_a_span_lasts_as_long_as_its_operation_and_names_its_key(told):
    told.hook(Operation("get", KEY, 0.25, bytes=7))
    (span,) = told.spans
    assert span.end_time - span.start_time == 250_000_000
    assert dict(span.attributes) == {
        "gym_objstore.verb": "get",
        "gym_objstore.family": "tokens",
        "gym_objstore.kind": "entries",
        "gym_objstore.key": KEY,
        "gym_objstore.bytes": 7,
        "gym_objstore.objects": 1,
    }
    assert span.status.status_code is StatusCode.UNSET


@pytest.mark.parametrize(("outcome", "status"), [("denied", StatusCode.ERROR), ("notfound", StatusCode.UNSET)])
def test_a_failure_is_an_error_and_an_absent_object_is_none(told, outcome, status):
    told.hook(Operation("get", KEY, 0.1, outcome))
    (span,) = told.spans
    assert span.status.status_code is status
    assert span.attributes.get("error.type") == ("denied" if outcome == "denied" else None)


def test_retries_and_events_are_events_of_the_current_span(told):
    with told.tracers.get_tracer("test").start_as_current_span("rollout"):
        told.hook(Retry("put", KEY, "timeout", 0.5))
        told.hook(Event("loss", "r1", "c1", family="tokens", kind="incomplete_marker"))
    (span,) = told.spans
    retry, loss = span.events
    assert (retry.name, retry.attributes["error.type"], retry.attributes["gym_objstore.pause"]) == (
        "gym_objstore.retry",
        "timeout",
        0.5,
    )
    assert (loss.name, loss.attributes["gym_objstore.model_call_id"]) == ("gym_objstore.loss", "c1")


def test_every_other_metric_has_its_value_and_no_key_is_an_attribute_of_one(told):
    told.hook(Operation("put", KEY, 0.25, bytes=100))
    told.hook(Retry("put", KEY, "timeout", 0.5))
    told.hook(Event("loss", key=KEY, kind="corrupt"))
    told.hook(Event("spilled", key=KEY))
    told.hook(SpillDepth("folder", 9))
    put, tokens = {"gym_objstore.verb": "put", "gym_objstore.family": "tokens"}, {"gym_objstore.family": "tokens"}
    assert told.points("gym_objstore.operation.duration") == [(put, 1)]
    assert told.points("gym_objstore.bytes") == [(put, 100)]
    assert told.points("gym_objstore.retries") == [(put, 1)]
    assert told.points("gym_objstore.losses") == [({**tokens, "gym_objstore.kind": "corrupt"}, 1)]
    assert told.points("gym_objstore.spilled") == [(tokens, 1)]
    assert told.points("gym_objstore.spill.depth") == [({}, 9)]
