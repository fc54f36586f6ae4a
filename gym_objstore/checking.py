# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Looking at what a bucket holds: runs, rollouts, their state, and every finding of a full re-read."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gym_objstore.errors import Retired
from gym_objstore.flow import Flow, folders
from gym_objstore.ids import spoken
from gym_objstore.index import Index, read_index
from gym_objstore.keys import FAMILIES, RUN_FOLDER, run_prefix
from gym_objstore.run_keys import PROBES
from gym_objstore.runs import name_runs
from gym_objstore.tokens import Problem, Snapshot, listed_problems, read_snapshot
from gym_objstore.trajectories import rebuild

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOSSES = {"incomplete_marker", "dangling_intent"}
"""Problems that say a call was lost: the system worked as promised, the rollout is masked."""


class Overview(NamedTuple):
    """One rollout as its listing shows it.

    ``state`` is ``retired`` behind a tombstone, ``incomplete`` with any problem, ``empty`` without any object
    (some servers go on showing the folder of a deleted rollout), else ``complete``, which says that nothing
    is known to be missing, not that the rollout has ended.
    """

    rollout_id: str
    state: str
    entries: int
    intents: int
    version: int
    problems: tuple[Problem, ...]


class Finding(NamedTuple):
    """One thing a check found. ``severity`` is ``error`` (damage), ``warning`` (loss or a rest) or ``note``."""

    severity: str
    kind: str
    rollout_id: str
    model_call_id: str
    detail: str


class Report(NamedTuple):
    """A rollout re-read: its overview, its verified snapshot (None behind a tombstone) and the findings."""

    overview: Overview
    snapshot: Snapshot | None
    findings: tuple[Finding, ...]


def runs() -> Flow[dict[str, tuple[str, ...]]]:
    """Return every run id with the families that hold something of it; see ``name_runs`` for ids that are too long."""
    found: dict[str, list[str]] = {}
    for family in FAMILIES:
        for name in (yield from folders(f"{family}/")):
            if name != PROBES:
                found.setdefault(name, []).append(family)
    named = yield from name_runs(found)
    return {run: tuple(found[name]) for run, name in sorted((run, name) for name, run in named.items())}


def rollouts(family: str, run_id: str) -> Flow[dict[str, str]]:
    """Return a run's rollouts: the prefix of each by its id, or by its segment where only its hash is known."""
    prefix = run_prefix(family, run_id)
    found = yield from folders(prefix)
    return {spoken(name): f"{prefix}{name}/" for name in found if name != RUN_FOLDER}


def overview(rollout_id: str, rollout: str) -> Flow[Overview]:
    """Return the state of the rollout at a prefix from one listing."""
    return _overview(rollout_id, (yield from read_index(rollout)))


def _overview(rollout_id: str, index: Index) -> Overview:
    problems = tuple(listed_problems(index))
    state = "incomplete" if problems else "complete" if index.state else "empty"
    state = "retired" if index.tombstone else state
    return Overview(rollout_id, state, len(index.entries), len(index.intents), index.version, problems)


def check_rollout(rollout_id: str, rollout: str) -> Flow[Report]:
    """Re-read and re-hash everything below a rollout's prefix and prove every link between its calls."""
    index = yield from read_index(rollout)
    try:
        snapshot = yield from read_snapshot(rollout_id, index)
    except Retired:
        index = yield from read_index(rollout)
        return Report(_overview(rollout_id, index), None, tuple(_behind_the_fence(rollout_id, index)))
    return Report(_overview(rollout_id, index), snapshot, tuple(_findings(index, snapshot)))


def _findings(index: Index, snapshot: Snapshot) -> Iterator[Finding]:
    for problem in snapshot.problems:
        severity = "warning" if problem.kind in _LOSSES else "error"
        yield Finding(severity, problem.kind, snapshot.rollout_id, problem.model_call_id, problem.detail)
    for call, reason in sorted(rebuild(snapshot.entries).unplaced.items()):
        yield Finding("warning", "unplaced_call", snapshot.rollout_id, call, reason)
    for drop in index.drops:
        yield Finding("warning", "unfinished_drop", snapshot.rollout_id, "", f"snapshot_id={drop.snapshot}")


def _behind_the_fence(rollout_id: str, index: Index) -> Iterator[Finding]:
    for name in (*index.state, *index.packs):
        yield Finding("note", "late_write", rollout_id, "", f"object={name}")
