# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Every promise of the token path holds in every schedule of these scenarios, over the flows that ship.

Each test prints how many schedules it stands for and in how many states they were followed: see them with
``pytest -rP``. Two variants of ``drop`` that are wrong must be found wrong.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations

import pytest

from gym_objstore.flow import delete, perform, put, run
from gym_objstore.index import read_index
from gym_objstore.keys import tombstone_key
from gym_objstore.objects import write_fenced, write_object
from gym_objstore.retirement import drop, retire
from gym_objstore.testing.explorer import Bounds, explore
from gym_objstore.tokens import FAMILY, freeze, put_entry
from tests.laws.cast import (
    EVERYTHING,
    OTHER_A,
    OTHER_LOST,
    PREFIX,
    ROLLOUT,
    RUN,
    TOMBSTONE,
    TWIN,
    A,
    B,
    Wanted,
    bucket_of,
    caller,
    consumer,
    deleter,
    holder,
    marker,
    publisher,
    putter,
    reader,
    resolver,
    resolving,
    retirer,
    state,
    stored,
    wanted,
)
from tests.laws.promises import (
    PROMISES,
    asked_at,
    last_word,
    live,
    promise_8_one_snapshot_is_retired,
    readers_get_all_of,
    said,
    said_in,
)

START = stored(put_entry(RUN, A))
FIRST = wanted(START)
WRITERS = {
    "put": putter("writer", B),
    "mark": marker("writer"),
    "begin_call and put": caller("writer", B),
}

FAILING = Bounds(crashes=1, lost=1)
CRASHING = Bounds(crashes=1, lost=0)
LOSING = Bounds(crashes=0, lost=1)


def play(*actors, laws=PROMISES, bounds=FAILING, start=START):
    result = explore(actors, start, laws, bounds)
    print(result)  # noqa: T201 - how much was played is a part of the result
    return result


def must_hold(*actors, start=START, laws=(), **how):
    result = play(*actors, laws=(*PROMISES, readers_get_all_of(start), *laws), start=start, **how)
    assert not result.violations
    assert result.schedules


@pytest.mark.parametrize("write", WRITERS)
def test_one_writer_and_two_consumers_of_which_one_crashes(write):
    must_hold(WRITERS[write], holder("first", 0x100, FIRST), consumer("second", 0x200), bounds=CRASHING)


@pytest.mark.parametrize(("numbers", "bounds"), [((0x100, 0x200), FAILING), ((0x200, 0x100), LOSING)])
def test_a_marker_and_two_consumers_with_a_crash_and_a_lost_answer(numbers, bounds):
    first, second = numbers
    must_hold(marker("writer"), holder("first", first, FIRST), consumer("second", second), bounds=bounds)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("write", ["put", "mark"])
def test_one_writer_and_two_consumers_with_a_crash_and_a_lost_answer(write):
    must_hold(WRITERS[write], consumer("first", 0x100), consumer("second", 0x200))


@pytest.mark.parametrize("write", WRITERS)
def test_one_writer_and_one_consumer_with_a_crash_and_a_lost_answer(write):
    must_hold(WRITERS[write], consumer("first", 0x100))


@pytest.mark.parametrize("write", ["put", "mark"])
def test_a_publisher_beside_a_writer_and_a_consumer_of_which_one_crashes(write):
    must_hold(publisher("publisher"), WRITERS[write], consumer("consumer", 0x100), bounds=CRASHING)


def test_two_consumers_of_different_snapshots():
    start = stored(put_entry(RUN, A), put_entry(RUN, B))
    must_hold(holder("stale", 0x100, FIRST), holder("fresh", 0x200, wanted(start)), start=start)


def test_two_consumers_of_one_snapshot():
    must_hold(holder("first", 0x100, FIRST), holder("second", 0x200, FIRST))


def test_an_interrupted_drop_is_finished_by_three_tries():
    must_hold(holder("consumer", 0x100, FIRST), bounds=Bounds(crashes=1, lost=2))


def test_retire_and_drop():
    must_hold(retirer("retirer"), consumer("consumer", 0x100))


