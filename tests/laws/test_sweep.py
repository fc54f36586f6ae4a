# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""No sweep takes a row from whoever still needs it, in any schedule beside those who write and retire.

In the explorer's bucket everything is old from the start, so what these scenarios prove holds without the
grace period: a row is safe by its intent, its ledger row, its receipt or the list of a checkpoint, and a rollout of
which two snapshots are to be dropped by the intents of its consumers.
"""

from __future__ import annotations

import pytest

from gym_objstore import ledger, staging, tokens
from gym_objstore.flow import find, put, run
from gym_objstore.receipts import build_receipt
from gym_objstore.receipts_published import mark_consumed, publish, retire_consumed
from gym_objstore.retirement import retire
from gym_objstore.staged_rows import pack
from gym_objstore.store.memory import MemoryStore
from gym_objstore.sweeping import find_orphans, remove_orphans
from gym_objstore.testing.actors import Actor
from gym_objstore.testing.explorer import Bounds, explore
from gym_objstore.testing.staged_rollouts import staged_call
from gym_objstore.tokens import begin_call
from tests.finished import RUN, commit_of
from tests.laws import cast
from tests.laws.promises import (
    promise_8_one_snapshot_is_retired,
    promise_9_dropped_means_gone,
    promise_9_nothing_vanishes_from_a_live_rollout,
    promise_9_repeating_finishes,
)

ROLLOUT = "rollout-1"
RECORD = staged_call("c0")
KEY = pack(RECORD).key.text
ROW = staging.staged_key(RUN, staging.parse_staging_key(KEY))
ORPHAN = staged_call("c9")
ORPHAN_KEY = pack(ORPHAN).key.text
ORPHAN_ROW = staging.staged_key(RUN, staging.parse_staging_key(ORPHAN_KEY))
COMMIT = commit_of(RECORD, KEY)
RECEIPT = build_receipt({"rollout_id": ROLLOUT, "records": [COMMIT.record.model_dump(mode="json")]}, 1.0)
CHECKPOINT = "checkpoints/step-1"
"""Where the trainer of these scenarios saves what its checkpoint may restore."""


def stored(*flows) -> dict[str, bytes]:
    store = MemoryStore()
    for flow in (staging.stage(RUN, ORPHAN), *flows):
        run(flow, store)
    return {meta.key: store.get(meta.key) for meta in store.scan("")}


EMPTY = stored()
RECORDED = stored(staging.stage(RUN, RECORD), ledger.record(RUN, COMMIT))
PUBLISHED = stored(
    begin_call(RUN, ROLLOUT, "c0"),
    staging.stage(RUN, RECORD),
    ledger.record(RUN, COMMIT),
    publish(RUN, RECEIPT),
    mark_consumed(RUN, [ROLLOUT], "step-1"),
)


def step(what, flow):
    """Return a stage that plays a flow and says so."""

    def stage(log, _):
        log.asked(what)
        yield from flow()
        log.answered(what)

    return stage


def sweeper(run_id=RUN, *, wrong_order=False):
    """One who looks for orphans and then removes what no checkpoint lists."""

    def stage(log, _):
        kept = (yield from find(CHECKPOINT, bytes.decode)) if wrong_order else None
        found = yield from find_orphans(run_id, now=1.0, grace=0.0)
        if not wrong_order:
            kept = yield from find(CHECKPOINT, bytes.decode)
        removed = yield from remove_orphans(found, (kept or "").split())
        log.answered("swept", tuple(rest.name for rest in removed))

    return Actor("sweeper", (stage,))


def worker():
    return Actor(
        "worker",
        (
            step("admit", lambda: begin_call(RUN, ROLLOUT, "c0")),
            step("stage", lambda: staging.stage(RUN, RECORD)),
            step("record", lambda: ledger.record(RUN, COMMIT)),
        ),
    )


def collector(*, publish_first=True):
    """One who publishes what was recorded and then retires the ledger and the tokens."""
    publishing = step("publish", lambda: publish(RUN, RECEIPT))
    retiring = step("retire tokens", lambda: retire(tokens.FAMILY, RUN, [ROLLOUT]))
    dropping = step("retire ledger", lambda: retire(ledger.FAMILY, RUN, [ROLLOUT]))
    return Actor("collector", (publishing, retiring, dropping) if publish_first else (retiring, dropping, publishing))


def trainer():
    """One who saves a checkpoint that lists the row, and then lets the rollout go."""
    return Actor(
        "trainer",
        (
            step("save", lambda: put(CHECKPOINT, KEY.encode())),
            step("retire", lambda: retire_consumed(RUN, ["step-1"])),
        ),
    )


def needed_rows_stay(world):
    """A row that was recorded, published or listed and not given up is there."""
    said = {event.what for event in world.log if not event.asked}
    needed = said & {"record", "save", "publish"}
    return f"{world.actor} took the row" if needed and ROW not in world.bucket else None


def only_orphans_go(world):
    """A sweep takes nothing but staged rows and late writes, and nothing that is referred to."""
    gone = world.before.keys() - world.bucket.keys()
    if world.actor == "sweeper" and ROW in gone:
        return "the sweep took a row that somebody needs"
    return None


def the_orphan_goes(world):
    """A sweep that has ended has removed the row that nobody needs."""
    ended = any(event.what == "swept" for event in world.log)
    return "the orphan is still there" if ended and ORPHAN_ROW in world.bucket else None


LAWS = (needed_rows_stay, only_orphans_go, the_orphan_goes)
CRASHING = Bounds(crashes=1, lost=0)
LOSING = Bounds(crashes=0, lost=1)


def play(*actors, start, bounds=CRASHING):
    return explore(actors, start, LAWS, bounds)


@pytest.mark.parametrize("bounds", [CRASHING, LOSING])
def test_a_sweep_beside_a_worker_and_its_model_server(bounds):
    result = play(sweeper(), worker(), start=EMPTY, bounds=bounds)
    assert not result.violations, str(result)
    assert result.schedules > 100


def test_a_sweep_beside_a_collector_that_publishes_and_retires():
    result = play(sweeper(), collector(), start=RECORDED)
    assert not result.violations, str(result)
    assert result.schedules > 100


def test_a_sweep_beside_a_trainer_that_saves_a_checkpoint_and_retires():
    result = play(sweeper(), trainer(), start=PUBLISHED)
    assert not result.violations, str(result)
    assert result.schedules > 100


def test_a_list_that_is_read_before_the_store_is_found_wrong():
    result = play(sweeper(wrong_order=True), trainer(), start=PUBLISHED)
    assert any("took" in str(one) for one in result.violations)


def test_a_collector_that_retires_before_it_publishes_is_found_wrong():
    result = play(sweeper(), collector(publish_first=False), start=RECORDED)
    assert any("took" in str(one) for one in result.violations)


@pytest.mark.parametrize("late", ["rows/", "fences/"])
@pytest.mark.parametrize(("other", "start"), [(worker, EMPTY), (collector, RECORDED), (trainer, PUBLISHED)])
def test_a_sweep_whose_listings_have_pages(late, other, start):
    result = play(
        sweeper(), other(), start=start, bounds=Bounds(crashes=0, lost=0, second_page=lambda key: late in key)
    )
    assert not result.violations, str(result)
    assert result.schedules > 1_000_000


DROPPED = cast.stored(tokens.put_entry(cast.RUN, cast.A))


def test_a_sweep_beside_two_consumers_of_which_one_may_sleep_for_ever():
    """An intent to drop holds its rollout however old it is: nobody knows whether its consumer is dead."""
    marked = {**DROPPED, cast.LOST.key: cast.LOST.body}
    first = cast.holder("first", 0x100, cast.wanted(DROPPED))
    second = cast.holder("second", 0x200, cast.wanted(marked))
    laws = (
        promise_8_one_snapshot_is_retired,
        promise_9_dropped_means_gone,
        promise_9_repeating_finishes,
        promise_9_nothing_vanishes_from_a_live_rollout,
    )
    result = explore([sweeper(cast.RUN), cast.marker("writer"), first, second], DROPPED, laws, CRASHING)
    assert not result.violations, str(result)
    assert result.schedules > 1_000_000
