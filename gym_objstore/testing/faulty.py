# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A store in which things go wrong at random, the same things again for the same seed.

Owns: which faults there are and when each happens. Does not own: what must hold under them; tests say that.
Whether a request fails follows from the seed, the request, and how often it was made before, not from what others
do meanwhile. Two faults last for a number of requests: a full disk, and a permission that was taken away.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from gym_objstore.errors import Denied, ObjstoreError, Unavailable
from gym_objstore.store import joined
from gym_objstore.store.answers import EXPIRED, FULL
from gym_objstore.testing.wrapping import WrappedStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from gym_objstore.store import Body, Meta, Store

T = TypeVar("T")

SPELL = 8
"""Requests that a full disk or a lost permission lasts, at most."""

_TURNS = 3
_LATER = 12


@dataclass(frozen=True, slots=True)
class Faults:
    """How likely each fault is for one request, from 0 to 1.

    ``refused``: not done. ``lost``: done, but the answer is not. ``late``: a write that is given up and done up to a
    dozen requests later. ``hung``: no answer for ``hang_seconds``, done or not. ``expired``: refused for its
    credentials. ``full`` and ``denied`` begin a spell in which writes find no room, or one verb is refused.
    ``truncated`` and ``corrupted``: a body that was read. Listings: ``broken`` ends in an error, ``repeated`` shows
    a part twice, ``short`` leaves something out and does not say so, ``stale`` shows the latest changes not yet.
    A store that does one of the last two keeps no promise; damage must be bounded all the same.
    ``latency`` is the longest delay in seconds.
    """

    refused: float = 0.0
    lost: float = 0.0
    late: float = 0.0
    hung: float = 0.0
    expired: float = 0.0
    full: float = 0.0
    denied: float = 0.0
    truncated: float = 0.0
    corrupted: float = 0.0
    broken: float = 0.0
    repeated: float = 0.0
    short: float = 0.0
    stale: float = 0.0
    latency: float = 0.0
    hang_seconds: float = 0.0


_FOR = {
    "put": ("refused", "lost", "late", "hung", "expired"),
    "delete": ("refused", "lost", "late", "hung", "expired"),
    "get": ("refused", "hung", "expired", "truncated", "corrupted"),
    "head": ("refused", "hung", "expired"),
    "list": ("refused", "hung", "expired", "broken", "repeated", "short", "stale"),
}


class _Fate(NamedTuple):
    """What becomes of one request: an error before it, an error after it, or damage to its answer."""

    draw: random.Random
    seconds: float = 0.0
    turns: int = 0
    before: ObjstoreError | None = None
    after: ObjstoreError | None = None
    damage: str = ""


