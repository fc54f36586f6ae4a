# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What the components of one run share in a process: the store, the writer, the cache and the spill.

A server builds its sink and its resolver separately, from text; equal settings find the same connection,
so that the resolver knows what the sink wrote. A forked child starts with none.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from functools import partial
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakSet

from gym_objstore.cache import ColumnMemory, ParentMemory
from gym_objstore.errors import Conflict, Denied, ObjstoreError, Retired, Unavailable, Unusable
from gym_objstore.flow import Put, arun, run
from gym_objstore.objects import announcement, write
from gym_objstore.observers import install_observers
from gym_objstore.observing import Event, SpillDepth, report, report_refusal, tell
from gym_objstore.replaying import replay_each, replay_one, report_postponed, waiting_in
from gym_objstore.spill import Spill, forget
from gym_objstore.store.observed import ObservedStore
from gym_objstore.store.opening import open_store
from gym_objstore.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from gym_objstore.flow import Flow
    from gym_objstore.settings import Settings
    from gym_objstore.spill import Spilled
    from gym_objstore.store import Store

T = TypeVar("T")

MARK_SECONDS = 5.0
"""How long a marker, already safe on the local disk, is offered to the store before the caller goes on."""

_REPLAY_PAUSE = 1.0
_REPLAY_PAUSE_LIMIT = 30.0

_open: dict[Settings, Connection] = {}
_opening = threading.Lock()
_of_parents: list[dict[Settings, Connection]] = []
"""What a forked child was born with. A client that is let go of takes locks which the parent's threads may hold."""


class Connection:
    """A run's store with what its users in this process share."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.store: Store = ObservedStore(open_store(settings.store))
        self.writer = Writer(settings.store.concurrency)
        self.parents = ParentMemory()
        self.columns = ColumnMemory()
        self.spill = Spill(settings.spill_dir, self.store.url)
        self.users: WeakSet[object] = WeakSet()
        self._announced, self._offered = set[str](), set[str]()
        self._replaying: asyncio.Task[None] | None = None

    async def play(self, flow: Flow[T]) -> T:
        """Play a flow on the running loop."""
        try:
            return await self._play(flow)
        except (Conflict, Retired) as error:
            report_refusal(error)
            raise

    async def _play(self, flow: Flow[T]) -> T:
        return await arun(flow, self.store, limit=self.settings.store.concurrency)

    def play_now(self, flow: Flow[T]) -> T:
        """Play a flow with blocking calls, from any thread."""
        try:
            return run(flow, self.store)
        except (Conflict, Retired) as error:
            report_refusal(error)
            raise

    async def write(self, family: str, flow: Callable[[Sequence[Put]], Flow[T]]) -> T:
        """Play a writing flow; this process's first one leaves the run's writer marker in the same round trip."""
        if family in self._announced:
            return await self.play(flow(()))
        written = await self.play(flow((announcement(family, self.settings.run_id),)))
        self._announced.add(family)
        self.start_replay()
        return written

    def write_now(self, family: str, flow: Callable[[Sequence[Put]], Flow[T]]) -> T:
        """Play a writing flow with blocking calls; see ``write``. Replays nothing, which needs a running loop."""
        if family in self._announced:
            return self.play_now(flow(()))
        written = self.play_now(flow((announcement(family, self.settings.run_id),)))
        self._announced.add(family)
        return written

    async def keep(self, put: Put) -> None:
        """Spill a write and see to it that it is replayed while this process lives."""
        await asyncio.to_thread(self.keep_now, put)
        self.start_replay()

    def keep_now(self, put: Put) -> None:
        """Spill a write; see ``keep``. It is replayed once this process writes on a running loop."""
        self._kept(put)
        self._report_spilled(put)

    def _kept(self, put: Put) -> Path:
        try:
            return self.spill.keep(put)
        except ObjstoreError as error:
            event = Event("spill_failed", key=put.key, kind=error.kind, detail=str(error))
            report(event, "a write could not be kept on disk, key=%s, error=%s", put.key, error)
            raise

    def _report_spilled(self, put: Put, error: object = "raised to its caller") -> None:
        said = "a write is kept on disk until the store takes it, key=%s, error=%s"
        report(Event("spilled", key=put.key, detail=str(error)), said, put.key, error)
        tell(SpillDepth(str(self.spill.folder), self.spill.depth))

    async def put_marker(self, family: str, marker: Put) -> None:
        """Store a marker, which is kept on disk first, so that neither a slow store nor a crash can lose it.

        Returns when: it is in the store; or, after ``MARK_SECONDS``, on disk, from where it is replayed, also by
        the next process. Raises: ``Unavailable`` if store and disk both fail.
        """
        self._offered.add(marker.key)  # before there is a file, which a replay could find first
        try:
            path = await asyncio.to_thread(self._kept, marker)
        except ObjstoreError:
            self._offered.discard(marker.key)
            return await self.write(family, partial(write, marker))
        try:
            await asyncio.wait_for(self.write(family, partial(write, marker)), MARK_SECONDS)
            forget(path)
        except (ObjstoreError, TimeoutError) as error:
            self._report_spilled(marker, error)
            self.start_replay()
        finally:
            self._offered.discard(marker.key)

    def put_marker_now(self, family: str, marker: Put) -> None:
        """Store a marker with blocking calls; one the store does not take stays on disk. See ``put_marker``."""
        try:
            path = self._kept(marker)
        except ObjstoreError:
            self.write_now(family, partial(write, marker))
            return
        try:
            self.write_now(family, partial(write, marker))
            forget(path)
        except ObjstoreError as error:
            self._report_spilled(marker, error)

    def start_replay(self) -> None:
        """Replay what is kept, in the background of the running loop, until nothing is left.

        A loop that was closed or stands still has taken its replay with it.
        """
        going = self._replaying
        if (going is None or going.done() or not going.get_loop().is_running()) and waiting_in(self.spill):
            self._replaying = asyncio.get_running_loop().create_task(self._replay())

    async def _replay(self) -> None:
        pause = _REPLAY_PAUSE
        while waiting := waiting_in(self.spill):
            tell(SpillDepth(str(self.spill.folder), waiting))
            try:
                await replay_each((one for one in self.spill.kept() if one.put.key not in self._offered), self.replay)
                pause = _REPLAY_PAUSE
            except Unusable:  # closed: the next connection begins its own replay
                return
            except (ObjstoreError, OSError) as error:
                report_postponed(error, self.spill.folder)
                pause = min(2 * pause, _REPLAY_PAUSE_LIMIT)
            await asyncio.sleep(pause)
        tell(SpillDepth(str(self.spill.folder), 0))

    async def replay(self, kept: Spilled) -> None:
        """Store one kept write; behind a tombstone it is discarded with a warning."""
        await replay_one(kept, self._play)

    async def close(self, user: object) -> None:
        """Let one user go; with the last one the store's connections are released."""
        if not self._left(user):
            return
        if self._replaying is not None and self._replaying.get_loop() is asyncio.get_running_loop():
            self._replaying.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._replaying
        await self.store.close_async()

    def close_now(self, user: object) -> None:
        """Let one user go where no loop runs; see ``close``."""
        if self._left(user):
            self.store.close()

    def _left(self, user: object) -> bool:
        """Let one user go; say whether it was the last, after which nobody finds this connection."""
        with _opening:  # else another user could come between the last one's leaving and the end
            self.users.discard(user)
            if self.users:
                return False
            if _open.get(self.settings) is self:
                del _open[self.settings]
        return True


