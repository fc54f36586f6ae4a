# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The limit that ends the process is beyond what any test may take: it would end all others, too."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_no_test_of_this_run_may_take_longer_than_the_process(request):
    ends = float(request.config.getini("faulthandler_timeout"))
    assert ends > float(request.config.getini("timeout"))
    marks = {item.nodeid: item.get_closest_marker("timeout") for item in request.session.items if not _is_slow(item)}
    assert [name for name, mark in marks.items() if mark is not None and mark.args[0] >= ends] == []


def _is_slow(item):
    return item.get_closest_marker("slow") is not None


def test_no_slow_test_may_take_longer_than_the_process():
    """``make test-slow`` has a limit of its own."""
    (ends,) = re.findall(r"-m slow -o faulthandler_timeout=(\d+)", (ROOT / "Makefile").read_text(encoding="utf-8"))
    marks = [
        int(seconds)
        for file in (ROOT / "tests").rglob("test_*.py")
        for seconds in re.findall(r"mark\.timeout\(([\d_]+)\)", file.read_text(encoding="utf-8"))
    ]
    assert max(marks) >= 1_800
    assert max(marks) < int(ends)
