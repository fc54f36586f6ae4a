# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A process that used obstore ends cleanly, whatever its threads are doing at that moment."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

from gym_objstore.store import exit_guard

SCRIPT = """
import asyncio, sys
from gym_objstore.store.opening import open_store
names = ("endpoint", "access_key_id", "secret_access_key")
store = open_store(sys.argv[1], region="us-east-1", **dict(zip(names, sys.argv[2:])))
async def main():
    await asyncio.gather(*(store.put_async(f"k{number}", b"x" * 100) for number in range(50)))
asyncio.run(main())
"""


def test_a_process_that_used_obstore_ends_with_zero(seaweedfs_server, prefix):
    server = seaweedfs_server
    command = [
        sys.executable,
        "-c",
        SCRIPT,
        f"s3://tests/{prefix}",
        server.endpoint,
        server.access_key,
        server.secret_key,
    ]
    codes = [subprocess.run(command, check=False, capture_output=True).returncode for _ in range(10)]
    assert codes == [0] * 10


def test_it_returns_when_no_thread_is_running_any_more():
    stop = threading.Event()

    def busy_then_resting():
        until = time.monotonic() + 0.3
        while time.monotonic() < until:
            sum(range(1000))
        stop.wait(30)

    thread = threading.Thread(target=busy_then_resting)
    thread.start()
    exit_guard._settle()
    states = set(exit_guard._activity().values())
    stop.set()
    thread.join()
    assert "R" not in states


def test_it_gives_up_on_a_thread_that_never_rests(monkeypatch):
    monkeypatch.setattr(exit_guard, "_LIMIT_SECONDS", 0.05)
    done = threading.Event()
    thread = threading.Thread(target=lambda: [time.sleep(0.001) for _ in iter(done.is_set, True)])
    thread.start()
    exit_guard._settle()
    done.set()
    thread.join()


def test_without_proc_it_waits_blindly(monkeypatch, tmp_path):
    monkeypatch.setattr(exit_guard, "_TASKS", tmp_path / "absent")
    monkeypatch.setattr(exit_guard, "_BLIND_SECONDS", 0.0)
    exit_guard._settle()
