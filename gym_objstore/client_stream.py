# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""An async iterator over the finished rollouts of a run, which reads ahead and says where to resume.

Owns what was handed out. What is read, and what masks a rollout, is for ``receipts_reading``.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

from gym_objstore.errors import Invalid, NotFound
from gym_objstore.receipts_published import NO_WRITER, Published, list_published
from gym_objstore.receipts_reading import Masked, Trainable, read_rows

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence

    from gym_objstore.flow import Flow

    Play = Callable[[Flow[Any]], Awaitable[Any]]
    Outcome = Trainable | Masked

_FORMAT = 1


class RolloutStream:
    """Yields each finished rollout once, as ``Trainable`` or ``Masked``; ``async with`` it, or call ``aclose``.

    A rollout for which another receipt appears after it was handed out comes once more, as ``Masked``. An error or
    a cancelled wait ends nothing: the next call lists again and goes on behind what was handed out last.
    """

    def __init__(
        self,
        play: Play,
        run_id: str,
        cursor: Mapping[str, Any] | None,
        *,
        prefetch: int,
        poll_seconds: float | None = None,
    ) -> None:
        if prefetch < 1:
            raise Invalid(f"prefetch must be at least 1, prefetch={prefetch}", kind="bad_option")
        self._play, self._run_id = play, run_id
        self._prefetch, self._poll_seconds = prefetch, poll_seconds
        self._handed = _delivered(cursor, run_id)
        self._planned = dict(self._handed)
        self._outcomes = self._read_ahead()

    @property
    def cursor(self) -> dict[str, Any]:
        """What to resume behind the rollout that was yielded last: plain data for JSON, to save with a checkpoint.

        It names the rollouts that were handed out and are not retired yet, so retiring keeps it small.
        """
        return {"format": _FORMAT, "run_id": self._run_id, "delivered": dict(self._handed)}

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Outcome:
        return await anext(self._outcomes)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop reading ahead. Idempotent; the cursor stays."""
        await self._outcomes.aclose()

    async def _read_ahead(self) -> AsyncGenerator[Outcome, None]:
        batches = self._batches()
        ahead = asyncio.ensure_future(self._next(batches))
        try:
            while batch := await ahead:
                ahead = asyncio.ensure_future(self._next(batches))
                for one, outcome in batch:
                    self._handed[one.rollout] = one.mark
                    yield outcome
        except (Exception, asyncio.CancelledError):
            # It ends this generator, whose end would be taken for that of the rollouts.
            self._planned, self._outcomes = dict(self._handed), self._read_ahead()
            raise
        finally:
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)
            await batches.aclose()

    async def _next(self, batches: AsyncGenerator[Sequence[Published], None]) -> list[tuple[Published, Outcome]]:
        """Read the next batch; empty at the end."""
        async for batch in batches:
            outcomes = await self._play(read_rows(self._run_id, batch))
            return list(zip(batch, outcomes, strict=True))
        return []

    async def _batches(self) -> AsyncGenerator[Sequence[Published], None]:
        while True:
            new = await self._new()
            for start in range(0, len(new), self._prefetch):
                yield new[start : start + self._prefetch]
            if self._poll_seconds is None:
                return
            if not new:
                await asyncio.sleep(self._poll_seconds)

    async def _new(self) -> list[Published]:
        """List what has not been planned yet, and forget what is retired."""
        try:
            listed = await self._play(list_published(self._run_id))
        except NotFound as error:
            if self._poll_seconds is None or error.kind != NO_WRITER:
                raise
            return []
        finished = {one.rollout: one for one in listed if one.finished}
        for known in (self._handed, self._planned):
            for rollout in known.keys() - finished.keys():
                del known[rollout]
        new = [one for one in finished.values() if self._planned.get(one.rollout) != one.mark]
        self._planned |= {one.rollout: one.mark for one in new}
        return new


def _delivered(cursor: Mapping[str, Any] | None, run_id: str) -> dict[str, str]:
    """Return what a cursor says was handed out, after making sure that it is one, and this run's."""
    if cursor is None:
        return {}
    delivered = cursor.get("delivered")
    if cursor.get("format") != _FORMAT or not isinstance(delivered, dict):
        raise Invalid("not a cursor of this version", kind="bad_cursor", hint="pass what RolloutStream.cursor returned")
    if cursor.get("run_id") != run_id:
        reason = f"the cursor is another run's, cursor_run_id={cursor.get('run_id')}, run_id={run_id}"
        raise Invalid(reason, kind="bad_cursor", hint="start without a cursor or correct the run id")
    return dict(delivered)
