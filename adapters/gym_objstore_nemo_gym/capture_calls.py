# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Model calls around Gym's capture middleware, so that what it captures is in the bucket whoever hangs up.

Gym decides what is captured and what a capture says. Here each captured call runs as a task that its client's
going away does not cancel once the model has answered; the capture is written on the event loop; and the client has
the whole answer only after that, or after ``CALL_SECONDS``. The bytes it gets are Gym's.
"""

from __future__ import annotations

import asyncio
import logging
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar

from gym_objstore.capture_store import CLOSE_SECONDS, Available, CaptureStore
from gym_objstore.correlation import parse_path
from gym_objstore.errors import NotFound, ObjstoreError
from gym_objstore.observing import Event, report

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

STORE_SECONDS = 4.0
"""How long the store may take for a capture, until it goes to this machine's disk."""

CALL_SECONDS = 5.0
"""How long a model call waits for its capture at most: for the store, and for the disk where the store fails."""

Message = dict[str, Any]

_log = logging.getLogger("gym_objstore")
_current: ContextVar[_Call | None] = ContextVar("gym_objstore_nemo_gym.call", default=None)


class BucketCaptures(CaptureStore):
    """A ``CaptureStore`` for Gym's own functions: it takes a call's capture without keeping their thread waiting."""

    _told = False

    def record(self, rollout_id: str, exchange: Mapping[str, Any]) -> None:
        """Begin to store the capture of the call being served, whose answer waits for it; else store it here."""
        call = _current.get()
        if call is None:
            super().record(rollout_id, exchange)
        else:
            call.write(self.keep(rollout_id, exchange))

    async def keep(self, rollout_id: str, exchange: Mapping[str, Any]) -> None:
        """Store a capture, or leave a marker that it was lost. Raises nothing."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine that runs is a task's
        self.connection.writer.expect(rollout_id, task)
        try:
            await self.record_async(rollout_id, exchange, within=STORE_SECONDS)
        except Exception as error:  # noqa: BLE001 - whatever it was, the capture is not in the store
            # Not the error's own words, which may quote the payload, unless they are ours.
            said = error if isinstance(error, ObjstoreError) else type(error).__name__
            event = Event("write_failed", rollout_id, family="captures", detail=str(said))
            report(event, "a capture is not in the store, rollout_id=%s, error=%s", rollout_id, said)
            await self._leave_marker(rollout_id, error)

    async def _leave_marker(self, rollout_id: str, error: Exception) -> None:
        try:
            await self.mark_incomplete_async(rollout_id, reason=getattr(error, "kind", "lost"))
        except ObjstoreError as failure:
            event = Event("write_failed", rollout_id, family="captures", kind=failure.kind, detail=str(failure))
            report(event, "a lost capture could not be marked, rollout_id=%s, error=%s", rollout_id, failure)

    def read_available(self, rollout_id: str) -> Available:
        """Return the captures that can be read; none, and once a warning, where nobody captured anything."""
        try:
            return super().read_available(rollout_id)
        except NotFound as error:
            if not self._told:
                self._told = True
                where = (self.settings.store.url, self.settings.run_id)
                _log.warning("nothing was ever captured here, url=%s, run_id=%s: %s", *where, error)
            return Available([], 0)


class CaptureCalls:
    """An ASGI middleware around ``gyms``, which is Gym's capture middleware and gets its arguments."""

    gyms: ClassVar[Any]

    def __init__(self, app: Any, **options: Any) -> None:
        store = options.get("store")
        self._store = store if isinstance(store, BucketCaptures) else None
        self._within = self.gyms(app if self._store is None else _answering(app), **options)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request, shielded if Gym captures it."""
        if self._store is None:
            await self._within(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._within(scope, receive, _draining(self._store, send))
        elif (route := _captured_route(scope)) is None:
            await self._within(scope, receive, send)
        else:
            await self._shielded(route.rollout_id, scope, receive, send)

    async def _shielded(self, rollout_id: str, scope: Any, receive: Any, send: Any) -> None:
        call = _Call(send)
        task = asyncio.create_task(self._served(call, scope, receive))
        self._store.connection.writer.expect(rollout_id, task)  # type: ignore[union-attr]
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            call.leave()
            task.add_done_callback(_forgotten)
            if not call.answered:
                task.cancel()  # and Gym records the call as a cancelled one
            raise
        task.result()

    async def _served(self, call: _Call, scope: Any, receive: Any) -> None:
        _current.set(call)
        try:
            await self._within(scope, receive, call.send)
        finally:
            await call.finish()


class _Call:
    """One captured call: what its client may have already, and the write of its capture.

    ``answered`` says that the model's answer is complete, or failed: then the call is captured in any case.
    """

    def __init__(self, send: Any) -> None:
        self.answered = False
        self._send, self._here = send, True
        self._loop = asyncio.get_running_loop()
        self._missing: int | None = None
        self._held: list[Message] = []
        self._write: Future[None] | None = None
        self._until = 0.0

    def leave(self) -> None:
        """Send nothing any more, because nobody is there."""
        self._here = False

    def write(self, keeping: Any) -> None:
        """Begin to write the capture; from any thread."""
        self._until = self._loop.time() + CALL_SECONDS
        self._write = asyncio.run_coroutine_threadsafe(keeping, self._loop)

    async def send(self, message: Message) -> None:
        """Send one of Gym's messages, but what completes the answer only once the capture is written.

        A client that was promised a length has all of the answer before the message that ends it.
        """
        await self._written()
        if message["type"] == "http.response.start":
            self._missing = _promised_length(message)
        elif self._missing is not None:
            self._missing -= len(message.get("body", b""))
            if self._missing <= 0 and message.get("more_body", False):
                self._held.append(message)
                return
        await self._release()
        await self._pass(message)

    async def finish(self) -> None:
        """Wait for the write, and send what was held if nothing ended the answer."""
        await self._written()
        await self._release()

    async def _written(self) -> None:
        if self._write is not None and not self._write.done():
            seconds = max(self._until - self._loop.time(), 0)
            await asyncio.wait({asyncio.wrap_future(self._write)}, timeout=seconds)

    async def _release(self) -> None:
        while self._held:
            await self._pass(self._held.pop(0))

    async def _pass(self, message: Message) -> None:
        if self._here:
            await self._send(message)


def _captured_route(scope: Any) -> Any:
    """Return the rollout route of a call that Gym captures, or None."""
    route = parse_path(scope["path"]) if scope["type"] == "http" else None
    return route if route is not None and route.dialect is not None else None


def _answering(app: Any) -> Any:
    """Wrap the application within, so that a call knows when its answer is complete."""

    async def within(scope: Any, receive: Any, send: Any) -> None:
        call = _current.get()
        if call is None:
            await app(scope, receive, send)
            return

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                call.answered = True
            await send(message)

        try:
            await app(scope, receive, watched)
        finally:
            call.answered = True

    return within


def _draining(store: BucketCaptures, send: Any) -> Any:
    """Return a ``send`` that ends the application's life only after its captures are written."""

    async def drained(message: Message) -> None:
        if message["type"] == "lifespan.shutdown.complete":
            await store.drain(timeout=CLOSE_SECONDS)
        await send(message)

    return drained


def _promised_length(start: Message) -> int | None:
    values = [value for name, value in start.get("headers", ()) if name.lower() == b"content-length"]
    return int(values[0]) if values and values[0].isdigit() else None


def _forgotten(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("a model call failed after its client had left, error=%s", type(error).__name__)
