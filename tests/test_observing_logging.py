# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging

import pytest

from gym_objstore.observing import Event, Operation, Retry, SpillDepth
from gym_objstore.observing_logging import LogLines

KEY = "tokens/run-1/r1/entries/c1"


@pytest.mark.parametrize(
    ("value", "level", "fields"),
    [
        (
            Operation("put", KEY, 0.25, bytes=7),
            "DEBUG",
            {"event": "operation", "verb": "put", "family": "tokens", "object_kind": "entries", "key": KEY, "bytes": 7},
        ),
        (Operation("get", KEY, 0.25, "notfound"), "DEBUG", {"outcome": "notfound"}),
        (Operation("get", KEY, 0.25, "denied"), "WARNING", {"outcome": "denied"}),
        (Retry("put", KEY, "timeout", 0.5), "WARNING", {"event": "retry", "kind": "timeout", "pause": 0.5}),
        (SpillDepth("/spill", 3), "DEBUG", {"event": "spill_depth", "writes": 3}),
    ],
)
def test_a_value_is_one_line_with_fields(caplog, value, level, fields):
    with caplog.at_level(logging.DEBUG, "gym_objstore.operations"):
        LogLines()(value)
    (line,) = caplog.records
    assert line.levelname == level
    assert {name: getattr(line, name) for name in fields} == fields


def test_the_words_of_a_line_have_the_values_last(caplog):
    LogLines()(Operation("get", KEY, 0.25, "denied"))
    assert caplog.messages == [f"store operation, verb=get, outcome=denied, seconds=0.2500, key={KEY}"]


def test_events_are_not_logged_a_second_time(caplog):
    with caplog.at_level(logging.DEBUG):
        LogLines()(Event("loss"))
    assert caplog.records == []
