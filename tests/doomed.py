# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What processes do that are killed, starved or forked, and how one of them dies at a chosen moment.

A moment is a number: of a system call that changes a folder, or of a request to a server. So a seed kills at the
same place every time, and no clock is asked. Every function here is called in a process of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import resource
import signal
from pathlib import Path
from typing import Any

from gym_objstore import CaptureLedger, StagingSink, TokenSink, TokenSource, connection
from gym_objstore.errors import ObjstoreError
from gym_objstore.flow import run
from gym_objstore.store.opening import open_store
from gym_objstore.sweeping import find_orphans, remove_orphans
from gym_objstore.testing.staged_rollouts import staged_call
from gym_objstore.testing.wrapping import WrappedStore
from tests.entries import make_entry
from tests.finished import commit_of

SECONDS = 60.0
CHANGES = ("fsync", "rename", "unlink", "mkdir", "rmdir")
_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(
    ["tests.doomed", *(f"gym_objstore.store.{one}_store" for one in ("file", "obstore", "boto"))]
)


class Child:
    """A process that does some work, and all that it said until it ended."""

    def __init__(self, work: Any, *arguments: Any) -> None:
        receiver, sender = _server.Pipe(duplex=False)
        process = _server.Process(target=_work, args=(sender, work, *arguments), daemon=True)
        process.start()
        sender.close()
        self.said: list[Any] = []
        with contextlib.suppress(EOFError):
            while receiver.poll(SECONDS):
                self.said.append(receiver.recv())
        process.join(SECONDS)
        process.kill()
        process.join()
        self.killed = process.exitcode == -signal.SIGKILL
        self.code = process.exitcode


def _work(sender: Any, work: Any, *arguments: Any) -> None:
    for one in work(*arguments):
        sender.send(one)


class Countdown:
    """Kills this process at the given moment, before or after what happens then."""

    def __init__(self, moment: int) -> None:
        self.left, self.after = divmod(moment, 2)

    def __call__(self, act: Any, *arguments: Any, **options: Any) -> Any:
        self._die(1)
        answer = act(*arguments, **options)
        self._die(0)
        return answer

    async def wait(self, act: Any, *arguments: Any) -> Any:
        self._die(1)
        answer = await act(*arguments)
        self._die(0)
        return answer

    def _die(self, before: int) -> None:
        if before:
            self.left -= 1
        if self.left < 0 and self.after != before:
            os.kill(os.getpid(), signal.SIGKILL)


class Deadly(WrappedStore):
    """A store whose requests count down."""

    def __init__(self, store: Any, countdown: Countdown) -> None:
        super().__init__(store)
        self.countdown = countdown

    def put(self, key, body):
        self.countdown(self.store.put, key, body)

    def delete(self, keys):
        self.countdown(self.store.delete, keys)

    def head(self, key):
        return self.countdown(self.store.head, key)

    async def put_async(self, key, body):
        await self.countdown.wait(self.store.put_async, key, body)

    async def delete_async(self, keys):
        await self.countdown.wait(self.store.delete_async, keys)

    async def head_async(self, key):
        return await self.countdown.wait(self.store.head_async, key)


def dying_at(moment: int, place: dict[str, Any]) -> None:
    """Make this process die: in a folder at a system call, on a server at a request."""
    countdown = Countdown(moment)
    os.fsync = lambda _: None  # who kills a process takes nothing from the disk
    if place["url"].startswith("file:"):
        for name in CHANGES:
            act = getattr(os, name)
            setattr(os, name, lambda *args, act=act, **options: countdown(act, *args, **options))
    else:
        connection.open_store = lambda *url, **options: Deadly(open_store(*url, **options), countdown)


def write_rollouts(place, moment):
    """Write calls of rollouts in every way there is, and say what was acknowledged."""
    sink, ledger, stager = TokenSink(**place), CaptureLedger(**place), StagingSink(**place)
    dying_at(moment, place)
    with asyncio.Runner() as loop:
        for rollout in ("r0", "r1"):
            for call in ("a", "b"):
                loop.run(sink.begin_call(rollout, call))
                yield "begin", rollout, call
                loop.run(sink.put(make_entry(rollout, call)))
                yield "put", rollout, call
            loop.run(sink.mark_incomplete(rollout, "lost"))
            yield "mark", rollout, "lost"
            record = staged_call("e", rollout_id=rollout)
            staged = stager.stage(record)
            yield "stage", rollout, staged.staging_key
            loop.run(ledger.record(commit_of(record, staged.staging_key)))
            yield "record", rollout, "e"


