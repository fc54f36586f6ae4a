# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""How long a fresh interpreter takes to import the package and to start the command line."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.harness import Row, at_most, interleaved, medians, timed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.places import Place

NOTHING = "an interpreter that does nothing"
PROGRAMS = {
    NOTHING: "pass",
    "import gym_objstore": "import gym_objstore",
    "import TokenSink": "from gym_objstore import TokenSink",
    "import obstore": "import obstore",
    "import boto3": "import boto3",
    "gym-objstore --help": "import runpy, sys; sys.argv[1:] = ['--help']; runpy.run_module('gym_objstore')",
}
LIMITS = {"import gym_objstore": 150.0, "gym-objstore --help": 400.0}


def start_rows(place: Place) -> Iterator[Row]:
    """Yield the milliseconds of fresh processes, the interpreter's own start included."""
    runs = {name: partial(_run, program) for name, program in PROGRAMS.items()}
    interleaved(runs, 1)  # writes the byte code
    figures = medians(interleaved(runs, place.sizes.starts))
    checks = tuple(at_most(name, figures[name], limit) for name, limit in LIMITS.items())
    yield Row("fresh process", "ms", figures, checks)


def _run(program: str) -> float:
    command = [sys.executable, "-c", program]
    return 1e3 * timed(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))
