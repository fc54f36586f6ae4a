# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What capture in the proxy adds to streams: the same calls to the upstream, through the proxy, and captured.

The upstream and the proxy are processes of their own on this machine; ``python -m benchmarks.proxy`` serves the
upstream. Callers ask one question after another, each answered by a stream of 100 events over some 2 seconds; the
three kinds of call take turns. A call without a rollout prefix passes the same proxy uncaptured.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import uvicorn

from benchmarks.harness import Row, at_least, at_most, on_loop
from gym_objstore import CaptureStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.places import Place

RUN = "benchmark"
EVENTS = 100
FIRST_SECONDS, EVENT_SECONDS = 0.2, 0.018
PATH = "/v1/chat/completions"
KINDS = {"direct": "", "proxied": "", "captured": "/ng-rollout/{number}-0"}


class Took(NamedTuple):
    """Seconds of one call to its first event and to its end."""

    first: float
    total: float


async def upstream(scope: Any, receive: Any, send: Any) -> None:
    """Stream chat chunks at a model's pace."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    due = time.perf_counter() + FIRST_SECONDS
    for number in range(EVENTS):
        await asyncio.sleep(max(0, due - time.perf_counter()))
        due += EVENT_SECONDS
        choice = {"index": 0, "delta": {"content": f"word{number} "}, "finish_reason": None}
        event = json.dumps({"id": "c1", "object": "chat.completion.chunk", "model": "m", "choices": [choice]})
        await send({"type": "http.response.body", "body": f"data: {event}\n\n".encode(), "more_body": True})
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})


async def call(port: int, path: str) -> Took:
    """Make one call over a connection of its own, with as little work as possible."""
    body = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "x" * 2000}]})
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write((head + body).encode())
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    if " 200 " not in head.splitlines()[0]:
        raise RuntimeError(head + (await reader.read()).decode())
    received = await reader.readuntil(b"\n\n")
    first = time.perf_counter()
    while part := await reader.read(65536):
        received = received[-100:] + part
    total = time.perf_counter()
    writer.close()
    if b"[DONE]" not in received:
        raise RuntimeError("the stream was cut")
    return Took(first - began, total - began)


async def measure(ports: dict[str, int], streams: tuple[int, int], repetitions: int) -> dict[str, list[Took]]:
    """Return what the calls of each kind took; the first of several repetitions only warms up."""
    callers, calls = streams
    took: dict[str, list[Took]] = {kind: [] for kind in KINDS}
    for repetition in range(repetitions):
        for kind, prefix in KINDS.items():
            first = repetition * callers
            paths = [prefix.format(number=number) + PATH for number in range(first, first + callers)]
            beginnings = [number / callers * EVENTS * EVENT_SECONDS for number in range(callers)]
            asked = zip(paths, beginnings, strict=True)
            found = await asyncio.gather(*(caller(ports[kind], path, begins, calls) for path, begins in asked))
            took[kind] += [one for some in found for one in some] if repetition or repetitions == 1 else []
    return took


async def caller(port: int, path: str, begins: float, calls: int) -> list[Took]:
    """Ask one question after another. Callers begin one by one: rollouts do not keep step."""
    await asyncio.sleep(begins)
    return [await call(port, path) for _ in range(calls)]


@contextmanager
def running(*command: str, **environment: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Run a server of this benchmark that prints its address; yields its port."""
    with subprocess.Popen(
        [sys.executable, "-m", *command], stdout=subprocess.PIPE, text=True, env=os.environ | environment
    ) as process:
        try:
            words = (process.stdout.readline() if process.stdout else "").split()
            ports = [urlsplit(word).port for word in words if word.startswith("http://127.0.0.1:")]
            yield ports[-1] or 0, process
        finally:
            process.terminate()


def cpu_seconds(process: subprocess.Popen[str]) -> float:
    """Return the processor time of a running process."""
    fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def proxy_rows(place: Place) -> Iterator[Row]:
    """Yield what the proxy and the capture add to the time of the first event and to the whole."""
    if place.scheme == "memory":
        yield Row("streams", "ms", {}, note="not measured: a store in memory is not shared with the proxy")
        return
    (callers, calls), repetitions = place.sizes.streams, place.sizes.repetitions
    with tempfile.TemporaryDirectory() as spill:
        took, seconds = _streamed(place, spill)
        store = place.make(CaptureStore, RUN, spill_dir=spill)
        rollouts = range(callers * repetitions)
        captured = sum(one["error_category"] is None for number in rollouts for one in store.read(f"{number}-0"))
    note = f"proxy CPU {seconds:.1f} s"
    for field in Took._fields:
        figures = {kind: 1e3 * median(getattr(one, field) for one in took[kind]) for kind in KINDS}
        added = 100 * (figures["captured"] / figures["direct"] - 1)
        checks = (at_most("% added", added, 5.0), at_least("captured, of all", captured / (len(rollouts) * calls), 1.0))
        yield Row(f"{callers} streams, {field}", "ms", figures, checks, note)


def _streamed(place: Place, spill: str) -> tuple[dict[str, list[Took]], float]:
    """Return what calls took, and the processor time of the proxy."""
    options = place.options
    where = ["--url", place.url, "--run-id", RUN, "--spill-dir", spill]
    where += ["--endpoint", options.endpoint] if options.endpoint else []
    where += ["--region", options.region] if options.region else []
    keys = {}
    if options.secret_access_key is not None:
        keys["AWS_SECRET_ACCESS_KEY"] = options.secret_access_key.reveal()
        keys["AWS_ACCESS_KEY_ID"] = options.access_key_id or ""
    with running("benchmarks.proxy") as (upstream_port, _):
        to = ["--upstream", f"http://127.0.0.1:{upstream_port}", "--port", "0"]
        with running("gym_objstore", "proxy", *to, *where, **keys) as (port, process):
            ports = {"direct": upstream_port, "proxied": port, "captured": port}
            took = on_loop(measure(ports, place.sizes.streams, place.sizes.repetitions))
            return took, cpu_seconds(process)


def serve_upstream() -> None:
    """Serve the upstream on a free port, and print where."""
    config = uvicorn.Config(upstream, port=0, log_config=None, access_log=False)
    bound = config.bind_socket()
    print(f"http://127.0.0.1:{bound.getsockname()[1]}", flush=True)
    on_loop(uvicorn.Server(config).serve(sockets=[bound]))


if __name__ == "__main__":
    serve_upstream()
