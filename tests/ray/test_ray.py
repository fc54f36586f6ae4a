# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What a Ray cluster gets of a run: rows, what was left out, findings and removals, and never a secret."""

from __future__ import annotations

import math
import subprocess
import sys
from collections import Counter

import pyarrow as pa
import pytest
import ray

from gym_objstore import TrainerClient
from gym_objstore.errors import Invalid, NotFound
from gym_objstore.flow import run
from gym_objstore.keys import parse_staging_key, staged_key
from gym_objstore.receipts_published import Published, publish
from gym_objstore.tokens import begin_call, put_entry
from gym_objstore_ray import RolloutDatasource, jobs, rollouts, sweep, table_of, verify
from tests.entries import make_entry
from tests.finished import RUN, finish, receipt_for, record_calls, stage_call

# Ray Data warns of its own settings whenever it copies them.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")

COUNT = 7
IDS = [f"r{number}" for number in range(COUNT)]


@pytest.fixture
def client(tmp_path):
    found = TrainerClient(f"file://{tmp_path}/store", RUN, spill_dir=str(tmp_path / "spill"))
    for number, name in enumerate(IDS):
        finish(found.connection.store, name, calls=1 + number % 2, reward=float(number))
    yield found
    found.close_now()


def read(datasource, **how):
    return ray.data.read_datasource(datasource, **how)


def damage(client, rollout_id) -> None:
    store = client.connection.store
    key = staged_key(RUN, parse_staging_key(finish(store, rollout_id)[0]))
    store.put(key, b"x" * len(store.get(key)))


def test_a_row_has_pinned_types_and_one_value_per_token(client):
    found = read(RolloutDatasource(client, client.finished_now()))
    assert found.schema().base_schema == pa.schema(
        [
            ("rollout_id", pa.string()),
            ("token_ids", pa.list_(pa.int64())),
            ("mask", pa.list_(pa.float32())),
            ("log_probs", pa.list_(pa.float32())),
            ("reward", pa.float32()),
        ]
    )
    row = next(one for one in found.take_all() if one["rollout_id"] == "r1")
    assert list(row["token_ids"]) == [0, 12, 21, 100, 1, 12, 21, 101]
    assert list(row["mask"]) == [0.0, 0.0, 1.0, 1.0] * 2
    assert list(row["log_probs"]) == [0.0, 0.0, -0.5, -0.5] * 2
    assert row["reward"] == 1.0


@pytest.mark.parametrize("blocks", [1, 3, 50])
def test_every_rollout_is_read_once_whatever_the_number_of_tasks(client, blocks):
    found = read(RolloutDatasource(client, client.finished_now()), override_num_blocks=blocks)
    assert sorted(one["rollout_id"] for one in found.take_all()) == IDS


@pytest.mark.parametrize(("asked", "rows"), [(1, [7]), (3, [2, 2, 3]), (50, [1] * 7)])
def test_neighbours_stay_together_in_as_many_tasks_as_are_asked_for(client, asked, rows):
    tasks = RolloutDatasource(client, client.finished_now()).get_read_tasks(asked)
    found = [[name for block in task() for name in block["rollout_id"].to_pylist()] for task in tasks]
    assert [len(one) for one in found] == rows
    assert [name for one in found for name in one] == IDS


def test_a_task_reads_no_more_together_than_it_should(client, monkeypatch):
    monkeypatch.setattr(rollouts, "READ_TOGETHER", 3)
    (task,) = RolloutDatasource(client, client.finished_now()).get_read_tasks(1)
    assert [len(block) for block in task()] == [3, 3, 1]


def test_no_rollouts_are_no_rows(client):
    assert read(RolloutDatasource(client, ())).take_all() == []


def test_what_may_not_be_trained_is_left_out_and_counted_with_its_reason(client):
    damage(client, "damaged-1")
    damage(client, "damaged-2")
    run(publish(RUN, receipt_for(client.connection.store, "r0", reward=9.0)), client.connection.store)
    source = RolloutDatasource(client, client.finished_now())
    found = read(source, override_num_blocks=4)
    for _epoch in range(2):
        assert sorted(one["rollout_id"] for one in found.take_all()) == IDS[1:]
    assert found.count() == COUNT - 1
    assert [one.rollout_id for one in source.masked()] == ["damaged-1", "damaged-2", "r0"]
    assert Counter(one.code for one in source.masked()) == {"corrupt": 2, "conflicting_receipts": 1}


def test_before_anything_is_read_nothing_is_left_out(client):
    assert RolloutDatasource(client, client.finished_now()).masked() == ()


def test_a_missing_reward_is_null_and_to_numpy_not_a_number(client):
    store = client.connection.store
    record_calls(store, "unscored")
    run(publish(RUN, receipt_for(store, "unscored", reward=None)), store)
    table = table_of(client.read_now(["unscored"]))
    assert table["reward"].to_pylist() == [None]
    (batch,) = ray.data.from_arrow(table).iter_batches(batch_format="numpy")
    assert math.isnan(batch["reward"][0])


