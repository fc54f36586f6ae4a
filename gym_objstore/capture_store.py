# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``CaptureStore``: the captures' flows bound to a store, for model servers that record and for those who read.

Blocking and async forms come in pairs. What the fields of a capture mean, and the attachment of a rollout
record, are in ``calls`` and ``attachment``; here they are read from the bucket.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from gym_objstore import attachment, captures
from gym_objstore.calls import Calls, ModelCallRecord, aggregate, model_call, normalize
from gym_objstore.connection import Component, storable
from gym_objstore.errors import Corrupt, Invalid, NotFound, ObjstoreError, Unavailable
from gym_objstore.ids import require_id, require_ids
from gym_objstore.objects import write
from gym_objstore.observing import Event, report
from gym_objstore.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gym_objstore.captures import Captured
    from gym_objstore.flow import Put
    from gym_objstore.redaction import Redaction
    from gym_objstore.retirement import Removal

DRAIN_SECONDS = 5.0
"""How long writes of cancelled calls are waited for before a rollout is read."""

CLOSE_SECONDS = 60.0
"""How long ``close`` waits for writes whose callers were cancelled."""


class Available(NamedTuple):
    """The captures that could be read, each with its index in the durable order, and the number of damaged ones."""

    captures: list[tuple[int, dict[str, Any]]]
    unreadable: int


