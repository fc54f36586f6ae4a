# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""How a rollout's tokens end: ``drop`` one exact snapshot, ``retire`` whatever is there, ``delete`` all.

There is no compare-and-swap, so ``drop`` agrees on a snapshot by intents before it commits with the
tombstone; ``docs/design.md`` gives the proof and the variant that fails. The tombstone is one object with
a fixed key, because every write asks for it; its body names what it retired.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from gym_objstore.errors import Corrupt
from gym_objstore.flow import Delete, Flow, Put, Scan, delete, find, put, together
from gym_objstore.index import Index, index_keys, read_index
from gym_objstore.keys import drop_key, rollout_prefix, tombstone_key
from gym_objstore.names import DropName
from gym_objstore.objects import read_object, write_object
from gym_objstore.store import batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Removal(NamedTuple):
    """What a removal found, each rollout once: ``removed`` had objects, ``absent`` had none."""

    removed: tuple[str, ...]
    absent: tuple[str, ...]


class Claim(NamedTuple):
    """A consumer's wish to retire exactly one snapshot of a rollout.

    ``consumer`` tells the callers of one snapshot apart: 16 hex digits, chosen anew for every drop.
    """

    rollout: str
    snapshot_id: str
    version: int
    consumer: str

    @property
    def tombstone(self) -> bytes:
        """The tombstone's body: a function of the snapshot, so that rivals for one snapshot agree."""
        return write_object(cause="drop", snapshot_id=self.snapshot_id, version=self.version)

    @property
    def intent(self) -> str:
        """The key of this consumer's drop-intent."""
        return drop_key(self.rollout, DropName(self.snapshot_id, self.consumer))


def drop(claim: Claim) -> Flow[bool]:
    """Retire exactly the snapshot that was consumed.

    Returns when: True, the tombstone stands and the snapshot's objects are gone; False, the state is not
    the snapshot's or another consumer wants another one, and everything is kept.
    Repeating: finishes a drop that was interrupted; True again for the same snapshot, until somebody retires the
    rollout, whose tombstone no longer tells what was dropped.
    Raises: storage errors, after which repeating is safe; ``Corrupt`` where a drop was interrupted and what it left to
    finish it is damaged, and then everything is kept behind the tombstone.
    """
    index = yield from read_index(claim.rollout)
    if index.tombstone or (index.snapshot_id, index.version) != (claim.snapshot_id, claim.version):
        return (yield from _finish(claim))
    yield from put(claim.intent, write_object(objects=index.state))
    seen = yield from read_index(claim.rollout)
    if not (yield from _agreed(claim, index.state, seen)):
        yield from delete([claim.intent])
        return False
    yield from put(tombstone_key(claim.rollout), claim.tombstone)
    yield from _remove(claim, index.state, seen)
    return True


def _agreed(claim: Claim, snapshot: Sequence[str], seen: Index) -> Flow[bool]:
    """Say whether nothing outside the snapshot appeared and nobody wants, or retired, another one.

    The tombstone is asked for after the listing, whose pages are of different times: a rival that committed
    between two of them would show neither its tombstone in the one nor its intent in the other.
    """
    if set(seen.state) - set(snapshot) or any(one.snapshot != claim.snapshot_id for one in seen.drops):
        return False
    return (yield from _tombstone(claim)) in (None, claim.tombstone)


def _finish(claim: Claim) -> Flow[bool]:
    """Complete a drop behind its own tombstone; the names to delete are in any of its drop-intents.

    The intent of whoever put the tombstone is never withdrawn and is deleted after the data. So it is listed
    once the tombstone was seen, or the data is gone.
    """
    if (yield from _tombstone(claim)) != claim.tombstone:
        return False
    index = yield from read_index(claim.rollout)
    objects = yield from _intended(claim, index)
    if objects is not None:
        yield from _remove(claim, objects, index)
    return True


def _intended(claim: Claim, index: Index) -> Flow[list[str] | None]:
    """Return what the drop-intents of the snapshot name; None where there is none any more, and so no data.

    Raises ``Corrupt`` where all are damaged: which of the objects behind the fence came late is not known then.
    """
    damaged: Corrupt | None = None
    for name in index.drops:
        if name.snapshot == claim.snapshot_id:
            try:
                objects = yield from find(drop_key(claim.rollout, name), partial(objects_of, claim.rollout, name))
            except Corrupt as error:
                damaged = error
            else:
                if objects is not None:
                    return objects
    if damaged is not None and index.state:
        raise damaged
    return None


