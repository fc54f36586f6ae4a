# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The token path inside the real nemo-gym model server: its own requests, its own shutdown, our store underneath."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import gym_objstore_nemo_gym as ours
from gym_objstore import TokenSource
from gym_objstore.spill import Spill
from gym_objstore.trajectories import rebuild
from tests import gym_witness
from tests.gym_agents import DIALECTS, ChatAgent, agents_client
from tests.gym_server import Running, Tap, as_deployed, gym_server, produced, sequence, stub_worker, wait_until
from tests.places import place_of

if sys.version_info < (3, 12):
    pytest.skip("nemo-gym's model server needs Python 3.12 or newer", allow_module_level=True)

from nemo_gym.token_id_capture.consumer import trajectories_from_source
from nemo_gym.token_id_capture.delivery import retire_rollout_token_capture

ROUNDS = 12  # of one rollout in each dialect; two server processes share a round's calls out by chance
HANGING_UP = 10  # rollouts in each dialect


@pytest.fixture
def place(request) -> dict[str, Any]:
    return place_of("seaweedfs", request)


@pytest.fixture
def worker(tmp_path) -> Iterator[Running]:
    with stub_worker(tmp_path) as running:
        yield running


@contextmanager
def serving(folder: Path, worker: Running, place: dict[str, Any], *, endpoint: str = "", **options: Any):
    """Run a model server whose YAML names our classes; credentials reach it through its environment alone."""
    kwargs, secrets = as_deployed(place)
    if endpoint:
        kwargs |= {"endpoint": endpoint, "retry_seconds": 0.5}
    module = options.pop("module", "gym_objstore_nemo_gym")
    capture = {
        "sink": f"{module}:TokenSink",
        "sink_kwargs": kwargs,
        "lineage_store": f"{module}:LineageStore",
        "lineage_store_kwargs": kwargs,
        **options.pop("capture", {}),
    }
    environment = {**secrets, **options.pop("environment", {})}
    with gym_server(folder, [worker], capture, environment=environment, **options) as server:
        yield server


def generated_for(folder: Path, rollout: str) -> list[dict[str, Any]]:
    return [one for one in produced(folder) if one["opening"].startswith(f"{rollout} ")]


async def three_turns(agent: ChatAgent) -> None:
    await agent.say(f"{agent.rollout} is it warm? CALL:weather")
    agent.give_result("20 degrees")
    await agent.call()
    await agent.say("and tomorrow?")


async def assert_rebuilt(folder: Path, place: dict[str, Any], rollout: str) -> None:
    """Make sure that both builders, ours and Gym's, return what the engine generated, and that Gym retires it."""
    calls = generated_for(folder, rollout)
    assert len(calls) == 3
    own, gyms = TokenSource(**place), ours.TokenSource(**place)
    snapshot = await own.freeze(rollout)
    assert snapshot.problems == ()
    (found,) = rebuild(snapshot.entries).trajectories
    assert (list(found.token_ids), list(found.mask), list(found.log_probs)) == sequence(calls)
    built = await trajectories_from_source(rollout, gyms)
    assert built["mask_sample"] is False, built
    items = [item for item in built["rebuilt_response"]["output"] if item.get("generation_token_ids")]
    assert [
        (item["prompt_token_ids"], item["generation_token_ids"], item["generation_log_probs"]) for item in items
    ] == [(one["prompt"], one["generated"], one["log_probs"]) for one in calls]
    assert await retire_rollout_token_capture(rollout, gyms, built) is True


async def test_two_server_processes_serve_three_dialects_and_every_rollout_is_rebuilt(tmp_path, worker, place):
    noted = tmp_path / "witness"
    witnessed = {
        "module": "tests.gym_witness",
        "processes": 2,
        "environment": {gym_witness.FILE_VARIABLE: str(noted)},
        "capture": {"delta_records": True},
    }
    rollouts = []
    with serving(tmp_path, worker, place, **witnessed) as server:
        async with agents_client() as client:
            for number in range(ROUNDS):
                agents = [kind(client, server.url, f"{name}-{number}") for name, kind in DIALECTS.items()]
                await asyncio.gather(*map(three_turns, agents))
                rollouts += [agent.rollout for agent in agents]
                if gym_witness.crossings(noted) > 2:
                    break
    assert gym_witness.crossings(noted) > 0, "no process continued a call of the other"
    for rollout in rollouts:
        await assert_rebuilt(tmp_path, place, rollout)


