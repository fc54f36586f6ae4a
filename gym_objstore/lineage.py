# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Which recorded call a request continues, proven and never guessed.

One listing names every candidate by its fingerprint, so that only candidates are read, whatever the
rollout's length. Objects are immutable, so a cache of them can only be evicted, never be wrong.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from gym_objstore.digests import compute_digest
from gym_objstore.errors import Corrupt
from gym_objstore.fingerprint import FINGERPRINT_VERSION, assistant_fingerprint, conversation_digest
from gym_objstore.flow import Find, Flow, compute, scan, together
from gym_objstore.index import index_keys
from gym_objstore.keys import entry_key, kind_prefix, rollout_prefix
from gym_objstore.names import FULL, EntryName, call_mark
from gym_objstore.records import LineageMatch, LineageResolution, ParentResolutionStatus, TokenEntry
from gym_objstore.tokens import FAMILY, read_entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Items = list[dict[str, Any]]

_ITEM_SIZE = 2048
"""Bytes a conversation item is taken for when deciding whether to hash beside the event loop."""


@dataclass(frozen=True, slots=True)
class Parent:
    """What lineage keeps of one immutable entry. ``tokens`` is its own prompt part and generation."""

    model_call_id: str
    parent_call_id: str | None
    prompt_is_delta: bool
    fingerprint: str
    fingerprint_version: int | None
    context_len: int
    context_digest: str
    digest: str
    cum_len: int
    tokens: array[int]


class ParentCache(Protocol):
    """A bounded memory of parents by object key."""

    def get(self, key: str) -> Parent | None:
        """Return the remembered parent, if it still is."""
        ...

    def put(self, key: str, parent: Parent) -> None:
        """Remember a parent."""
        ...


class Matcher(Protocol):
    """The rule that says which of the candidates a request continues."""

    def fingerprint(self, items: Items) -> str:
        """Return the fingerprint of the model-authored items; ``""`` without any."""
        ...

    def choose(self, candidates: Sequence[Parent], items: Items) -> tuple[Parent | None, str]:
        """Return the proven parent, or None and the reason."""
        ...


class ContextMatcher:
    """The rule of nemo-gym: equal fingerprint, and the request begins with the recorded context."""

    def fingerprint(self, items: Items) -> str:
        """Return the fingerprint of the model-authored items."""
        return assistant_fingerprint(items)

    def choose(self, candidates: Sequence[Parent], items: Items) -> tuple[Parent | None, str]:
        """Return the one candidate whose context the request extends; equal token sequences are one."""
        fingerprint = self.fingerprint(items)
        fits = [one for one in candidates if one.fingerprint == fingerprint and _continues(one, items)]
        if len(fits) > 1 and fits[0].digest and len({(one.digest, one.cum_len) for one in fits}) == 1:
            fits = [min(fits, key=lambda one: one.model_call_id)]
        if len(fits) != 1:
            return None, "ambiguous" if fits else "no_match"
        return fits[0], ""


def _continues(parent: Parent, items: Items) -> bool:
    if parent.fingerprint_version not in (None, FINGERPRINT_VERSION) or not parent.context_digest:
        return False
    context = items[: parent.context_len]
    return len(context) == parent.context_len and conversation_digest(context) == parent.context_digest


def parent_of(entry: TokenEntry) -> Parent:
    """Return what lineage keeps of an entry."""
    tokens = array("Q", entry.prompt_token_ids)
    tokens.extend(entry.generation_token_ids)
    return Parent(
        model_call_id=entry.model_call_id,
        parent_call_id=entry.parent_call_id,
        prompt_is_delta=entry.prompt_is_delta,
        fingerprint=entry.continuation_fingerprint,
        fingerprint_version=entry.fingerprint_version,
        context_len=entry.continuation_context_len,
        context_digest=entry.continuation_context_digest,
        digest=entry.digest or "",
        cum_len=len(tokens) if entry.cum_len is None else entry.cum_len,
        tokens=tokens,
    )


