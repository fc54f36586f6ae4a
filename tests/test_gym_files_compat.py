# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Captures that nemo-gym wrote read the same from the bucket, and from the exported files with nemo-gym's own store."""

from __future__ import annotations

import json

import nemo_gym.base_responses_api_model as gym
import pytest
from typer.testing import CliRunner

from gym_objstore import CaptureStore, aggregate_model_call_metrics, read_available_model_call_records
from gym_objstore.cli.app import app
from tests.gym_files import exchange
from tests.transcripts import rows

RUN = "run-1"


def run_command(url, *arguments: str) -> int:
    return CliRunner().invoke(app, [*arguments, "--url", url, "--run-id", RUN], catch_exceptions=False).exit_code


def normalized(records) -> list[dict]:
    return [json.loads(record.model_dump_json()) for record in records]


@pytest.fixture
def theirs(tmp_path) -> gym.CaptureStore:
    """A folder of nemo-gym: real exchanges, calls that end before those in front of them, a torn line, a marker."""
    store = gym.CaptureStore(tmp_path / "gym")
    real = next(row for _, row in rows() if row.get("ng_model_call_capture"))
    (said,) = real["ng_model_call_capture"]["calls"]
    names = ("model_call_id", "model_ref", "dialect", "started_at", "completed_at", "status_code", "latency_ttft_ms")
    request = {"model": said["model"], "messages": real["responses_create_params"]["input"]}
    usage = {"prompt_tokens": said["tokens_in"], "completion_tokens": said["tokens_out"]}
    answer = {"id": said["response_id"], "choices": [{"finish_reason": "stop", "message": {}}], "usage": usage}
    store.record("0-0", {**{name: said[name] for name in names}, "request": request, "response": answer})
    for number in range(5):
        store.record("0-0", exchange(f"c{number}", 100.0 - number, latency_ms=1.5, response={"usage": usage}))
    with store.path_for("0-0").open("ab") as file:
        file.write(b'{"model_call_id":"torn","resp\n[1]\n')
    store.record("0-0", exchange("last", None))
    store.record("1-0", exchange("c1", 3.0))
    store.mark_incomplete("1-0")
    store.mark_incomplete("2-0")
    return store


def test_the_bucket_reads_as_the_files_do_and_so_do_the_exported_files(theirs, tmp_path):
    url = f"file://{tmp_path}/store"
    assert run_command(url, "import", str(theirs.root)) == 0
    ours = CaptureStore(url, run_id=RUN)
    assert run_command(url, "export", "--to", str(tmp_path / "out")) == 0
    exported = gym.CaptureStore(tmp_path / "out")
    for rollout in ("0-0", "1-0", "2-0"):
        wanted, damaged = theirs.read_available(rollout)
        found = ours.read_available(rollout)
        assert (found.captures, found.unreadable) == (wanted, damaged)
        assert exported.read_available(rollout) == (wanted, damaged)
        assert ours.is_incomplete(rollout) == theirs.is_incomplete(rollout) == exported.is_incomplete(rollout)
        records, unreadable = gym.read_available_model_call_records(theirs, rollout)
        calls = read_available_model_call_records(ours, rollout)
        assert (normalized(calls.calls), calls.unreadable) == (normalized(records), unreadable)
    assert exported.path_for("0-0").read_bytes() == theirs.path_for("0-0").read_bytes()
    assert aggregate_model_call_metrics(ours, "1-0") == gym.aggregate_model_call_metrics(theirs, "1-0")
