# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Proxies that are killed under their clients, and stores that go away under a proxy.

The law: every answer that a client received whole has its capture, in the bucket or in the spill, from where the
next proxy takes it to the bucket. A moment is a number of pieces that the upstream sent or a client received.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from gym_objstore.capture_store import CaptureStore
from gym_objstore.middleware_recording import CAPTURE_SECONDS
from gym_objstore.spill import Spill
from gym_objstore.testing.faulty_proxy import FaultyProxy
from gym_objstore.testing.servers import make_bucket, seaweedfs
from tests.places import place_of
from tests.upstream import QUESTIONS, UpstreamServer
from tests.web_servers import serving

RUN = "run-1"
GONE = "http://127.0.0.1:1"
CLIENTS = 16
LATEST = 700
"""The last moment at which a proxy is killed: some fifty answers are under way or done."""

TROUBLE = {"503": 0.1, "reset": 0.05, "lost": 0.1}
ENDS = {
    "/v1/chat/completions": b"data: [DONE]",
    "/v1/responses": b"event: response.completed",
    "/v1/messages": b"event: message_stop",
}
OFTEN = [pytest.mark.slow, pytest.mark.timeout(140)]
PLACES = [
    pytest.param("file", 3, id="file"),
    pytest.param("seaweedfs", 2, id="seaweedfs"),
    *(
        pytest.param(kind, kills, id=f"{kind}-{kills}", marks=OFTEN)
        for kind in ("file", "seaweedfs")
        for kills in range(13, 17)
    ),
]


class Answer(NamedTuple):
    """What a client received whole."""

    rollout: str
    call: str
    streamed: bool
    received: bytes


class Killer:
    """Counts pieces, and kills a process at the moment given; without one, never."""

    def __init__(self, process: subprocess.Popen[bytes], moment: int | None = None) -> None:
        self._process, self._left, self._lock = process, moment, threading.Lock()
        self.has_killed = False

    def tick(self) -> None:
        with self._lock:
            if self._left is not None:
                self._left -= 1
                if self._left == 0:
                    self.has_killed = True
                    self._process.kill()


class Upstream:
    """The model server; each piece of an answer is a moment."""

    def __init__(self) -> None:
        self._app, self.tick = UpstreamServer(), lambda: None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def send_on(message: Any) -> None:
            self.tick()
            await send(message)

        await self._app(scope, receive, send_on)


@contextmanager
def proxying(upstream: str, place: dict[str, Any], **environment: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run ``gym-objstore proxy``; yields its address and its process. What it logs is in the test's folder."""
    options = ["--url", place["url"], "--run-id", RUN, "--spill-dir", place["spill_dir"], "--port", "0"]
    if "endpoint" in place:
        options += ["--endpoint", place["endpoint"], "--region", place["region"]]
        keys = {"AWS_ACCESS_KEY_ID": "access_key_id", "AWS_SECRET_ACCESS_KEY": "secret_access_key"}
        environment |= {name: place[key] for name, key in keys.items()}
    command = [sys.executable, "-m", "gym_objstore", "proxy", "--upstream", upstream, *options]
    said = Path(place["spill_dir"]).parent / "proxy.log"
    with said.open("ab") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=os.environ | environment)
    try:
        line = process.stdout.readline().decode()
        assert line, said.read_text()
        yield line.split("OpenAI base_url ")[1].split("/ng-rollout")[0], process
    finally:
        process.kill()
        process.communicate()


async def converse(url: str, name: str, turns: int | None, killer: Killer) -> list[Answer]:
    """Have all clients ask in turn, so often or until the proxy dies; return what they received whole."""

    async def serve(number: int) -> list[Answer]:
        whole, chance = [], random.Random(f"{name} {number}")
        async with httpx.AsyncClient(base_url=url, timeout=4 * CAPTURE_SECONDS) as client:
            for turn in count() if turns is None else range(turns):
                path, streamed = chance.choice(list(QUESTIONS)), chance.random() < 0.5
                call, rollout = f"{name}-{number}-{turn}", f"{name}-{number % 4}"
                question = {**QUESTIONS[path], "stream": streamed, "metadata": {"call": call}}
                received, complete = await ask(client, f"/ng-rollout/{rollout}{path}", question, killer)
                if complete or (streamed and ENDS[path] in received and received.endswith(b"\n\n")):
                    whole.append(Answer(rollout, call, streamed, received))
                if not complete:
                    break
        return whole

    return [one for served in await asyncio.gather(*map(serve, range(CLIENTS))) for one in served]


