# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""One rollout and those who act on it: what the explorer plays, made of the flows that ship."""

from __future__ import annotations

from itertools import chain, combinations
from typing import NamedTuple

from gym_objstore.flow import run
from gym_objstore.index import index_keys
from gym_objstore.keys import intent_key, rollout_prefix, tombstone_key
from gym_objstore.lineage import ContextMatcher, Resolver
from gym_objstore.objects import announcement, write_fenced
from gym_objstore.retirement import Claim, delete_rollouts, drop, retire
from gym_objstore.store.memory import MemoryStore
from gym_objstore.testing.actors import Actor
from gym_objstore.tokens import FAMILY, begin_call, freeze, mark, prepare, publish, put_entry
from tests.entries import make_entry, request_after

RUN, ROLLOUT = "run", "r1"
PREFIX = rollout_prefix(FAMILY, RUN, ROLLOUT)
TOMBSTONE = tombstone_key(PREFIX)
FENCES = f"{PREFIX}fences/"
PACKS = f"{PREFIX}packs/"

A = make_entry(ROLLOUT, "a")
OTHER_A = make_entry(ROLLOUT, "a", generation_token_ids=[7, 9])
TWIN = make_entry(ROLLOUT, "b", generation_token_ids=[7, 9])
"""Says what ``A`` says, in other tokens: a request after it could continue either."""
B = make_entry(ROLLOUT, "b", text="more")
LOST = mark(RUN, ROLLOUT, "b", {"reason": "lost"})
OTHER_LOST = mark(RUN, ROLLOUT, "c", {"reason": "lost"})


def key_of(entry) -> str:
    return prepare(PREFIX, entry).key


def stored(*flows) -> dict[str, bytes]:
    """Return what a bucket holds after these flows, the run's writer marker included."""
    store = MemoryStore()
    run(write_fenced(PREFIX, [announcement(FAMILY, RUN)]), store)
    for flow in flows:
        run(flow, store)
    return {meta.key: store.get(meta.key) for meta in store.scan("")}


def bucket_of(objects) -> MemoryStore:
    """Return a store that holds these objects."""
    store = MemoryStore()
    for key, body in objects.items():
        store.put(key, body)
    return store


def state(bucket) -> frozenset[str]:
    """Return the state objects among the keys of a bucket."""
    return frozenset(key for key in bucket if key.startswith(PREFIX) and not key.startswith((FENCES, PACKS)))


INTENT = intent_key(PREFIX, "b")
EVERYTHING = stored(
    *(put_entry(RUN, entry) for entry in (A, OTHER_A, TWIN, B)),
    write_fenced(PREFIX, [LOST, OTHER_LOST]),
    begin_call(RUN, ROLLOUT, "b"),
)
"""What anybody here ever writes."""


class Wanted(NamedTuple):
    """A snapshot as its consumers know it."""

    snapshot_id: str
    version: int

    @property
    def objects(self) -> frozenset[str]:
        return _OBJECTS[self.snapshot_id]

    def claim(self, consumer: int = 0) -> Claim:
        return Claim(PREFIX, self.snapshot_id, self.version, f"{consumer:016x}")


def wanted(bucket) -> Wanted:
    """Return the snapshot of what a bucket holds."""
    index = index_keys(PREFIX, state(bucket))
    return Wanted(index.snapshot_id, index.version)


_SUBSETS = chain.from_iterable(combinations(state(EVERYTHING), count) for count in range(8))
_OBJECTS = {wanted(subset).snapshot_id: frozenset(subset) for subset in _SUBSETS}


def marker(name: str) -> Actor:
    """One who marks the rollout incomplete, as a sink does: whether it is retired or not."""

    def stage(log, _):
        log.asked("write", LOST.key)
        yield LOST
        log.answered("stored", LOST.key)

    return Actor(name, (stage,))


def putter(name: str, entry) -> Actor:
    """One who stores a call's entry."""
    return Actor(name, (_putting(entry),))


def _putting(entry):
    def stage(log, _):
        log.asked("write", key_of(entry))
        yield from put_entry(RUN, entry)
        log.answered("stored", key_of(entry))

    return stage


def caller(name: str, entry) -> Actor:
    """One who announces a call and then stores its entry."""

    def admitting(log, _):
        log.asked("write", INTENT)
        yield from begin_call(RUN, ROLLOUT, entry.model_call_id)
        log.answered("stored", INTENT)

    return Actor(name, (admitting, _putting(entry)))


def publisher(name: str) -> Actor:
    """One who packs the rollout as it is."""

    def publishing(log, _):
        yield from publish(RUN, ROLLOUT)

    return Actor(name, (publishing,))


def consumer(name: str, number: int, *, drop=drop) -> Actor:
    """One who freezes the rollout and drops what it got, under a new number at every attempt."""

    def freezing(log, _):
        snapshot = yield from freeze(RUN, ROLLOUT)
        return Wanted(snapshot.snapshot_id, snapshot.version)

    def dropping(log, snapshot):
        yield from _dropping(log, snapshot, drop(snapshot.claim(number + log.attempt)))

    return Actor(name, (freezing, dropping))


def holder(name: str, number: int, snapshot: Wanted, *, numbers_anew=True) -> Actor:
    """One who froze the rollout before anybody else came, and now drops what it got."""

    def dropping(log, _):
        yield from _dropping(log, snapshot, drop(snapshot.claim(number + numbers_anew * log.attempt)))

    return Actor(name, (dropping,))


def _dropping(log, snapshot, flow):
    if not log.attempt:
        log.asked("drop", snapshot)
    dropped = yield from flow
    log.answered("dropped" if dropped else "kept", snapshot)


def reader(name: str) -> Actor:
    """One who only freezes the rollout."""

    def stage(log, _):
        log.asked("freeze")
        snapshot = yield from freeze(RUN, ROLLOUT)
        calls = frozenset(entry.model_call_id for entry in snapshot.entries)
        problems = frozenset((problem.kind, problem.model_call_id) for problem in snapshot.problems)
        log.answered("froze", (Wanted(snapshot.snapshot_id, snapshot.version), calls, problems))

    return Actor(name, (stage,))


def retirer(name: str) -> Actor:
    """One who retires the rollout, whatever its state."""
    return Actor(name, (_retiring,))


def deleter(name: str, *, after_retiring: bool) -> Actor:
    """One who deletes the rollout, twice."""
    return Actor(name, (*([_retiring] if after_retiring else []), _deleting, _deleting))


def _retiring(log, _):
    log.asked("retire")
    yield from retire(FAMILY, RUN, [ROLLOUT])
    log.answered("retired")


def _deleting(log, _):
    log.asked("delete")
    yield from delete_rollouts(FAMILY, RUN, [ROLLOUT])
    log.answered("deleted")


def resolver(name: str) -> Actor:
    """One who asks which call a request after ``A`` continues, with an empty cache."""

    def stage(log, _):
        log.asked("resolve")
        log.answered("resolved", (yield from resolving()))

    return Actor(name, (stage,))


def resolving():
    """Return the status, and the parent with its tokens if there is one."""
    found = yield from Resolver(RUN, ContextMatcher(), _Cache()).resolve(ROLLOUT, request_after("hi"))
    return str(found.status), found.match and (found.match.model_call_id, found.match.cumulative_token_ids)


class _Cache(dict):
    def put(self, key, parent):
        self[key] = parent
