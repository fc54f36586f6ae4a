# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Copying a run to another place, so that no reader there takes a part of a rollout for the whole.

The flow sees both places in one store: the run to copy below ``SOURCE``, the copy below ``TARGET``. Families go in
the order in which what they refer to is there first. In each, a rollout is guarded before its first object is
copied, and the guard goes when a second listing of both places shows that nothing is missing. What is there already
is not copied again, so repeating finishes an interrupted copy. Drop-intents are left out: no consumer waits behind
them there. Memory: two listings' hashes of one family, 17 bytes an object, and ``PORTION_BYTES`` of bodies.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from gym_objstore import captures, ledger, receipts_published, staging, tokens
from gym_objstore.errors import Conflict
from gym_objstore.flow import Find, Flow, Head, Listing, Put, delete, fold, page, scan, together
from gym_objstore.guards import guard
from gym_objstore.keys import FENCES, RUN_FOLDER, run_prefix, writer_key
from gym_objstore.objects import announcement
from gym_objstore.proofs import damage_of
from gym_objstore.run_keys import closed_key, descriptor_prefix
from gym_objstore.store.marks import Marks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gym_objstore.store import Meta

SOURCE, TARGET = "source/", "target/"
ORDER = (staging.FAMILY, captures.FAMILY, tokens.FAMILY, ledger.FAMILY, receipts_published.FAMILY)
PORTION = 64
"""Objects that are copied at the same time, at most."""
PORTION_BYTES = 64 << 20
"""Bytes that are copied at the same time, unless one object alone has more."""

FAILURES = 1000
"""Failures that are told one by one."""

_CAUSE = "copy"
_DROP = f"{FENCES}/drop."


class Failure(NamedTuple):
    """An object, or a rollout's prefix, that was not copied, and why. The rollout stays guarded in the copy."""

    key: str
    reason: str


class Copied(NamedTuple):
    """What a copy did: objects and bytes that it wrote, objects that were there already, and what failed.

    ``failures`` has the first ``FAILURES`` of the ``failed`` ones.
    """

    objects: int
    bytes: int
    present: int
    failed: int
    failures: tuple[Failure, ...]


class _Pair(NamedTuple):
    """One family of the run in both places."""

    family: str
    source: str
    target: str

    def name(self, key: str) -> str:
        """Return a key of either place below the run."""
        return key[len(self.source if key.startswith(SOURCE) else self.target) :]


class _Copy:
    """What one copy has come to."""

    def __init__(self) -> None:
        self.objects = self.bytes = self.present = self.failed = 0
        self.failures: list[Failure] = []
        self.unfinished = Marks()

    def fail(self, key: str, reason: str, rollout: str) -> None:
        """Say what is missing. Its rollout stays guarded, in this family and those that follow."""
        self.unfinished.add(rollout)
        self.failed += 1
        if len(self.failures) < FAILURES:
            self.failures.append(Failure(key, reason))


def copy_run(run_id: str, target_run_id: str) -> Flow[Copied]:
    """Copy a run's objects from ``SOURCE`` to ``TARGET``, each verified by the digest in its name where there is one.

    Nothing may write to the copy, train on it or sweep it before this has ended. Rollouts of the source may be
    written to and retired meanwhile; as with every reading, they may not be deleted nor their captures cleared.
    Returns when: what is not among the failures is durable and whole in the copy.
    Repeating: copies what is missing, nothing else.
    Raises: ``Conflict``, before anything changes, where the copy's run has other settings; storage errors, after
    which repeating is safe.
    """
    yield from _require_same_settings(run_id, target_run_id)
    state = _Copy()
    yield from _copy_run_objects(descriptor_prefix(run_id), descriptor_prefix(target_run_id))
    for family in ORDER:
        pair = _Pair(family, SOURCE + run_prefix(family, run_id), TARGET + run_prefix(family, target_run_id))
        yield from _copy_family(pair, state)
        yield from _announce(family, run_id, target_run_id)
    if not state.failed:
        yield from _copy_object(closed_key(run_id), closed_key(target_run_id))
    return Copied(state.objects, state.bytes, state.present, state.failed, tuple(state.failures))


def _require_same_settings(run_id: str, target_run_id: str) -> Flow[None]:
    source, target = descriptor_prefix(run_id), descriptor_prefix(target_run_id)
    ours = yield from scan(SOURCE + source)
    theirs = yield from scan(TARGET + target)
    if {meta.key.rpartition("/")[2] for meta in theirs} - {meta.key.rpartition("/")[2] for meta in ours}:
        reason = f"the run to copy to exists with other settings, run_id={target_run_id}"
        raise Conflict(reason, kind="run_settings", hint="copy to another run id")


def _copy_run_objects(source: str, target: str) -> Flow[None]:
    for meta in (yield from scan(SOURCE + source)):
        name = meta.key[len(SOURCE + source) :]
        yield from _copy_object(source + name, target + name)


def _copy_object(source: str, target: str) -> Flow[None]:
    body, there = yield from together([Find(SOURCE + source, bytes), Head(TARGET + target)])
    if body is not None and there is None:
        yield from together([Put(TARGET + target, body)])


def _announce(family: str, run_id: str, target_run_id: str) -> Flow[None]:
    """Leave the writer marker of a family, which names its run, where the source has one."""
    announced = announcement(family, target_run_id)
    ours, theirs = yield from together([Head(SOURCE + writer_key(family, run_id)), Head(TARGET + announced.key)])
    if ours is not None and theirs is None:
        yield from together([Put(TARGET + announced.key, announced.body)])


