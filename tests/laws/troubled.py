# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""One run on a troubled store: model servers, workers, consumers and a retirer, played by the real components.

A seed decides who does what, in which order, and what goes wrong. What was asked and answered is kept as ``Deed``
values in the order of a counter, for the laws of ``test_faults`` to judge when the trouble is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import pytest

from gym_objstore import CaptureLedger, StagingSink, TokenSink, TokenSource, connection, flow, ledger, sinks, tokens
from gym_objstore.errors import Conflict, Corrupt, Denied, NotFound, ObjstoreError, Retired, Unavailable
from gym_objstore.flow import run
from gym_objstore.index import read_index
from gym_objstore.keys import rollout_prefix, staged_key
from gym_objstore.ledger import prepare_row
from gym_objstore.staging import parse_staging_key
from gym_objstore.store import retrying
from gym_objstore.store.memory import MemoryStore
from gym_objstore.store.retrying import RetryingStore
from gym_objstore.testing.faulty import Faults, FaultyStore
from gym_objstore.testing.staged_rollouts import staged_call
from gym_objstore.testing.wrapping import WrappedStore
from tests.entries import make_entry
from tests.finished import commit_of

RUN = "run"
ROLLOUTS = ("r0", "r1")
CALLS = ("a", "b", "c")
ENTRIES = {
    (rollout, call, payload): make_entry(rollout, call, text=f"{call} says", generation_token_ids=[7, 8 + payload])
    for rollout in ROLLOUTS
    for call in CALLS
    for payload in (0, 1)
}
RECORDS = {
    (rollout, call, payload): staged_call(call, rollout_id=rollout, generated=(21, 22 + payload))
    for rollout in ROLLOUTS
    for call in CALLS
    for payload in (0, 1)
}
HONEST = ("refused", "lost", "late", "hung", "expired", "full", "denied", "broken", "repeated")
DAMAGING = (*HONEST, "truncated", "corrupted")
LYING = (*DAMAGING, "short", "stale")

GROUP = 25
OFTEN = 500


def in_groups(count: int, *, often: int) -> list[Any]:
    """Return groups of seeds: small ones up to ``count`` for every run, large ones up to ``often`` for slow ones."""
    few = [pytest.param(range(at, at + GROUP), id=f"{at}") for at in range(0, count, GROUP)]
    slow = [pytest.mark.slow, pytest.mark.timeout(900)]
    many = [pytest.param(range(at, at + OFTEN), id=f"{at}", marks=slow) for at in range(count, often, OFTEN)]
    return few + many


_ERRORS = {
    Retired: "retired",
    Conflict: "conflict",
    Unavailable: "failed",
    Denied: "failed",
    Corrupt: "failed",
    NotFound: "absent",
}


@dataclass(slots=True)
class Deed:
    """Something that was asked at ``began`` and answered at ``ended``: how, and with what."""

    what: str
    rollout: str
    call: str = ""
    payload: Any = None
    began: int = 0
    ended: int = 0
    how: str = ""
    answer: Any = None


class Witness(WrappedStore):
    """The store itself, behind the trouble: it keeps the keys of what was ever removed from it."""

    def __init__(self, store) -> None:
        super().__init__(store)
        self.removed: set[str] = set()

    def delete(self, keys):
        self.removed |= {key for key in keys if self.head(key)}
        super().delete(keys)

    async def delete_async(self, keys):
        self.removed |= {key for key in keys if await self.head_async(key)}
        await super().delete_async(keys)


class Shown(WrappedStore):
    """The store as everybody sees it: it keeps what every listing showed."""

    def __init__(self, store) -> None:
        super().__init__(store)
        self.listings: list[tuple[str, ...]] = []

    async def scan_async(self, prefix):
        found = [meta async for meta in super().scan_async(prefix)]
        self.listings.append(tuple(meta.key for meta in found))
        for meta in found:
            yield meta


async def at_once(work, *arguments):
    """Do without the thread, so that a seed is one play."""
    return work(*arguments)


