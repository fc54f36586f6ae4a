# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The example of an inference worker: what it says is what a reader elsewhere finds in the bucket."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gym_objstore import StagingSource
from gym_objstore.wire_staging import CommitCoords
from tests.example_run import environment_of, example, printed
from tests.places import place_of


@pytest.mark.parametrize("kind", ["file", "seaweedfs"])
def test_rows_and_arrays_of_the_worker_are_in_the_bucket_and_a_second_run_adds_none(kind, request, tmp_path):
    place = place_of(kind, request)
    environment = environment_of(place)
    lines = printed(example("inference_worker.py", environment=environment, folder=tmp_path))
    said = [line.removeprefix("coordinates ") for line in lines if line.startswith("coordinates ")]
    first, second = (CommitCoords.model_validate(json.loads(one)) for one in said)
    assert (first.rollout_id, first.model_call_id, second.model_call_id) == ("0-0", "call-1", "call-2")
    assert (first.cum_len, second.prev_len, second.cum_len) == (8, 8, 13)

    source = StagingSource(**place)
    rows = source.fetch([first.staging_key, second.staging_key])
    assert [list(row.token_ids_delta) for row in rows] == [[2, 2, 4, 2, 6, 101, 102, 103], [3, 9, 101, 102, 103]]
    arrays = source.load_attachments(second.staging_key)
    assert arrays["routed_experts"].dtype == np.uint8
    assert arrays["routed_experts"].shape == (10, 2, 4)
    assert arrays["media"]["pixel_values"].tobytes() == np.linspace(0, 1, 6, dtype=np.float32).tobytes()
    assert "tokens [3, 9, 101, 102, 103] mask [0.0, 0.0, 1.0, 1.0, 1.0]" in lines

    assert printed(example("inference_worker.py", environment=environment, folder=tmp_path)) == lines
    staged = [meta.key for meta in source.connection.store.scan("staged/run-1/") if "/rows/" in meta.key]
    assert len(staged) == 2
    source.close_now()


def test_arguments_go_before_the_environment(tmp_path):
    place = {"url": "memory://elsewhere", "run_id": "other", "spill_dir": str(tmp_path / "spill")}
    arguments = [f"--url=file://{tmp_path}/store", "--run-id=run-7", "--rollout-id=3-1-a2"]
    printed(example("inference_worker.py", *arguments, environment=environment_of(place), folder=tmp_path))
    assert (tmp_path / "store" / "staged" / "run-7" / "3-1-a2").is_dir()


def test_a_worker_that_cannot_store_says_so_and_prints_no_row(tmp_path):
    (tmp_path / "store").write_text("a file where the folder would be")
    place = {"url": f"file://{tmp_path}/store", "run_id": "run-1", "spill_dir": str(tmp_path / "spill")}
    done = example("inference_worker.py", environment=environment_of(place), folder=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "the staging sink rejected the call" in done.stderr
    assert "the call was answered and not captured" in done.stderr