def test_a_token_id_that_int64_cannot_hold_is_refused(client):
    (found,) = client.read_now(["r0"])
    row = type(found.row)("r0", (2**63,), (1.0,), (0.0,), found.row.spans)
    with pytest.raises(Invalid, match="rollout_id=r0"):
        table_of([found._replace(row=row)])


SECRETS = {"access_key_id": "the-key-id", "secret_access_key": "the-secret", "session_token": "the-token"}


@pytest.fixture
def source(tmp_path):
    """A datasource whose client was given secrets."""
    client = TrainerClient("s3://bucket/prefix", RUN, spill_dir=str(tmp_path), **SECRETS)
    return RolloutDatasource(client, [Published("r1", "r1", ("0" * 64,))])


def test_what_travels_to_a_worker_has_no_secret(source):
    for travels in (source, *source.get_read_tasks(1)):
        body = ray._private.worker.global_worker.get_serialization_context().serialize(travels).to_bytes()
        assert b"s3://bucket/prefix" in body
        assert not [value for value in SECRETS.values() if value.encode() in body]


def test_a_worker_without_credentials_of_its_own_says_so(source):
    with pytest.raises(Invalid, match="no credentials were found"):
        read(source).take_all()


@pytest.fixture
def captured(client):
    store = client.connection.store
    for number in range(5):
        run(put_entry(RUN, make_entry(f"t{number}")), store)
    run(begin_call(RUN, "lost", "c1"), store)
    return client


def test_verify_reads_every_rollout_again_and_tells_losses_from_damage(captured, monkeypatch):
    monkeypatch.setattr(jobs, "CHECKED_TOGETHER", 2)
    found = verify(captured)
    assert (found.rollouts, found.damaged) == (6, False)
    assert [(one.rollout_id, one.kind) for one in found.findings] == [("lost", "dangling_intent")]
    store = captured.connection.store
    (key,) = [meta.key for meta in store.scan(f"tokens/{RUN}/t3/entries/")]
    store.put(key, store.get(key)[:-1])
    damaged = verify(captured)
    assert (damaged.rollouts, damaged.damaged) == (6, True)
    assert [one.rollout_id for one in damaged.findings if one.severity == "error"] == ["t3"]


def staged_keys(client) -> set[str]:
    return {meta.key for meta in client.connection.store.scan(f"staged/{RUN}/")}


@pytest.fixture
def orphans(client) -> list[str]:
    """Three staged rows without a referrer, by staging key."""
    return sorted(stage_call(client.connection.store, "c9", rollout_id=f"x{number}")[1] for number in range(3))


def test_a_sweep_changes_nothing_unless_told_so(client, orphans):
    before = staged_keys(client)
    assert [one.name for one in sweep(client, grace=0.0, kept=tuple)] == orphans
    assert staged_keys(client) == before


def test_a_sweep_removes_exactly_the_orphans_that_no_checkpoint_lists(client, orphans, monkeypatch):
    monkeypatch.setattr(jobs, "REMOVED_TOGETHER", 1)
    before = staged_keys(client)
    removed = sweep(client, grace=0.0, kept=lambda: {orphans[1]}, delete=True)
    assert [one.name for one in removed] == [orphans[0], orphans[2]]
    assert before - staged_keys(client) == {one.meta.key for one in removed}
    assert sweep(client, grace=0.0, kept=lambda: {orphans[1]}, delete=True) == []


def test_a_row_within_the_grace_period_is_left_alone(client, orphans):
    assert sweep(client, grace=3600.0, kept=tuple, delete=True) == []


def test_a_list_of_checkpoints_that_cannot_be_read_stops_the_sweep(client, orphans):
    def unreadable() -> list[str]:
        raise PermissionError("list")

    before = staged_keys(client)
    with pytest.raises(PermissionError):
        sweep(client, grace=0.0, kept=unreadable, delete=True)
    assert staged_keys(client) == before


def test_a_refusal_in_a_task_is_reported_as_such(client):
    with pytest.raises(Invalid, match="grace period must not be negative"):
        sweep(client, grace=-1.0, kept=tuple)


@pytest.mark.parametrize("job", [verify, lambda client: sweep(client, grace=0.0, kept=tuple)], ids=["verify", "sweep"])
def test_a_run_that_is_not_there_is_no_clean_run(client, job):
    other = TrainerClient(client.settings.store.url, "run-2", spill_dir=client.settings.spill_dir)
    with pytest.raises(NotFound, match="run_id=run-2"):
        job(other)


@pytest.mark.parametrize("absent", ["ray", "pyarrow"])
def test_without_ray_data_the_import_says_what_to_install(absent):
    code = f"import sys; sys.modules[{absent!r}] = None; import gym_objstore_ray"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert "gym_objstore.errors.Unusable: reading on a cluster needs Ray Data" in found.stderr
    assert "gym-objstore[ray]" in found.stderr