@pytest.mark.parametrize("write", WRITERS)
def test_retire_and_a_writer(write):
    must_hold(WRITERS[write], retirer("retirer"))


def test_retire_and_drop_and_put():
    must_hold(WRITERS["put"], retirer("retirer"), holder("consumer", 0x100, FIRST), bounds=CRASHING)


@pytest.mark.parametrize("after_retiring", [True, False])
def test_delete_twice_while_somebody_reads(after_retiring):
    start = stored(put_entry(RUN, A), put_entry(RUN, B))
    must_hold(deleter("deleter", after_retiring=after_retiring), reader("reader"), start=start)


def test_a_put_whose_answers_were_lost_leaves_one_object():
    def one_object(world):
        return f"{state(world.bucket)}" if said(world, "stored") and len(state(world.bucket)) != 1 else None

    must_hold(putter("writer", A), bounds=Bounds(crashes=1, lost=3), start=stored(), laws=[one_object])


def test_two_payloads_of_a_call_and_a_reader():
    must_hold(putter("first", A), putter("second", OTHER_A), reader("reader"), start=stored())


def test_two_payloads_of_a_call_and_a_drop():
    must_hold(putter("second", OTHER_A), consumer("consumer", 0x100))


@pytest.mark.parametrize("write", WRITERS)
def test_freeze_and_a_writer(write):
    must_hold(WRITERS[write], reader("reader"))


@pytest.mark.parametrize("write", WRITERS)
def test_freeze_and_a_writer_and_a_drop(write):
    must_hold(WRITERS[write], holder("consumer", 0x100, FIRST), reader("reader"), bounds=CRASHING)


# Which keys a listing of two pages reads later than the rest. Only the first is a listing in the order of keys;
# the others happen in stores that list in none, as S3 Express does.
PAGES = {
    "entries first": lambda key: "/entries/" not in key,
    "fences last": lambda key: "/fences/" in key,
    "fences first": lambda key: "/fences/" not in key,
    "tombstone first": lambda key: not key.endswith("/tombstone"),
}


@pytest.mark.parametrize("pages", PAGES)
@pytest.mark.parametrize("write", WRITERS)
def test_a_listing_of_two_pages_and_a_writer_and_a_drop(write, pages):
    bounds = Bounds(crashes=0, lost=0, second_page=PAGES[pages])
    start = stored(put_entry(RUN, A), write_fenced(PREFIX, [OTHER_LOST]))
    must_hold(WRITERS[write], holder("consumer", 0x100, wanted(start)), reader("reader"), bounds=bounds, start=start)


@pytest.mark.parametrize("pages", PAGES)
def test_a_listing_of_two_pages_and_two_consumers(pages):
    bounds = Bounds(crashes=0, lost=0, second_page=PAGES[pages])
    must_hold(WRITERS["mark"], holder("first", 0x100, FIRST), consumer("second", 0x200), bounds=bounds)


def promise_3_a_parent_is_proven(world):
    """The answer is that of a moment between question and answer; entries on two pages may be of two moments."""
    last = last_word(world)
    if last and last.what == "resolved":
        certain = said_in(world.log[: asked_at(world, "resolve")], "stored")
        possible = sorted(said(world, "write") - certain)
        moments = [certain.union(some) for count in range(3) for some in combinations(possible, count)]
        if last.value not in {resolved(moment) for moment in moments}:
            return f"resolved to {last.value}"
    return None


@cache
def resolved(keys):
    return run(resolving(), bucket_of({key: EVERYTHING[key] for key in keys}))


@pytest.mark.parametrize("later", ["no page", "/entries/a.", "/entries/b."])
@pytest.mark.parametrize("rival", [B, TWIN, OTHER_A], ids=["another call", "an equal call", "another payload"])
def test_resolve_and_two_writers(rival, later):
    actors = putter("writer", A), putter("rival", rival), resolver("resolver")
    bounds = Bounds(second_page=None if later == "no page" else lambda key: later in key)
    must_hold(*actors, bounds=bounds, start=stored(), laws=[promise_3_a_parent_is_proven])


