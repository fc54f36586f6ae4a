# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Finished rollouts as a Ray Data datasource: which task reads which rollout, and the columns they become.

Does not own what is read and what may be trained; that is for ``gym_objstore.TrainerClient``.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import ray
from ray.data import Datasource, ReadTask
from ray.data.block import BlockMetadata

from gym_objstore.errors import Invalid
from gym_objstore.observing import Event, report
from gym_objstore.receipts_reading import Masked, Trainable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gym_objstore import TrainerClient
    from gym_objstore.receipts_published import Published

READ_TOGETHER = 32
"""Rollouts that a task reads in one batch, which become one block."""

SCHEMA = pa.schema(
    [
        ("rollout_id", pa.string()),
        ("token_ids", pa.list_(pa.int64())),
        ("mask", pa.list_(pa.float32())),
        ("log_probs", pa.list_(pa.float32())),
        ("reward", pa.float32()),
    ]
)
"""One verified rollout in each row, with ``T`` values in each list.

``mask`` is 1.0 where the policy generated the token; ``log_probs`` is 0.0 where it did not; ``reward`` is null where
the receipt has none, which NumPy and torch show as NaN.
"""


class RolloutDatasource(Datasource):  # type: ignore[misc] # types are checked where Ray is not installed
    """The rollouts of one epoch, each read by exactly one task: ``ray.data.read_datasource(RolloutDatasource(...))``.

    ``rollouts`` are what ``TrainerClient.finished`` returned. What may not be trained is left out with a warning
    and is counted by an actor of this datasource, so it is made where Ray runs, and lives as long as its cluster.
    """

    def __init__(self, client: TrainerClient, rollouts: Sequence[Published]) -> None:
        super().__init__()
        self._client, self._rollouts = client, tuple(rollouts)
        self._left_out = ray.remote(_LeftOut).options(num_cpus=0).remote()

    def masked(self) -> tuple[Masked, ...]:
        """Return what the tasks have left out until now, each rollout once, in the order of their ids."""
        found: tuple[Masked, ...] = ray.get(self._left_out.listed.remote())
        return found

    def estimate_inmemory_data_size(self) -> None:
        """Return None: the sizes of rollouts are known when they are read."""

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Return as many tasks as are asked for, at most one for each rollout; neighbours stay together."""
        del data_context
        count = min(parallelism, len(self._rollouts))
        cuts = [len(self._rollouts) * number // max(count, 1) for number in range(count + 1)]
        # How many rows a task makes is known when it has read them: what is masked makes none.
        unknown = BlockMetadata(num_rows=None, size_bytes=None, exec_stats=None)
        return [
            ReadTask(
                partial(_read, self._client, self._rollouts[start:end], self._left_out),
                unknown,
                schema=SCHEMA,
                per_task_row_limit=per_task_row_limit,
            )
            for start, end in pairwise(cuts)
        ]


class _LeftOut:
    """What the tasks of one datasource have left out; reading a rollout again adds nothing."""

    def __init__(self) -> None:
        self._found: dict[str, Masked] = {}

    def add(self, masked: Iterable[Masked]) -> None:
        self._found.update({one.rollout_id: one for one in masked})

    def listed(self) -> tuple[Masked, ...]:
        return tuple(self._found[name] for name in sorted(self._found))


def _read(client: TrainerClient, rollouts: Sequence[Published], left_out: Any) -> Iterator[pa.Table]:
    for start in range(0, len(rollouts), READ_TOGETHER):
        found = client.read_now(rollouts[start : start + READ_TOGETHER])
        if masked := [one for one in found if isinstance(one, Masked)]:
            for one in masked:
                event = Event("left_out", one.rollout_id, kind=one.code, detail=one.detail)
                said = "a rollout is left out, rollout_id=%s, code=%s, detail=%s"
                report(event, said, one.rollout_id, one.code, one.detail)
            # Waited for, so that whoever has a task's rows can be told what it left out.
            ray.get(left_out.add.remote(masked))
        yield table_of([one for one in found if isinstance(one, Trainable)])


def table_of(rollouts: Sequence[Trainable]) -> pa.Table:
    """Return rollouts as rows of ``SCHEMA``. Raises ``Invalid`` for a token id that int64 cannot hold."""
    columns = {
        "rollout_id": [one.rollout_id for one in rollouts],
        "token_ids": [_token_ids(one) for one in rollouts],
        "mask": [np.asarray(one.row.token_mask, np.float32) for one in rollouts],
        "log_probs": [np.asarray(one.row.logprobs, np.float32) for one in rollouts],
        "reward": [one.receipt.reward for one in rollouts],
    }
    return pa.table(columns, schema=SCHEMA)


def _token_ids(one: Trainable) -> np.ndarray[Any, np.dtype[np.int64]]:
    try:
        return np.array(one.row.token_ids, np.int64)
    except OverflowError as error:
        reason = f"a token id does not fit into int64, rollout_id={one.rollout_id}"
        raise Invalid(reason, kind="token_id_range") from error
