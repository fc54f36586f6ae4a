# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What a ``DataLoader`` gets of a run: which rollouts, in which order, as which tensors, in which processes."""

from __future__ import annotations

import logging
import math
import os
import pickle
from functools import partial

import pytest
import torch
from torch.utils.data import DataLoader

from gym_objstore import TrainerClient
from gym_objstore.errors import Invalid, Unusable
from gym_objstore.flow import run
from gym_objstore.keys import parse_staging_key, staged_key
from gym_objstore.receipts_published import Published, publish
from gym_objstore.store import obstore_store
from gym_objstore_torch import RolloutDataset, collate, sample_of
from tests.finished import RUN, finish, receipt_for, record_calls

COUNT = 12


@pytest.fixture
def client(tmp_path):
    found = TrainerClient(f"file://{tmp_path}/store", RUN, spill_dir=str(tmp_path / "spill"))
    for number in range(COUNT):
        finish(found.connection.store, f"r{number:02}", calls=1 + number % 3, reward=float(number))
    yield found
    found.close_now()


@pytest.fixture
def dataset(client):
    return RolloutDataset(client, client.finished_now())


def ids(samples) -> list[str]:
    return [one["rollout_id"] for one in samples]


def test_a_sample_has_pinned_types_and_one_value_per_token(dataset):
    sample = list(dataset)[1]
    assert (sample["rollout_id"], sample["token_ids"].tolist()) == ("r01", [0, 12, 21, 100, 1, 12, 21, 101])
    assert sample["mask"].tolist() == [0.0, 0.0, 1.0, 1.0] * 2
    assert sample["log_probs"].tolist() == [0.0, 0.0, -0.5, -0.5] * 2
    assert sample["reward"].item() == 1.0
    assert [sample[name].dtype for name in ("token_ids", "mask", "log_probs", "reward")] == [
        torch.int64,
        torch.float32,
        torch.float32,
        torch.float32,
    ]


def test_a_missing_reward_is_not_a_number(client):
    store = client.connection.store
    record_calls(store, "unscored")
    run(publish(RUN, receipt_for(store, "unscored", reward=None)), store)
    (found,) = client.read_now(["unscored"])
    assert math.isnan(sample_of(found)["reward"].item())


def test_a_token_id_that_int64_cannot_hold_is_refused(client):
    (found,) = client.read_now(["r00"])
    row = type(found.row)("r00", (2**63,), (1.0,), (0.0,), found.row.spans)
    with pytest.raises(Invalid, match="rollout_id=r00"):
        sample_of(found._replace(row=row))


def test_a_batch_is_padded_on_the_right(dataset):
    short, long = list(dataset)[:2]
    batch = collate([short, long], pad_token_id=9)
    assert batch["token_ids"].tolist() == [[0, 12, 21, 100, 9, 9, 9, 9], [0, 12, 21, 100, 1, 12, 21, 101]]
    assert batch["mask"].tolist()[0] == [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert batch["log_probs"].tolist()[0] == [0.0, 0.0, -0.5, -0.5, 0.0, 0.0, 0.0, 0.0]
    assert (batch["lengths"].tolist(), batch["rewards"].tolist(), batch["rollout_ids"]) == (
        [4, 8],
        [0.0, 1.0],
        ["r00", "r01"],
    )
    assert (batch["token_ids"].dtype, batch["lengths"].dtype) == (torch.int64, torch.int64)


def test_without_a_seed_the_order_is_that_of_the_list(dataset):
    assert ids(dataset) == [f"r{number:02}" for number in range(COUNT)]


def test_a_seed_gives_every_epoch_its_own_order_again_and_again(client):
    rollouts = client.finished_now()
    one, two = RolloutDataset(client, rollouts, seed=7), RolloutDataset(client, rollouts, seed=7)
    first = ids(one)
    assert ids(two) == first != sorted(first)
    one.set_epoch(1)
    assert ids(one) != first
    assert sorted(ids(one)) == sorted(first)


def test_ranks_share_the_rollouts(client):
    parts = [ids(RolloutDataset(client, client.finished_now(), seed=7, rank=rank, world_size=5)) for rank in range(5)]
    assert [len(part) for part in parts] == [3, 3, 2, 2, 2]
    assert sorted(one for part in parts for one in part) == [f"r{number:02}" for number in range(COUNT)]


@pytest.mark.parametrize(("rank", "world_size"), [(1, 1), (-1, 2), (0, 0)])
def test_a_rank_outside_the_world_is_refused(client, rank, world_size):
    with pytest.raises(Invalid, match="rank must be below world_size"):
        RolloutDataset(client, (), rank=rank, world_size=world_size)


def test_a_resumed_rank_gets_the_rest_in_the_same_order(client):
    fresh = RolloutDataset(client, client.finished_now(), seed=7, rank=1, world_size=2)
    every = ids(fresh)
    resumed = RolloutDataset(client, client.finished_now(), seed=7, rank=1, world_size=2)
    resumed.set_epoch(0, done=every[:2])
    assert ids(resumed) == every[2:]


def test_more_rollouts_than_are_read_together_come_in_order(client, monkeypatch):
    monkeypatch.setattr("gym_objstore_torch.READ_TOGETHER", 5)
    assert ids(RolloutDataset(client, client.finished_now())) == [f"r{number:02}" for number in range(COUNT)]


def test_what_may_not_be_trained_is_left_out_with_a_warning(client, caplog):
    store = client.connection.store
    key = staged_key(RUN, parse_staging_key(finish(store, "damaged")[0]))
    store.put(key, b"x" * len(store.get(key)))
    with caplog.at_level(logging.WARNING, "gym_objstore"):
        assert "damaged" not in ids(RolloutDataset(client, client.finished_now()))
    assert "rollout_id=damaged, code=corrupt" in caplog.text


@pytest.mark.timeout(300)  # a spawned worker imports torch anew
@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_workers_read_every_rollout_once(client, method):
    dataset = RolloutDataset(client, client.finished_now(), seed=3)
    loader = DataLoader(
        dataset,
        batch_size=2,
        num_workers=2,
        collate_fn=partial(collate, pad_token_id=1),
        multiprocessing_context=method,
    )
    found = [one for batch in loader for one in batch["rollout_ids"]]
    assert sorted(found) == [f"r{number:02}" for number in range(COUNT)]


def test_a_worker_forked_after_use_says_so_instead_of_hanging(monkeypatch, tmp_path):
    monkeypatch.setattr(obstore_store, "_first_use", os.getpid())
    client = TrainerClient(
        "s3://bucket/prefix", RUN, endpoint="http://127.0.0.1:1", backend="obstore", spill_dir=str(tmp_path)
    )
    dataset = RolloutDataset(client, [Published("r1", "r1", ("0" * 64,))])
    loader = DataLoader(dataset, batch_size=None, num_workers=1, multiprocessing_context="fork")
    with pytest.raises(Unusable, match="spawn"):
        list(loader)


def test_a_dataset_can_be_pickled(dataset):
    assert ids(pickle.loads(pickle.dumps(dataset))) == ids(dataset)