LATE = Bounds(crashes=0, lost=0, late=1)


@pytest.mark.parametrize("write", WRITERS)
def test_one_writer_and_one_consumer_and_a_request_that_lands_long_after_it_was_given_up(write):
    must_hold(WRITERS[write], consumer("consumer", 0x100), bounds=LATE)


def test_a_consumer_that_keeps_its_number_for_a_second_attempt_is_found():
    """Its refused second attempt removes the intent that the tombstone of its first one, still under way, relies on."""
    actors = marker("writer"), holder("consumer", 0x100, FIRST, numbers_anew=False)
    assert [found.law for found in play(*actors, bounds=LATE).violations] == ["promise_9_repeating_finishes"]
    must_hold(marker("writer"), holder("consumer", 0x100, FIRST), bounds=LATE)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("write", ["put", "mark"])
def test_one_writer_and_two_consumers_and_a_request_that_lands_long_after_it_was_given_up(write):
    must_hold(WRITERS[write], holder("first", 0x100, FIRST), consumer("second", 0x200), bounds=LATE)


def withdraw(claim):
    """One tombstone for all consumers, withdrawn when something new appeared."""
    index = yield from read_index(claim.rollout)
    if index.tombstone or index.snapshot_id != claim.snapshot_id:
        return False
    yield from put(tombstone_key(claim.rollout), claim.tombstone)
    seen = yield from read_index(claim.rollout)
    if set(seen.state) - set(index.state):
        yield from delete([tombstone_key(claim.rollout)])
        return False
    yield from delete(claim.rollout + name for name in index.state)
    return True


def ignore_rivals(claim):
    """An intent for each consumer and a commit after a clean listing, whatever the others want."""
    index = yield from read_index(claim.rollout)
    if index.tombstone or index.snapshot_id != claim.snapshot_id:
        return False
    yield from put(claim.intent, write_object(objects=index.state))
    seen = yield from read_index(claim.rollout)
    if set(seen.state) - set(index.state):
        yield from delete([claim.intent])
        return False
    yield from put(tombstone_key(claim.rollout), claim.tombstone)
    yield from delete(claim.rollout + name for name in index.state)
    return True


def promise_9_no_part_looks_live(world):
    return "a part looks live" if live(world.bucket) and not state(START) <= world.bucket.keys() else None


def broken_by(drop) -> set[str]:
    """Return the laws that a late marker and two such consumers break, of those that matter here."""
    actors = marker("writer"), consumer("first", 0x100, drop=drop), consumer("second", 0x200, drop=drop)
    laws = promise_8_one_snapshot_is_retired, promise_9_no_part_looks_live
    return {violation.law for violation in play(*actors, laws=laws, bounds=CRASHING).violations}


def test_the_planted_bug_a_tombstone_that_is_withdrawn_is_found():
    assert broken_by(withdraw) == {
        "promise_8_one_snapshot_is_retired",
        "promise_9_no_part_looks_live",
    }


def test_the_planted_bug_intents_without_agreement_is_found():
    assert broken_by(ignore_rivals) == {"promise_8_one_snapshot_is_retired"}


def test_the_drop_that_ships_holds_where_those_break():
    assert broken_by(drop) == set()


def test_an_abandoned_drop_of_a_rollout_that_changed_refuses_every_other_until_it_is_retired():
    """Nobody can tell a consumer that died before its tombstone from one that is slow."""
    store = bucket_of(START)
    abandoned = drop(FIRST.claim(1))
    perform(abandoned.send(perform(next(abandoned), store)), store)
    run(put_entry(RUN, B), store)
    fresh = run(freeze(RUN, ROLLOUT), store)
    assert not run(drop(Wanted(fresh.snapshot_id, fresh.version).claim(2)), store)
    assert not run(drop(FIRST.claim(3)), store)
    assert len(run(freeze(RUN, ROLLOUT), store).entries) == 2
    run(retire(FAMILY, RUN, [ROLLOUT]), store)
    assert [meta.key for meta in store.scan(PREFIX)] == [TOMBSTONE]
