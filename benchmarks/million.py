# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A sweep and ``du`` over a million objects, which are made up while they are listed: time and memory.

Each runs in a process of its own, which imports nothing but what it needs: ``python -m benchmarks.million NAME COUNT``.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gym_objstore.flow import run
from gym_objstore.sweeping import remove, sweep
from gym_objstore.usage import usage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.harness import Row
    from benchmarks.places import Place

MB = 2**20


def million_rows(place: Place) -> Iterator[Row]:
    """Yield the time and the memory of a sweep and of ``du`` over a store that is made up while it is listed."""
    from benchmarks.harness import Row, at_most

    for name in ("sweep", "du"):
        figures: dict[str, float] = {}
        for objects in (place.sizes.objects // 10, place.sizes.objects):
            command = [sys.executable, "-m", "benchmarks.million", name, str(objects)]
            took = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            figures |= {
                f"objects/s at {objects:,}": objects / took["seconds"],
                f"MB at {objects:,}": took["bytes"] / MB,
            }
        checks = (at_most("MB", list(figures.values())[-1], 200.0),)
        yield Row(f"{name} over {place.sizes.objects:,} objects", "", figures, checks, "MB: the whole process, at most")


def look(name: str, objects: int) -> dict[str, float]:
    """Sweep or count a made-up store, and return the seconds and the process's largest size in bytes."""
    from tests.synthetic import RUN, SyntheticStore

    store, began = SyntheticStore(objects), time.perf_counter()
    if name == "sweep":
        run(sweep(RUN, remove, now=1e9, grace=3600.0), store)
    else:
        run(usage(now=1e9), store)
    return {"seconds": time.perf_counter() - began, "bytes": _largest()}


def _largest() -> int:
    """Return the most memory this process had; what ``getrusage`` says begins with its parent's."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    print(json.dumps(look(sys.argv[1], int(sys.argv[2]))))