class FaultyStore(WrappedStore):
    """The store given, with faults. Listings come in any order, and the async form lets others go first, by seed.

    ``faults`` may be changed at any time; ``heal`` ends them all. ``happened`` says what went wrong so far.
    """

    def __init__(self, store: Store, *, seed: int, faults: Faults) -> None:
        super().__init__(store)
        self.seed, self.faults = seed, faults
        self.happened: list[str] = []
        self._lock = threading.Lock()
        self._asked: Counter[tuple[str, str]] = Counter()
        self._requests = 0
        self._late: list[tuple[int, Callable[[], object]]] = []
        self._spells: dict[str, int] = {}
        self._recent: list[tuple[str, Meta | None]] = []

    def __repr__(self) -> str:
        return f"FaultyStore(seed={self.seed}, faults={self.faults})"

    def heal(self) -> None:
        """End every fault; writes that are still on their way arrive."""
        with self._lock:
            self.faults, self._spells = Faults(), {}
            rest, self._late = self._late, []
        for _, act in rest:
            act()

    def put(self, key: str, body: Body) -> None:  # noqa: D102 - the protocol documents these
        data = joined(body)
        self._do("put", key, lambda: self._put(key, data))

    async def put_async(self, key: str, body: Body) -> None:  # noqa: D102
        data = joined(body)
        fate = await self._begin_async("put", key, lambda: self._put(key, data))
        self._remember(key, None)
        await self.store.put_async(key, data)
        _end(fate, None)

    def get(self, key: str) -> bytes:  # noqa: D102
        return self._do("get", key, lambda: self.store.get(key))

    async def get_async(self, key: str) -> bytes:  # noqa: D102
        fate = await self._begin_async("get", key)
        return _end(fate, await self.store.get_async(key))

    def get_range(self, key: str, start: int, length: int) -> bytes:  # noqa: D102
        return self._do("get", key, lambda: self.store.get_range(key, start, length))

    async def get_range_async(self, key: str, start: int, length: int) -> bytes:  # noqa: D102
        fate = await self._begin_async("get", key)
        return _end(fate, await self.store.get_range_async(key, start, length))

    def head(self, key: str) -> Meta | None:  # noqa: D102
        return self._do("head", key, lambda: self.store.head(key))

    async def head_async(self, key: str) -> Meta | None:  # noqa: D102
        fate = await self._begin_async("head", key)
        return _end(fate, await self.store.head_async(key))

    def scan(self, prefix: str) -> Iterator[Meta]:  # noqa: D102
        fate = self._begin("list", prefix)
        yield from self._listed(fate, self._aged(fate, prefix, list(self.store.scan(prefix))))

    async def scan_async(self, prefix: str) -> AsyncIterator[Meta]:  # noqa: D102
        fate = await self._begin_async("list", prefix)
        found = [meta async for meta in self.store.scan_async(prefix)]
        for meta in self._listed(fate, self._aged(fate, prefix, found)):
            yield meta

    def folders(self, prefix: str) -> Iterator[str]:  # noqa: D102
        fate = self._begin("list", prefix)
        yield from self._listed(fate, list(self.store.folders(prefix)))

    async def folders_async(self, prefix: str) -> AsyncIterator[str]:  # noqa: D102
        fate = await self._begin_async("list", prefix)
        for name in self._listed(fate, [name async for name in self.store.folders_async(prefix)]):
            yield name

    def delete(self, keys: Sequence[str]) -> None:  # noqa: D102
        doomed = tuple(sorted(keys))
        self._do("delete", " ".join(doomed), lambda: self._deleted(doomed))

    async def delete_async(self, keys: Sequence[str]) -> None:  # noqa: D102
        doomed = tuple(sorted(keys))
        fate = await self._begin_async("delete", " ".join(doomed), lambda: self._deleted(doomed))
        for key in doomed:
            self._remember(key, await self.store.head_async(key))
        await self.store.delete_async(doomed)
        _end(fate, None)

    def _do(self, verb: str, key: str, act: Callable[[], T]) -> T:
        fate = self._begin(verb, key, act)
        return _end(fate, act())

    def _begin(self, verb: str, key: str, act: Callable[[], object] | None = None) -> _Fate:
        fate = self._decide(verb, key, act)
        time.sleep(fate.seconds)
        if fate.before is not None:
            raise fate.before
        return fate

    async def _begin_async(self, verb: str, key: str, act: Callable[[], object] | None = None) -> _Fate:
        fate = self._decide(verb, key, act)
        await asyncio.sleep(fate.seconds)
        for _ in range(fate.turns):
            await asyncio.sleep(0)
        if fate.before is not None:
            raise fate.before
        return fate

    def _decide(self, verb: str, key: str, act: Callable[[], object] | None) -> _Fate:
        """Draw the fate of the next request, after what was late and has come meanwhile."""
        with self._lock:
            self._requests += 1
            self._asked[verb, key] += 1
            draw = random.Random(f"{self.seed} {verb} {key} {self._asked[verb, key]}")  # noqa: S311 - to be repeated
            due = [late for at, late in self._late if at <= self._requests]
            self._late = [(at, late) for at, late in self._late if at > self._requests]
            fate = self._spell(verb, key, draw) or self._mishap(verb, key, draw, act)
        for late in due:
            late()
        return fate

    def _spell(self, verb: str, key: str, draw: random.Random) -> _Fate | None:
        for kind in ("full", "denied"):
            if draw.random() < getattr(self.faults, kind):
                held = "put" if kind == "full" else verb
                self._spells[f"{kind} {held}"] = self._requests + draw.randint(1, SPELL)
        if self._spells.get(f"full {verb}", 0) >= self._requests:
            error: ObjstoreError = Unavailable("the storage is full", kind=FULL, key=key)
        elif self._spells.get(f"denied {verb}", 0) >= self._requests:
            error = Denied("the storage refused access", kind="access_denied", key=key)
        else:
            return None
        self.happened.append(f"{error.kind} {verb} {key}")
        return _Fate(draw, before=error)

    def _mishap(self, verb: str, key: str, draw: random.Random, act: Callable[[], object] | None) -> _Fate:
        fate = _Fate(draw, draw.uniform(0.0, self.faults.latency), draw.randrange(_TURNS))
        kind = next((one for one in _FOR[verb] if draw.random() < getattr(self.faults, one)), "")
        if not kind:
            return fate
        self.happened.append(f"{kind} {verb} {key}")
        silent = Unavailable("the storage did not answer", kind="timeout", key=key)
        match kind:
            case "refused":
                return fate._replace(before=Unavailable("the storage failed", kind="server_error", key=key))
            case "expired":
                return fate._replace(before=Denied("the credentials have expired", kind=EXPIRED, key=key))
            case "lost":
                return fate._replace(after=silent)
            case "late" if act is not None:
                self._late.append((self._requests + draw.randint(1, _LATER), act))
                return fate._replace(before=silent)
            case "hung":
                done = draw.random() < 0.5  # noqa: PLR2004 - as likely as not
                fate = fate._replace(seconds=fate.seconds + self.faults.hang_seconds)
                return fate._replace(after=silent) if done else fate._replace(before=silent)
        return fate._replace(damage=kind)

    def _put(self, key: str, data: bytes) -> None:
        self._remember(key, None)
        self.store.put(key, data)

    def _deleted(self, keys: tuple[str, ...]) -> None:
        for key in keys:
            self._remember(key, self.store.head(key))
        self.store.delete(keys)

    def _remember(self, key: str, meta: Meta | None) -> None:
        """Remember a write, or what was removed, for listings that are behind."""
        if self.faults.stale:
            self._recent.append((key, meta))

    def _aged(self, fate: _Fate, prefix: str, found: list[Meta]) -> list[Meta]:
        if fate.damage != "stale":
            return found
        shown = {meta.key: meta for meta in found}
        for key, meta in reversed(self._recent[-fate.draw.randint(1, SPELL) :]):
            shown.pop(key, None)
            if meta is not None and key.startswith(prefix):
                shown[key] = meta
        return list(shown.values())

    def _listed(self, fate: _Fate, found: list[T]) -> Iterator[T]:
        fate.draw.shuffle(found)
        part = found[: fate.draw.randrange(len(found) + 1)]
        match fate.damage:
            case "broken":
                yield from part
                raise Unavailable("the listing broke off", kind="connection_lost")
            case "short":
                yield from part
            case "repeated":
                yield from [*part, *found]
            case _:
                yield from found


def _end(fate: _Fate, answer: T) -> T:
    """Return the answer, damaged if it is to be; raise if it is to be lost."""
    if fate.after is not None:
        raise fate.after
    return _damaged(fate, answer) if fate.damage and answer and isinstance(answer, bytes) else answer


def _damaged(fate: _Fate, body: bytes) -> Any:
    place = fate.draw.randrange(len(body))
    if fate.damage == "truncated":
        return body[:place]
    return body[:place] + bytes([body[place] ^ (1 << fate.draw.randrange(8))]) + body[place + 1 :]
