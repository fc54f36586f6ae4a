# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A run as a whole: with which settings it was created, and that it is closed.

The descriptor's name is the SHA-256 of its bytes, which depend on the settings alone. So creating a run twice with
the same settings is one object, and a run id that is used with two settings is a second one that every reader
finds, without any compare-and-swap. A run id that is too long for its segment is read from a writer marker. Removing
a run is for ``run_removal``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from gym_objstore.digests import canonical_json, sha256_hex
from gym_objstore.errors import Conflict, Corrupt, Denied, Invalid, NotFound, Retired
from gym_objstore.flow import Find, Flow, Head, Scan, find, put, together
from gym_objstore.ids import is_hashed, segment, spoken
from gym_objstore.objects import read_object, write_object
from gym_objstore.run_keys import closed_key, descriptor_key, descriptor_prefix, writer_keys_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gym_objstore.store import Meta


CLOSED = write_object(closed=True)
"""What the marker of every closed run holds."""


class Descriptor(NamedTuple):
    """Settings that a run was created with, and when, by the store's clock (Unix seconds)."""

    settings: dict[str, Any]
    created: float


class Described(NamedTuple):
    """What a run says of itself. More than one descriptor is a conflict; ``closed`` is a time or None."""

    descriptors: tuple[Descriptor, ...]
    closed: float | None

    @property
    def conflict(self) -> bool:
        """Whether the run id was used with different settings."""
        return len(self.descriptors) > 1

    @property
    def created(self) -> float | None:
        """When the run was created first; None if nobody created it."""
        return min((one.created for one in self.descriptors), default=None)


def create_run(run_id: str, settings: Mapping[str, Any]) -> Flow[str]:
    """Create a run with its settings and return the descriptor's digest.

    Returns when: the descriptor is durable and no other one was there.
    Repeating: the same settings change nothing.
    Raises: ``Conflict`` for a run that exists with other settings; only if two are created at the same time are
    both written, and then every reader finds the conflict until the run is deleted. ``Retired`` for a closed run;
    ``Invalid`` before any request for settings that JSON cannot hold exactly; storage errors.
    """
    body = _pack(settings)
    digest = sha256_hex(body)
    described = yield from describe_run(run_id)
    _require(run_id, settings, described)
    if not described.descriptors:
        yield from put(descriptor_key(run_id, digest), body)
        _require(run_id, settings, (yield from describe_run(run_id)))
    return digest


def require_descriptor(run_id: str, settings: Mapping[str, Any]) -> Flow[None]:
    """Make sure that a run was created with exactly these settings and is open: for writers, before the first write.

    Raises: ``NotFound`` for a run that nobody created here; ``Conflict`` for one that was created with other
    settings, naming those that differ; ``Retired`` for a closed run; ``Corrupt``; storage errors.
    """
    _pack(settings)
    described = yield from describe_run(run_id)
    _require(run_id, settings, described)
    if not described.descriptors:
        hint = "create it: gym-objstore runs create; or check the url and the run id"
        raise NotFound(f"nobody created this run here, run_id={run_id}", kind="no_descriptor", hint=hint)


def describe_run(run_id: str) -> Flow[Described]:
    """Return what a run says of itself; an unknown run says nothing. Raises ``Corrupt`` and storage errors."""
    listed, closed = yield from together([Scan(descriptor_prefix(run_id)), Head(closed_key(run_id))])
    found = yield from together(Find(meta.key, partial(_unpack, meta)) for meta in listed)
    return Described(tuple(one for one in found if one is not None), closed.modified if closed else None)


def close_run(run_id: str) -> Flow[bool]:
    """Say that nobody writes to a run any more; False if that was said before, whose time then stands.

    Returns when: every ``require_descriptor`` refuses the run. Writes of those who do not ask still land.
    Repeating: changes nothing. Raises: storage errors.
    """
    (standing,) = yield from together([Head(closed_key(run_id))])
    if standing is None:
        yield from put(closed_key(run_id), CLOSED)
    return standing is None


def name_runs(segments: Iterable[str]) -> Flow[dict[str, str]]:
    """Return the run id of each segment of a run: where the segment has only its hash, from a writer marker.

    Costs one GET for each such run, and more where the first family has none. A run that left no marker that can be
    read goes by its segment, as do folders that are no run of this format. Raises: storage errors.
    """
    named = {}
    for one in segments:
        named[one] = (yield from _announced(one)) if is_hashed(one) else spoken(one)
    return named


def _announced(run: str) -> Flow[str]:
    for key in writer_keys_at(run):
        try:
            found = yield from find(key, partial(_said_run, run))
        except (Corrupt, Denied):
            continue  # another family may say it
        if found is not None:
            return found
    return run


def _said_run(run: str, body: bytes) -> str:
    said = read_object(body).get("run_id")
    if not isinstance(said, str) or segment(said) != run:
        raise Corrupt("the object is no writer marker of this run", kind="foreign_object")
    return said


def _pack(settings: Mapping[str, Any]) -> bytes:
    plain = dict(settings)
    body = write_object(settings=plain)
    if orjson.loads(canonical_json(plain)) != plain:
        reason = "the settings of a run must be what JSON holds exactly: no tuples, no NaN, keys that are strings"
        raise Invalid(reason, kind="bad_setting")
    return body


def _unpack(meta: Meta, body: bytes) -> Descriptor:
    settings = read_object(body).get("settings")
    if sha256_hex(body) != meta.key.rpartition("/")[2] or not isinstance(settings, dict):
        raise Corrupt("the descriptor of the run is damaged", kind="bad_descriptor", key=meta.key)
    return Descriptor(settings, meta.modified)


def _require(run_id: str, settings: Mapping[str, Any], described: Described) -> None:
    for one in described.descriptors:
        if differing := _differing(one.settings, settings):
            reason = f"the run exists with other settings, run_id={run_id}, settings={','.join(differing)}"
            raise Conflict(reason, kind="run_settings", hint="use another run id, or the settings it was created with")
    if described.closed is not None:
        raise Retired(f"the run is closed, run_id={run_id}", kind="run_closed", hint="use another run id")


def _differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> Sequence[str]:
    names = sorted(one.keys() | other.keys())
    absent = object()
    return [name for name in names if one.get(name, absent) != other.get(name, absent)]