async def ask(client: httpx.AsyncClient, path: str, question: Any, killer: Killer) -> tuple[bytes, bool]:
    """Return what came of an answer, and whether it ended as it should."""
    received = b""
    try:
        async with client.stream("POST", path, json=question) as answer:
            async for part in answer.aiter_raw():
                received += part
                killer.tick()
    except httpx.TransportError:
        if not killer.has_killed:
            raise
        return received, False
    assert answer.status_code == 200
    return received, True


def replayed(place: dict[str, Any]) -> None:
    """Return when the spill is empty."""
    spill = Spill(place["spill_dir"], place["url"])
    while len(spill):
        time.sleep(0.05)


def marked(place: dict[str, Any], rollouts: set[str]) -> None:
    """Return when the disk has a marker of each rollout, which is written after the call was answered."""
    spill = Spill(place["spill_dir"], place["url"])
    while not rollouts <= {one.put.key.split("/")[2] for one in spill.kept() if "/markers/" in one.put.key}:
        time.sleep(0.05)


def check(store: CaptureStore, whole: list[Answer]) -> None:
    """Compare what clients received with what is in the bucket, which holds each call once."""
    captured: dict[str, Any] = {}
    for rollout in {one.rollout for one in whole}:
        found = store.read_available(rollout)
        assert found.unreadable == 0
        calls = {capture["request"]["metadata"]["call"]: capture for _, capture in found.captures}
        assert len(calls) == len(found.captures)
        captured |= calls
    assert {one.call for one in whole} <= captured.keys()
    for one in whole:
        capture = captured[one.call]
        if one.streamed:
            assert capture["response_raw"].encode() == one.received
        else:
            assert capture["response"] == json.loads(one.received)


@pytest.mark.parametrize(("kind", "kills"), PLACES)
def test_what_a_client_received_whole_is_captured_whenever_its_proxy_is_killed(kind, kills, request):
    """On a server, requests fail at random and are not repeated, so that captures go to the spill, too."""
    place, whole, kept, upstream = place_of(kind, request), [], 0, Upstream()
    network = nullcontext() if kind == "file" else FaultyProxy(place["endpoint"], seed=kills, faults=TROUBLE)
    with network as faulty, serving(upstream) as url:
        if faulty is not None:
            place |= {"endpoint": faulty.endpoint, "retry_seconds": 0}
        for number, moment in enumerate(random.Random(kills).choices(range(1, LATEST), k=kills)):
            with proxying(url, place, GYM_OBJSTORE_RETRY_SECONDS="0") as (address, process):
                killer = Killer(process, moment)
                upstream.tick = killer.tick
                whole += asyncio.run(converse(address, f"k{number}", None, killer))
                assert process.wait() < 0
            kept += len(Spill(place["spill_dir"], place["url"]))
        upstream.tick = lambda: None
        if faulty is not None:
            assert kept > 0
            faulty.heal()
        with proxying(url, place) as (address, process):
            whole += asyncio.run(converse(address, "last", 1, Killer(process)))
            replayed(place)
        assert len(whole) > kills * CLIENTS / 2
        store = CaptureStore(**place)
        check(store, whole)
        store.close_now()


def test_a_store_that_is_stopped_under_a_proxy_costs_no_capture(tmp_path):
    """Calls are answered in time and kept on disk; the next proxy replays what a killed one had kept."""
    access = {"accessKey": "proxy", "secretKey": "proxys-secret"}
    identities = [{"name": "proxy", "credentials": [access], "actions": ["Admin"]}]
    (tmp_path / "server").mkdir()
    place = {
        "url": "s3://lasting/prefix",
        "run_id": RUN,
        "spill_dir": str(tmp_path / "spill"),
        "region": "us-east-1",
        "access_key_id": access["accessKey"],
        "secret_access_key": access["secretKey"],
    }
    with FaultyProxy(GONE) as network, serving(UpstreamServer()) as url:
        place["endpoint"] = network.endpoint
        with proxying(url, place) as (address, process):
            killer = Killer(process)
            with seaweedfs(tmp_path / "server", identities=identities) as server:
                make_bucket(server, "lasting")
                network.target = server.endpoint
                whole = asyncio.run(converse(address, "before", 2, killer))
            network.target = GONE
            whole += asyncio.run(converse(address, "during", 1, killer))
            assert len(Spill(place["spill_dir"], place["url"])) >= CLIENTS
            marked(place, {f"during-{number}" for number in range(4)})
        with seaweedfs(tmp_path / "server", identities=identities) as server:
            network.target = server.endpoint
            with proxying(url, place) as (address, process):
                whole += asyncio.run(converse(address, "after", 1, Killer(process)))
                replayed(place)
            store = CaptureStore(**place)
            check(store, whole)
            assert len(whole) == 4 * CLIENTS
            assert all(store.is_incomplete(f"during-{number}") for number in range(4))
            store.close_now()
