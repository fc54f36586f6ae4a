# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A pack: the entries of one snapshot in one object, so that a rollout of a thousand calls is read with one GET.

A pack is a copy. It is no state of its rollout, changes no version, and is never needed: a reader that does not
believe one reads the entries themselves. Its name carries the snapshot it is of and the SHA-256 of its text, which is
a line that names the entries, with their sizes, and then their canonical JSON. What an entry must be to be believed
is ``tokens``' business. docs/decisions/0004-packs.md says why, and what it brings.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final, TypeVar

import orjson
import zstandard

from gym_objstore.codec import FORMAT, LIMIT, unpack_named
from gym_objstore.digests import sha256_hex
from gym_objstore.errors import Corrupt, Invalid
from gym_objstore.flow import Find, Flow, Head, Put, compute, together
from gym_objstore.keys import entry_key, pack_key, tombstone_key
from gym_objstore.names import EntryName, PackName, parse_pack_name
from gym_objstore.objects import retired, write_fenced

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gym_objstore.index import Index

T = TypeVar("T")
Verify = Callable[[EntryName, bytes], T]
"""From an entry's name and its canonical JSON to what is read of it; raises ``Corrupt``."""

_LEVEL: Final = 1
_WINDOW: Final = 27
"""Calls of a rollout repeat each other's prompts: a window of 128 MB sees nearly all of it."""


def publish(index: Index) -> Flow[None]:
    """Store a pack of what a listing names.

    Returns when: it is durable. Repeating: changes nothing. Raises: ``Corrupt`` naming an entry that is damaged or
    gone; ``Invalid`` (kind ``too_large``) for entries of more than 256 MB in all; ``Retired``; storage errors.
    """
    names = index.sound
    texts = yield from together(Find(entry_key(index.rollout, name), partial(_text, index, name)) for name in names)
    for name, text in zip(names, texts, strict=True):
        if text is None:
            raise Corrupt("an entry was listed and is gone", kind="missing", key=entry_key(index.rollout, name))
    packed: Put = yield from compute(_pack, index, names, texts, size=LIMIT)
    if packed.key.removeprefix(index.rollout) not in index.packs:
        yield from write_fenced(index.rollout, [packed])


def read(index: Index, verify: Verify[T]) -> Flow[tuple[T, ...] | None]:
    """Return the entries that a listing names from a pack of exactly this state; ``None`` if there is none to trust.

    Raises ``Retired`` if a tombstone stands by then, and storage errors.
    """
    named = next(
        (name for name in map(parse_pack_name, index.packs) if name and name.snapshot == index.snapshot_id), None
    )
    if named is None:
        return None
    stone, body = yield from together([Head(tombstone_key(index.rollout)), Find(pack_key(index.rollout, named), bytes)])
    if stone is not None:
        raise retired(index.rollout)
    if body is None:
        return None
    # A pack of prompts that repeat each other is a hundredth of what there is to read in it.
    return (yield from compute(_unpack, named, index.sound, verify, body, size=LIMIT))


def _text(index: Index, name: EntryName, body: bytes) -> bytes:
    try:
        return unpack_named(body, name)
    except Corrupt as error:
        error.key = entry_key(index.rollout, name)
        raise


def _pack(index: Index, names: Sequence[EntryName], texts: Sequence[bytes]) -> Put:
    head = orjson.dumps([[name.text, len(text)] for name, text in zip(names, texts, strict=True)])
    plain = b"\n".join([head, b"".join(texts)])
    if len(plain) > LIMIT:
        raise Invalid(f"the rollout is too large to be packed, bytes={len(plain)}, limit={LIMIT}", kind="too_large")
    options = zstandard.ZstdCompressionParameters.from_level(
        _LEVEL, window_log=_WINDOW, enable_ldm=True, write_checksum=True
    )
    body = zstandard.ZstdCompressor(compression_params=options).compress(plain)
    return Put(pack_key(index.rollout, PackName(index.snapshot_id, sha256_hex(plain), FORMAT)), body)


def _unpack(named: PackName, names: Sequence[EntryName], verify: Verify[T], body: bytes) -> tuple[T, ...] | None:
    try:
        head, _, texts = unpack_named(body, named).partition(b"\n")
        listed = orjson.loads(head)
        if [text for text, _ in listed] != [name.text for name in names]:
            return None
        cuts = pairwise(accumulate((size for _, size in listed), initial=0))
        return tuple(verify(name, texts[start:end]) for name, (start, end) in zip(names, cuts, strict=True))
    except (Corrupt, ValueError, TypeError):
        return None
