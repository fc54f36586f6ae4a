# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Model calls behind the middleware of a store in trouble: each is answered, and each is captured or shows as lost."""

from __future__ import annotations

import asyncio
import json
import os
import random

import pytest

from gym_objstore import captures, connection
from gym_objstore.capture_store import CaptureStore
from gym_objstore.errors import Unavailable
from gym_objstore.flow import run
from gym_objstore.middleware import CaptureMiddleware
from gym_objstore.spill import Spill
from gym_objstore.store import retrying
from gym_objstore.store.memory import MemoryStore
from gym_objstore.store.retrying import RetryingStore
from gym_objstore.testing.faulty import Faults, FaultyStore
from tests.asgi_calls import body, start
from tests.laws.troubled import HONEST, in_groups

RUN = "run-1"
ROLLOUTS = ("r0", "r1")
PATH = "/ng-rollout/{}/v1/chat/completions"


async def answer(scope, receive, send):
    """Answer a chat completion with what was asked, as a model server does."""
    asked = json.loads((await receive())["body"])
    await send(start())
    await send(body(json.dumps({"id": asked["n"], "choices": []}).encode(), more=False))


async def call(app, rollout, number) -> bytes:
    """Make one call and return the body of its answer."""
    path, sent = PATH.format(rollout), []
    messages = [{"type": "http.request", "body": json.dumps({"n": number}).encode()}]

    async def receive():
        return messages.pop() if messages else await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "headers": [], "state": {}}
    await app(scope, receive, send)
    return b"".join(message.get("body", b"") for message in sent)


async def serve(store, trouble, seed):
    """Make calls at the same time, end the trouble, and replay what is kept on disk."""
    numbers = iter(range(1000))
    app = CaptureMiddleware(answer, store, call_ids=lambda: f"call-{seed}-{next(numbers)}")
    asked = [(rollout, number) for rollout in ROLLOUTS for number in range(6)]
    answers = await asyncio.gather(*(call(app, rollout, number) for rollout, number in asked))
    await store.drain(timeout=30)
    trouble.heal()
    for kept in list(store.connection.spill.kept()):
        await store.connection.replay(kept)
    await store.record_async("afterwards", {"model_call_id": "a"})
    await store.close()
    return [(rollout, json.loads(text)["id"]) for (rollout, _), text in zip(asked, answers, strict=True)], asked


@pytest.fixture(autouse=True)
def _without_waiting(monkeypatch):
    monkeypatch.setattr(retrying, "_FIRST_PAUSE", 0.0)
    monkeypatch.setattr(os, "fsync", lambda _: None)


def played(seed, faults, monkeypatch, tmp_path):
    """Return the store behind the trouble, the answers, and what was asked."""
    witness = MemoryStore()
    trouble = FaultyStore(witness, seed=seed, faults=faults)
    seen = RetryingStore(trouble, seconds=30.0 if seed % 2 else 0.0, limit=64)
    monkeypatch.setattr(connection, "open_store", lambda *_: seen)
    store = CaptureStore(f"memory://captures-{seed}", RUN, spill_dir=str(tmp_path / str(seed)))
    return witness, *asyncio.run(serve(store, trouble, seed))


def captured(witness, rollout):
    """Return what each readable capture asked and was answered, and whether the rollout is marked."""
    found = run(captures.read(RUN, rollout), witness)
    records = [captures.record_of(one) for one in found.captures]
    assert all(one["request"]["n"] == one["response"]["id"] for one in records)
    return sorted(one["request"]["n"] for one in records), found.incomplete


@pytest.mark.parametrize("seeds", in_groups(200, often=2_200))
def test_every_call_is_answered_and_captured_or_marked(seeds, monkeypatch, tmp_path):
    troubled = 0
    for seed in seeds:
        chance = random.Random(seed)
        faults = Faults(**{kind: chance.choice((0.05, 0.2, 0.5)) for kind in chance.sample(HONEST, 3)})
        witness, answers, asked = played(seed, faults, monkeypatch, tmp_path)
        assert answers == asked, seed
        for rollout in ROLLOUTS:
            numbers, incomplete = captured(witness, rollout)
            assert len(numbers) == len(set(numbers)), seed
            assert incomplete or numbers == list(range(6)), (seed, numbers)
            troubled += incomplete
    assert troubled


@pytest.mark.parametrize("disk_fails_too", [False, True])
def test_with_a_store_that_takes_nothing_calls_are_answered_all_the_same(disk_fails_too, monkeypatch, tmp_path):
    if disk_fails_too:
        monkeypatch.setattr(Spill, "keep", lambda *_: (_ for _ in ()).throw(Unavailable("no disk")))
    witness, answers, asked = played(2, Faults(refused=1.0), monkeypatch, tmp_path)
    assert answers == asked
    if not disk_fails_too:
        assert [captured(witness, rollout) for rollout in ROLLOUTS] == [(list(range(6)), True)] * 2