@dataclass(frozen=True, slots=True)
class Resolver:
    """A matcher and a cache, bound once; ``resolve`` is the conversation."""

    run_id: str
    matcher: Matcher
    cache: ParentCache

    def resolve(self, rollout_id: str, items: Items) -> Flow[LineageResolution]:
        """Say whether a request starts a root, continues a proven parent, or cannot be placed.

        Costs nothing for a request without model-authored history, one listing when the parent is in the
        cache, and one parallel read more when it is not, at any rollout length.
        Raises: storage errors and ``Corrupt``: no answer is not "no match".
        """
        rollout = rollout_prefix(FAMILY, self.run_id, rollout_id)
        size = _ITEM_SIZE * len(items)
        fingerprint = yield from compute(self.matcher.fingerprint, items, size=size)
        if not fingerprint:
            return LineageResolution(ParentResolutionStatus.ROOT)
        found = yield from scan(kind_prefix(rollout, "entries"))
        index = index_keys(rollout, (meta.key for meta in found))
        by_mark = {call_mark(one.call): one for one in index.sound}
        names = [name for name in by_mark.values() if name.fingerprint == fingerprint[:16]]
        chains = {name: _chain(by_mark, name) for name in names}
        parents = yield from self._read(rollout, {one for chain in chains.values() for one in chain})
        candidates = {name: parents[name] for name in names if name in parents}
        if len(candidates) < len(names):
            return _unresolved("candidate_missing")
        winner, reason = yield from compute(self.matcher.choose, list(candidates.values()), items, size=size)
        if winner is None:
            return _unresolved(reason)
        chain = next(chains[name] for name in names if candidates[name] is winner)
        tokens = yield from compute(_materialize, [parents.get(one) for one in chain], winner, size=8 * winner.cum_len)
        return LineageResolution(
            ParentResolutionStatus.RESOLVED,
            LineageMatch(winner.model_call_id, cumulative_token_ids=tokens, digest=winner.digest),
        )

    def _read(self, rollout: str, names: Iterable[EntryName]) -> Flow[dict[EntryName, Parent]]:
        """Return the parents of names from the cache or, all at the same time, from the store."""
        known = {name: self.cache.get(entry_key(rollout, name)) for name in names}
        absent = [name for name, parent in known.items() if parent is None]
        found = yield from together(
            Find(entry_key(rollout, name), partial(_decode, rollout, name)) for name in sorted(absent)
        )
        for name, parent in zip(sorted(absent), found, strict=True):
            if parent is not None:
                self.cache.put(entry_key(rollout, name), parent)
                known[name] = parent
        return {name: parent for name, parent in known.items() if parent is not None}


def _decode(rollout: str, name: EntryName, body: bytes) -> Parent:
    return parent_of(read_entry(rollout, name, body))


def _chain(by_mark: dict[str, EntryName], name: EntryName) -> list[EntryName]:
    """Return the entries whose tokens make up a call's, from itself to the one that stores a full prompt.

    Follows the parent field of the names alone; a chain that breaks or turns back ends early, and then
    fails its digest.
    """
    chain = [name]
    while chain[-1].parent != FULL:
        parent = by_mark.get(chain[-1].parent)
        if parent is None or parent in chain:
            break
        chain.append(parent)
    return chain


def _materialize(chain: Sequence[Parent | None], winner: Parent) -> tuple[int, ...]:
    tokens: array[int] = array("Q")
    for parent in reversed(chain):
        tokens.extend(parent.tokens if parent else ())
    sequence = tuple(tokens)
    if len(sequence) != winner.cum_len or (winner.digest and compute_digest(sequence) != winner.digest):
        raise Corrupt(
            f"the tokens of the parent's chain fail its digest, model_call_id={winner.model_call_id}, "
            f"calls={len(chain)}, tokens={len(sequence)}, expected={winner.cum_len}",
            kind="broken_chain",
        )
    return sequence


def _unresolved(reason: str) -> LineageResolution:
    return LineageResolution(ParentResolutionStatus.UNRESOLVED, reason=reason)
