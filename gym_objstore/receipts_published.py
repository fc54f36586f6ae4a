# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Published receipts: the objects that say a rollout has finished, which checkpoints used it, and its end.

A receipt is written last, under the digest of its bytes; two different ones for a rollout void each other. One
listing of a run says which rollouts have finished and which were consumed. Consuming has two phases: a marker names
the checkpoint a rollout went into, and only a checkpoint that is known to be safe retires its rollouts.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from gym_objstore import ledger, tokens
from gym_objstore.digests import sha256_hex
from gym_objstore.errors import Corrupt, NotFound
from gym_objstore.flow import Find, Flow, Head, Put, Scan, delete, scan, together
from gym_objstore.ids import identifier, require_ids, segment, spoken
from gym_objstore.keys import (
    CONSUMED,
    FAMILIES,
    FENCES,
    RECEIPTS,
    RUN_FOLDER,
    TOMBSTONE,
    consumed_key,
    receipt_key,
    rollout_prefix,
    run_prefix,
    tombstone_key,
    writer_key,
)
from gym_objstore.names import parse_receipt_name
from gym_objstore.objects import read_object, write_fenced, write_object
from gym_objstore.receipts import pack_receipt
from gym_objstore.retirement import Removal, retire

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gym_objstore.wire_ledger import RolloutReceipt

FAMILY = "manifests"

NO_WRITER = "no_writer"
"""The ``kind`` of the error for a run to which nobody wrote yet, or which is elsewhere."""


class Published(NamedTuple):
    """A rollout as the listing of its published objects shows it; a plain value to hand to other processes.

    ``rollout`` is its segment; ``receipts`` the digests of its receipts, more than one in a conflict;
    ``checkpoints`` the segments of the checkpoints that consumed it.
    """

    rollout_id: str
    rollout: str
    receipts: tuple[str, ...] = ()
    checkpoints: tuple[str, ...] = ()
    retired: bool = False

    @property
    def finished(self) -> bool:
        """Whether there is a receipt to read and no tombstone."""
        return bool(self.receipts) and not self.retired

    @property
    def mark(self) -> str:
        """What changes when another receipt appears."""
        return ".".join(digest[:16] for digest in self.receipts)


def publish(run_id: str, receipt: RolloutReceipt, also: Sequence[Put] = ()) -> Flow[str]:
    """Publish the receipt of a finished rollout and return its digest.

    Returns when: every reader of the run finds it.
    Repeating: the same receipt changes nothing; another one voids both, and readers report the rollout as masked.
    Raises: ``Retired`` behind a tombstone; storage errors, after which repeating is safe.
    """
    rollout = rollout_prefix(FAMILY, run_id, receipt.rollout_id)
    body = pack_receipt(receipt)
    digest = sha256_hex(body)
    yield from write_fenced(rollout, [Put(receipt_key(rollout, digest), body), *also])
    return digest


def list_published(run_id: str) -> Flow[list[Published]]:
    """Return every rollout of a run that has published objects, retired ones too: one request per thousand objects.

    Raises ``NotFound`` if nobody ever wrote to the run here, whatever the family: the place is a wrong one.
    """
    prefix = run_prefix(FAMILY, run_id)
    found = yield from scan(prefix)
    if not found:
        yield from _require_run(run_id)
    return list(_sorted_out(meta.key[len(prefix) :] for meta in found))


def locate(run_id: str, rollout_ids: Sequence[str]) -> Flow[list[Published]]:
    """Return the published state of rollouts by id, one listing each; an unknown one has nothing."""
    prefixes = [rollout_prefix(FAMILY, run_id, one) for one in rollout_ids]
    found = yield from together(Scan(prefix) for prefix in prefixes)
    start = len(run_prefix(FAMILY, run_id))
    return [_only(one, (meta.key[start:] for meta in metas)) for one, metas in zip(rollout_ids, found, strict=True)]