def drop_rollouts(place, moment):
    """Freeze two rollouts and drop them; say when each is gone."""
    source = TokenSource(**place)
    with asyncio.Runner() as loop:
        frozen = {rollout: loop.run(source.freeze(rollout)) for rollout in ("r0", "r1")}
        yield {rollout: (one.snapshot_id, one.version) for rollout, one in frozen.items()}
        dying_at(moment, place)
        # The connection was made before; it is the same store in the middle of its life.
        if not place["url"].startswith("file:"):
            source.connection.store = connection.open_store(source.settings.store)
        for rollout, one in frozen.items():
            yield rollout, loop.run(source.drop(rollout, snapshot_id=one.snapshot_id, version=one.version))


def sweep_run(place, moment):
    """Remove everything that nothing refers to."""
    options = {name: value for name, value in place.items() if name not in ("run_id", "spill_dir")}
    dying_at(moment, place)
    store = (open_store if place["url"].startswith("file:") else connection.open_store)(**options)
    found = run(find_orphans(place["run_id"], now=4e9, grace=0.0), store)
    yield len(found.rests)
    run(remove_orphans(found), store)
    yield "swept"


def how(loop, attempt) -> str:
    """Return how an attempt ends."""
    try:
        loop.run(attempt)
    except ObjstoreError as error:
        return error.kind
    except MemoryError:
        return "no memory"
    return "done"


def large(rollout="r0", call="large", tokens=20_000):
    """Return an entry that does not compress."""
    return make_entry(rollout, call, text=os.urandom(tokens).hex())


@contextlib.contextmanager
def limited(kind, most):
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)


def write_small_files(place):
    """Write with files that may not grow beyond 20,000 bytes, for store and spill alike, and then without limit."""
    sink, entry = TokenSink(**place), large()
    with asyncio.Runner() as loop:
        with limited(resource.RLIMIT_FSIZE, 20_000):
            yield how(loop, sink.begin_call("r0", "large"))
            yield how(loop, sink.put(entry))
            yield how(loop, sink.mark_incomplete("r0", "large"))
            yield how(loop, sink.put(make_entry("r0", "small")))
        yield how(loop, sink.put(entry))


def write_without_descriptors(place):
    """Write when every file descriptor is taken, and again when they are given back."""
    sink, taken = TokenSink(**place), []
    with asyncio.Runner() as loop, limited(resource.RLIMIT_NOFILE, 128):
        yield how(loop, sink.put(make_entry("r0", "before")))
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        yield how(loop, sink.put(make_entry("r0", "during")))
        yield how(loop, sink.mark_incomplete("r0", "during"))
        for one in taken:
            os.close(one)
        yield how(loop, sink.mark_incomplete("r0", "during"))
        yield how(loop, sink.put(make_entry("r0", "after")))


def read_with_little_memory(place, spare):
    """Freeze a rollout of large entries with so many bytes to spare, and then with as many as it needs."""
    source = TokenSource(**place)
    with asyncio.Runner() as loop:
        loop.run(source.freeze("small"))
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        frozen = []
        with limited(resource.RLIMIT_AS, used + spare):
            try:
                frozen.append(loop.run(source.freeze("large")))
            except Exception as error:  # noqa: BLE001 - too little for a thread is a RuntimeError
                frozen.append(type(error).__name__)
        frozen.append(loop.run(source.freeze("large")))
        yield [one if isinstance(one, str) else (len(one.entries), one.problems) for one in frozen]


def use_and_fork(place):
    """Write, fork, and write in both processes with the components that were there before."""
    sink = TokenSink(**place)
    asyncio.run(sink.put(make_entry("r0", "before")))
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException), asyncio.Runner() as loop:
            os.write(sender, how(loop, sink.put(make_entry("r0", "child"))).encode())
        os._exit(0)
    os.close(sender)
    yield os.read(receiver, 100).decode()
    os.waitpid(child, 0)
    with asyncio.Runner() as loop:
        yield how(loop, sink.put(make_entry("r0", "parent")))