def _copy_family(pair: _Pair, state: _Copy) -> Flow[None]:
    present = yield from _present(pair)
    guarded = Marks()
    listing = Listing(pair.source)
    while (metas := (yield from page(listing))) is not None:
        yield from _refuse_parts(pair, metas, state)
        wanted = list(_wanted(pair, metas))
        missing = [meta for meta in wanted if _size_mark(pair, meta) not in present]
        state.present += len(wanted) - len(missing)
        yield from _guard(pair, missing, guarded)
        for portion in _portions(missing):
            yield from _copy_portion(pair, portion, state)
    listed = yield from _prove(pair, state)
    if len(listed):
        yield from _unguard(pair, state, listed)


def _refuse_parts(pair: _Pair, metas: Sequence[Meta], state: _Copy) -> Flow[None]:
    """Keep rollouts hidden that an earlier copy to the source has not finished: their guard looks like ours."""
    for key in (yield from _own_guards(pair, metas)):
        reason = "its rollout is part of a copy to here that has not ended"
        state.fail(key.removeprefix(SOURCE), reason, pair.name(key).partition("/")[0])


def _wanted(pair: _Pair, metas: Iterable[Meta]) -> Iterator[Meta]:
    for meta in metas:
        rollout, _, name = pair.name(meta.key).partition("/")
        if rollout != RUN_FOLDER and name and not name.endswith("/") and not name.startswith(_DROP):
            yield meta


def _size_mark(pair: _Pair, meta: Meta) -> str:
    return f"{pair.name(meta.key)} {meta.size}"


def _present(pair: _Pair) -> Flow[Marks]:
    """Return what the copy has, by name and size."""
    present = Marks()

    def take(metas: Iterable[Meta]) -> None:
        for meta in metas:
            present.add(_size_mark(pair, meta))

    yield from fold(pair.target, take)
    return present


def _guard(pair: _Pair, missing: Sequence[Meta], guarded: Marks) -> Flow[None]:
    """Guard the rollouts that something is missing of, unless a tombstone does already."""
    rollouts = dict.fromkeys(pair.name(meta.key).partition("/")[0] for meta in missing)
    puts = [guard(pair.family, f"{pair.target}{one}/", _CAUSE) for one in rollouts if guarded.add(one)]
    writes = [one for one in puts if one is not None]
    standing = yield from together(Head(one.key) for one in writes)
    yield from together(one for one, there in zip(writes, standing, strict=True) if there is None)


def _portions(metas: Sequence[Meta]) -> Iterator[list[Meta]]:
    portion: list[Meta] = []
    size = 0
    for meta in metas:
        if portion and (len(portion) == PORTION or size + meta.size > PORTION_BYTES):
            yield portion
            portion, size = [], 0
        portion.append(meta)
        size += meta.size
    if portion:
        yield portion


def _copy_portion(pair: _Pair, metas: Sequence[Meta], state: _Copy) -> Flow[None]:
    reads = (Find(meta.key, partial(_verified, pair.family, pair.name(meta.key), meta.size)) for meta in metas)
    found = yield from together(reads)
    puts = []
    for meta, body in zip(metas, found, strict=True):
        name = pair.name(meta.key)
        if isinstance(body, bytes):
            puts.append(Put(pair.target + name, body))
        else:
            state.fail(meta.key.removeprefix(SOURCE), body or "it was listed and then gone", name.partition("/")[0])
    yield from together(puts)
    state.objects += len(puts)
    state.bytes += sum(len(one.body) for one in puts)


def _verified(family: str, name: str, size: int, body: bytes) -> bytes | str:
    """Return a body that is what its name and its listing say, or what is wrong with it."""
    if len(body) != size:
        return f"its size is not that of the listing, bytes={len(body)}, listed={size}"
    return damage_of(family, name, body) or body


def _prove(pair: _Pair, state: _Copy) -> Flow[Marks]:
    """List both places again and return the source's rollouts; one that misses anything in the copy is not whole.

    That finds a rollout of which the first listing saw a part, too: whoever removed the rest has put a tombstone
    before, which this listing shows and the copy has not.
    """
    present, listed = (yield from _present(pair)), Marks()

    def take(metas: Iterable[Meta]) -> None:
        for meta in _wanted(pair, metas):
            rollout = pair.name(meta.key).partition("/")[0]
            listed.add(rollout)
            if _size_mark(pair, meta) not in present and rollout not in state.unfinished:
                state.fail(f"{pair.source}{rollout}/".removeprefix(SOURCE), "it changed while it was copied", rollout)

    yield from fold(pair.source, take)
    return listed


def _unguard(pair: _Pair, state: _Copy, listed: Marks) -> Flow[None]:
    """Take away the guards of whole rollouts."""
    listing = Listing(pair.target)
    while (metas := (yield from page(listing))) is not None:
        rollouts = {key: pair.name(key).partition("/")[0] for key in (yield from _own_guards(pair, metas))}
        yield from delete(key for key, one in rollouts.items() if one in listed and one not in state.unfinished)


def _own_guards(pair: _Pair, metas: Iterable[Meta]) -> Flow[list[str]]:
    """Return the keys of what a copy has put there as a guard."""
    guards = [one for one in map(partial(_own_guard, pair), metas) if one is not None]
    bodies = yield from together(Find(one.key, bytes) for one in guards)
    return [one.key for one, body in zip(guards, bodies, strict=True) if body == one.body]


def _own_guard(pair: _Pair, meta: Meta) -> Put | None:
    """Return what a copy's guard would be, if this object has its place and its size."""
    name = pair.name(meta.key)
    own = guard(pair.family, f"{meta.key.removesuffix(name)}{name.partition('/')[0]}/", _CAUSE)
    return own if own is not None and (own.key, len(own.body)) == (meta.key, meta.size) else None
