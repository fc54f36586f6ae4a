# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``TrainerClient``: publish, find, read and retire finished rollouts; the flows of receipts bound to a store."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from gym_objstore import receipts_published as published
from gym_objstore import receipts_reading as reading
from gym_objstore.client_stream import RolloutStream
from gym_objstore.connection import Component
from gym_objstore.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gym_objstore.receipts_published import Published
    from gym_objstore.receipts_reading import Masked, TokenRow, Trainable
    from gym_objstore.retirement import Removal
    from gym_objstore.wire_ledger import RolloutReceipt

PREFETCH = 64
"""Rollouts that a stream reads in one batch, while the batch before is worked on."""


class TrainerClient(Component):
    """Reads finished rollouts of one run, verified, and retires them once a checkpoint is safe.

    What may not be trained is returned as ``Masked`` with its reason and never raised; what is raised is the
    storage's failure to answer. Nothing is changed by reading.
    """

    def __init__(self, url: str | None = None, run_id: str | None = None, **options: Any) -> None:
        super().__init__(Settings.of(url, run_id, **options))

    async def publish(self, receipt: RolloutReceipt) -> str:
        """Publish the receipt of a finished rollout and return its digest; see ``receipts_published.publish``.

        The write is finished even if the caller is cancelled.
        """
        flow = partial(published.publish, self.settings.run_id, receipt)
        connection = self.connection
        return await connection.writer.finish(receipt.rollout_id, connection.write(published.FAMILY, flow))

    async def finished(self) -> list[Published]:
        """Return the rollouts that have a receipt and are not retired, in the order of their keys.

        One request per thousand objects. Give them, or any of them, to ``read``.
        Raises: ``NotFound`` if nobody ever wrote to this run here.
        """
        return _finished(await self.connection.play(published.list_published(self.settings.run_id)))

    def finished_now(self) -> list[Published]:
        """Return the finished rollouts, from a thread without a loop; see ``finished``."""
        return _finished(self.connection.play_now(published.list_published(self.settings.run_id)))

    async def read(self, rollouts: Sequence[Published | str]) -> list[Trainable | Masked]:
        """Return what may be trained of each rollout, in order, all fetched in one batch; see ``read_rows``.

        Name a whole group, by ids or as ``finished`` gave them: receipts are read together, then all staged rows
        together, with as many requests in flight as the settings allow.
        """
        return await self.connection.play(reading.read_rows(self.settings.run_id, rollouts))

    def read_now(self, rollouts: Sequence[Published | str]) -> list[Trainable | Masked]:
        """Return what may be trained of each rollout, from a thread without a loop; see ``read``."""
        return self.connection.play_now(reading.read_rows(self.settings.run_id, rollouts))

    async def read_tokens(self, rollouts: Sequence[Published | str]) -> list[TokenRow | Masked]:
        """Return only the token ids of each rollout's terminal chain, in order; see ``receipts_reading``."""
        return await self.connection.play(reading.read_tokens(self.settings.run_id, rollouts))

    async def read_receipts(self, rollouts: Sequence[Published | str]) -> list[RolloutReceipt | Masked]:
        """Return the receipts of rollouts, in order, poisoned ones too; see ``receipts_reading.read_receipts``."""
        return await self.connection.play(reading.read_receipts(self.settings.run_id, rollouts))

    def stream(self, cursor: Mapping[str, Any] | None = None, *, prefetch: int = PREFETCH) -> RolloutStream:
        """Return the finished rollouts that the cursor has not had, read ahead, and end.

        ``cursor`` is what ``RolloutStream.cursor`` was when the caller last saved it, or None for the beginning.
        """
        return RolloutStream(self.connection.play, self.settings.run_id, cursor, prefetch=prefetch)

    def follow(
        self, cursor: Mapping[str, Any] | None = None, *, poll_seconds: float = 2.0, prefetch: int = PREFETCH
    ) -> RolloutStream:
        """Return the finished rollouts as ``stream`` does, then wait for new ones, without end.

        A run to which nobody has written yet is waited for. While nothing new comes, one listing of the run is
        made every ``poll_seconds``.
        """
        play, run_id = self.connection.play, self.settings.run_id
        return RolloutStream(play, run_id, cursor, prefetch=prefetch, poll_seconds=poll_seconds)

    async def mark_consumed(self, rollout_ids: Iterable[str], checkpoint_id: str) -> tuple[str, ...]:
        """Say that the next checkpoint will contain rollouts; see ``receipts_published.mark_consumed``."""
        flow = partial(published.mark_consumed, self.settings.run_id, rollout_ids, checkpoint_id)
        return await self.connection.write(published.FAMILY, flow)

    def mark_consumed_now(self, rollout_ids: Iterable[str], checkpoint_id: str) -> tuple[str, ...]:
        """Say what the next checkpoint will contain, from a thread without a loop; see ``mark_consumed``."""
        flow = partial(published.mark_consumed, self.settings.run_id, rollout_ids, checkpoint_id)
        return self.connection.write_now(published.FAMILY, flow)

    async def retire_consumed(self, checkpoint_ids: Iterable[str]) -> Removal:
        """Retire what these checkpoints consumed, once they are safe; see ``receipts_published.retire_consumed``.

        Also the first thing to do after a restart, with the checkpoint that was restored: what it contains is
        then not read again.
        """
        return await self.connection.play(published.retire_consumed(self.settings.run_id, checkpoint_ids))

    def retire_consumed_now(self, checkpoint_ids: Iterable[str]) -> Removal:
        """Retire what checkpoints consumed, from a thread without a loop; see ``retire_consumed``."""
        return self.connection.play_now(published.retire_consumed(self.settings.run_id, checkpoint_ids))


def _finished(found: Sequence[Published]) -> list[Published]:
    return [one for one in found if one.finished]
