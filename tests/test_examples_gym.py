# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Gym's YAML of examples/gym: a real model server, started from it, serves calls and the bucket holds the result.

Only the port is not the file's; bucket, run and upstream come from the variables that it names.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from gym_objstore import CaptureLedger, CaptureStore, StagingSource, TokenSource
from gym_objstore.trajectories import rebuild
from tests.canned_model import serving_model
from tests.example_run import EXAMPLES, environment_of
from tests.gym_agents import ChatAgent, agents_client
from tests.gym_server import Running, Worker, gym_server, produced, sequence, stub_worker
from tests.places import place_of

if sys.version_info < (3, 12):
    pytest.skip("nemo-gym's model server needs Python 3.12 or newer", allow_module_level=True)

from nemo_gym.global_config import GlobalConfigDictParser
from omegaconf import OmegaConf

FILES = ("token_capture.yaml", "external_staging.yaml", "model_call_capture.yaml")
ROLLOUT = "0-0"
KEY = "sk-0123456789abcdef0123"


@pytest.fixture
def place(request) -> dict[str, Any]:
    return place_of("seaweedfs", request)


@contextmanager
def served(name: str, worker: Worker, place: dict[str, Any], folder: Path, **options: Any) -> Iterator[Running]:
    """Run a model server as a file of examples/gym says."""
    told = yaml.safe_load((EXAMPLES / "gym" / name).read_text(encoding="utf-8"))
    model = told.pop("policy_model")["responses_api_models"]["vllm_model"]
    model = {setting: value for setting, value in model.items() if setting not in {"host", "port"}}
    capture = told.pop("token_id_capture", {"enabled": False})
    upstream = {"INFERENCE_URL": worker.url, "INFERENCE_API_KEY": "none"}
    environment = {**environment_of(place), **upstream, **options.pop("environment", {})}
    with gym_server(
        folder, [worker], capture, environment=environment, model=model, settings=told, **options
    ) as running:
        yield running


async def two_turns(server: Running, *texts: str) -> list[dict[str, Any]]:
    async with agents_client() as client:
        agent = ChatAgent(client, server.url, ROLLOUT)
        return [await agent.say(text) for text in texts]


async def test_token_capture_stores_entries_and_redacted_captures(tmp_path, place):
    with stub_worker(tmp_path) as worker, served("token_capture.yaml", worker, place, tmp_path) as server:
        await two_turns(server, f"is it warm? my key is {KEY}", "and tomorrow?")
    source, captures = TokenSource(**place), CaptureStore(**place)
    snapshot = await source.freeze(ROLLOUT)
    assert snapshot.problems == ()
    (found,) = rebuild(snapshot.entries).trajectories
    assert (list(found.token_ids), list(found.mask), list(found.log_probs)) == sequence(produced(tmp_path))
    records = await captures.read_async(ROLLOUT)
    assert {record["model_call_id"] for record in records} == set(found.model_call_ids)
    assert ["my key is [redacted key]" in str(record["request"]) for record in records] == [True, True]
    assert KEY not in str(records)
    await source.close()
    await captures.close()


async def test_external_staging_keeps_a_ledger_of_the_rows_that_the_worker_staged(tmp_path, place):
    with stub_worker(tmp_path, place) as worker, served("external_staging.yaml", worker, place, tmp_path) as server:
        answers = await two_turns(server, "is it warm?", "and tomorrow?")
    assert "generation_token_ids" not in str(answers)
    ledger, source = CaptureLedger(**place), StagingSource(**place)
    manifest = await ledger.manifest(ROLLOUT)
    assert manifest["failures"] == []
    keys = [row["staging_key"] for row in sorted(manifest["records"], key=lambda row: row["cum_len"])]
    calls = produced(tmp_path)
    assert keys == [call["staging_key"] for call in calls]
    staged = [token for row in await source.fetch_async(keys) for token in row.token_ids_delta]
    assert staged == sequence(calls)[0]
    await ledger.close()
    await source.close()


async def test_model_call_capture_needs_no_component_in_the_yaml(tmp_path, place):
    with serving_model() as model:
        told = {"environment": {"GYM_OBJSTORE_REDACT": "keys"}, "launch": ("gym_objstore_nemo_gym",)}
        with served("model_call_capture.yaml", model, place, tmp_path, **told) as server:
            await two_turns(server, f"is it warm? my key is {KEY}", "and tomorrow?")
    store = CaptureStore(**place)
    records = await store.read_async(ROLLOUT)
    assert [(record["dialect"], record["status_code"]) for record in records] == [("chat", 200), ("chat", 200)]
    assert "my key is [redacted key]" in str(records[0]["request"])
    assert KEY not in str(records)
    await store.close()


@pytest.mark.parametrize("name", FILES)
def test_gyms_own_parser_takes_the_file(name, monkeypatch):
    for variable in ("INFERENCE_URL", "INFERENCE_API_KEY", "GYM_OBJSTORE_URL", "GYM_OBJSTORE_RUN_ID"):
        monkeypatch.setenv(variable, f"told-{variable}")
    told = OmegaConf.load(EXAMPLES / "gym" / name)
    found = GlobalConfigDictParser().parse_no_environment(told)
    assert found.policy_model.responses_api_models.vllm_model.base_url == ["told-INFERENCE_URL/v1"]
    for kwargs in ("sink_kwargs", "lineage_store_kwargs"):
        if place := found.get("token_id_capture", {}).get(kwargs):
            assert (place.url, place.run_id) == ("told-GYM_OBJSTORE_URL", "told-GYM_OBJSTORE_RUN_ID")


@pytest.mark.parametrize("name", FILES)
def test_every_variable_that_a_file_names_is_in_its_instructions(name):
    text = (EXAMPLES / "gym" / name).read_text(encoding="utf-8")
    instructions = text.partition("policy_model:")[0]
    used = {one.partition("}")[0] for one in text.split("${oc.env:")[1:]}
    assert used
    assert {one for one in used if f"{one}=" not in instructions} == set()
