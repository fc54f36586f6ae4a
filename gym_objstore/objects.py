# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Conversations every family shares: writing behind the fence, small JSON objects, and writer markers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import orjson

from gym_objstore.digests import canonical_json
from gym_objstore.errors import Corrupt, NotFound, Retired
from gym_objstore.flow import Flow, Head, Put, head, together
from gym_objstore.keys import note_key, rollout_prefix, run_prefix, tombstone_key, writer_key

if TYPE_CHECKING:
    from gym_objstore.flow import Single

FORMAT_VERSION = 1
"""The version of the layout of keys and bodies, in every JSON object of ours."""


def announcement(family: str, run_id: str) -> Put:
    """Return the write that leaves this run's writer marker. Its bytes depend on the run alone."""
    body = canonical_json({"format": FORMAT_VERSION, "family": family, "run_id": run_id})
    return Put(writer_key(family, run_id), body)


def marker(family: str, run_id: str, rollout_id: str, model_call_id: str, *, note: dict[str, Any]) -> Put:
    """Return the write that marks a rollout incomplete; ``""`` as call id means an unnamed call.

    ``note`` tells this marker from every other (a time, a reason, a random value), chosen before the first
    attempt: each marker is a new object, and each retry of one is the same object.
    """
    body = write_object(rollout_id=rollout_id, model_call_id=model_call_id, **note)
    return Put(note_key(rollout_prefix(family, run_id, rollout_id), "markers", model_call_id, body), body)


def write(put: Put, also: Iterable[Put] = ()) -> Flow[None]:
    """Store an object behind no fence, and others in the same round trip.

    Returns when: all are durable and every reader sees them. Repeating: the same bytes change nothing.
    Raises: storage errors.
    """
    yield from together([put, *also])


def write_fenced(rollout: str, writes: Iterable[Put]) -> Flow[None]:
    """Store objects of a rollout unless it is retired, in one round trip.

    Returns when: every object is durable and no tombstone stood.
    Repeating: the same bytes change nothing.
    Raises: ``Retired`` when a tombstone stands. What was written then stays, invisible behind the fence,
    until a sweep removes it.
    """
    operations: list[Single] = [Head(tombstone_key(rollout)), *writes]
    tombstone, *_ = yield from together(operations)
    if tombstone is not None:
        raise retired(rollout)


def retired(rollout: str) -> Retired:
    """Return the error for an operation that met a tombstone."""
    return Retired("the rollout is retired", key=tombstone_key(rollout), hint="delete it to use its id again")


def require_writer(family: str, run_id: str) -> Flow[None]:
    """Raise ``NotFound`` if nobody ever wrote to this run here: reader and writer look at different places."""
    if (yield from head(writer_key(family, run_id))) is None:
        raise NotFound(
            f"nothing was ever written to this run here, run_id={run_id}, family={family}",
            kind="no_writer",
            key=run_prefix(family, run_id),
            hint="check that writer and reader use the same url and run id",
        )


def read_object(body: bytes) -> dict[str, Any]:
    """Parse a small JSON object of ours, or raise ``Corrupt``."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Corrupt("the object is not JSON", kind="not_json") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT_VERSION:
        raise Corrupt("the object is not of this format", kind="foreign_object")
    return found


def write_object(**fields: Any) -> bytes:
    """Return the canonical bytes of a small JSON object of ours."""
    return canonical_json({"format": FORMAT_VERSION, **fields})
