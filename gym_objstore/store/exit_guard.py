# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Lets obstore's threads come to rest before the interpreter ends.

A thread of obstore's runtime that has delivered a result still has to take the interpreter's lock once
more. If the interpreter is ending just then, CPython before 3.14 ends that thread, and the runtime answers
by aborting the whole process, after everything succeeded (seen in 3 of 40 runs of a script that does fifty
puts on a busy machine; PyO3/pyo3-async-runtimes issue 40). So at exit this waits, without the lock, until
those threads have done nothing for a few samples.
"""

from __future__ import annotations

import atexit
import threading
import time
from functools import cache
from pathlib import Path

_SAMPLE_SECONDS = 0.006  # a thread that waits for the interpreter's lock asks for it every five milliseconds
_QUIET_SAMPLES = 4
_LIMIT_SECONDS = 2.0
_BLIND_SECONDS = 0.1

_TASKS = Path("/proc/self/task")


@cache
def guard_exit() -> None:
    """Wait for obstore's threads when this process ends. Call it before the first use; repeating does nothing."""
    atexit.register(_settle)


def _settle() -> None:
    if not _TASKS.is_dir():
        time.sleep(_BLIND_SECONDS)
        return
    deadline = time.monotonic() + _LIMIT_SECONDS
    quiet, before = 0, _activity()
    while quiet < _QUIET_SAMPLES and time.monotonic() < deadline:
        time.sleep(_SAMPLE_SECONDS)
        now = _activity()
        quiet = quiet + 1 if now == before and "R" not in now.values() else 0
        before = now


def _activity() -> dict[str, str]:
    """Return, for each thread but this one, its state and how often it was switched to."""
    found = {}
    for task in _TASKS.iterdir():
        if task.name != str(threading.get_native_id()):
            try:
                status = (task / "status").read_text()
            except OSError:  # it has just ended
                continue
            lines = [line for line in status.splitlines() if "ctxt_switches" in line or line.startswith("State")]
            found[task.name] = "R" if "\tR" in lines[0] else " ".join(lines)
    return found
