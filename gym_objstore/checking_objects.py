# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Re-reading and proving what no snapshot covers: all but token entries, and tombstones, which nothing proves.

A page of a listing at a time, so that a run of any size is checked in the memory of a few objects. What a rollout's
token entries add up to is for ``checking``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from gym_objstore.captures import Stored, record_of
from gym_objstore.checking import Finding
from gym_objstore.codec import unpack
from gym_objstore.errors import Corrupt
from gym_objstore.flow import Find, Flow, page, together
from gym_objstore.ids import spoken
from gym_objstore.keys import FENCES, PACKS, RUN_FOLDER, TOMBSTONE, rollout_prefix, run_prefix
from gym_objstore.names import parse_capture_name, parse_drop_name
from gym_objstore.operations import Listing
from gym_objstore.proofs import damage_of, run_damage_of
from gym_objstore.retirement import objects_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_STONE = f"{FENCES}/{TOMBSTONE}"
_LOSSES = {"captures": ("markers", "incomplete_marker"), "ledger": ("failures", "failure_row")}
"""The notes by which a family says that a call was lost: their kind, and what a finding calls it."""


class Checked(NamedTuple):
    """What one page showed: how many objects were read, and what is wrong with them."""

    objects: int
    findings: tuple[Finding, ...]


class Reading:
    """The listing of one family of a run, or of one of its rollouts, that is being checked."""

    def __init__(self, family: str, run_id: str, rollout_id: str | None = None) -> None:
        self.family, self.run = family, run_prefix(family, run_id)
        self.listing = Listing(self.run if rollout_id is None else rollout_prefix(family, run_id, rollout_id))


def check_page(reading: Reading) -> Flow[Checked | None]:
    """Read the objects of a listing's next page; None after the last. Objects that are gone by then are no finding."""
    metas = yield from page(reading.listing)
    if metas is None:
        return None
    wanted = [meta.key for meta in metas if _is_looked_at(reading.family, meta.key[len(reading.run) :])]
    found = yield from together(Find(key, partial(_looked_at, reading, key[len(reading.run) :])) for key in wanted)
    findings = tuple(finding for some in found if some for finding in some)
    return Checked(len([some for some in found if some is not None]), findings)


def _is_looked_at(family: str, path: str) -> bool:
    _, _, name = path.partition("/")
    entry = family == "tokens" and name.startswith("entries/")
    return bool(name) and not name.endswith("/") and name != _STONE and not entry


def _looked_at(reading: Reading, path: str, body: bytes) -> list[Finding]:
    return list(_findings(reading, path, body))


def _findings(reading: Reading, path: str, body: bytes) -> Iterator[Finding]:
    rollout, _, name = path.partition("/")
    family, kind = reading.family, name.partition("/")[0]
    owner = "" if rollout == RUN_FOLDER else spoken(rollout)
    where = f"object={family}/{name if owner else path}"
    damage = _damage_of(reading, path, body) or _unreadable(family, name, body)
    if damage is not None:
        severity = "warning" if kind == PACKS else "error"  # a pack is a copy, which readers do without
        yield Finding(severity, "corrupt", owner, "", f"{damage}, {where}")
    if kind == _LOSSES.get(family, ("", ""))[0]:
        yield Finding("warning", _LOSSES[family][1], owner, "", where)


def _damage_of(reading: Reading, path: str, body: bytes) -> str | None:
    rollout, _, name = path.partition("/")
    if rollout == RUN_FOLDER:
        return run_damage_of(reading.family, reading.run.split("/")[1], name, body)
    drop = parse_drop_name(name.removeprefix(f"{FENCES}/")) if name.startswith(FENCES) else None
    if drop is None:
        return damage_of(reading.family, path, body)
    try:
        objects_of(f"{reading.run}{rollout}/", drop, body)
    except Corrupt as error:
        return error.message
    return None


def _unreadable(family: str, name: str, body: bytes) -> str | None:
    """Say why a capture whose bytes are whole is no record; None if it is one."""
    named = parse_capture_name(name.partition("/")[2]) if family == "captures" else None
    if named is None or not name.startswith("records/"):
        return None
    try:
        record_of(Stored(named, unpack(body, named.format)))
    except Corrupt as error:
        return None if error.kind == "newer_format" else error.message
    return None