class CaptureStore(Component):
    """Stores and reads the captures of a run. Any number of processes may write to a rollout at the same time.

    ``redact`` rewrites each record before it is stored: what it takes out reaches neither bucket nor spill nor
    log. ``redaction.redaction`` has ready rules.
    """

    def __init__(
        self, url: str | None = None, run_id: str | None = None, *, redact: Redaction | None = None, **options: Any
    ) -> None:
        super().__init__(Settings.of(url, run_id, **options))
        self._redact = redact

    def record(self, rollout_id: str, exchange: Mapping[str, Any]) -> None:
        """Store one model-server exchange, with all its fields as they are.

        Its place in the order is ``completed_at`` (seconds since the epoch), or now.
        Returns when: it is durable and every reader sees it.
        Repeating: an exchange with the same fields changes nothing, if it says when it completed.
        Raises: ``Invalid`` before any request; ``Unavailable`` or ``Denied``, and then it is kept in the spill.
        Mark the rollout incomplete where that was not to be hoped for either.
        """
        put = self._prepared(rollout_id, exchange, time.time())
        try:
            self.connection.write_now(captures.FAMILY, partial(write, put))
        except ObjstoreError as error:
            if storable(error):
                self.connection.keep_now(put)
            raise

    async def record_async(self, rollout_id: str, exchange: Mapping[str, Any], *, within: float | None = None) -> None:
        """Store one exchange; see ``record``. The write is finished even if the caller is cancelled.

        ``within`` bounds the seconds until this returns or raises: a write that takes longer goes to the spill.
        """
        require_id(rollout_id, "rollout id")
        until = None if within is None else asyncio.get_running_loop().time() + within
        prepare = partial(self._prepared, rollout_id, exchange, time.time())
        lost = partial(self.mark_incomplete_async, rollout_id)
        await self.connection.writer.finish(rollout_id, self._store(prepare, until), lost=lost)

    async def _store(self, prepare: Callable[[], Put], until: float | None) -> None:
        connection = self.connection
        put = await asyncio.to_thread(prepare)
        try:
            async with asyncio.timeout_at(until):
                await connection.write(captures.FAMILY, partial(write, put))
        except TimeoutError as error:
            await connection.keep(put)
            message = "the store did not take a capture in time, so it is kept on disk"
            raise Unavailable(message, kind="slow_store", key=put.key) from error
        except ObjstoreError as error:
            if storable(error):
                await connection.keep(put)
            raise

    def _prepared(self, rollout_id: str, exchange: Mapping[str, Any], now: float) -> Put:
        require_id(rollout_id, "rollout id")
        line = captures.line_of(self._redacted(exchange), now)
        return captures.capture_put(self.settings.run_id, rollout_id, line)

    def _redacted(self, exchange: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._redact is None:
            return exchange
        try:
            return self._redact(dict(exchange))
        except Exception as error:  # noqa: BLE001 - a hook may raise anything
            # The hook's own words may quote what it was to take out.
            message = f"the redaction failed, so the capture is not stored, error={type(error).__name__}"
            raise Invalid(message, kind="redaction_failed") from None

    def mark_incomplete(self, rollout_id: str, model_call_id: str = "", *, reason: str = "lost") -> None:
        """Record that a capture of this rollout was lost.

        Returns when: the marker is in the store, or on this machine's disk, from where it is replayed.
        Repeating: leaves one more marker. Raises: ``Invalid``; ``Unavailable`` if store and disk both fail.
        """
        self.connection.put_marker_now(captures.FAMILY, self._marker(rollout_id, model_call_id, reason))

    async def mark_incomplete_async(self, rollout_id: str, model_call_id: str = "", *, reason: str = "lost") -> None:
        """Record that a capture was lost; see ``mark_incomplete``. Finished even if the caller is cancelled."""
        marker = self._marker(rollout_id, model_call_id, reason)
        await self.connection.writer.finish_at_once(rollout_id, self.connection.put_marker(captures.FAMILY, marker))

    def _marker(self, rollout_id: str, model_call_id: str, reason: str) -> Put:
        require_id(rollout_id, "rollout id")
        event = Event(
            "loss", rollout_id, model_call_id, family=captures.FAMILY, kind="incomplete_marker", detail=reason
        )
        said = "a capture is lost, rollout_id=%s, model_call_id=%s, reason=%s"
        report(event, said, rollout_id, model_call_id, reason)
        note = {"reason": reason, "at": time.time(), "nonce": secrets.token_hex(8)}
        return captures.mark(self.settings.run_id, rollout_id, model_call_id, note)

    def is_incomplete(self, rollout_id: str) -> bool:
        """Say whether a capture of this rollout was lost."""
        return self.connection.play_now(captures.is_incomplete(self.settings.run_id, rollout_id))

    async def is_incomplete_async(self, rollout_id: str) -> bool:
        """Say whether a capture of this rollout was lost."""
        return await self.connection.play(captures.is_incomplete(self.settings.run_id, rollout_id))

    def read(self, rollout_id: str) -> list[dict[str, Any]]:
        """Return a rollout's captures in durable order. Raises ``Corrupt`` if one is damaged; else as ``captured``."""
        return _all(self.captured(rollout_id))

    async def read_async(self, rollout_id: str) -> list[dict[str, Any]]:
        """Return a rollout's captures in durable order; see ``read``."""
        found = await self.captured_async(rollout_id)
        return await asyncio.to_thread(_all, found)

    def read_available(self, rollout_id: str) -> Available:
        """Return the captures that can be read, and how many are damaged; else as ``captured``."""
        return _available(self.captured(rollout_id))

    async def read_available_async(self, rollout_id: str) -> Available:
        """Return the captures that can be read, and how many are damaged; see ``read_available``."""
        found = await self.captured_async(rollout_id)
        return await asyncio.to_thread(_available, found)

    def captured(self, rollout_id: str) -> Captured:
        """Return the stored texts of a rollout's captures, verified, and whether one was lost.

        Raises ``NotFound`` (kind ``no_writer``) where nobody captured anything of this run, and storage errors.
        """
        return self.connection.play_now(captures.read(self.settings.run_id, rollout_id))

    async def captured_async(self, rollout_id: str) -> Captured:
        """Return the stored texts of a rollout's captures; see ``captured``."""
        return await self.connection.play(captures.read(self.settings.run_id, rollout_id))

    def clear(self, rollout_ids: str | Iterable[str]) -> Removal:
        """Remove the captures of exactly this rollout, or these, before dispatch; see ``captures.clear``."""
        return self.connection.play_now(captures.clear(self.settings.run_id, _ids(rollout_ids)))

    async def clear_async(self, rollout_ids: str | Iterable[str]) -> Removal:
        """Remove the captures of exactly this rollout, or these, before dispatch; see ``captures.clear``."""
        return await self.connection.play(captures.clear(self.settings.run_id, _ids(rollout_ids)))

    def attachment(self, rollout_id: str, *, payloads: bool = False, wait: float = DRAIN_SECONDS) -> dict[str, Any]:
        """Return the ``ng_model_call_capture`` field of a rollout's record, with the gaps that are known.

        Writes of cancelled calls of this process are waited for, ``wait`` seconds at most. Raises nothing:
        captures that cannot be read at all are a gap.
        """
        pending = not self.connection.writer.wait(rollout_id, wait)
        try:
            found = self.captured(rollout_id)
        except ObjstoreError as error:
            return _unread(rollout_id, error, pending=pending)
        return _attachment(rollout_id, found, payloads=payloads, pending=pending)

    async def attachment_async(
        self, rollout_id: str, *, payloads: bool = False, wait: float = DRAIN_SECONDS
    ) -> dict[str, Any]:
        """Return the ``ng_model_call_capture`` field of a rollout's record; see ``attachment``."""
        pending = not await self.drain(rollout_id, timeout=wait)
        try:
            found = await self.captured_async(rollout_id)
        except ObjstoreError as error:
            return _unread(rollout_id, error, pending=pending)
        return await asyncio.to_thread(_attachment, rollout_id, found, payloads=payloads, pending=pending)

    def expect(self, rollout_id: str, task: asyncio.Task[Any]) -> None:
        """Have ``drain`` wait for a task that is going to record a capture of this rollout."""
        self.connection.writer.expect(rollout_id, task)

    async def drain(self, rollout_id: str | None = None, *, timeout: float = DRAIN_SECONDS) -> bool:  # noqa: ASYNC109
        """Wait for writes that are still under way, of a rollout or of all; False if ``timeout`` came first."""
        return await self.connection.writer.drain(rollout_id, timeout=timeout)

    async def close(self) -> None:
        """Wait for writes whose callers were cancelled, then release. Idempotent."""
        if not self._closed:
            await self.drain(timeout=CLOSE_SECONDS)
        await super().close()

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (type(self), self.settings, self._redact)


def read_model_call_records(store: CaptureStore, rollout_id: str) -> list[ModelCallRecord]:
    """Return a rollout's calls in durable order. Raises ``Corrupt`` if one is damaged; else as ``captured``."""
    return [model_call(record, call_index=index) for index, record in enumerate(store.read(rollout_id))]


def read_available_model_call_records(store: CaptureStore, rollout_id: str) -> Calls:
    """Return a rollout's calls that can be read, in durable order, and the number of damaged captures."""
    return normalize(*store.read_available(rollout_id))


def aggregate_model_call_metrics(store: CaptureStore, rollout_id: str) -> dict[str, Any]:
    """Return a rollout's totals of tokens and latency; see ``calls.aggregate``. Raises as ``read``."""
    return aggregate(read_model_call_records(store, rollout_id))


def _all(found: Captured) -> list[dict[str, Any]]:
    return [captures.record_of(one) for one in found.captures]


def _available(found: Captured) -> Available:
    read = []
    for index, one in enumerate(found.captures):
        try:
            read.append((index, captures.record_of(one)))
        except Corrupt:
            continue
    return Available(read, len(found.captures) - len(read))


def _attachment(rollout_id: str, found: Captured, *, payloads: bool, pending: bool) -> dict[str, Any]:
    calls, unreadable = normalize(*_available(found))
    gaps = attachment.gaps_of(calls, unreadable=unreadable, incomplete=found.incomplete, pending=pending)
    return attachment.attachment(rollout_id, calls, gaps=gaps, payloads=payloads)


def _unread(rollout_id: str, error: ObjstoreError, *, pending: bool) -> dict[str, Any]:
    """Say that a rollout's captures could not be read, or that nobody ever captured anything of its run."""
    code = attachment.NO_RECORDS if isinstance(error, NotFound) else attachment.UNREADABLE
    gaps = [attachment.gap(code), *([attachment.gap(attachment.PENDING)] if pending else [])]
    return attachment.attachment(rollout_id, [], gaps=gaps)


def _ids(rollout_ids: str | Iterable[str]) -> tuple[str, ...]:
    return require_ids([rollout_ids] if isinstance(rollout_ids, str) else rollout_ids, "rollout ids")


def _restore(cls: type[CaptureStore], settings: Settings, redact: Redaction | None) -> CaptureStore:
    store = cls.__new__(cls)
    Component.__init__(store, settings)
    store._redact = redact  # noqa: SLF001 - this is the class's own constructor, from a pickle
    return store
