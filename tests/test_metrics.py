# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The list of metrics: what the adapters define is what is documented, and the dashboard asks for nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

from prometheus_client import CollectorRegistry

from gym_objstore.metrics import METRICS
from gym_objstore.observing import EventName
from gym_objstore.observing_prometheus import PrometheusMetrics, prometheus_name

DOCS = Path(__file__).parents[1] / "docs"
DOCUMENT = (DOCS / "metrics.md").read_text(encoding="utf-8")
DASHBOARD = json.loads((DOCS / "grafana" / "gym-objstore.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]


def test_the_documented_list_is_what_is_defined():
    rows = re.findall(r"^\| `(\w+)`<br>`([\w.]+)` \| (\w+) \| (.*?) ?\| (.*) \|$", DOCUMENT, re.MULTILINE)
    documented = [
        (prometheus, name, type_, tuple(re.findall(r"`(\w+)`", labels)), about)
        for prometheus, name, type_, labels, about in rows
    ]
    assert documented == [(prometheus_name(one), one.name, one.type, one.labels, one.about) for one in METRICS]
    assert len(documented) == 11


def test_prometheus_shows_the_documented_names():
    registry = CollectorRegistry()
    PrometheusMetrics(registry)
    shown = {f"{family.name}_total" if family.type == "counter" else family.name for family in registry.collect()}
    assert shown == {prometheus_name(one) for one in METRICS}


def test_every_event_is_documented():
    rows = re.findall(r"^\| `(\w+)` \| `(?:INFO|WARNING)` \|", DOCUMENT, re.MULTILINE)
    assert tuple(rows) == get_args(EventName)


def test_the_dashboard_asks_for_documented_metrics_and_labels_only():
    series = {prometheus_name(one): one for one in METRICS}
    for expression in EXPRESSIONS:
        names = re.findall(r"gym_objstore_\w+", expression)
        assert names
        for name in names:
            metric = series[name.removesuffix("_bucket")]
            assert name.endswith("_bucket") == (metric.type == "histogram")
            grouped = {one for group in re.findall(r"by \(([^)]*)\)", expression) for one in group.split(", ")}
            selected = set(re.findall(r"(\w+)(?:=|!)~", expression))
            assert (grouped | selected) - {"le", "instance", "job"} <= set(metric.labels)


def test_the_dashboard_shows_every_metric():
    asked = {name.removesuffix("_bucket") for one in EXPRESSIONS for name in re.findall(r"gym_objstore_\w+", one)}
    assert asked == {prometheus_name(one) for one in METRICS}


def test_every_panel_has_a_title_a_unit_and_a_data_source_that_can_be_chosen():
    assert len(PANELS) == 13
    assert len({panel["title"] for panel in PANELS}) == 13
    for panel in PANELS:
        assert panel["fieldConfig"]["defaults"]["unit"] in {"short", "ops", "s", "Bps"}
        assert panel["datasource"]["uid"] == "${datasource}"
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_the_example_of_a_hook_runs():
    (example,) = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
    exec(compile(example, "docs/metrics.md", "exec"), {})
