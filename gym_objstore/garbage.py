# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What may be removed of a run, by one policy: all of it once it has expired, until then what ``sweeping`` finds.

It is found twice: once to be reported, and again, by the same laws, to be removed; only what both name goes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gym_objstore import captures
from gym_objstore.keys import RUN_FOLDER
from gym_objstore.run_removal import has_expired, list_run, remove_run, spares
from gym_objstore.sweeping import Looked, remove, sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from gym_objstore.flow import Flow
    from gym_objstore.store import Meta
    from gym_objstore.store.marks import Marks
    from gym_objstore.sweeping import Rest

EXPIRED = "expired"


class Policy(NamedTuple):
    """What may go. Periods are in seconds; without ``expire_after`` no run expires.

    ``grace``: nothing younger is touched; longer than any call takes. ``expire_after``: a run goes that was closed,
    or if nobody closed it was written to for the last time, so long ago. ``keep_captures``: its captures stay.
    """

    grace: float
    expire_after: float | None = None
    keep_captures: bool = False


class Doomed(NamedTuple):
    """An object that may go: ``reason`` is ``expired``, ``orphan``, ``late_write`` or ``stale_drop``."""

    run_id: str
    reason: str
    key: str
    bytes: int
    modified: float


def named(reason: str, key: str) -> str:
    """Return how an object is remembered as reported: another reason for it is another report."""
    return f"{reason} {key}"


def find_garbage(
    run_id: str,
    policy: Policy,
    found: Callable[[Sequence[Doomed]], object],
    *,
    now: float,
    kept: Callable[[], Collection[str]],
) -> Flow[Looked]:
    """Give ``found`` what may go of a run, a page at a time. Changes nothing.

    ``kept`` reads the staging keys and rollout ids of every checkpoint that may still be restored; it is called
    after the last listing. Raises: as ``sweeping.sweep``.
    """
    if (yield from _expired(run_id, policy, now)):

        def take_all(metas: Sequence[Meta]) -> Flow[None]:
            spared = spares(kept())
            found([Doomed(run_id, EXPIRED, *meta) for meta in metas if not spared(meta)])
            yield from ()

        yield from list_run(run_id, take_all, doomed=lambda meta: _may_expire(policy, meta, now))
        return Looked(0, 0)

    def take(rests: Sequence[Rest]) -> Flow[None]:
        spared = spares(kept())
        found([Doomed(run_id, rest.kind, *rest.meta) for rest in rests if not spared(rest.meta)])
        yield from ()

    return (yield from sweep(run_id, take, now=now, grace=policy.grace))


def remove_garbage(
    run_id: str, policy: Policy, reported: Marks, *, now: float, kept: Callable[[], Collection[str]]
) -> Flow[int]:
    """Remove what was reported of a run, as ``named`` says, and may still go; return how many objects went.

    Safe beside live writers: each object is judged again, and asked for right before it goes.
    Returns when: no listing shows the removed. Repeating: finishes what was interrupted; fences that an expired
    run got meanwhile go with it. Raises: as ``sweeping.sweep``, before anything was removed; storage errors.
    """
    if (yield from _expired(run_id, policy, now)):
        spared = spares(kept())
        return (
            yield from remove_run(run_id, doomed=lambda meta: named(EXPIRED, meta.key) in reported and not spared(meta))
        )
    removed = 0

    def take(rests: Sequence[Rest]) -> Flow[None]:
        nonlocal removed
        spared = spares(kept())
        doomed = [rest for rest in rests if named(rest.kind, rest.meta.key) in reported and not spared(rest.meta)]
        removed += len((yield from remove(doomed)))

    yield from sweep(run_id, take, now=now, grace=policy.grace)
    return removed


def _expired(run_id: str, policy: Policy, now: float) -> Flow[bool]:
    if policy.expire_after is None:
        return False
    return (yield from has_expired(run_id, before=now - policy.expire_after))


def _may_expire(policy: Policy, meta: Meta, now: float) -> bool:
    """Say whether an object goes with its run: where captures stay, so does what the run says of itself."""
    family, _, rest = meta.key.partition("/")
    stays = policy.keep_captures and (family == captures.FAMILY or rest.split("/")[1] == RUN_FOLDER)
    return meta.modified <= now - policy.grace and not stays
