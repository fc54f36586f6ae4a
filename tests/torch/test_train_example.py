# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The example of a training loop, killed where it hurts most and started again: each rollout is learned from once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
import torch

from gym_objstore import TrainerClient
from tests.example_run import EXAMPLES, environment_of, example, printed
from tests.finished import RUN, finish

IDS = [f"{number // 2}-{number % 2}" for number in range(10)]
EXAMPLE = EXAMPLES / "train_torch.py"

# The process ends at the renaming that makes a checkpoint safe, before or behind it.
KILLED = """
import os, pathlib, runpy, signal, sys
safe = pathlib.Path.replace
def replace(self, target):
    {behind} and safe(self, target)
    os.kill(os.getpid(), signal.SIGKILL)
pathlib.Path.replace = replace
sys.argv = [{example!r}, *sys.argv[1:]]
runpy.run_path({example!r}, run_name="__main__")
"""

pytestmark = pytest.mark.timeout(300)  # seconds; every process imports torch anew


@pytest.fixture
def place(tmp_path):
    return {"url": f"file://{tmp_path}/store", "run_id": RUN, "spill_dir": str(tmp_path / "spill")}


@pytest.fixture
def client(place):
    found = TrainerClient(**place)
    for number, name in enumerate(IDS):
        finish(found.connection.store, name, calls=1 + number % 3, reward=float(number % 2))
    yield found
    found.close_now()


@pytest.fixture
def killed(place, tmp_path):
    """Run the example until it is killed at its first checkpoint, and return what it printed."""

    def until_killed(*, behind: bool) -> list[str]:
        program = KILLED.format(behind=behind, example=str(EXAMPLE))
        environment = {**os.environ, **environment_of(place)}
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr
        return done.stdout.splitlines()

    return until_killed


def trained(lines: list[str]) -> list[str]:
    return [name for line in lines if line.startswith("step") for name in line.partition(", ")[2].split()]


def unretired(client) -> list[str]:
    return [one.rollout_id for one in client.finished_now()]


def test_a_loop_that_is_killed_at_its_checkpoints_learns_from_each_rollout_once(client, killed, place, tmp_path):
    checkpoint = tmp_path / "checkpoint.pt"

    lost = trained(killed(behind=False))
    assert len(lost) == 8
    assert not checkpoint.exists()
    assert unretired(client) == IDS, "what no checkpoint contains was retired"
    marked = [one.rollout_id for one in client.finished_now() if one.checkpoints]
    assert marked == sorted(lost)

    saved = trained(killed(behind=True))
    assert saved == lost, "a fresh start did not read what was trained in vain"
    assert torch.load(checkpoint)["trained"] == saved
    assert unretired(client) == IDS, "it was killed too late"

    resumed, *rest = printed(example("train_torch.py", environment=environment_of(place), folder=tmp_path))
    assert resumed.startswith("resumed 8-")
    assert resumed.endswith(": 8 rollouts learned from")
    assert sorted([*saved, *trained(rest)]) == IDS
    assert rest[-1] == "done: 10 rollouts learned from"
    assert sorted(torch.load(checkpoint)["trained"]) == IDS
    assert unretired(client) == []
