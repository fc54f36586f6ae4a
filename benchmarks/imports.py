# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""How long a fresh interpreter takes to import the package and to start the command line.

Run: ``python -m benchmarks.imports``. Each figure is the median of fresh processes, less the median of an
interpreter that does nothing, in milliseconds.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

REPETITIONS = 15
PROGRAMS = {
    "import gym_objstore": "import gym_objstore",
    "import TokenSink": "from gym_objstore import TokenSink",
    "import obstore": "import obstore",
    "import boto3": "import boto3",
    "gym-objstore --help": "import runpy, sys; sys.argv[1:] = ['--help']; runpy.run_module('gym_objstore')",
}


def seconds(program: str) -> float:
    """Return the median time of fresh interpreters that run a program."""
    times = []
    for _ in range(REPETITIONS):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def main() -> None:
    """Print the table."""
    nothing = seconds("pass")
    print(f"{'an interpreter that does nothing':34} {1000 * nothing:7.0f} ms")
    for name, program in PROGRAMS.items():
        print(f"{name:34} {1000 * (seconds(program) - nothing):7.0f} ms")


if __name__ == "__main__":
    main()
