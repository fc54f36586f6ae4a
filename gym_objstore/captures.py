# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Captures of a rollout: storing them, reading them in their durable order, marking what was lost, clearing.

A capture is stored as the JSON text it would be as a line of Gym's ``<rollout_id>.capture.jsonl``, to the byte;
its object's name begins with the time the call completed, so that sorted keys are the order of the calls. What
the fields mean is ``calls``' business. Captures have no tombstone: a rollout that ended may still be looked at.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from gym_objstore.codec import FORMAT, encode, parse, unpack_named
from gym_objstore.digests import sha256_hex
from gym_objstore.errors import Corrupt, Invalid
from gym_objstore.flow import Delete, Find, Flow, Put, Scan, folders, scan, together
from gym_objstore.ids import segment
from gym_objstore.keys import capture_key, kind_prefix, rollout_prefix, run_prefix
from gym_objstore.names import CaptureName, parse_capture_name
from gym_objstore.objects import marker, require_writer
from gym_objstore.portable import portable
from gym_objstore.retirement import Removal
from gym_objstore.store import batches

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FAMILY = "captures"

_LATEST = 10**16 - 1
"""The last microsecond that 16 digits can say, in the year 2286."""
_FEW = 8
"""Rollouts that are listed one by one; for more, one listing says first which of them exist."""


class Line(NamedTuple):
    """One capture as it is stored: its JSON text, when its call completed (microseconds), and the call's id."""

    text: bytes
    order: int
    model_call_id: str = ""


class Stored(NamedTuple):
    """One capture as it was found: its text, verified against its name, or what is wrong with it."""

    name: CaptureName
    text: bytes | None
    damage: str = ""


class Listed(NamedTuple):
    """The names of a rollout's captures in durable order, and whether a marker says that one was lost."""

    names: tuple[CaptureName, ...]
    incomplete: bool


class Captured(NamedTuple):
    """What a rollout's captures are, in durable order, and whether a marker says that one was lost."""

    captures: tuple[Stored, ...]
    incomplete: bool


def line_of(exchange: Mapping[str, Any], now: float) -> Line:
    """Return the line of an exchange; ``now`` is its place in the order if it does not say when it completed.

    Unknown fields are kept. What JSON cannot hold becomes what ``portable`` makes of it, anything else its
    ``str``. Raises ``Invalid`` for what is no mapping, or nested deeper than JSON is read.
    """
    if not hasattr(exchange, "keys"):
        raise Invalid(f"a capture must be a mapping, type={type(exchange).__name__}", kind="bad_capture")
    record = exchange if isinstance(exchange, dict) else dict(exchange)
    completed, call = record.get("completed_at"), record.get("model_call_id")
    return Line(_dumped(record), order_of(completed, now), call if isinstance(call, str) else "")


def order_of(completed: Any, now: float) -> int:
    """Return a place in the durable order from seconds since the epoch."""
    known = isinstance(completed, int | float) and not isinstance(completed, bool) and abs(completed) < math.inf
    return min(int(min(max(completed if known else now, 0), 1e10) * 1e6), _LATEST)


