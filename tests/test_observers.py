# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The ready hooks by name: one variable, each installed once, and no import of what nobody asked for."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gym_objstore import TokenSink
from gym_objstore.errors import Invalid
from gym_objstore.observers import install_observers
from gym_objstore.observing import hooks

PROGRAM = """
import asyncio, logging, sys
logging.basicConfig(level=logging.DEBUG, format="%(name)s %(event)s %(message)s")
from gym_objstore import TokenSink
from gym_objstore.observing import hooks
sinks = [TokenSink(url="memory://x", run_id="run-1") for _ in range(2)]
asyncio.run(sinks[0].begin_call("r1", "c1"))
print(*sorted(type(one._hook).__name__ for one in hooks))
print(*sorted({"prometheus_client", "opentelemetry"} & set(sys.modules)))
"""


def in_a_fresh_process(program: str, observe: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "GYM_OBJSTORE_OBSERVE": observe}
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)


@pytest.mark.parametrize(
    ("names", "classes", "modules"),
    [
        ("", "", ""),
        ("logging", "LogLines", ""),
        ("prometheus, otel,prometheus", "OtelTelemetry PrometheusMetrics", "opentelemetry prometheus_client"),
    ],
)
def test_the_variable_names_what_is_installed_once_and_imported(names, classes, modules):
    ended = in_a_fresh_process(PROGRAM, names)
    assert ended.stdout.split("\n")[:2] == [classes, modules]
    assert ("gym_objstore.operations operation store operation, verb=put, outcome=ok" in ended.stderr) == (
        names == "logging"
    )


def test_an_unknown_name_is_refused_before_anything_is_installed():
    before = list(hooks)
    with pytest.raises(Invalid, match=r"unknown observer, name=datadog; .* takes logging, otel, prometheus"):
        install_observers("logging,datadog")
    assert hooks == before


def test_a_component_refuses_an_unknown_name_when_it_is_made(monkeypatch):
    monkeypatch.setenv("GYM_OBJSTORE_OBSERVE", "promtheus")
    with pytest.raises(Invalid, match="name=promtheus"):
        TokenSink(url="memory://x", run_id="run-1")


@pytest.mark.parametrize(
    ("name", "package", "extra"), [("otel", "opentelemetry", "otel"), ("prometheus", "prometheus_client", "prometheus")]
)
def test_a_missing_package_is_named_with_its_extra(name, package, extra):
    program = f"""
import sys
sys.modules[{package!r}] = None
from gym_objstore import TokenSink, Unusable
try:
    TokenSink(url="memory://x", run_id="run-1")
except Unusable as error:
    print(error.kind, error.hint)
"""
    assert in_a_fresh_process(program, name).stdout == f"missing_extra pip install 'gym-objstore[{extra}]'\n"
