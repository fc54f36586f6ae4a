# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Where the benchmark runs: a server or any url, how far away it is, and how much is done there."""

from __future__ import annotations

import itertools
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from gym_objstore.store.opening import open_store
from gym_objstore.store.options import StoreOptions
from gym_objstore.testing import servers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gym_objstore.store import Store


@dataclass(frozen=True)
class Sizes:
    """How much of everything is done."""

    repetitions: int
    tokens: tuple[int, ...]
    """Of a small, a usual and a large entry."""
    put: tuple[int, ...]
    """Tokens of the entries that are put beside the rivals."""
    callers: tuple[int, ...]
    operations: int
    """Puts of one turn, at most; at least one for each caller."""
    burst: int
    """Puts under way while the event loop ticks."""
    calls: tuple[int, ...]
    """Of the rollouts that are resolved and frozen."""
    rows: int
    threads: tuple[int, ...]
    attachments: int
    """Bytes beside a staged row."""
    rollouts: tuple[int, int]
    """Of the trainer, and calls of each."""
    removals: int
    objects: int
    """Of the synthetic store."""
    streams: tuple[int, int]
    """At a time, and of each caller."""
    starts: int


FULL = Sizes(
    repetitions=3,
    tokens=(2_048, 8_192, 32_768),
    put=(2_048, 8_192, 32_768),
    callers=(1, 16, 64, 256),
    operations=512,
    burst=256,
    calls=(10, 100, 1_000),
    rows=256,
    threads=(1, 8, 64),
    attachments=8_000_000,
    rollouts=(2_000, 20),
    removals=4_096,
    objects=1_000_000,
    streams=(64, 2),
    starts=15,
)
QUICK = replace(
    FULL,
    repetitions=2,
    put=(8_192,),
    callers=(64, 256),
    operations=128,
    calls=(10, 300),
    rows=48,
    threads=(8,),
    rollouts=(30, 20),
    removals=256,
    objects=60_000,
    streams=(64, 1),
    starts=3,
)
TINY = Sizes(
    repetitions=1,
    tokens=(16, 32, 64),
    put=(16,),
    callers=(2,),
    operations=4,
    burst=8,
    calls=(2, 3),
    rows=4,
    threads=(2,),
    attachments=1_000,
    rollouts=(2, 2),
    removals=3,
    objects=300,
    streams=(2, 1),
    starts=1,
)


@dataclass(frozen=True)
class Place:
    """A store to measure at. ``settings`` are what is given to a component beside its url and run."""

    url: str
    settings: dict[str, Any]
    sizes: Sizes
    folder: Path
    latencies: Sequence[float] = (0.0,)
    relay: subprocess.Popen[str] | None = None
    relayed: str = ""
    _names: Iterator[int] = field(default_factory=itertools.count)

    @property
    def options(self) -> StoreOptions:
        """The options of the store, with nothing but its settings."""
        return StoreOptions.of(self.url, **self.settings)

    @property
    def scheme(self) -> str:
        """The kind of url."""
        return self.options.location.scheme

    def store(self) -> Store:
        """Return a store of ours."""
        return open_store(self.options)

    def raw(self) -> Any:
        """Return obstore's own client for the same place: the limit."""
        if self.scheme in ("memory", "file"):
            from obstore.store import LocalStore, MemoryStore

            path = self.url.removeprefix("file://")
            return MemoryStore() if self.scheme == "memory" else LocalStore(path, mkdir=True)
        from gym_objstore.store.obstore_client import connect

        return connect(self.options)

    def make(self, component: type, run: str, **more: Any) -> Any:
        """Return a component of ours."""
        return component(self.url, run, **self.settings, **more)

    def name(self) -> str:
        """Return a name that no other run or key of this benchmark has."""
        return f"bench-{next(self._names)}"

    def away(self, milliseconds: float) -> Place:
        """Return this place, so many milliseconds away each way; it must be idle."""
        if not milliseconds:
            return self
        if self.relay is None or self.relay.stdin is None or self.relay.stdout is None:
            raise ValueError("there is no relay in front of this place")
        self.relay.stdin.write(f"{milliseconds}\n")
        self.relay.stdin.flush()
        self.relay.stdout.readline()
        return replace(self, settings={**self.settings, "endpoint": self.relayed})

    @property
    def farthest(self) -> Place:
        """The place at the longest of its latencies."""
        return self.away(max(self.latencies))


@contextmanager
def place(url: str, sizes: Sizes, latencies: Sequence[float]) -> Iterator[Place]:
    """Yield a url, or a SeaweedFS of its own without one; a relay stands before it where latency is asked for."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmarks-")))
        settings: dict[str, Any] = {}
        if not url:
            server = stack.enter_context(servers.seaweedfs(folder))
            url, settings = f"s3://{servers.make_bucket(server, 'benchmark')}/b", server.settings()
        found = Place(url, settings, sizes, folder)
        parts = urlsplit(found.options.endpoint or "")
        if any(latencies) and parts.scheme == "http":
            relay, address = stack.enter_context(_relay(parts.hostname or "", parts.port or 80))
            found = replace(found, latencies=latencies, relay=relay, relayed=address)
        elif any(latencies):
            print("no latency is added: the relay needs an endpoint of plain HTTP", file=sys.stderr)
        yield found


@contextmanager
def _relay(host: str, port: int) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "benchmarks.latency", host, str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process, (process.stdout.readline() if process.stdout else "").strip()
        finally:
            process.kill()
