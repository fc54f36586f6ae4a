# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Token entries of a rollout: writing them, marking what was lost, and freezing an exact snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from gym_objstore import packs
from gym_objstore.codec import FORMAT, encode, parse, require_digest, unpack
from gym_objstore.digests import sha256_hex
from gym_objstore.errors import Corrupt, Invalid
from gym_objstore.fingerprint import FINGERPRINT_VERSION
from gym_objstore.flow import Find, Flow, Head, Put, compute, head, together
from gym_objstore.ids import require_id, segment, spoken
from gym_objstore.index import Index, read_index
from gym_objstore.keys import entry_key, intent_key, note_key, rollout_prefix, tombstone_key
from gym_objstore.names import FULL, UNSTAMPED, EntryName, call_mark
from gym_objstore.objects import marker, require_writer, retired, write_fenced, write_object
from gym_objstore.records import TokenEntry, stored_entry
from gym_objstore.sealing import seal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

FAMILY = "tokens"


class Problem(NamedTuple):
    """One reason why a rollout is incomplete.

    ``kind`` is ``incomplete_marker``, ``dangling_intent``, ``conflict``, ``corrupt``, ``newer_format``,
    ``missing`` (listed, then absent) or ``foreign`` (not an object of this format). ``model_call_id`` is
    empty for the rollout as a whole, and a segment where only its hash is known.
    """

    kind: str
    model_call_id: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An exact, verified view of a rollout. Equal ``snapshot_id`` means equal contents.

    ``entries`` holds one entry per call whose payload is certain, in no meaningful order; ``problems``
    says, per call, why the rollout is incomplete; ``version`` is the number of its state objects.
    """

    rollout_id: str
    entries: tuple[TokenEntry, ...]
    problems: tuple[Problem, ...]
    snapshot_id: str
    version: int

    @property
    def incomplete(self) -> bool:
        """Whether anything of the rollout is lost, doubtful or damaged."""
        return bool(self.problems)


class Prepared(NamedTuple):
    """A token entry ready to be stored: its key and its body, and the name the key ends in."""

    key: str
    name: EntryName
    body: bytes


def prepare(rollout: str, entry: Any) -> Prepared:
    """Return what is stored for an entry. Raises ``Invalid`` for an entry nobody could train on."""
    fields, canonical = seal(entry)
    name = entry_name(fields, sha256_hex(canonical))
    return Prepared(entry_key(rollout, name), name, encode(canonical))


def entry_name(record: dict[str, Any], digest: str) -> EntryName:
    """Return the name that a record and the digest of its canonical bytes must have."""
    stamped = record["continuation_fingerprint"] and record["fingerprint_version"] in (None, FINGERPRINT_VERSION)
    return EntryName(
        call=segment(require_id(record["model_call_id"], "model call id")),
        parent=call_mark(segment(record["parent_call_id"])) if record["prompt_is_delta"] else FULL,
        fingerprint=record["continuation_fingerprint"][:16] if stamped else UNSTAMPED,
        digest=digest,
        format=FORMAT,
    )


def put_entry(
    run_id: str, entry: Any, also: Sequence[Put] = (), *, prepare: Callable[[str, Any], Prepared] = prepare
) -> Flow[Prepared]:
    """Store one call's token entry; ``also`` is written in the same round trip.

    Returns when: the entry is durable and every resolver and source sees it.
    Repeating: the identical record changes nothing; another record for the call makes the rollout
    incomplete and the call no candidate for lineage, found by every reader.
    Raises: ``Invalid`` before any request, ``Retired`` behind a tombstone, storage errors.
    """
    rollout = rollout_prefix(FAMILY, run_id, entry.rollout_id)
    size = 8 * (len(entry.prompt_token_ids) + 3 * len(entry.generation_token_ids))
    prepared = yield from compute(prepare, rollout, entry, size=size)
    yield from write_fenced(rollout, [Put(prepared.key, prepared.body), *also])
    return prepared


def begin_call(run_id: str, rollout_id: str, model_call_id: str, also: Sequence[Put] = ()) -> Flow[None]:
    """Record that a call was admitted, before it generates.

    Returns when: the intent is durable. If no entry follows, the rollout freezes incomplete.
    Repeating: changes nothing. Raises: ``Invalid``, ``Retired``, storage errors.
    """
    rollout = rollout_prefix(FAMILY, run_id, rollout_id)
    yield from write_fenced(rollout, [intent_put(rollout, rollout_id, model_call_id), *also])


def intent_put(rollout: str, rollout_id: str, model_call_id: str) -> Put:
    """Return the write that says a call was admitted."""
    body = write_object(rollout_id=rollout_id, model_call_id=model_call_id)
    return Put(intent_key(rollout, model_call_id), body)


def mark(run_id: str, rollout_id: str, model_call_id: str, note: dict[str, Any]) -> Put:
    """Return the write that marks a rollout incomplete and changes its version; see ``objects.marker``."""
    return marker(FAMILY, run_id, rollout_id, model_call_id, note=note)


def refusal(run_id: str, rollout_id: str, model_call_id: str, note: dict[str, Any]) -> Put:
    """Return the write that settles an admitted call which the engine refused: it lost no tokens."""
    rollout = rollout_prefix(FAMILY, run_id, rollout_id)
    body = write_object(rollout_id=rollout_id, model_call_id=require_id(model_call_id, "model call id"), **note)
    return Put(note_key(rollout, "refusals", model_call_id, body), body)


def freeze(run_id: str, rollout_id: str) -> Flow[Snapshot]:
    """Read and verify everything a rollout holds, from a pack of exactly this state if there is one.

    Returns when: every entry was read whole and its digest checked. Nothing is written. A write that lands
    meanwhile is in the snapshot or changes the version, so that dropping this snapshot fails.
    Repeating: the same state gives the same snapshot id and version.
    Raises: ``Retired`` behind a tombstone, ``NotFound`` (kind ``no_writer``) where nobody ever wrote.
    """
    index = yield from _live(run_id, rollout_id)
    packed = yield from packs.read(index, partial(read_text, index.rollout))
    if packed is None:
        return (yield from read_snapshot(rollout_id, index))
    return Snapshot(rollout_id, packed, tuple(listed_problems(index)), index.snapshot_id, index.version)


def publish(run_id: str, rollout_id: str) -> Flow[str]:
    """Store a pack of a rollout's present state, with which later freezes of that state cost one GET.

    Returns the snapshot's id. Raises as ``freeze`` and ``packs.publish``.
    """
    index = yield from _live(run_id, rollout_id)
    yield from packs.publish(index)
    return index.snapshot_id


def _live(run_id: str, rollout_id: str) -> Flow[Index]:
    """List a rollout that is not retired, in a run that somebody wrote to."""
    rollout = rollout_prefix(FAMILY, run_id, rollout_id)
    index = yield from read_index(rollout)
    if index.tombstone:
        raise retired(rollout)
    if not index.state:
        yield from require_writer(FAMILY, run_id)
    return index


def read_snapshot(rollout_id: str, index: Index) -> Flow[Snapshot]:
    """Read what a listing names. Raises ``Retired`` if a tombstone stands by then.

    The pages of a listing are of different times: one that was read before the tombstone was put, and one
    after objects behind it were deleted, would together show a part for the whole.
    """
    rollout, names = index.rollout, index.sound
    reads = [Find(entry_key(rollout, name), reader(rollout, name)) for name in names]
    stone, *found = yield from together([Head(tombstone_key(rollout)), *reads])
    if stone is not None or (None in found and (yield from head(tombstone_key(rollout))) is not None):
        raise retired(rollout)
    found = yield from _reread(reads, found)
    judged = [answer or Problem("missing", spoken(name.call)) for name, answer in zip(names, found, strict=True)]
    return Snapshot(
        rollout_id=rollout_id,
        entries=tuple(one for one in judged if not isinstance(one, Problem)),
        problems=(*listed_problems(index), *(one for one in judged if isinstance(one, Problem))),
        snapshot_id=index.snapshot_id,
        version=index.version,
    )


def _reread(reads: Sequence[Find], found: Sequence[Any]) -> Flow[list[Any]]:
    """Read what arrived damaged a second time: bytes are damaged on their way more often than where they are."""
    damaged = [place for place, answer in enumerate(found) if isinstance(answer, Problem) and answer.kind == "corrupt"]
    answers = list(found)
    if not damaged:
        return answers
    for place, answer in zip(damaged, (yield from together(reads[place] for place in damaged)), strict=True):
        answers[place] = answer or answers[place]
    return answers


def listed_problems(index: Index) -> Iterator[Problem]:
    """Yield what the listing alone says is wrong with a rollout."""
    yield from (Problem("incomplete_marker", spoken(marker.call)) for marker in index.markers)
    yield from (Problem("dangling_intent", spoken(call)) for call in sorted(index.dangling))
    for call in sorted(index.conflicts):
        yield Problem("conflict", spoken(call), f"payloads={len({name.digest for name in index.entries[call]})}")
    yield from (Problem("foreign", "", name) for name in index.foreign)


def reader(rollout: str, name: EntryName) -> partial[TokenEntry | Problem]:
    """Return the function that turns this object's body into its entry, or into what is wrong with it."""
    return partial(_read, rollout, name)


def _read(rollout: str, name: EntryName, body: bytes) -> TokenEntry | Problem:
    try:
        return read_entry(rollout, name, body)
    except Corrupt as error:
        kind = "newer_format" if error.kind == "newer_format" else "corrupt"
        return Problem(kind, spoken(name.call), error.message)


def read_entry(rollout: str, name: EntryName, body: bytes) -> TokenEntry:
    """Return the verified entry of a body, or raise ``Corrupt``: every byte is covered by the name's digest."""
    return read_text(rollout, name, unpack(body, name.format))


def read_text(rollout: str, name: EntryName, canonical: bytes) -> TokenEntry:
    """Return the verified entry of a canonical JSON, or raise ``Corrupt``."""
    record = parse(require_digest(canonical, name.digest))
    try:
        entry = stored_entry(record)
        expected = entry_name(record, name.digest)
    except (Invalid, KeyError) as error:
        raise Corrupt(f"the record is no token entry: {error}", kind="not_an_entry") from error
    belongs = rollout.endswith(f"/{segment(entry.rollout_id)}/")
    if not belongs or expected._replace(format=name.format) != name:
        raise Corrupt("the record belongs under another name", kind="misplaced")
    return entry
