# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The real servers of one test run: each started when a test first asks for it, once, and shared by all.

They belong to the process that begins and ends the run. Under pytest-xdist that is the controller, so that
no worker's end, crash or restart takes a server from the others; workers ask it over a local socket.
"""

from __future__ import annotations

import tempfile
import threading
from contextlib import ExitStack, suppress
from multiprocessing.connection import Client, Listener
from pathlib import Path

from gym_objstore.testing import servers

BUCKET = "tests"
_STOP = "stop"


class ServerPool:
    """Starts servers on request until ``close``, which stops them all. A start that failed is not repeated."""

    def __init__(self) -> None:
        self._listener = Listener(family="AF_UNIX", backlog=64)
        self.address = str(self._listener.address)
        self._answers: dict[str, tuple[servers.Server | None, str]] = {}
        # One thread for the whole run: a server dies with the thread that started it.
        self._thread = threading.Thread(target=self._serve, name="test-servers", daemon=True)
        self._thread.start()

    def secrets(self) -> list[str]:
        """Return the secret keys of the servers that were started by now."""
        return [server.secret_key for server, _ in list(self._answers.values()) if server is not None]

    def close(self) -> None:
        with Client(self.address) as connection:
            connection.send(_STOP)
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        with ExitStack() as running:
            while True:
                # A worker that went away in the middle of its question needs no answer.
                with suppress(EOFError, OSError), self._listener.accept() as connection:
                    kind = connection.recv()
                    if kind == _STOP:
                        return
                    if kind not in self._answers:
                        self._answers[kind] = _start(kind, running)
                    connection.send(self._answers[kind])


def shared_server(address: str, kind: str) -> servers.Server:
    """Return the run's server of one kind, with ``BUCKET`` in it; raise if it could not be started."""
    with Client(address) as connection:
        connection.send(kind)
        server, problem = connection.recv()
    if server is None:
        raise RuntimeError(problem)
    return server


def _start(kind: str, running: ExitStack) -> tuple[servers.Server | None, str]:
    try:
        folder = running.enter_context(tempfile.TemporaryDirectory(prefix="gym-objstore-", ignore_cleanup_errors=True))
        match kind:
            case "seaweedfs":
                server = running.enter_context(servers.seaweedfs(Path(folder)))
            case "minio":
                server = running.enter_context(servers.minio_gateway(Path(folder)))
            case _:
                server = running.enter_context(servers.moto_server())
        servers.make_bucket(server, BUCKET)
    except Exception as error:  # noqa: BLE001 - told to every test that asks, which then fails
        return None, f"the test server did not start, server={kind}: {error}"
    return server, ""
