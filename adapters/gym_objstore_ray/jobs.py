# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``verify`` and ``sweep`` a run in Ray tasks, called from a driver, a job or another task.

Owns how the work is split. What is damage is for ``gym_objstore.checking``, what may go for ``gym_objstore.sweeping``.
"""

from __future__ import annotations

import time
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import ray

from gym_objstore import tokens
from gym_objstore.checking import check_rollout, rollouts, runs
from gym_objstore.errors import NotFound
from gym_objstore.sweeping import find_orphans, remove_orphans, unlisted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from gym_objstore import TrainerClient
    from gym_objstore.checking import Finding
    from gym_objstore.sweeping import Orphans, Rest

CHECKED_TOGETHER = 64
"""Rollouts that one task of ``verify`` reads again."""

REMOVED_TOGETHER = 1000
"""Objects that one task of ``sweep`` removes: one bulk removal."""

T = TypeVar("T")


class Verified(NamedTuple):
    """How many rollouts were read again and what was found, in the order of their ids."""

    rollouts: int
    findings: tuple[Finding, ...]

    @property
    def damaged(self) -> bool:
        """Whether any finding is damage, and not only a loss or a rest."""
        return any(one.severity == "error" for one in self.findings)


def verify(client: TrainerClient) -> Verified:
    """Read and hash again everything that the client's run holds of its token entries; see ``check_rollout``.

    Published rollouts are verified whenever they are read. Changes nothing.
    Raises: ``NotFound`` for a run of which the store holds nothing; storage errors, after which repeating is safe.
    """
    run_id = _require_run(client)
    found = client.connection.play_now(rollouts(tokens.FAMILY, run_id))
    check = ray.remote(_check)
    findings = ray.get([check.remote(client, batch) for batch in _batches(list(found.items()), CHECKED_TOGETHER)])
    return Verified(len(found), tuple(chain.from_iterable(findings)))


def sweep(
    client: TrainerClient, *, grace: float, kept: Callable[[], Collection[str]], delete: bool = False
) -> list[Rest]:
    """Return what nothing in the client's run refers to or, with ``delete``, remove and return it.

    ``grace`` is in seconds. ``kept`` returns the staging keys and rollout ids of every checkpoint that may still be
    restored; it is called here, after everything else was listed, and what it raises stops the sweep.
    Returns when: no listing shows the removed. Repeating: removes what is left.
    Raises: ``NotFound`` for a run of which the store holds nothing; otherwise as ``find_orphans``.
    """
    _require_run(client)
    orphans: Orphans = ray.get(ray.remote(_find).remote(client, time.time(), grace))
    names = frozenset(kept())
    rests = unlisted(orphans.rests, names)
    if not delete:
        return rests
    remove = ray.remote(_remove)
    batches = [orphans._replace(rests=tuple(batch)) for batch in _batches(rests, REMOVED_TOGETHER)]
    return list(chain.from_iterable(ray.get([remove.remote(client, batch) for batch in batches])))


def _require_run(client: TrainerClient) -> str:
    run_id = client.settings.run_id
    if run_id not in client.connection.play_now(runs()):
        hint = "check the url and the run id; list the runs: gym-objstore ls"
        raise NotFound(f"no such run in this store, run_id={run_id}", kind="no_run", hint=hint)
    return run_id


def _batches(items: Sequence[T], size: int) -> list[Sequence[T]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def _check(client: TrainerClient, batch: Sequence[tuple[str, str]]) -> list[Finding]:
    reports = [client.connection.play_now(check_rollout(*one)) for one in batch]
    return [finding for report in reports for finding in report.findings]


def _find(client: TrainerClient, now: float, grace: float) -> Orphans:
    return client.connection.play_now(find_orphans(client.settings.run_id, now=now, grace=grace))


def _remove(client: TrainerClient, orphans: Orphans) -> list[Rest]:
    return client.connection.play_now(remove_orphans(orphans))
