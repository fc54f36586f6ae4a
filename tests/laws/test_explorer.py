# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Every promise of the token path holds in every schedule of these scenarios, over the flows that ship.

Each test prints how many schedules it stands for and in how many states they were followed: see them with
``pytest -rP``. Two variants of ``drop`` that are wrong must be found wrong.
"""

from __future__ import annotations

import pytest

from gym_objstore.flow import delete, find, put
from gym_objstore.index import read_index
from gym_objstore.keys import tombstone_key
from gym_objstore.objects import write_fenced, write_object
from gym_objstore.testing.explorer import Bounds, explore
from gym_objstore.tokens import put_entry
from tests.laws.cast import (
    OTHER_A,
    OTHER_LOST,
    PREFIX,
    RUN,
    A,
    B,
    caller,
    consumer,
    deleter,
    holder,
    marker,
    putter,
    reader,
    retirer,
    stored,
    wanted,
)
from tests.laws.promises import PROMISES, live, readers_get_all_of, said, state

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


def play(*actors, bounds=FAILING, start=START, laws=()):
    result = explore(actors, start, (*PROMISES, readers_get_all_of(start), *laws), bounds)
    print(f"{result.schedules:,} schedules in {result.states:,} states")
    return result


def must_hold(*actors, **how):
    result = play(*actors, **how)
    assert not result.violations, str(result)
    assert result.schedules


@pytest.mark.parametrize("write", WRITERS)
def test_one_writer_and_two_consumers_of_which_one_crashes(write):
    must_hold(WRITERS[write], holder("first", 0x100, FIRST), consumer("second", 0x200), bounds=CRASHING)


@pytest.mark.parametrize("numbers", [(0x100, 0x200), (0x200, 0x100)])
def test_one_writer_and_two_consumers_with_one_lost_answer(numbers):
    first, second = numbers
    must_hold(WRITERS["put"], holder("first", first, FIRST), consumer("second", second), bounds=LOSING)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("write", ["put", "mark"])
def test_one_writer_and_two_consumers_with_a_crash_and_a_lost_answer(write):
    must_hold(WRITERS[write], consumer("first", 0x100), consumer("second", 0x200))


@pytest.mark.parametrize("write", WRITERS)
def test_one_writer_and_one_consumer_with_a_crash_and_a_lost_answer(write):
    must_hold(WRITERS[write], consumer("first", 0x100))


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


# Which keys a listing of two pages reads later than the rest. The second and third only happen in stores that
# list in no order, as S3 Express does.
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


def test_a_write_that_lands_long_after_its_writer_gave_up():
    bounds = Bounds(crashes=0, lost=0, late=1)
    must_hold(WRITERS["mark"], holder("first", 0x100, FIRST), consumer("second", 0x200), bounds=bounds)
