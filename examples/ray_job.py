# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A Ray job over the finished rollouts of a run: how often each task was solved, and what may not be trained.

Run: ``ray job submit -- python examples/ray_job.py --url s3://bucket/rl --run-id run-7``; without a cluster, plain
``python examples/ray_job.py ...`` starts one on this machine.

The cluster's workers read and verify the rollouts, each with the credentials of its own environment. Prints for each
task its rollouts, mean reward and generated tokens; then each rollout that was left out, with the reason; then what
reading all token entries of the run again has found.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from typing import Any

import ray

from gym_objstore import TrainerClient
from gym_objstore_ray import RolloutDatasource, verify


def counted(row: dict[str, Any]) -> dict[str, Any]:
    """Return what is counted of a rollout, whose id is ``<task>-<rollout>``. Runs on the cluster's workers."""
    task = row["rollout_id"].partition("-")[0]
    return {"task": task, "reward": row["reward"], "generated": int(sum(row["mask"]))}


def main() -> None:
    """Read a run on a cluster."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", help="default: GYM_OBJSTORE_URL")
    parser.add_argument("--run-id", help="default: GYM_OBJSTORE_RUN_ID")
    asked = parser.parse_args()

    ray.init()
    client = TrainerClient(asked.url, asked.run_id)
    source = RolloutDatasource(client, client.finished_now())
    tasks = defaultdict(list)
    for row in ray.data.read_datasource(source).map(counted).iter_rows():
        tasks[row["task"]].append(row)
    for task, rows in sorted(tasks.items()):
        reward, generated = sum(row["reward"] for row in rows) / len(rows), sum(row["generated"] for row in rows)
        print(f"task {task}: {len(rows)} rollouts, reward {reward:.2f}, {generated} tokens")
    for one in source.masked():
        print(f"left out {one.rollout_id}: {one.code}")
    found = verify(client)
    print(f"verified {found.rollouts} rollouts of token entries: {len(found.findings)} findings")
    client.close_now()


if __name__ == "__main__":
    main()
