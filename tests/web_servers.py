# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Applications behind real sockets: the in-process clients of web frameworks hide what a connection does."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn


@contextmanager
def serving(app: Any, **options: Any) -> Iterator[str]:
    """Serve an ASGI application from a thread of this process; yields its address. ``options`` are uvicorn's."""
    with socket.create_server(("127.0.0.1", 0)) as bound:
        server = uvicorn.Server(uvicorn.Config(app, ws="none", log_config=None, timeout_graceful_shutdown=1, **options))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, name="web-server")
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive(), "the server did not start"
                time.sleep(0.005)
            yield f"http{'s' if server.config.is_ssl else ''}://127.0.0.1:{bound.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def answering(answer: Callable[[int, socket.socket], None]) -> Iterator[str]:
    """Hand every connection to ``answer`` with its number from 0 and its request read; yields the address."""
    with socket.create_server(("127.0.0.1", 0)) as bound:
        threads: list[threading.Thread] = []

        def handle(number: int, connection: socket.socket) -> None:
            with connection:
                if connection.recv(65536):
                    answer(number, connection)

        def accept() -> None:
            while True:
                try:
                    connection, _ = bound.accept()
                except OSError:
                    return
                threads.append(threading.Thread(target=handle, args=(len(threads), connection)))
                threads[-1].start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        finally:
            bound.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for thread in threads:
                thread.join()
