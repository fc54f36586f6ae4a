# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Server processes for tests and demos: free ports, a clean environment, and no survivors.

Owns: starting a program, ending it, and what its log said. Does not own: what the program is or when it is
ready; ``servers`` does.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gym_objstore.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Below the ranges from which Linux (32768) and the BSDs (49152) take ports for outgoing connections: a
# server needs seconds until it binds, and a busy client on this machine would take a port from there first.
_PORTS = range(15_000, 32_000)
_PORT_TRIES = 1_000
_TAIL_BYTES = 3_000
_RUN_SECONDS = 60.0

# Makes the program die with the thread that started it, by whatever signal. It runs before the program in
# the same process, because a preexec_fn would fork a process full of threads. PR_SET_PDEATHSIG is 1 and
# outlives exec; a parent that was gone before it took effect is seen by its id.
_LEASH = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


def free_ports(count: int) -> list[int]:
    """Return distinct ports on which nothing listens. They are not reserved: a clash stays possible."""
    # Not the module's own generator: test runners seed it alike in processes that run side by side.
    draw = random.SystemRandom()
    ports: list[int] = []
    with ExitStack() as held:
        for _ in range(_PORT_TRIES):
            if len(ports) == count:
                return ports
            probe = held.enter_context(socket.socket())
            try:
                probe.bind(("127.0.0.1", draw.choice(_PORTS)))
            except OSError:
                continue
            ports.append(probe.getsockname()[1])
    raise Unavailable(f"too few free ports on this machine, wanted={count}", kind="no_free_ports")


def start(
    command: Sequence[str], *, directory: Path, log: Path, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a program in ``directory``, with nothing of the caller's environment but the search path.

    Its home is ``directory`` too, so that no configuration file of the user reaches it. ``log`` is begun
    anew. On Linux the program is killed when the calling thread ends; elsewhere only ``stop`` ends it.
    """
    clean = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(directory), "LANG": "C.UTF-8", **environment}
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _LEASH, str(os.getpid()), *command],
            cwd=directory,
            env=clean,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def run(command: Sequence[str], *, directory: Path, log: Path) -> None:
    """Run a program as ``start`` does and wait for its end; raise ``Unavailable`` unless it succeeds."""
    process = start(command, directory=directory, log=log, environment={})
    with suppress(subprocess.TimeoutExpired):
        process.wait(_RUN_SECONDS)
    stop(process)
    if process.returncode:
        name, code = Path(command[0]).name, process.returncode
        raise Unavailable(f"{name} {command[1]} failed, code={code}, log:\n{log_tail(log)}", kind="program_failed")


def stop(process: subprocess.Popen[bytes]) -> None:
    """Kill a program and what it started. Returns when it is gone; repeating changes nothing."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def log_tail(log: Path) -> str:
    """Return the last lines that a program wrote."""
    with log.open("rb") as lines:
        lines.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        return lines.read().decode(errors="replace").strip()
