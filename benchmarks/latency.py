# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A relay of bytes in front of a server that holds everything back for some milliseconds each way.

Run by the benchmark as a process of its own: ``python -m benchmarks.latency HOST PORT``. Prints its address; each
line on its standard input is a new delay in milliseconds, echoed when it holds. It knows no HTTP, so that it is no
bottleneck before some thousands of requests a second; the opening of a connection is not delayed. Connections stay
open as long as both sides want.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque

from benchmarks.harness import on_loop

_CONNECT_SECONDS = 0.001


class Relay:
    """Listens on loopback and relays to one server, ``delay`` seconds late."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port, self.delay = host, port, 0.0

    def __call__(self) -> _Side:
        """Return the protocol of a new connection."""
        return _Client(self)


class _Side(asyncio.Protocol):
    """One side of a relayed connection: what it receives is written to the other side, in order, when it is due."""

    def __init__(self, relay: Relay, other: _Side | None = None) -> None:
        self.relay, self.other = relay, other
        self.transport: asyncio.Transport
        self._held: deque[bytes] = deque()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment] # a stream's

    def data_received(self, data: bytes) -> None:
        self._held.append(data)
        asyncio.get_running_loop().call_later(self.relay.delay, self._pass_on)

    def connection_lost(self, _: Exception | None) -> None:
        if self.other is not None:
            asyncio.get_running_loop().call_later(self.relay.delay, self.other.transport.close)

    def _pass_on(self) -> None:
        if self.other is None:  # not connected yet; a loop may deliver data even to who asked it to wait
            if not self.transport.is_closing():
                asyncio.get_running_loop().call_later(_CONNECT_SECONDS, self._pass_on)
            return
        data = self._held.popleft()
        if not self.other.transport.is_closing():
            self.other.transport.write(data)


class _Client(_Side):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        server = _Side(self.relay, self)
        try:
            await asyncio.get_running_loop().create_connection(lambda: server, self.relay.host, self.relay.port)
        except OSError:
            self.transport.abort()
            return
        self.other = server


async def serve(host: str, port: int) -> None:
    """Relay until the standard input ends."""
    relay = Relay(host, port)
    server = await asyncio.get_running_loop().create_server(relay, "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        relay.delay = float(line) / 1e3
        print(line.strip(), flush=True)


if __name__ == "__main__":
    on_loop(serve(sys.argv[1], int(sys.argv[2])))
