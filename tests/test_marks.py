# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from gym_objstore.store import marks as module
from gym_objstore.store.marks import Marks, mark_of
from tests.synthetic import peak_of


def test_it_is_a_set():
    marks = Marks()
    assert [marks.add(text) for text in ("a", "b", "a")] == [True, True, False]
    assert ("a" in marks, "c" in marks, len(marks)) == (True, False, 2)
    assert (marks.has(mark_of("b")), marks.put(mark_of("b"))) == (True, False)


def test_thousands_are_told_apart():
    marks = Marks()
    assert all(marks.add(f"key-{number}") for number in range(30_000))
    assert all(f"key-{number}" in marks for number in range(0, 30_000, 7))
    assert not any(f"other-{number}" in marks for number in range(30_000))


def test_two_sets_meet_where_they_share_one():
    one, other = Marks(), Marks()
    for number in range(100):
        one.add(f"a{number}")
        other.add(f"b{number}")
    assert not one.meets(other)
    other.add("a99")
    assert one.meets(other)


def test_a_hash_is_not_found_across_two_others():
    first, second = bytes(range(16)), bytes(range(16, 32))
    across = first[8:] + second[:8]
    assert module._within(first + second, second)
    assert not module._within(first + second, across)
    assert module._within(first + second + across, across)


def test_a_lone_surrogate_has_a_mark():
    marks = Marks()
    marks.add("\ud800")
    assert "\ud800" in marks


def test_a_text_takes_some_twenty_bytes():
    def fill():
        marks = Marks()
        for number in range(100_000):
            marks.add(f"tokens/run-1/rollout-{number}/entries/{number:0120d}")
        return marks

    assert peak_of(fill) < 30 * 100_000