def objects_of(rollout: str, name: DropName, intent: bytes) -> list[str]:
    """Return the names of a snapshot's objects from a drop-intent; ``Corrupt`` unless they are what its name says."""
    objects = read_object(intent).get("objects")
    if isinstance(objects, list) and all(isinstance(one, str) for one in objects):
        index = index_keys(rollout, (rollout + one for one in objects))
        if index.snapshot_id == name.snapshot and intent == write_object(objects=index.state):
            return index.state
    reason, hint = "the drop-intent does not name the objects of its snapshot", "retire the rollout"
    raise Corrupt(reason, kind="foreign_object", key=drop_key(rollout, name), hint=hint)


def _tombstone(claim: Claim) -> Flow[bytes | None]:
    return (yield from find(tombstone_key(claim.rollout), bytes))


def _remove(claim: Claim, snapshot: Iterable[str], index: Index) -> Flow[None]:
    """Delete a snapshot's objects with the packs of them, and only then the intents that could still finish the job."""
    yield from delete(claim.rollout + name for name in dict.fromkeys((*snapshot, *index.packs)))
    listed = (drop_key(claim.rollout, name) for name in index.drops if name.snapshot == claim.snapshot_id)
    yield from delete(dict.fromkeys((*listed, claim.intent)))


def retire(family: str, run_id: str, rollout_ids: Sequence[str]) -> Flow[Removal]:
    """Put rollouts behind the fence and remove what they hold, whatever their state.

    Returns when: each tombstone is durable and what was listed behind it is gone. Later writes fail.
    Repeating: changes nothing; the rollouts are then reported absent. Unknown ids are fenced too.
    Raises: storage errors only; repeating finishes the rest.
    """
    prefixes = [rollout_prefix(family, run_id, one) for one in rollout_ids]
    yield from together(Put(tombstone_key(prefix), write_object(cause="retire")) for prefix in prefixes)
    indexes = yield from _list(prefixes)
    yield from _empty(indexes)
    return _removal(rollout_ids, [bool(index.state) for index in indexes])


def delete_rollouts(family: str, run_id: str, rollout_ids: Sequence[str]) -> Flow[Removal]:
    """Remove rollouts and their fences, so that their ids can be used again.

    Safe only once nothing can still write to them or is reading them. A rollout that is not retired is put
    behind a fence first, so that a crash leaves no part of it to be taken for the whole.
    Returns when: the data and then the fences are gone.
    Repeating: changes nothing; the rollouts are then reported absent. Raises: storage errors only.
    """
    prefixes = [rollout_prefix(family, run_id, one) for one in rollout_ids]
    indexes = yield from _list(prefixes)
    live = [index.rollout for index in indexes if index.state and not index.tombstone]
    yield from together(Put(tombstone_key(rollout), write_object(cause="delete")) for rollout in live)
    yield from _empty(indexes)
    yield from delete(tombstone_key(index.rollout) for index in indexes if index.tombstone or index.state)
    found = [bool(index.state or index.packs or index.tombstone or index.drops) for index in indexes]
    return _removal(rollout_ids, found)


def _list(prefixes: Sequence[str]) -> Flow[list[Index]]:
    found = yield from together(Scan(prefix) for prefix in prefixes)
    return [index_keys(prefix, (meta.key for meta in metas)) for prefix, metas in zip(prefixes, found, strict=True)]


def _empty(indexes: Sequence[Index]) -> Flow[None]:
    """Delete the state objects and only then the drop-intents: a drop whose intent is gone takes its data for gone."""
    yield from _delete(index.rollout + name for index in indexes for name in (*index.state, *index.packs))
    yield from _delete(drop_key(index.rollout, name) for index in indexes for name in index.drops)


def _delete(keys: Iterable[str]) -> Flow[None]:
    yield from together(Delete(tuple(batch)) for batch in batches(tuple(keys)))


def _removal(rollout_ids: Sequence[str], present: Sequence[bool]) -> Removal:
    pairs = list(zip(rollout_ids, present, strict=True))
    return Removal(tuple(one for one, was in pairs if was), tuple(one for one, was in pairs if not was))
