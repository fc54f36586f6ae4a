# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Following a run's captures as they come, with a bounded number of requests for each look.

A listing cannot begin where the last one ended, so a look costs one listing of the run's rollouts and one of each
rollout that is looked into: at most ``BUDGET``, those first that had something new, and always some of the others in
turn. A rollout with nothing new is looked into half as often each time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from gym_objstore.captures import FAMILY, names_of
from gym_objstore.flow import Flow, Scan, folders, together
from gym_objstore.ids import segment, spoken
from gym_objstore.keys import RUN_FOLDER, kind_prefix, run_prefix
from gym_objstore.store.marks import Marks

if TYPE_CHECKING:
    from gym_objstore.names import CaptureName

BUDGET = 64
"""Rollouts that one look lists at most."""
_IN_TURN = 16
"""Rollouts of one look that are taken by how long they waited, however busy the others are."""
_IDLE = 8
"""Looks after which an idle rollout is due again, if the budget allows."""


class Found(NamedTuple):
    """A capture that is new, and its index in the durable order as it stands."""

    rollout_id: str
    call_index: int
    name: CaptureName


@dataclass(slots=True)
class _Followed:
    due: int
    pause: int


@dataclass(slots=True)
class Following:
    """What is known of a run that is followed.

    ``since`` is the place in the durable order, in microseconds since the epoch, from which captures are new;
    ``only`` is the one rollout to follow. ``budget`` is ``BUDGET``, or None to look into every rollout at once.
    """

    run_id: str
    since: int
    only: str | None = None
    budget: int | None = BUDGET
    looks: int = 0
    rollouts: dict[str, _Followed] = field(default_factory=dict)
    seen: Marks = field(default_factory=Marks)


def look(following: Following) -> Flow[list[Found]]:
    """Return the captures that came since the last look, of the rollouts that were due. Raises storage errors."""
    run = run_prefix(FAMILY, following.run_id)
    names = [segment(following.only)] if following.only else (yield from folders(run))
    for name in names:
        if name != RUN_FOLDER and name not in following.rollouts:
            # What is there at the first look has mostly ended.
            following.rollouts[name] = _Followed(following.looks, 1 if following.looks else _IDLE)
    chosen = _due(following)
    records = [kind_prefix(f"{run}{name}/", "records") for name in chosen]
    listed = yield from together(Scan(prefix) for prefix in records)
    found = []
    for name, prefix, metas in zip(chosen, records, listed, strict=True):
        present = names_of(prefix, [meta.key for meta in metas])
        found += _fresh(following, name, present)
    following.looks += 1
    return found


def _due(following: Following) -> list[str]:
    """Choose the rollouts to look into: most by how lately they had something new, some by how long they waited."""
    due = [name for name, one in following.rollouts.items() if one.due <= following.looks or following.only]
    if following.budget is None or len(due) <= following.budget:
        return due
    known = following.rollouts
    due.sort(key=lambda name: (known[name].pause, known[name].due))
    busy, rest = due[: following.budget - _IN_TURN], due[following.budget - _IN_TURN :]
    return busy + sorted(rest, key=lambda name: known[name].due)[:_IN_TURN]


def _fresh(following: Following, name: str, present: list[CaptureName]) -> list[Found]:
    one = following.rollouts[name]
    fresh = [
        Found(spoken(name), index, capture)
        for index, capture in enumerate(present)
        if int(capture.order) >= following.since and following.seen.add(f"{name}/{capture.text}")
    ]
    one.pause = 1 if fresh else min(2 * one.pause, _IDLE)
    one.due = following.looks + one.pause
    return fresh
