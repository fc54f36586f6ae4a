# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The promises of the token path as laws for the explorer, each named after its number in the design.

A law judges one step: the bucket before and after it, who made it, and what everybody said so far. What a
rollout without a tombstone shows is what a reader that arrives now takes for the whole.
"""

from __future__ import annotations

from functools import cache

from gym_objstore.flow import run
from gym_objstore.retirement import delete_rollouts, drop, retire
from gym_objstore.tokens import FAMILY, freeze
from tests.laws.cast import (
    EVERYTHING,
    FENCES,
    INTENT,
    LOST,
    PREFIX,
    ROLLOUT,
    RUN,
    TOMBSTONE,
    B,
    bucket_of,
    key_of,
    state,
    stored,
)

ANOTHER = 0xFFFF
"""The number of a consumer that appears in no scenario."""


def promise_1_what_was_acknowledged_is_there(world):
    missing = said(world, "stored") - world.bucket.keys()
    if live(world.bucket) and missing:
        return f"acknowledged, not in the bucket and not retired: {sorted(missing)}"
    return None


def promise_3_two_payloads_are_a_conflict(world):
    names = [key.rpartition("/")[2].partition(".")[0] for key in world.bucket if "/entries/" in key]
    twice = {call for call in names if names.count(call) > 1}
    if live(world.bucket) and twice:
        calls, problems = reading(world.bucket)
        if calls & twice or not {("conflict", call) for call in twice} <= problems:
            return f"two payloads of a call look valid: {sorted(twice)}"
    return None


def promise_4_a_lost_call_leaves_a_trace(world):
    if live(world.bucket) and INTENT in said(world, "stored") and key_of(B) not in world.bucket:
        _, problems = reading(world.bucket)
        if ("dangling_intent", "b") not in problems:
            return "an admitted call without an entry leaves no trace"
    return None


def promise_5_a_stale_drop_fails(world):
    for snapshot in said(world, "dropped"):
        # Whoever asks later for the same snapshot is told of the same retirement.
        asked = next(n for n, event in enumerate(world.log) if (event.what, event.value) == ("drop", snapshot))
        unseen = said_in(world.log[:asked], "stored") - snapshot.objects
        if unseen:
            return f"a snapshot was retired without what was stored before anybody asked for it: {sorted(unseen)}"
    return None


def promise_5_a_failed_drop_keeps_everything(world):
    last = last_word(world)
    if last and last.what == "kept" and live(world.bucket) and not last.value.objects <= world.bucket.keys():
        return f"{last.actor} was refused, but not everything is there"
    return None


def promise_5_a_drop_is_refused_for_a_reason(world):
    last = last_word(world)
    if last and last.what == "kept":
        rivals = said(world, "drop") - {last.value} or said(world, "retire") or said(world, "delete")
        if not rivals and state(world.before) | said(world, "write") <= last.value.objects:
            return f"{last.actor} was refused without any reason"
    return None


def promise_5_a_freeze_is_exact(world):
    last = last_word(world)
    if last and last.what == "froze" and not said(world, "delete"):
        snapshot, calls, problems = last.value
        missing = said_in(world.log[: asked_at(world, "freeze")], "stored") - snapshot.objects
        if missing:
            return f"stored before the freeze and not in it: {sorted(missing)}"
        now = state(world.bucket)
        if live(world.bucket) and now != snapshot.objects and len(now) <= snapshot.version:
            return "the rollout changed and its version did not"
        if (calls, problems) != reading({key: EVERYTHING[key] for key in snapshot.objects}):
            return f"calls={sorted(calls)} and problems={sorted(problems)} are not those of the snapshot"
    return None


def promise_6_only_what_was_consumed_is_deleted(world):
    gone = state(world.before) - state(world.bucket)
    mine = [event for event in world.log if event.actor == world.actor]
    allowed = any(
        event.what in ("retire", "delete") or (event.what == "drop" and gone <= event.value.objects) for event in mine
    )
    if gone and not allowed:
        return f"{world.actor} deleted what it had not consumed: {sorted(gone)}"
    return None


def promise_7_later_writes_and_freezes_fail(world):
    over, late = False, set()
    for event in world.log:
        over = over or event.what in ("dropped", "retired")
        if event.what in ("write", "freeze"):
            (late.add if over else late.discard)(event.actor)
        # A marker is taken in any case: nobody sees it there, and it must never fail for being late.
        done = event.what in ("stored", "froze") and event.value != LOST.key
        if done and event.actor in late and not said(world, "delete"):
            return f"{event.actor} {event.what} after retirement"
    return None


def promise_8_one_snapshot_is_retired(world):
    retired = said(world, "dropped")
    return "two snapshots were dropped with True" if len(retired) > 1 else None


def promise_9_nothing_vanishes_from_a_live_rollout(world):
    if live(world.before) and state(world.before) - state(world.bucket):
        return "a part of a rollout that is not retired is gone"
    if not live(world.before) and live(world.bucket) and state(world.bucket):
        return "the fence was lifted from objects"
    return None


def promise_9_dropped_means_gone(world):
    last = last_word(world)
    if last and last.what == "dropped":
        left = (last.value.objects - said(world, "write")) & world.bucket.keys()
        if left or live(world.bucket):
            return f"{last.actor} dropped with True, but this is left: {sorted(left)}"
    return None


def promise_9_repeating_finishes(world):
    if not world.over:
        return None
    bucket, written = _frozen(world.bucket), said(world, "write")
    if said(world, "delete"):
        return after_delete(bucket)
    if said(world, "retire"):
        return after_retire(bucket)
    dropped = said(world, "dropped")
    wrongs = (after_drop(bucket, one, written, again=one in dropped) for one in said(world, "drop"))
    return next(filter(None, wrongs), None)


@cache
def after_delete(bucket):
    store = bucket_of(dict(bucket))
    run(delete_rollouts(FAMILY, RUN, [ROLLOUT]), store)
    left = [meta.key for meta in store.scan(PREFIX)]
    return f"after another delete this is left: {left}" if left else None


@cache
def after_retire(bucket):
    store = bucket_of(dict(bucket))
    run(retire(FAMILY, RUN, [ROLLOUT]), store)
    left = [meta.key for meta in store.scan(PREFIX) if meta.key != TOMBSTONE]
    return f"after another retire this is left: {left}" if left else None


@cache
def after_drop(bucket, snapshot, written, *, again):
    """Say what is wrong after another consumer of the snapshot tried, undisturbed."""
    before, store = dict(bucket), bucket_of(dict(bucket))
    claim = snapshot.claim(ANOTHER)
    dropped = run(drop(claim), store)
    left = {meta.key for meta in store.scan(PREFIX)}
    if dropped and ((snapshot.objects - written) & left or TOMBSTONE not in left):
        return f"a repeated drop said True and left {sorted(left)}"
    if not dropped and (again or before.get(TOMBSTONE) == claim.tombstone or state(left) != state(before)):
        return f"a repeated drop said False and left {sorted(left)}"
    if dropped and any(key.startswith(f"{FENCES}drop.{snapshot.snapshot_id}") for key in left):
        return "a repeated drop said True and left an intent"
    return None


def readers_get_all_of(start):
    """Return the law that nobody freezes a part of what was there from the beginning."""

    def promise_9_no_reader_takes_a_part(world):
        last = last_word(world)
        if last and last.what == "froze":
            objects = last.value[0].objects
            if not (state(start) <= objects or (said(world, "delete") and not objects)):
                return f"{last.actor} froze a part of the rollout: {sorted(objects)}"
        return None

    return promise_9_no_reader_takes_a_part


PROMISES = tuple(law for name, law in sorted(globals().items()) if name.startswith("promise_"))


def live(bucket) -> bool:
    return TOMBSTONE not in bucket


def said(world, what) -> frozenset:
    return said_in(world.log, what)


def said_in(log, what) -> frozenset:
    return frozenset(event.value for event in log if event.what == what)


def asked_at(world, what) -> int:
    """Return where in the log the one who acted asked for something last."""
    return max(place for place, event in enumerate(world.log) if (event.actor, event.what) == (world.actor, what))


def last_word(world):
    """Return what the one who acted said last. Nobody here acts after the answer to a last request."""
    return next((event for event in reversed(world.log) if event.actor == world.actor), None)


def reading(bucket):
    """Return the calls and problems that a reader who arrives now finds in a rollout that is not retired."""
    return _reading(_frozen(bucket))


@cache
def _reading(bucket):
    snapshot = run(freeze(RUN, ROLLOUT), bucket_of(stored() | dict(bucket)))
    calls = frozenset(entry.model_call_id for entry in snapshot.entries)
    return calls, frozenset((problem.kind, problem.model_call_id) for problem in snapshot.problems)


def _frozen(bucket):
    return frozenset(bucket.items())
