# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The proof of external staging, with processes that share a bucket and nothing else.

Two engine workers of several threads stage rows, two real nemo-gym model servers keep the ledger in it, agents of all
dialects play rollouts in which much goes wrong, a worker is killed in the middle, and a trainer process reads. The
workers' local log says what the engines produced; it alone decides what is right.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Any

import httpx
import pytest

from gym_objstore import CaptureLedger
from gym_objstore.errors import Conflict
from gym_objstore.flow import run
from gym_objstore.keys import parse_staging_key, run_prefix, staged_key
from gym_objstore.store import Store
from gym_objstore.store.opening import open_store
from gym_objstore.sweeping import find_orphans
from gym_objstore.wire_ledger import CallRecord, CaptureLedgerCommit
from tests.gym_agents import agents_client
from tests.gym_server import (
    CONTROL_TOKEN,
    Running,
    as_deployed,
    gym_server,
    produced,
    sequence,
    stub_worker,
    wait_until,
)
from tests.places import place_of
from tests.staging_play import MASKED, ROLLOUTS, UNRECORDED, Played, play_all, rollout_id

if sys.version_info < (3, 12):
    pytest.skip("nemo-gym's model server needs Python 3.12 or newer", allow_module_level=True)

pytestmark = pytest.mark.timeout(145)  # seconds; it takes about 25 where nothing else runs

TRAINER_SECONDS = 120


class Cluster:
    """Two workers and two model servers over one bucket."""

    def __init__(self, folder: Path, place: dict[str, Any], stack: ExitStack) -> None:
        self.folder, self._place, self._stack = folder, place, stack
        self.workers = [stack.enter_context(stub_worker(folder, place, name=f"worker-{one}")) for one in range(2)]
        self.servers = [self._model_server(f"gym-{one}") for one in range(2)]

    def play(self) -> list[Played]:
        """Play all rollouts, killing a worker in the middle, and return them when every agent has ended."""
        with ThreadPoolExecutor(1) as pool:
            playing = pool.submit(asyncio.run, play_all([server.url for server in self.servers]))
            self._kill_a_worker()
            return playing.result()

    def _model_server(self, name: str) -> Running:
        kwargs, secrets = as_deployed(self._place)
        capture = {
            "external_staging": True,
            "rebuild_response": False,
            "lineage_store": "gym_objstore_nemo_gym:CaptureLedger",
            "lineage_store_kwargs": kwargs,
        }
        return self._stack.enter_context(gym_server(self.folder, self.workers, capture, environment=secrets, name=name))

    def _kill_a_worker(self) -> None:
        """Kill a worker between staging and answering, start another in its place, and let all who wait go on."""
        wait_until(lambda: next(self.folder.glob("*.reached"), None), "a call lingers on a worker")
        gate = next(self.folder.glob("*.reached"))
        wait_until(gate.read_text, "the worker has written its id")
        (victim,) = (one for one in self.workers if one.process.pid == int(gate.read_text()))
        victim.kill()
        for number in range(ROLLOUTS):
            (self.folder / f"{rollout_id(number)}.open").touch()
        again = stub_worker(self.folder, self._place, port=victim.port, name="worker-again")
        self._stack.enter_context(again)


async def manifests_of(place: dict[str, Any], rollouts: list[Played]) -> dict[str, dict[str, Any]]:
    ledger = CaptureLedger(**place)
    found = await asyncio.gather(*(ledger.manifest(one.rollout) for one in rollouts))
    await ledger.close()
    return {manifest["rollout_id"]: manifest for manifest in found}


def assert_nothing_acknowledged_is_missing(played: Played, manifest: dict[str, Any]) -> None:
    """Every response that an agent got is on record, or the rollout has the failure that says why not."""
    recorded = {one["response_id"] for one in manifest["records"]}
    missing = [one for one in played.responses if one not in recorded]
    assert missing == (played.responses[-1:] if played.manner in UNRECORDED else []), played
    poison = {one["reason"] for one in manifest["failures"]} - {"request_finished_without_staged_coordinates"}
    assert poison == ({UNRECORDED[played.manner]} if played.manner in UNRECORDED else set()), played


async def void(place: dict[str, Any], manifest: dict[str, Any]) -> None:
    """Record a call of a rollout again with other data."""
    ledger = CaptureLedger(**place)
    record = CallRecord.model_validate({**manifest["records"][-1], "response_id": "another"})
    commit = CaptureLedgerCommit(rollout_id=manifest["rollout_id"], record=record, request_items=(), response_items=())
    with pytest.raises(Conflict):
        await ledger.record(commit)
    await ledger.close()


