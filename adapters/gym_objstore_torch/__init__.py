# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Finished rollouts as a PyTorch dataset: ``RolloutDataset`` for a ``DataLoader``, and ``collate`` to pad its batches.

Owns which rank and which worker reads which rollout, in which order, and the tensors they become. What is read and
what may be trained is for ``gym_objstore.TrainerClient``.
"""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypedDict

import torch
from torch.utils.data import IterableDataset, get_worker_info

from gym_objstore.errors import Invalid
from gym_objstore.observing import Event, report
from gym_objstore.receipts_reading import Masked

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from gym_objstore import TrainerClient
    from gym_objstore.receipts_published import Published
    from gym_objstore.receipts_reading import Trainable

__all__ = ["Batch", "RolloutDataset", "Sample", "collate", "sample_of"]

READ_TOGETHER = 32
"""Rollouts that one worker reads in one batch, while the batch before is worked on."""


class Sample(TypedDict):
    """One verified rollout of ``T`` tokens.

    ``token_ids`` int64 ``[T]``; ``mask`` float32 ``[T]``, 1.0 where the policy generated the token; ``log_probs``
    float32 ``[T]``, 0.0 where it did not; ``reward`` float32 ``[]``, NaN where the receipt has none.
    """

    rollout_id: str
    token_ids: torch.Tensor
    mask: torch.Tensor
    log_probs: torch.Tensor
    reward: torch.Tensor


class Batch(TypedDict):
    """``B`` rollouts, padded on the right to the longest one's ``T`` tokens.

    ``token_ids`` int64 ``[B, T]``; ``mask`` and ``log_probs`` float32 ``[B, T]``, 0.0 in the padding; ``lengths``
    int64 ``[B]``; ``rewards`` float32 ``[B]``.
    """

    rollout_ids: list[str]
    token_ids: torch.Tensor
    mask: torch.Tensor
    log_probs: torch.Tensor
    lengths: torch.Tensor
    rewards: torch.Tensor


class RolloutDataset(IterableDataset[Sample]):  # type: ignore[misc] # types are checked where torch is not installed
    """The rollouts of one epoch, each read by exactly one worker of one rank.

    ``rollouts`` are what ``TrainerClient.finished`` returned, the same list on every rank. With a ``seed`` every
    epoch has its own order, the same everywhere. Ranks take turns through that order, and so do a rank's workers
    through the rank's part. What may not be trained is left out with a warning, so ranks can differ by more than
    one sample.

    It may be pickled: use ``spawn`` or ``forkserver`` for a ``DataLoader``'s workers. A worker that was forked
    after this process used a store whose client does not survive that raises ``Unusable`` instead of hanging.
    """

    def __init__(
        self,
        client: TrainerClient,
        rollouts: Sequence[Published],
        *,
        seed: int | None = None,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if not 0 <= rank < world_size:
            raise Invalid(f"rank must be below world_size, rank={rank}, world_size={world_size}", kind="bad_option")
        self._client, self._rollouts = client, tuple(rollouts)
        self._seed, self._rank, self._world_size = seed, rank, world_size
        self._epoch, self._done = 0, frozenset[str]()

    def set_epoch(self, epoch: int, done: Collection[str] = ()) -> None:
        """Choose the epoch that the next iteration goes through, without the rollout ids that are ``done``.

        To resume, give the epoch and the ids that this rank was handed in it, from a checkpoint: the rest comes in
        the same order, whatever the number of workers is now. Call it before the ``DataLoader`` is iterated, whose
        workers must not be persistent.
        """
        self._epoch, self._done = epoch, frozenset(done)

    def __iter__(self) -> Iterator[Sample]:
        for outcome in self._read_ahead(self._share()):
            if isinstance(outcome, Masked):
                event = Event("left_out", outcome.rollout_id, kind=outcome.code, detail=outcome.detail)
                said = "a rollout is left out, rollout_id=%s, code=%s, detail=%s"
                report(event, said, outcome.rollout_id, outcome.code, outcome.detail)
            else:
                yield sample_of(outcome)

    def _share(self) -> list[Published]:
        """Return what this worker of this rank reads, in order."""
        order = list(self._rollouts)
        if self._seed is not None:
            random.Random(f"{self._seed}.{self._epoch}").shuffle(order)  # noqa: S311 - repeatable on purpose
        # The rank's part is cut before what is done is left out, so that a resumed rank keeps its rollouts.
        mine = [one for one in order[self._rank :: self._world_size] if one.rollout_id not in self._done]
        worker = get_worker_info()
        return mine if worker is None else mine[worker.id :: worker.num_workers]

    def _read_ahead(self, share: Sequence[Published]) -> Iterator[Trainable | Masked]:
        batches = [share[start : start + READ_TOGETHER] for start in range(0, len(share), READ_TOGETHER)]
        with ThreadPoolExecutor(1, "gym-objstore-read-ahead") as reader:
            reading = [reader.submit(self._client.read_now, batch) for batch in batches[:1]]
            for batch in [*batches[1:], None]:
                found = reading.pop().result() if reading else []
                if batch:
                    reading.append(reader.submit(self._client.read_now, batch))
                yield from found


def sample_of(found: Trainable) -> Sample:
    """Return the tensors of a rollout. Raises ``Invalid`` for a token id that int64 cannot hold."""
    row, reward = found.row, found.receipt.reward
    try:
        token_ids = torch.tensor(row.token_ids, dtype=torch.int64)
    except (OverflowError, RuntimeError, ValueError) as error:
        reason = f"a token id does not fit into int64, rollout_id={found.rollout_id}"
        raise Invalid(reason, kind="token_id_range") from error
    return Sample(
        rollout_id=found.rollout_id,
        token_ids=token_ids,
        mask=torch.tensor(row.token_mask, dtype=torch.float32),
        log_probs=torch.tensor(row.logprobs, dtype=torch.float32),
        reward=torch.tensor(float("nan") if reward is None else reward, dtype=torch.float32),
    )


def collate(samples: Sequence[Sample], pad_token_id: int = 0) -> Batch:
    """Return samples as one padded batch, for a ``DataLoader``'s ``collate_fn``."""
    return Batch(
        rollout_ids=[one["rollout_id"] for one in samples],
        token_ids=_padded([one["token_ids"] for one in samples], pad_token_id),
        mask=_padded([one["mask"] for one in samples]),
        log_probs=_padded([one["log_probs"] for one in samples]),
        lengths=torch.tensor([len(one["token_ids"]) for one in samples], dtype=torch.int64),
        rewards=torch.stack([one["reward"] for one in samples]),
    )


def _padded(columns: list[torch.Tensor], value: float = 0.0) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence(columns, batch_first=True, padding_value=value)