def _dumped(record: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(record, default=str)
    except TypeError:
        pass
    try:
        return orjson.dumps(portable(record)[0])
    except (TypeError, ValueError) as error:
        raise Invalid(f"the capture cannot be written as JSON: {error}", kind="not_json") from error


def capture_put(run_id: str, rollout_id: str, line: Line) -> Put:
    """Return the write that stores a capture. Raises ``Invalid`` for a text that no reader would take."""
    return Put(capture_key(rollout_prefix(FAMILY, run_id, rollout_id), capture_name(line)), encode(line.text))


def capture_name(line: Line) -> CaptureName:
    """Return the name under which a capture is stored."""
    return CaptureName(f"{line.order:016d}", segment(line.model_call_id), sha256_hex(line.text), FORMAT)


def mark(run_id: str, rollout_id: str, model_call_id: str, note: dict[str, Any]) -> Put:
    """Return the write that says a capture of this rollout was lost; see ``objects.marker``."""
    return marker(FAMILY, run_id, rollout_id, model_call_id, note=note)


def read(run_id: str, rollout_id: str) -> Flow[Captured]:
    """Read and verify every capture of a rollout, each with its index in the durable order.

    A capture that is damaged takes its index and hides no other. Raises ``NotFound`` (kind ``no_writer``) where
    nobody ever captured anything of this run, and storage errors.
    """
    found = yield from listing(run_id, rollout_id)
    captures = yield from read_some(run_id, rollout_id, found.names)
    return Captured(tuple(captures), found.incomplete)


def listing(run_id: str, rollout_id: str) -> Flow[Listed]:
    """List a rollout's captures without reading them. Raises as ``read``."""
    rollout = rollout_prefix(FAMILY, run_id, rollout_id)
    listed = yield from scan(rollout)
    if not listed:
        yield from require_writer(FAMILY, run_id)
    marked = any(meta.key.startswith(kind_prefix(rollout, "markers")) for meta in listed)
    return Listed(tuple(names_of(kind_prefix(rollout, "records"), [meta.key for meta in listed])), marked)


def read_some(run_id: str, rollout_id: str, names: Sequence[CaptureName]) -> Flow[list[Stored]]:
    """Read and verify the captures with these names, all at the same time. Raises storage errors only."""
    rollout = rollout_prefix(FAMILY, run_id, rollout_id)
    found = yield from together(Find(capture_key(rollout, name), partial(_verified, name)) for name in names)
    return [one or Stored(name, None, "listed, then absent") for name, one in zip(names, found, strict=True)]


def is_incomplete(run_id: str, rollout_id: str) -> Flow[bool]:
    """Say whether a marker says that a capture of this rollout was lost."""
    listed = yield from scan(kind_prefix(rollout_prefix(FAMILY, run_id, rollout_id), "markers"))
    return bool(listed)


def clear(run_id: str, rollout_ids: Sequence[str]) -> Flow[Removal]:
    """Remove the captures and markers of exactly these rollouts, before they are dispatched.

    Markers go last: what an interrupted clear leaves of an incomplete rollout is incomplete.
    Returns when: what was listed is gone. Repeating: changes nothing; the rollouts are then reported absent.
    Raises: storage errors only, after which repeating is safe. Costs one listing of the run, and one of each
    of these rollouts that exists.
    """
    prefixes = {one: rollout_prefix(FAMILY, run_id, one) for one in rollout_ids}
    if len(prefixes) > _FEW:
        run = run_prefix(FAMILY, run_id)
        existing = {f"{run}{name}/" for name in (yield from folders(run))}
        prefixes = {one: prefix for one, prefix in prefixes.items() if prefix in existing}
    listed = yield from together(Scan(prefix) for prefix in prefixes.values())
    present = {one for one, found in zip(prefixes, listed, strict=True) if found}
    keys = [meta.key for found in listed for meta in found]
    for marked in (False, True):
        doomed = [key for key in keys if (key.split("/", 4)[3] == "markers") is marked]
        yield from together(Delete(tuple(batch)) for batch in batches(doomed))
    return Removal(
        tuple(one for one in rollout_ids if one in present), tuple(one for one in rollout_ids if one not in present)
    )


def record_of(stored: Stored) -> dict[str, Any]:
    """Return the record of a capture. Raises ``Corrupt`` for a damaged one."""
    if stored.text is None:
        raise Corrupt(f"the capture is damaged: {stored.damage}", kind="bad_capture", key=stored.name.text)
    return parse(stored.text.strip())


def names_of(prefix: str, keys: Sequence[str]) -> list[CaptureName]:
    """Return the names of the captures among listed keys, below the prefix of a rollout's records, in durable order."""
    names = (parse_capture_name(key.removeprefix(prefix)) for key in keys if key.startswith(prefix))
    return sorted(name for name in names if name is not None)


def _verified(name: CaptureName, body: bytes) -> Stored:
    try:
        return Stored(name, unpack_named(body, name))
    except Corrupt as error:
        return Stored(name, None, error.message)