def damage(store: Store, run_id: str, manifest: dict[str, Any]) -> None:
    """Flip a bit in the record of a staged row."""
    key = parse_staging_key(manifest["records"][-1]["staging_key"])
    body = bytearray(store.get(staged_key(run_id, key)))
    body[key.name.record_bytes // 2] ^= 1
    store.put(staged_key(run_id, key), bytes(body))


def train(place: dict[str, Any], rollouts: list[Played]) -> dict[str, dict[str, Any]]:
    """Run the trainer in a process of its own and return what it says of each rollout."""
    kwargs, secrets = as_deployed(place)
    plan = json.dumps({"place": kwargs, "scored": {one.rollout: one.responses[-1] for one in rollouts}})
    done = subprocess.run(
        [sys.executable, "-m", "tests.staging_trainer", plan],
        env={**os.environ, **secrets},
        capture_output=True,
        check=False,
        timeout=TRAINER_SECONDS,
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def assert_judged_right(played: Played, verdict: dict[str, Any], engine: dict[str, dict[str, Any]]) -> None:
    """What was trained is what the engine produced, to the last bit; all else is masked for its own reason."""
    if played.manner in MASKED:
        code, words = MASKED[played.manner]
        assert verdict.get("masked") == code, (played, verdict)
        assert words in verdict["detail"], verdict
        return
    assert "masked" not in verdict, (played, verdict)
    calls = [engine[key] for key in verdict["keys"]]
    assert (verdict["token_ids"], verdict["mask"], verdict["log_probs"]) == sequence(calls)
    assert verdict["token_ids"] == calls[-1]["prompt"] + calls[-1]["generated"]
    assert calls[-1]["response_id"] == played.responses[-1] == verdict["note"]


async def come_late(urls: list[str], rollouts: list[Played]) -> None:
    """Go on with retired rollouts: a continuation is refused, a new beginning is served and leaves an orphan."""
    async with agents_client() as client:
        for played in rollouts:
            late = type(played.agent)(client, urls[0], played.rollout, played.agent.fork().history)
            late.history.append({"role": "user", "content": "one thing more"})
            assert (await client.post(late.url, json=late.body())).status_code == 500
            await type(played.agent)(client, urls[1], played.rollout).say(f"{played.rollout} from the beginning")


@dataclass(frozen=True, slots=True)
class Books:
    """What the bucket holds of staged rows, by their keys, and which of them the ledger knew when all had ended."""

    store: Store
    run_id: str
    manifests: dict[str, dict[str, Any]]

    def assert_a_sweep_finds_all_but_those_of(self, rollouts: list[Played]) -> None:
        """Make sure that a sweep would remove exactly the rows that no ledger row of these rollouts names."""
        staged = {meta.key for meta in self.store.scan(run_prefix("staged", self.run_id)) if "/rows/" in meta.key}
        known = set().union(*(self._known(played.rollout) for played in rollouts))
        assert known < staged
        found = run(find_orphans(self.run_id, now=time() + 60, grace=0.0), self.store)
        assert {rest.meta.key for rest in found.rests} == staged - known

    def _known(self, rollout: str) -> set[str]:
        keys = (parse_staging_key(one["staging_key"]) for one in self.manifests[rollout]["records"])
        return {staged_key(self.run_id, key) for key in keys}


def served_manifest(url: str, rollout: str) -> dict[str, Any]:
    """Return a rollout's manifest as the model server's control route gives it."""
    response = httpx.get(
        f"{url}/training-token-capture/control/rollouts/{rollout}/manifest",
        headers={"Authorization": f"Bearer {CONTROL_TOKEN}"},
        trust_env=False,
    )
    assert response.status_code == 200, response.text
    return response.json()


def in_manner(rollouts: list[Played], *manners: str) -> list[Played]:
    return [played for played in rollouts if played.manner in manners]


@pytest.mark.parametrize("kind", ["seaweedfs", "minio"])
def test_all_that_is_trained_is_what_the_engines_produced_and_all_else_is_masked(kind, request, tmp_path):
    place = place_of(kind, request)
    store = open_store(**{name: value for name, value in place.items() if name not in {"run_id", "spill_dir"}})
    with ExitStack() as stack:
        cluster = Cluster(tmp_path, place, stack)
        rollouts = cluster.play()
        books = Books(store, place["run_id"], asyncio.run(manifests_of(place, rollouts)))
        for played in rollouts:
            assert_nothing_acknowledged_is_missing(played, books.manifests[played.rollout])
        assert served_manifest(cluster.servers[0].url, rollouts[0].rollout) == books.manifests[rollouts[0].rollout]
        books.assert_a_sweep_finds_all_but_those_of(rollouts)

        for played in in_manner(rollouts, "conflicting"):
            asyncio.run(void(place, books.manifests[played.rollout]))
        for played in in_manner(rollouts, "damaged"):
            damage(store, place["run_id"], books.manifests[played.rollout])
        verdicts = train(place, rollouts)
        engine = {one["staging_key"]: one for one in produced(tmp_path) if one.get("staging_key")}
        for played in rollouts:
            assert_judged_right(played, verdicts[played.rollout], engine)

        late = in_manner(rollouts, "late")
        asyncio.run(come_late([server.url for server in cluster.servers], late))
        books.assert_a_sweep_finds_all_but_those_of(in_manner(rollouts, *MASKED))
        log = "".join(server.log.read_text(encoding="utf-8") for server in cluster.servers)
        assert log.count("a ledger row came after retirement and was discarded") == len(late)
    staged = Counter(one["model_call_id"] for one in engine.values())
    assert max(staged.values()) == 2, "no call was staged again after its worker was killed"
