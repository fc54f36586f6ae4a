# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Captures of the real nemo-gym model server: into its own files and into the bucket, from the same traffic."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

import gym_objstore_nemo_gym as ours
from gym_objstore import CaptureStore, TokenSource
from tests.canned_model import Upstream, serving_model
from tests.gym_agents import DIALECTS, ChatAgent, agents_client
from tests.gym_server import Running, as_deployed, gym_server, stub_worker, wait_until
from tests.places import place_of
from tests.server_pool import BUCKET

if sys.version_info < (3, 12):
    pytest.skip("nemo-gym's model server needs Python 3.12 or newer", allow_module_level=True)

from nemo_gym import base_responses_api_model as gym
from nemo_gym import rollout_collection

RUN = "run-1"
SLOW = "0.03"
DURATION = re.compile("latency|duration")
CALLS = 200
TEXTS = ("hello", "THINK of it", "CALL:weather", "CUT this", "FAIL:400", "BREAK it")
MODEL = {"return_token_id_information": False, "uses_reasoning_parser": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("captures")


@pytest.fixture(scope="module")
def place(seaweedfs_server, folder) -> dict[str, Any]:
    common = {"run_id": RUN, "spill_dir": str(folder / "spill")}
    return {"url": f"s3://{BUCKET}/{folder.name}-captures", **seaweedfs_server.settings(), **common}


@pytest.fixture(scope="module")
def model() -> Iterator[Upstream]:
    with serving_model() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def servers(folder, place, model) -> Iterator[dict[str, Running]]:
    """Two servers whose captures take 30 ms: one of Gym alone, one with the bucket in place."""
    with ExitStack() as running:
        yield {
            kind: running.enter_context(
                gym_server(
                    folder,
                    [model],
                    {"enabled": False},
                    environment=environment,
                    name=kind,
                    launch=("tests.slow_gym_server", kind, SLOW),
                    settings={"observability_enabled": True, **settings},
                    model=MODEL,
                )
            )
            for kind, environment, settings in (
                ("files", {}, {"model_call_capture_dir": str(folder / "files")}),
                ("bucket", environment_of(place), {}),
            )
        }


def environment_of(place: dict[str, Any]) -> dict[str, str]:
    """Return the variables by which a process finds a place without arguments."""
    kwargs, secrets = as_deployed(place)
    return secrets | {f"GYM_OBJSTORE_{name.upper()}": value for name, value in kwargs.items()}


def stores_of(folder: Path, place: dict[str, Any]) -> dict[str, Any]:
    return {"files": gym.CaptureStore(folder / "files"), "bucket": CaptureStore(**place)}


def plain(value: Any) -> Any:
    """Return a value without what no two calls have in common: ids drawn at random, times and durations."""
    if isinstance(value, dict):
        return {name: "<duration>" if one and DURATION.search(name) else plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, int | float):
        return "<time>" if value > 1e9 else value
    return re.sub(r"[0-9a-f]{32}|\d{10}(?:\.\d+)?", "<drawn>", value) if isinstance(value, str) else value


def bodies(text: str) -> dict[str, dict[str, Any]]:
    said = [{"role": "user", "content": text}]
    return {
        "chat/completions": {"messages": said},
        "responses": {"input": said},
        "messages": {"model": "stub", "max_tokens": 100, "messages": said},
    }


def requests_of(rollout: str) -> Iterator[tuple[str, str, bytes]]:
    """Return method, path and body of all that is sent."""
    root = f"/ng-rollout/{rollout}/v1/"
    for text in TEXTS:
        for path, body in bodies(text).items():
            for stream in ({}, {"stream": True}):
                yield "POST", root + path, json.dumps({**body, **stream}).encode()
    yield "POST", f"{root}chat/completions", json.dumps(bodies("FAIL:503")["chat/completions"]).encode()
    yield "POST", f"{root}responses", b"{"
    yield "POST", f"{root}responses", b'["no object"]'
    yield "POST", f"{root}chat/completions", b'{"messages": 5}'
    yield "GET", f"{root}responses", b""
    yield "POST", f"{root}messages/count_tokens", b"{}"
    yield "POST", f"{root}elsewhere", b"{}"
    yield "POST", "/v1/chat/completions", json.dumps(bodies("not of a rollout")["chat/completions"]).encode()


def answers(server: Running, rollout: str) -> list[Any]:
    """Send everything, one after the other; return what came back."""
    found = []
    with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as client:
        for method, path, body in requests_of(rollout):
            answer = client.request(
                method, path, content=body, headers={"content-type": "application/json", "x-session-id": "session-7"}
            )
            headers = {name: value for name, value in answer.headers.items() if name not in ("date", "set-cookie")}
            found.append([path, answer.status_code, headers, answer.text])
    return found


async def test_files_and_bucket_hold_the_same_records_of_the_same_traffic(folder, place, servers):
    both = await asyncio.gather(*(asyncio.to_thread(answers, servers[kind], "same-0") for kind in ("files", "bucket")))
    assert plain(both[1]) == plain(both[0])
    files, bucket = stores_of(folder, place).values()
    captured = 2 * 3 * len(TEXTS) + 5
    await asyncio.to_thread(wait_until, lambda: len(files.read("same-0")) >= captured, "Gym wrote its last capture")
    raw = [plain(store.read("same-0")) for store in (files, bucket)]
    assert [list(record) for record in raw[1]] == [list(record) for record in raw[0]]
    assert raw[1] == raw[0]
    assert len(raw[0]) == captured
    assert {record["error_category"] for record in raw[0]} >= {None, "upstream_error", "client_error"}
    calls = [
        [plain(call.model_dump()) for call in gym.read_model_call_records(store, "same-0")] for store in (files, bucket)
    ]
    assert calls[1] == calls[0]
    totals = [gym.aggregate_model_call_metrics(store, "same-0") for store in (files, bucket)]
    assert plain(totals[1]) == plain(totals[0])
    assert totals[0]["tokens_in"] > 0
    bucket.close_now()


@pytest.fixture
def reading(place) -> Iterator[None]:
    """The bucket in place of Gym's files, in this process."""
    ours.activate(**place)
    yield
    ours.deactivate()


class Collector(rollout_collection.RolloutCollectionHelper):
    """Gym's collector, with rollouts that make one call in each dialect instead of asking an agent's server.

    Gym alone writes after the client has its answer, so a rollout ends only with ``store`` complete.
    """

    server: str
    store: Any

    def _run_examples_with_metadata(self, examples: list[dict[str, Any]], **options: Any) -> Iterator[Any]:
        return iter([self.rollout(row) for row in examples])

    async def rollout(self, row: dict[str, Any]) -> Any:
        rollout = f"{row['_ng_task_index']}-{row['_ng_rollout_index']}"
        question, evidence = row["responses_create_params"]["input"][0]["content"], {}
        if question != "silence":
            async with httpx.AsyncClient(trust_env=False) as client:
                for kind in DIALECTS.values():
                    await kind(client, self.server, rollout).say(question)
                await asyncio.to_thread(wait_until, lambda: len(self.store.read(rollout)) == 3, "captures are there")
        if question == "redacted":
            gaps = [{"code": "multimodal_history_redacted"}]
            evidence = {"ng_agent_observations": {"source": "test", "gaps": gaps}}
        result = {"reward": 1.0, "response": {"output": []}, **evidence}
        return rollout_collection._CompletedRollout(row, result, 5.0)


def collection(folder: Path) -> rollout_collection.RolloutCollectionConfig:
    """Return the settings of a collection of four rollouts, in files of a new folder."""
    agent = {"agent_ref": {"name": "agent", "type": "responses_api_agents"}}
    folder.mkdir()
    with (folder / "in.jsonl").open("w", encoding="utf-8") as rows:
        for question in ("hello", "redacted", "silence", "unprojectable"):
            said = {"responses_create_params": {"input": [{"role": "user", "content": question}]}}
            rows.write(json.dumps(agent | said) + "\n")
    files = {"input_jsonl_fpath": str(folder / "in.jsonl"), "output_jsonl_fpath": str(folder / "out.jsonl")}
    return rollout_collection.RolloutCollectionConfig(**files, agent_name="agent", disable_aggregation=True)


async def collected(collector: Collector, folder: Path, config: dict[str, Any], monkeypatch) -> list[dict[str, Any]]:
    """Return the records that a collection wrote."""
    monkeypatch.setattr(rollout_collection, "get_global_config_dict", lambda: config)
    await collector.run_from_config(collection(folder))
    return [json.loads(line) for line in (folder / "out.jsonl").read_bytes().splitlines()]


def unprojectable(row: dict[str, Any], result: dict[str, Any], *, project: Any) -> Any:
    if row["responses_create_params"]["input"][0]["content"] == "unprojectable":
        raise RuntimeError("as asked")
    return project(row, result)


@pytest.mark.filterwarnings("ignore:unclosed file .*out_materialized_inputs:ResourceWarning")  # Gym's own
async def test_the_real_collector_attaches_the_same_from_files_and_from_the_bucket(
    folder, place, servers, monkeypatch, tmp_path, request
):
    project = rollout_collection._build_trajectory_record
    monkeypatch.setattr(
        rollout_collection,
        "_build_trajectory_record",
        lambda row, result: unprojectable(row, result, project=project),
    )
    collectors = {
        kind: Collector(server=servers[kind].url, store=store) for kind, store in stores_of(folder, place).items()
    }
    on = {"observability_enabled": True}
    files = {**on, "model_call_capture_dir": str(folder / "files")}
    found = {"files": await collected(collectors["files"], tmp_path / "files", files, monkeypatch)}
    request.getfixturevalue("reading")
    for again in ("bucket", "cleared"):
        found[again] = await collected(collectors["bucket"], tmp_path / again, on, monkeypatch)
    await collectors["bucket"].store.close()
    assert plain(found["bucket"]) == plain(found["files"])
    assert plain(found["cleared"]) == plain(found["bucket"]), "captures of the run before were not cleared"
    attached = [record["ng_model_call_capture"] for record in found["bucket"]]
    assert [one["metrics"]["num_calls"] for one in attached] == [3, 3, 0, 3]
    assert [one.get("gaps") for one in attached] == [
        None,
        None,
        [{"code": "model_call_capture_no_records"}],
        [{"code": "trajectory_projection_failed", "detail": "RuntimeError"}],
    ]
    assert ["request" in one["calls"][0] for one in attached if one["calls"]] == [False, False, True]


async def call_and_leave(server: Running, rollout: str, keep: list[Any]) -> None:
    """Make one call and go as soon as the body is there, or come back over the same connection."""
    reader, writer = keep or await asyncio.open_connection("127.0.0.1", server.port)
    body = json.dumps(bodies("hello")["chat/completions"]).encode()
    head = f"POST /ng-rollout/{rollout}/v1/chat/completions HTTP/1.1\r\nHost: gym\r\nContent-Length: {len(body)}\r\n"
    writer.write(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
    answer = await reader.readuntil(b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200"), answer
    (length,) = re.findall(rb"(?i)content-length: (\d+)", answer)
    await reader.readexactly(int(length))
    keep[:] = [reader, writer]


async def storm(server: Running, cell: str, *, closing: bool, clients: int) -> None:
    """Make all calls of one rollout, ``clients`` at a time."""
    numbers = iter(range(CALLS))

    async def client() -> None:
        keep: list[Any] = []
        for _ in numbers:
            await call_and_leave(server, cell, keep)
            if closing:
                keep[1].close()
                keep.clear()
        if keep:
            keep[1].close()

    await asyncio.gather(*(client() for _ in range(clients)))


@pytest.mark.timeout(300)
async def test_no_capture_is_lost_to_a_client_that_leaves(folder, place, servers):
    stores = stores_of(folder, place)
    found: dict[str, dict[str, int]] = {kind: {} for kind in stores}
    for closing, clients in itertools.product((True, False), (1, 32)):
        cell = f"{'closing' if closing else 'keep-alive'}-{clients}"
        await asyncio.gather(*(storm(server, cell, closing=closing, clients=clients) for server in servers.values()))
        for kind, store in stores.items():
            found[kind][cell] = len(store.read_available(cell)[0])
    await stores["bucket"].close()
    print(f"captures kept of {CALLS}: in Gym's files {found['files']}, in the bucket {found['bucket']}")  # noqa: T201
    assert set(found["bucket"].values()) == {CALLS}


async def test_a_client_that_leaves_before_the_answer_is_in_the_record(place, servers, model):
    async with agents_client() as client:
        agent = ChatAgent(client, servers["bucket"].url, "left-0")
        with agent.asking("HOLD:30"):
            await asyncio.to_thread(wait_until, lambda: "HOLD:30" in model.asked, "the call is with the model")
    store = CaptureStore(**place)
    await asyncio.to_thread(wait_until, lambda: store.captured("left-0").captures, "the call is recorded")
    (record,) = await store.read_async("left-0")
    await store.close()
    assert (record["error_category"], record["response"]) == ("cancelled", None)
    assert record["request"] == {"messages": [{"role": "user", "content": "HOLD:30"}]}


@pytest.mark.timeout(300)
async def test_each_worker_of_an_entry_module_captures(folder, seaweedfs_server, model, tmp_path):
    place = {"url": f"s3://{BUCKET}/{folder.name}-workers", **seaweedfs_server.settings(), "run_id": RUN}
    environment = environment_of(place | {"spill_dir": str(tmp_path)}) | {"GYM_OBJSTORE_REDACT": "emails"}
    server = gym_server(
        tmp_path,
        [model],
        {"enabled": False},
        environment=environment,
        processes=2,
        launch=("gym_objstore_nemo_gym",),
        settings={"observability_enabled": True},
        model=MODEL,
    )
    with server as running:
        async with agents_client() as client:
            rollouts = [f"w-{number}" for number in range(40)]
            await asyncio.gather(
                *(
                    client.post(f"{running.url}/ng-rollout/{one}/v1/responses", json={"input": "I am a@b.org"})
                    for one in rollouts
                )
            )
    store = CaptureStore(**place, spill_dir=str(tmp_path))
    records = [record for one in rollouts for record in await store.read_async(one)]
    await store.close()
    assert [record["request"]["input"] for record in records] == ["I am [redacted e-mail]"] * 40
    assert "a@b.org" not in json.dumps(records)


async def test_a_component_in_gyms_yaml_captures_beside_its_tokens(tmp_path, request):
    place = place_of("seaweedfs", request)
    kwargs, secrets = as_deployed(place)
    capture = {
        "sink": "gym_objstore_nemo_gym:TokenSink",
        "sink_kwargs": {**kwargs, "captures": True, "redact": ["keys"]},
        "lineage_store": "gym_objstore_nemo_gym:LineageStore",
        "lineage_store_kwargs": kwargs,
    }
    unused = tmp_path / "unused"
    settings = {"observability_enabled": True, "model_call_capture_dir": str(unused)}
    with (
        stub_worker(tmp_path) as worker,
        gym_server(tmp_path, [worker], capture, environment=secrets, settings=settings) as server,
    ):
        async with agents_client() as client:
            await asyncio.gather(
                *(
                    kind(client, server.url, name).say("my key is sk-0123456789abcdef0123")
                    for name, kind in DIALECTS.items()
                )
            )
    store, source = CaptureStore(**place), TokenSource(**place)
    for name in DIALECTS:
        (record,) = await store.read_async(name)
        (entry,) = (await source.freeze(name)).entries
        assert record["model_call_id"] == entry.model_call_id
        assert "my key is [redacted key]" in json.dumps(record["request"])
        assert "sk-0123456789abcdef0123" not in json.dumps(record)
    await store.close()
    await source.close()
    assert not unused.exists()
    assert server.log.read_text(encoding="utf-8").count("model_call_capture_dir is not used") == 1
