# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The explorer loses no schedule: it agrees with an enumeration one by one, and with what can be counted by hand."""

from __future__ import annotations

import pytest

from gym_objstore.errors import Retired
from gym_objstore.flow import All, Compute, Delete, Find, Folders, Get, GetRange, Head, Put, Scan, run
from gym_objstore.store.memory import MemoryStore
from gym_objstore.testing.actors import Actor
from gym_objstore.testing.explorer import Bounds, explore
from tests.one_by_one import all_ends, known_order

PERFECT = Bounds(crashes=0, lost=0)


def one_stage(name, flow):
    """Return an actor that asks for a flow and says what it was answered."""

    def stage(log, _):
        log.asked("go", log.attempt)
        log.answered("done", (yield from flow()))

    return Actor(name, (stage,))


def put(*keys):
    def flow():
        for key in keys:
            yield Put(key, b"x")

    return flow


def increment():
    count = yield Find("count", int)
    yield Put("count", b"%d" % ((count or 0) + 1))


def outcomes(actors, initial=None, bounds=PERFECT):
    """Return the number of schedules and everything that may be the end."""
    ends = set()

    def look(world):
        if world.over:
            ends.add((frozenset(world.bucket.items()), known_order(world.log)))

    result = explore(actors, initial or {}, [look], bounds)
    assert not result.violations
    return result.schedules, ends


def guarded_write():
    seen, _ = yield All((Head("fence"), Put("object", b"x")))
    return seen is None


def fence_and_clear():
    yield Put("fence", b"x")
    found = yield Scan("")
    yield Delete(tuple(meta.key for meta in found if meta.key != "fence"))


def two_stages(name):
    def first(log, _):
        return (yield Find("a", bytes))

    def second(log, brought):
        log.asked("write", brought)
        yield Put(f"by {name}", brought or b"-")
        log.answered("written")

    return Actor(name, (first, second))


GAMES = {
    "two writers": ([one_stage("p", put("a", "b")), one_stage("q", put("c"))], {}),
    "read, modify, write": ([one_stage("p", increment), one_stage("q", increment)], {}),
    "a write behind a fence": ([one_stage("p", guarded_write), one_stage("q", fence_and_clear)], {}),
    "a torn delete": ([one_stage("p", lambda: (yield Delete(("a", "b")))), one_stage("q", put("b"))], {"a": b"1"}),
    "stages": ([two_stages("p"), one_stage("q", put("a"))], {}),
    "three": ([one_stage("p", put("a")), one_stage("q", increment), one_stage("r", guarded_write)], {"fence": b"x"}),
}


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize(
    "bounds",
    [
        PERFECT,
        Bounds(crashes=1, lost=0),
        Bounds(crashes=0, lost=1),
        Bounds(crashes=0, lost=0, late=1),
        Bounds(crashes=0, lost=0, second_page=lambda key: key > "b"),
    ],
    ids=["perfect", "crash", "lost", "late", "pages"],
)
def test_an_enumeration_one_by_one_counts_the_same_schedules_and_ends(game, bounds):
    actors, initial = GAMES[game]
    assert outcomes(actors, initial, bounds) == all_ends(actors, initial, bounds)


def test_a_crash_and_a_lost_answer_together_are_enumerated_too():
    actors, initial = GAMES["a write behind a fence"]
    actors = [actors[0], one_stage("q", put("fence"))]
    bounds = Bounds(crashes=1, lost=1, late=1)
    assert outcomes(actors, initial, bounds) == all_ends(actors, initial, bounds)


def test_two_actors_with_two_and_three_effects_interleave_in_ten_ways():
    schedules, ends = outcomes([one_stage("p", put("a", "b")), one_stage("q", put("c", "d", "e"))])
    assert schedules == 10
    assert len({bucket for bucket, _ in ends}) == 1


def test_the_operations_of_one_round_trip_happen_in_any_order():
    assert outcomes([one_stage("p", lambda: (yield All((Put("a", b""), Put("b", b""), Head("c")))))])[0] == 6


def test_a_lost_update_is_found_with_its_shortest_schedule():
    def both_count(world):
        done = sum(event.what == "done" for event in world.log)
        return f"count={world.bucket['count']!r}" if done == 2 and world.bucket["count"] != b"2" else None

    result = explore([one_stage("p", increment), one_stage("q", increment)], {}, [both_count], PERFECT)
    (found,) = result.violations
    assert (result.schedules, result.broken, found.law, found.message) == (2, 4, "both_count", "count=b'1'")
    assert [line.split() for line in found.schedule] == [
        ["p", "does", "read", "count"],
        ["q", "does", "read", "count"],
        ["p", "does", "put", "count"],
        ["q", "does", "put", "count"],
    ]


def test_no_race_is_reported_where_there_is_none():
    def nothing_lost(world):
        return "lost" if world.over and set(world.bucket) != {"a", "b"} else None

    result = explore([one_stage("p", put("a")), one_stage("q", put("b"))], {}, [nothing_lost], PERFECT)
    assert (result.schedules, result.violations) == (2, ())


def ends_of(actor, initial=None, **bounds):
    """Return the keys that may be left in the end, and whether the actor got to know that it is done."""
    _, ends = outcomes([actor], initial, Bounds(**{"crashes": 0, "lost": 0, **bounds}))
    told = lambda own: any(event.what == "done" for _, events in own for event in events)  # noqa: E731
    return {("".join(sorted(key for key, _ in bucket)), told(own)) for bucket, (own, _) in ends}


