# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""From what was seen of a call to its record in the store, beside the call and whatever becomes of it.

Owns the threads, the number of records under way, and what happens when one cannot be stored: an incomplete
marker, or at least a line in the log, neither of which quotes payloads or anybody's error message.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from gym_objstore.bodies import Inflater
from gym_objstore.capture_record import Exchange, capture_record
from gym_objstore.errors import ObjstoreError
from gym_objstore.flow import INLINE_BYTES
from gym_objstore.observing import Event, report
from gym_objstore.sse import EventStream, Reassembly
from gym_objstore.threads import Threads
from gym_objstore.writer import Gate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gym_objstore.middleware_copies import Copy
    from gym_objstore.sse import Terminal

CAPTURE_SECONDS = 5.0
"""How long the end of a response waits for its capture at most."""

STORE_SHARE = 0.8
"""Of that time, what the store may take: a capture it does not take is then on disk before the call goes on."""

RECORDS = 128
"""Records under way at a time; further calls wait for their turn, and lose their capture if it does not come."""

LARGE_BYTES = 4 * 2**20
LARGE_RECORDS = 2
"""Records with bodies over ``LARGE_BYTES`` under way at a time: each takes several times that memory."""

_GRACE_SECONDS = 1.0
_PIECE = 2**20

_threads = Threads("captures", 1)  # they share one interpreter lock
_large_threads = Threads("large-captures", 1)  # so that small records need not wait for seconds of parsing


class Captures(Protocol):
    """What is needed of a capture store."""

    async def record_async(self, rollout_id: str, exchange: Mapping[str, Any], *, within: float | None = None) -> None:
        """Store one exchange durably, or raise after so many seconds."""

    async def mark_incomplete_async(self, rollout_id: str, model_call_id: str = "", *, reason: str = "lost") -> None:
        """Record durably that a capture was lost, and log it."""

    def expect(self, rollout_id: str, task: asyncio.Task[Any]) -> None:
        """Have ``drain`` wait for a task that is going to record a capture."""

    async def drain(self, rollout_id: str | None = None, *, timeout: float) -> bool:  # noqa: ASYNC109 - the seed's word
        """Wait for what was expected; False if some of it is still under way."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of a call: the exchange without its bodies, their copies, and what watching a stream told."""

    rollout_id: str
    exchange: Exchange
    request: Copy
    response: Copy
    streamed: bool
    terminal: Terminal | None

    @property
    def size(self) -> int:
        """Bytes of both bodies."""
        return self.request.size + self.response.size

    @property
    def packed(self) -> bool:
        """Whether a body may be much longer than its bytes are."""
        return bool(self.exchange.request_encoding or self.exchange.response_encoding)

    @property
    def whole(self) -> bool:
        """Whether both bodies could be kept."""
        return self.request.whole and self.response.whole

    def record(self) -> dict[str, Any]:
        """Return the record. The event loop is no place for it if the bodies are large."""
        request, response = self.request.read(), self.response.read()
        stream = self._reassembled(response) if self.streamed else None
        return capture_record(replace(self.exchange, request=request, response=response, stream=stream))

    def close(self) -> None:
        """Let go of the copies."""
        self.request.close()
        self.response.close()

    def _reassembled(self, response: bytes) -> Reassembly | None:
        """Return what the stream was; ``None`` if its encoding cannot be undone."""
        if not self.response.whole:
            return Reassembly(None, self.terminal)
        inflater, stream = Inflater(self.exchange.response_encoding), EventStream(self.exchange.dialect)
        stream.release()
        for start in range(0, len(response), _PIECE):
            stream.push(inflater.push(response[start : start + _PIECE]))
        return None if inflater.broken else stream.finish()


class Recorder:
    """Records calls, each in a task of its own that ``store.drain`` waits for.

    ``within`` is how many seconds a call waits for its record, and how long each step of it may take: waiting for
    its turn, storing, marking.
    """

    def __init__(self, store: Captures, *, within: float) -> None:
        self.within = within
        self._store = store
        self._turn, self._large_turn = Gate(RECORDS), Gate(LARGE_RECORDS)
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, seen: Seen) -> asyncio.Future[None]:
        """Start recording; the future is done as soon as the record is durable, or it is known that it is not.

        A capture that is not in the store leaves an incomplete marker. Nothing is raised, ever.
        """
        loop = asyncio.get_running_loop()
        known: asyncio.Future[None] = loop.create_future()
        task = loop.create_task(self._run(seen, known))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with contextlib.suppress(Exception):  # a store that is closed says so when it is to record
            self._store.expect(seen.rollout_id, task)
        return known

    async def _run(self, seen: Seen, known: asyncio.Future[None]) -> None:
        try:
            reason = await self._attempt(seen)
        finally:
            known.set_result(None)
            seen.close()
        if reason is not None:
            await self._mark(seen, reason)

    async def _attempt(self, seen: Seen) -> str | None:
        """Record a call; return why its capture is incomplete, if it is."""
        large = self._large_turn() if seen.size > LARGE_BYTES else contextlib.nullcontext()
        try:
            async with asyncio.timeout(self.within) as patience, large, self._turn():
                patience.reschedule(None)
                record = await _beside(seen)
                patience.reschedule(asyncio.get_running_loop().time() + self.within + _GRACE_SECONDS)
                await self._store.record_async(seen.rollout_id, record, within=self.within * STORE_SHARE)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - cancelled only where the loop ends
            return _cause(error)
        return None if seen.whole else "body_not_kept"

    async def _mark(self, seen: Seen, reason: str) -> None:
        call = seen.exchange.model_call_id
        try:
            async with asyncio.timeout(self.within + _GRACE_SECONDS):
                await self._store.mark_incomplete_async(seen.rollout_id, call, reason=reason)
        except Exception as error:  # noqa: BLE001 - a capture never fails its call
            event = Event("loss", seen.rollout_id, call, family="captures", kind="no_marker", detail=reason)
            said = "a capture is lost without a marker, rollout_id=%s, model_call_id=%s, reason=%s, cause=%s"
            report(event, said, seen.rollout_id, call, reason, _cause(error), level=logging.ERROR)


async def _beside(seen: Seen) -> dict[str, Any]:
    """Build a record, in a thread if it is heavy."""
    if seen.size < INLINE_BYTES and not seen.packed:
        return seen.record()
    threads = _large_threads if seen.size > LARGE_BYTES else _threads
    return await asyncio.get_running_loop().run_in_executor(threads(), seen.record)


def _cause(error: BaseException) -> str:
    """Name an error without its message, which may quote what was to be recorded."""
    return error.kind if isinstance(error, ObjstoreError) else type(error).__name__
