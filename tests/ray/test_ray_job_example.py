# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The example of a Ray job, run beside others on a cluster that is there: what it counts, leaves out and verifies."""

from __future__ import annotations

import pytest
import ray

from gym_objstore import TrainerClient
from gym_objstore.flow import run
from gym_objstore.keys import parse_staging_key, staged_key
from gym_objstore.tokens import begin_call, put_entry
from tests.entries import make_entry
from tests.example_run import environment_of, example, printed
from tests.finished import RUN, finish


@pytest.fixture
def place(tmp_path):
    return {"url": f"file://{tmp_path}/store", "run_id": RUN, "spill_dir": str(tmp_path / "spill")}


@pytest.fixture
def store(place):
    client = TrainerClient(**place)
    yield client.connection.store
    client.close_now()


@pytest.fixture
def on_the_cluster():
    return {"RAY_ADDRESS": ray.get_runtime_context().gcs_address}


@pytest.mark.timeout(300)  # a driver of its own, and workers that import everything anew
def test_the_job_tells_tasks_apart_and_says_what_it_left_out(store, place, on_the_cluster, tmp_path):
    for task, rewards in (("4", (1.0, 0.0, 0.0)), ("12", (1.0, 1.0))):
        for number, reward in enumerate(rewards):
            finish(store, f"{task}-{number}", calls=1 + number, reward=reward)
    key = staged_key(RUN, parse_staging_key(finish(store, "4-3")[0]))
    store.put(key, b"x" * len(store.get(key)))
    run(put_entry(RUN, make_entry("4-0")), store)
    run(begin_call(RUN, "lost", "c1"), store)

    done = example("ray_job.py", environment={**environment_of(place), **on_the_cluster}, folder=tmp_path)
    assert printed(done) == [
        "task 12: 2 rollouts, reward 1.00, 6 tokens",
        "task 4: 3 rollouts, reward 0.33, 12 tokens",
        "left out 4-3: corrupt",
        "verified 2 rollouts of token entries: 1 findings",
    ]