def test_a_crash_happens_between_any_two_effects_and_before_any_answer():
    assert ends_of(one_stage("p", put("a", "b")), crashes=1) == {
        ("", False),
        ("a", False),
        ("ab", False),
        ("ab", True),
    }


def test_a_delete_of_several_keys_is_torn_everywhere():
    delete = one_stage("p", lambda: (yield Delete(("a", "b"))))
    assert ends_of(delete, {"a": b"1", "b": b"2"}, crashes=1) == {
        ("", False),
        ("", True),
        ("a", False),
        ("b", False),
        ("ab", False),
    }


def test_every_answer_may_be_lost_and_the_stage_is_then_repeated():
    def stage(log, _):
        yield Put(f"a{log.attempt}", b"x")
        yield Put(f"b{log.attempt}", b"x")
        log.answered("done")

    assert ends_of(Actor("p", (stage,)), lost=1) == {("a0b0", True), ("a0a1b1", True), ("a0a1b0b1", True)}
    assert ends_of(Actor("p", (stage,)), lost=0) == {("a0b0", True)}


def test_a_request_that_was_given_up_happens_later_or_never():
    def stage(log, _):
        yield Put(f"a{log.attempt}", b"x")
        log.answered("done")

    assert ends_of(Actor("p", (stage,)), late=1) == {("a0", True), ("a1", True), ("a0a1", True)}


def test_a_late_request_may_undo_what_came_after_it():
    def stage(log, _):
        yield (Delete(("a",)) if log.attempt == 0 else Put("a", b"x"))
        log.answered("done")

    assert ("", True) in ends_of(Actor("p", (stage,)), late=1)
    assert ends_of(Actor("p", (stage,)), lost=1) == {("", True), ("a", True)}


def test_a_listing_of_two_pages_may_miss_the_earlier_of_two_writes():
    listing = one_stage("p", lambda: (yield from names()))

    def names():
        return "".join(meta.key for meta in (yield Scan("")))

    def seen(**bounds):
        _, ends = outcomes([listing, one_stage("q", put("a", "b"))], None, Bounds(crashes=0, lost=0, **bounds))
        said = {event for _, (own, _) in ends for _, events in own for event in events}
        return {event.value for event in said if event.actor == "p" and event.what == "done"}

    assert seen() == {"", "a", "ab"}
    assert seen(second_page=lambda key: key == "b") == {"", "a", "ab", "b"}


def test_the_same_question_has_the_same_answer():
    actors, initial = GAMES["a write behind a fence"]
    assert str(explore(actors, initial, [], Bounds(late=1))) == str(explore(actors, initial, [], Bounds(late=1)))


def test_an_error_of_this_package_ends_an_actor_and_any_other_breaks_a_law():
    def refused():
        yield Put("a", b"x")
        raise Retired("the rollout is retired")

    def wrong():
        yield Get("absent")
        raise ZeroDivisionError

    def mistaken():
        yield Put("a", b"x")
        raise ZeroDivisionError

    _, ends = outcomes([one_stage("p", refused)])
    assert [event[1:3] for _, (own, _) in ends for _, events in own for event in events][-1] == ("raised", "Retired")
    _, ends = outcomes([one_stage("p", wrong)])
    assert [event[1:3] for _, (own, _) in ends for _, events in own for event in events][-1] == ("raised", "NotFound")
    (found,) = explore([one_stage("p", mistaken)], {}, [], PERFECT).violations
    assert (found.law, found.message) == ("no_other_error", "p broke: ZeroDivisionError()")


def every_operation():
    answers = []
    for operation in (
        Put("d/a", b"one"),
        Put("d/b", [b"t", b"wo"]),
        Put("d/e/c", b"three"),
        Head("d/a"),
        Head("d/x"),
        Get("d/b"),
        Find("d/e/c", len),
        Find("d/x", len),
        GetRange("d/e/c", 1, 3, bytes.upper),
        Scan("d/"),
        Folders("d/"),
        Compute(max, (1, 2), 0),
        Delete(("d/a", "d/x")),
        All(()),
        All((Scan("d/e/"), Compute(min, (1, 2), 0), Delete(("d/b",)), Find("d/e/c", bytes))),
        Scan("d/"),
    ):
        answer = yield operation
        answers.append(answer)
    for operation in (Get("d/x"), GetRange("d/x", 0, 1, bytes)):
        try:
            yield operation
        except KeyError as error:
            answers.append(str(error))
    return untimed(answers)


def untimed(answer):
    if isinstance(answer, (list, tuple)):
        without_time = answer[:2] if hasattr(answer, "modified") else answer
        return tuple(untimed(one) for one in without_time)
    return answer


@pytest.mark.parametrize("second_page", [None, lambda key: key < "d/b"])
def test_every_operation_answers_as_the_reference_store_does(second_page):
    store = MemoryStore()
    expected = run(every_operation(), store)
    bounds = Bounds(crashes=0, lost=0, second_page=second_page)
    _, ends = outcomes([one_stage("p", every_operation)], None, bounds)
    (found,) = {event.value for _, (own, _) in ends for _, events in own for event in events if event.what == "done"}
    assert found == expected
    assert {bucket for bucket, _ in ends} == {frozenset({("d/e/c", store.get("d/e/c"))})}