class Component:
    """What sinks, sources and resolvers have in common: settings, a lazy connection, pickling and close.

    Making one does no I/O. It may be pickled (its settings travel, no handle does), used from many loops
    and threads, and used in a spawned or forked child, which connects anew.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._closed = False
        install_observers()

    @property
    def connection(self) -> Connection:
        """The process's connection for these settings. Raises ``Unusable`` after ``close``."""
        if self._closed:
            raise Unusable(f"this {type(self).__name__} is closed", kind="closed")
        with _opening:
            found = _open.get(self.settings)
            if found is None:
                found = _open[self.settings] = Connection(self.settings)
            found.users.add(self)
        return found

    async def close(self) -> None:
        """Release what this component holds. Idempotent; nothing is ever flushed here."""
        if not self._closed:
            found = _open.get(self.settings)
            self._closed = True
            if found is not None and self in found.users:
                await found.close(self)

    def close_now(self) -> None:
        """Release what this component holds, from a thread without a loop; see ``close``."""
        if not self._closed:
            found = _open.get(self.settings)
            self._closed = True
            if found is not None and self in found.users:
                found.close_now(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(url={self.settings.store.url!r}, run_id={self.settings.run_id!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (type(self), self.settings)


def _restore(cls: type[Component], settings: Settings) -> Component:
    component = cls.__new__(cls)
    Component.__init__(component, settings)
    return component


def storable(error: ObjstoreError) -> bool:
    """Say whether a later attempt may succeed, so that the write is worth keeping."""
    return isinstance(error, Unavailable | Denied)


def _forget_connections() -> None:
    _of_parents.append(_open.copy())
    _open.clear()
    global _opening  # noqa: PLW0603 - the parent may have held it while forking
    _opening = threading.Lock()


os.register_at_fork(after_in_child=_forget_connections)