class InOrder:
    """Threads that do one thing after another, so that a seed is one play."""

    def submit(self, work, *arguments):
        future: Future[Any] = Future()
        try:
            future.set_result(work(*arguments))
        except ObjstoreError as error:
            future.set_exception(error)
        return future


class Trouble(Protocol):
    """What makes things go wrong: a store or a proxy."""

    happened: Any

    def heal(self) -> None: ...


def in_memory(seed: int, spill: Path, kinds: tuple[str, ...] = HONEST) -> Play:
    """Return a play on a faulty store, with retries or without, with a few kinds of faults at most."""
    chance = random.Random(f"faults {seed}")
    chosen = chance.sample(kinds, chance.randint(1, 4))
    faults = Faults(**{kind: chance.choice((0.02, 0.1, 0.3)) for kind in chosen})
    witness, retries = Witness(MemoryStore()), chance.random() < 0.5
    trouble = FaultyStore(witness, seed=seed, faults=faults)
    shown = Shown(RetryingStore(trouble, seconds=30.0 if retries else 0.0, limit=64))
    return Play(seed, spill, witness, trouble, shown, said=f"retries={retries}, faults={faults}")


@dataclass
class Play:
    """A run in trouble, and everything that became of it: ``witness`` is the store itself, ``shown`` what is seen."""

    seed: int
    spill: Path
    witness: Witness
    trouble: Trouble
    shown: Shown
    said: str
    deeds: list[Deed] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(f"play {self.seed}")
        self.clock = count(1)

    def __repr__(self) -> str:
        return f"Play(seed={self.seed}, {self.said})"

    def start(self) -> Play:
        """Play the run to its end, and then end the trouble."""
        names, moments = random.Random(self.seed), count()
        with contextlib.ExitStack() as patched:
            for owner, name, value in (
                (connection, "open_store", lambda *_: self.shown),
                (retrying, "_FIRST_PAUSE", 0.0),
                (flow, "_io_threads", InOrder),
                (asyncio, "to_thread", at_once),
                (sinks, "secrets", SimpleNamespace(token_hex=lambda size: names.randbytes(size).hex())),
                (sinks, "time", SimpleNamespace(time=lambda: float(next(moments)))),
            ):
                patched.callback(setattr, owner, name, getattr(owner, name))
                setattr(owner, name, value)
            asyncio.run(self._play())
        return self

    async def _play(self) -> None:
        settings = {"url": f"memory://{self.seed}", "run_id": RUN, "spill_dir": str(self.spill)}
        self.sink, self.source = TokenSink(**settings), TokenSource(**settings)
        self.ledger, self.stager = CaptureLedger(**settings), StagingSink(**settings)
        parts = [self._serve(rollout, call) for rollout in ROLLOUTS for call in CALLS]
        parts += [self._consume(rollout) for rollout in ROLLOUTS for _ in range(2)]
        parts += [self._retire(self.chance.choice(ROLLOUTS))] if self.chance.random() < 0.2 else []
        self.chance.shuffle(parts)
        await asyncio.gather(*parts)
        shared = self.sink.connection
        while shared.writer._pending:  # noqa: ASYNC110 - draining would need a thread
            await asyncio.sleep(0)
        self.trouble.heal()
        for kept in list(shared.spill.kept()):
            await shared.replay(kept)
        await self.sink.begin_call("afterwards", "a")  # so that readers know that this is the place
        for one in (self.sink, self.source, self.ledger, self.stager):
            await one.close()

    async def _wait(self) -> None:
        for _ in range(self.chance.randrange(30)):
            await asyncio.sleep(0)

    async def _do(self, deed: Deed, work: Any) -> Deed:
        """Do something and keep how it ended; anything but this package's refusals ends the play."""
        self.deeds.append(deed)
        deed.began = next(self.clock)
        try:
            answer = await work()
            deed.answer = deed.answer if answer is None else answer
            deed.how = "done"
        except ObjstoreError as error:
            deed.how = _ERRORS[type(error)]
        deed.ended = next(self.clock)
        return deed

    async def _serve(self, rollout: str, call: str) -> None:
        """Serve one model call as a server does: announce it, keep what it said, or say that it was lost."""
        style = self.chance.choice(("plain", "plain", "lost", "twice", "two payloads", "cancelled", "external"))
        await self._wait()
        if style == "external":
            await self._serve_external(rollout, call)
            return
        begun = await self._do(Deed("begin", rollout, call), lambda: self.sink.begin_call(rollout, call))
        if begun.how != "done" or style == "lost":
            return
        for payload in {"twice": (0, 0), "two payloads": (0, 1)}.get(style, (0,)):
            await self._wait()
            await self._put(rollout, call, payload, cancelled=style == "cancelled")

    async def _put(self, rollout: str, call: str, payload: int, *, cancelled: bool) -> None:
        deed = Deed("put", rollout, call, payload)
        task = asyncio.create_task(self._do(deed, lambda: self.sink.put(ENTRIES[rollout, call, payload])))
        if cancelled:
            await self._wait()
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        if deed.how == "failed":
            await self._do(Deed("mark", rollout, call), lambda: self.sink.mark_incomplete(rollout, call))

    async def _serve_external(self, rollout: str, call: str) -> None:
        for payload in (0, 1) if self.chance.random() < 0.3 else (0,):
            record = RECORDS[rollout, call, payload]
            staged = self.stager.stage(record)
            how = "done" if staged.ok else "failed"
            self.deeds.append(Deed("stage", rollout, call, payload, how=how, answer=staged))
            if not staged.ok or not await self._record(record, staged.staging_key, payload):
                deed = Deed("fail", rollout, call)
                await self._do(deed, lambda: self.ledger.record_failure(rollout, call, "capture_failed"))

    async def _record(self, record: Any, staging_key: str, payload: int) -> bool:
        commit = commit_of(record, staging_key)
        deed = Deed("record", record.rollout_id, record.model_call_id, payload, answer=commit)
        return (await self._do(deed, lambda: self.ledger.record(commit))).how != "failed"

    async def _consume(self, rollout: str) -> None:
        """Freeze and drop, as a trainer does that wants whatever there is."""
        for _ in range(self.chance.randint(1, 3)):
            await self._wait()
            frozen = await self._do(Deed("freeze", rollout), lambda: self.source.freeze(rollout))
            await self._wait()
            if frozen.how == "done" and self.chance.random() < 0.5:
                await self._drop(rollout, frozen.answer)

    async def _drop(self, rollout: str, snapshot: Any) -> None:
        identity = {"snapshot_id": snapshot.snapshot_id, "version": snapshot.version}
        await self._do(Deed("drop", rollout, payload=snapshot), lambda: self.source.drop(rollout, **identity))

    async def _retire(self, rollout: str) -> None:
        await self._wait()
        await self._do(Deed("retire", rollout), lambda: self.source.retire([rollout]))

    def of(self, what: str, rollout: str, *how: str) -> list[Deed]:
        """Return the deeds of one kind, of a rollout, that ended in one of these ways."""
        return [deed for deed in self.deeds if (deed.what, deed.rollout) == (what, rollout) and deed.how in how]

    def index(self, rollout: str) -> Any:
        """Return what the bucket itself holds of a rollout's tokens."""
        return run(read_index(rollout_prefix(tokens.FAMILY, RUN, rollout)), self.witness)

    def key_of(self, deed: Deed) -> str:
        """Return the key of the object that a deed writes."""
        prefix = rollout_prefix(tokens.FAMILY, RUN, deed.rollout)
        match deed.what:
            case "put":
                return tokens.prepare(prefix, ENTRIES[deed.rollout, deed.call, deed.payload]).key
            case "begin":
                return f"{prefix}intents/{deed.call}"
            case "stage":
                return staged_key(RUN, parse_staging_key(deed.answer.staging_key))
        return prepare_row(rollout_prefix(ledger.FAMILY, RUN, deed.rollout), deed.answer).key
