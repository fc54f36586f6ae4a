# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The examples of capture run as they stand, as programs, against a real server."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from gym_objstore.capture_store import CaptureStore
from gym_objstore.proxy import proxy_app
from tests.upstream import UpstreamServer
from tests.web_servers import serving

EXAMPLES = Path(__file__).parent.parent / "examples"
TEXT = "yes " * 20


def example(name: str, **arguments: str) -> str:
    said = [f"--{argument.replace('_', '-')}={value}" for argument, value in arguments.items()]
    command = [sys.executable, str(EXAMPLES / name), *said]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


@pytest.fixture
def store(tmp_path):
    return CaptureStore(f"file://{tmp_path}/store", "run-1", spill_dir=str(tmp_path / "spill"))


def test_every_call_of_the_agent_is_captured_also_the_one_it_makes_to_itself(store):
    upstream = UpstreamServer()
    with serving(upstream) as model_server, serving(proxy_app(model_server, store)) as proxy:
        printed = example("custom_agent.py", server=proxy, model="m", rollout_id="7-1-a2")
    told = json.loads(printed)
    assert (told["draft"], json.loads(told["review"])["review"]) == (TEXT, TEXT)
    assert [one["dialect"] for one in store.read("7-1-a2")] == ["chat", "messages"]
    assert store.read("7-1-a2")[1]["response"]["content"] == [{"type": "text", "text": TEXT}]
    assert len(upstream.asked) == 2


def test_the_capture_of_a_server_prints_its_calls_and_totals(store):
    with serving(UpstreamServer()) as upstream:
        place = {"url": store.settings.store.url, "run_id": "run-1", "rollout_id": "0-0"}
        *calls, totals = example("capture_openai_server.py", upstream=upstream, model="m", **place).splitlines()
    assert calls == ["0 chat 200 3 2", "1 responses 200 3 2", "2 responses 200 3 2"]
    found = ast.literal_eval(totals)
    assert (found["num_calls"], found["tokens_in"], found["tokens_total"]) == (3, 9, 15)