async def test_a_store_that_goes_down_costs_no_answer_and_leaves_its_trace(tmp_path, worker, place):
    tap = Tap(place["endpoint"])
    spill = Spill(place["spill_dir"], place["url"])
    with serving(tmp_path, worker, place, endpoint=tap.endpoint) as server:
        async with agents_client() as client:
            agent, other = (ChatAgent(client, server.url, rollout) for rollout in ("lost-0", "refused-0"))
            call = asyncio.create_task(agent.say("lost-0 HOLD:lost"))
            await asyncio.to_thread(wait_until, (tmp_path / "lost.reached").exists, "the call generates")
            tap.shut()
            (tmp_path / "lost.open").touch()
            assert (await call)["choices"][0]["message"]["content"].startswith("I say")
            assert len(spill) == 2
            response = await client.post(other.url, json={"messages": [{"role": "user", "content": "refused-0 hello"}]})
            assert response.status_code == 500
            assert generated_for(tmp_path, "refused-0") == []
            tap.open()
            await asyncio.to_thread(wait_until, lambda: len(spill) == 0, "what was kept is replayed")
            await other.say("refused-0 hello again")
    tap.close()
    source = ours.TokenSource(**place)
    snapshot = await TokenSource(**place).freeze("lost-0")
    (entry,) = snapshot.entries
    assert [(one["prompt"], one["generated"]) for one in generated_for(tmp_path, "lost-0")] == [
        (entry.prompt_token_ids, entry.generation_token_ids)
    ]
    assert [one.kind for one in snapshot.problems] == ["incomplete_marker"]
    assert (await trajectories_from_source("lost-0", source))["mask_sample"] is True
    assert (await trajectories_from_source("refused-0", source))["mask_sample"] is False


def hang_up_while_it_generates(agent: ChatAgent, gates: Path) -> None:
    with agent.asking(f"and then? HOLD:{agent.rollout}"):
        wait_until((gates / f"{agent.rollout}.reached").exists, "the call generates")
    (gates / f"{agent.rollout}.open").touch()


def hang_up_at_the_first_byte(agent: ChatAgent, gates: Path) -> None:
    with agent.asking("and then?") as connection:
        assert connection.recv(1) == b"H"


def hang_up_at_once(agent: ChatAgent, gates: Path) -> None:
    with agent.asking("and then?"):
        pass


MANNERS = (hang_up_while_it_generates, hang_up_at_the_first_byte, hang_up_at_once)


async def test_a_client_that_hangs_up_leaves_an_entry_or_a_masked_rollout(tmp_path, worker, place):
    with serving(tmp_path, worker, place) as server:
        async with agents_client() as client:
            agents = [
                kind(client, server.url, f"{name}-{number}")
                for name, kind in DIALECTS.items()
                for number in range(HANGING_UP)
            ]
            await asyncio.gather(*(agent.say(f"{agent.rollout} hello") for agent in agents))
        await asyncio.gather(
            *(asyncio.to_thread(MANNERS[number % 3], agent, tmp_path) for number, agent in enumerate(agents))
        )
    source, whole = TokenSource(**place), 0
    for agent in agents:
        calls = generated_for(tmp_path, agent.rollout)
        snapshot = await source.freeze(agent.rollout)
        stored = [entry.generation_token_ids for entry in snapshot.entries]
        lost = [one for one in calls if one["generated"] not in stored]
        assert not lost or snapshot.incomplete, (
            f"{agent.rollout} lost {len(lost)} of {len(calls)} calls without a trace"
        )
        whole += len(calls) == 2 and not snapshot.incomplete
    assert whole > 0
