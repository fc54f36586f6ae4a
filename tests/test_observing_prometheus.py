# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Prometheus, with its real client: literal values after literal work, and labels that cannot grow."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from gym_objstore import CaptureLedger, TokenSink, TokenSource
from gym_objstore.errors import Retired
from gym_objstore.observing import Event, Operation, Retry, SpillDepth, observe
from gym_objstore.observing_prometheus import PrometheusMetrics
from tests.entries import make_entry
from tests.places import place_of

SECRET = "the-secret-run"


@pytest.fixture
def registry():
    found = CollectorRegistry()
    remove = observe(PrometheusMetrics(found))
    yield found
    remove()


async def test_after_three_puts_the_counter_is_three(registry, request):
    sink = TokenSink(**place_of("memory", request))
    for call in ("c1", "c2", "c3"):
        await sink.put(make_entry(call=call))
    labels = {"verb": "put", "family": "tokens", "kind": "entries", "outcome": "ok"}
    assert registry.get_sample_value("gym_objstore_operations_total", labels) == 3
    of_puts = {"verb": "put", "family": "tokens"}
    # Three entries and the run's writer marker.
    assert registry.get_sample_value("gym_objstore_operation_duration_seconds_count", of_puts) == 4
    assert registry.get_sample_value(
        "gym_objstore_operation_duration_seconds_bucket", {**of_puts, "le": "60.0"}
    ) == registry.get_sample_value("gym_objstore_operation_duration_seconds_bucket", {**of_puts, "le": "+Inf"})
    await sink.close()


async def test_losses_conflicts_fences_and_late_writes_are_counted(registry, request):
    place = place_of("memory", request)
    sink, source, ledger = TokenSink(**place), TokenSource(**place), CaptureLedger(**place)
    await sink.put(make_entry())
    await sink.put(make_entry(text="other"))
    await sink.mark_incomplete("r1", "c2")
    await source.freeze("r1")
    await source.retire(["r1"])
    await ledger.retire(["r1"])
    with pytest.raises(Retired):
        await sink.begin_call("r1", "c3")
    await ledger.record_failure("r1", "c4", "worker_capture_failed")
    of_tokens = {"family": "tokens"}
    assert registry.get_sample_value("gym_objstore_conflicts_total", of_tokens) == 1
    assert registry.get_sample_value("gym_objstore_losses_total", {**of_tokens, "kind": "incomplete_marker"}) == 1
    assert registry.get_sample_value("gym_objstore_fence_hits_total", of_tokens) == 1
    assert registry.get_sample_value("gym_objstore_late_writes_total", {"family": "ledger"}) == 1
    await sink.close()


def test_bytes_retries_and_the_depth_of_all_spill_folders_are_counted():
    registry = CollectorRegistry()
    metrics = PrometheusMetrics(registry)
    metrics(Operation("get", "staged/run/r/rows/x", 0.5, bytes=1000))
    metrics(Operation("get", "staged/run/r/rows/y", 0.5, bytes=24))
    metrics(Retry("get", "staged/run/r/rows/y", "timeout", 1.0))
    for folder, writes in (("a", 5), ("b", 2), ("a", 1)):
        metrics(SpillDepth(folder, writes))
    for _ in range(2):
        metrics(Event("spilled", key="staged/run/r/rows/x"))
    labels = {"verb": "get", "family": "staged"}
    assert registry.get_sample_value("gym_objstore_bytes_total", labels) == 1024
    assert registry.get_sample_value("gym_objstore_retries_total", labels) == 1
    assert registry.get_sample_value("gym_objstore_operation_duration_seconds_sum", labels) == 1.0
    assert registry.get_sample_value("gym_objstore_spill_depth") == 3
    assert registry.get_sample_value("gym_objstore_spilled_total", {"family": "staged"}) == 2
    assert registry.get_sample_value("gym_objstore_replayed_total", {"family": "staged"}) is None


def test_no_key_id_or_text_of_others_ever_becomes_a_label():
    registry = CollectorRegistry()
    metrics = PrometheusMetrics(registry)
    for number in range(50):
        name = f"{SECRET}-{number}"
        metrics(Operation("put", f"tokens/{name}/{name}/{name}/{name}", 0.1, bytes=1))
        metrics(Operation("list", f"{name}/{name}/", 0.1))
        metrics(Retry("put", f"{name}/x", "timeout", 0.1))
        metrics(SpillDepth(name, 1))
        for event in ("loss", "conflict", "fence_hit", "late_write_discarded", "spilled", "replayed", "uncaptured"):
            metrics(Event(event, name, name, key=f"tokens/{name}/{name}/entries/{name}", detail=name))
    text = generate_latest(registry).decode()
    assert SECRET not in text
    assert text.count("\ngym_objstore_operations_total{") == 2


def test_processes_that_share_a_folder_are_summed(tmp_path):
    count = (
        "from gym_objstore.observing import Operation, SpillDepth\n"
        "from gym_objstore.observing_prometheus import PrometheusMetrics\n"
        "metrics = PrometheusMetrics()\n"
        "metrics(Operation('put', 'tokens/run/r/entries/c', 0.1))\n"
        "metrics(SpillDepth('folder', 4))\n"
    )
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    for _ in range(2):
        subprocess.run([sys.executable, "-c", count], check=True, env=environment)
    from prometheus_client.multiprocess import MultiProcessCollector

    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=str(tmp_path))
    labels = {"verb": "put", "family": "tokens", "kind": "entries", "outcome": "ok"}
    assert registry.get_sample_value("gym_objstore_operations_total", labels) == 2
    assert registry.get_sample_value("gym_objstore_spill_depth") == 4