def mark_consumed(
    run_id: str, rollout_ids: Iterable[str], checkpoint_id: str, also: Sequence[Put] = ()
) -> Flow[tuple[str, ...]]:
    """Say that the state which ``checkpoint_id`` will save has learned from rollouts; return those that are marked.

    Give every attempt at a checkpoint an id of its own: what was marked for one that was never saved would be retired
    with the one that is.
    Returns when: every marker is durable. Nothing is removed, and readers still find the rollouts.
    Repeating: changes nothing. Retired rollouts are left out. Raises: ``Invalid`` and ``TypeError`` before any
    request; storage errors.
    """
    ids = require_ids(rollout_ids, "rollout ids")
    prefixes = [rollout_prefix(FAMILY, run_id, one) for one in ids]
    keys = [consumed_key(prefix, checkpoint_id) for prefix in prefixes]
    bodies = [write_object(rollout_id=one, checkpoint_id=checkpoint_id) for one in ids]
    heads = [Head(tombstone_key(prefix)) for prefix in prefixes]
    answers = yield from together([*heads, *map(Put, keys, bodies), *also])
    fenced = [stone is not None for stone in answers[: len(ids)]]
    yield from delete(key for key, late in zip(keys, fenced, strict=True) if late)
    return tuple(one for one, late in zip(ids, fenced, strict=True) if not late)


def retire_consumed(run_id: str, checkpoint_ids: Iterable[str]) -> Flow[Removal]:
    """Retire every rollout that was marked as consumed by one of these checkpoints, which must be safe.

    Returns when: tokens, ledger and published objects of each are behind their fences and gone. Staged rows stay,
    for a sweep or for a checkpoint that lists them.
    Repeating: finishes what was interrupted; changes nothing else. The markers, by which an interrupted one is
    found again, go last. Raises: ``Invalid`` and ``TypeError`` before any request; storage errors.
    """
    marked = {segment(one) for one in require_ids(checkpoint_ids, "checkpoint ids")}
    listed = yield from list_published(run_id)
    doomed = [one for one in listed if marked & set(one.checkpoints) or (one.retired and one.receipts)]
    ids = yield from _true_ids(run_id, doomed)
    for family in (tokens.FAMILY, ledger.FAMILY):
        yield from retire(family, run_id, ids)
    return (yield from retire(FAMILY, run_id, ids))


def _true_ids(run_id: str, published: Sequence[Published]) -> Flow[list[str]]:
    """Return rollout ids; one too long for its segment is read from an object that carries it.

    One whose object is gone since it was listed is left out: somebody else has retired it.
    """
    hashed = [one for one in published if identifier(one.rollout) is None]
    found = yield from together(Find(_any_object(run_id, one), partial(_said_id, one.rollout)) for one in hashed)
    said = dict(zip(hashed, found, strict=True))
    ids = (said.get(one, one.rollout_id) for one in published)
    return [one for one in ids if one is not None]


def _any_object(run_id: str, one: Published) -> str:
    prefix = f"{run_prefix(FAMILY, run_id)}{one.rollout}/"
    return f"{prefix}{CONSUMED}/{one.checkpoints[0]}" if one.checkpoints else receipt_key(prefix, one.receipts[0])


def _said_id(rollout: str, body: bytes) -> str:
    said = read_object(body)
    within = said.get("receipt", said)
    found = within.get("rollout_id") if isinstance(within, dict) else None
    if not isinstance(found, str) or segment(found) != rollout:
        reason = f"the object does not name the rollout that it belongs to, rollout={rollout}"
        raise Corrupt(reason, kind="foreign_object", hint="retire the rollout by its id, or restore the object")
    return found


def _sorted_out(relative: Iterable[str]) -> Iterator[Published]:
    """Yield the rollouts of a run's keys, in the order of their segments."""
    folders: dict[str, list[str]] = {}
    for key in sorted(relative):
        rollout, _, rest = key.partition("/")
        if rest and not rest.endswith("/") and rollout != RUN_FOLDER:
            folders.setdefault(rollout, []).append(rest)
    for rollout, names in folders.items():
        yield Published(
            rollout_id=spoken(rollout),
            rollout=rollout,
            receipts=tuple(name for name in _below(RECEIPTS, names) if parse_receipt_name(name)),
            checkpoints=tuple(_below(CONSUMED, names)),
            retired=f"{FENCES}/{TOMBSTONE}" in names,
        )


def _below(kind: str, names: Iterable[str]) -> Iterator[str]:
    return (name[len(kind) + 1 :] for name in names if name.startswith(f"{kind}/"))


def _only(rollout_id: str, relative: Iterable[str]) -> Published:
    found = next(_sorted_out(relative), Published(rollout_id, segment(rollout_id)))
    return found._replace(rollout_id=rollout_id)


def _require_run(run_id: str) -> Flow[None]:
    markers = yield from together(Head(writer_key(family, run_id)) for family in FAMILIES)
    if not any(markers):
        raise NotFound(
            f"nothing was ever written to this run here, run_id={run_id}",
            kind=NO_WRITER,
            key=run_prefix(FAMILY, run_id),
            hint="check that writers and trainer use the same url and run id",
        )
