# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Following a run finds each capture once, new rollouts at once, and never asks for more than its budget."""

from __future__ import annotations

import tracemalloc

import pytest

from gym_objstore.captures import capture_put, line_of
from gym_objstore.captures_following import Following, look
from gym_objstore.flow import run
from gym_objstore.names import CaptureName
from gym_objstore.store.memory import MemoryStore
from gym_objstore.testing.counting import CountingStore

RUN = "run-1"


@pytest.fixture
def store():
    return CountingStore(MemoryStore())


def capture(store, rollout: str, call: str, at: float = 100.0) -> None:
    put = capture_put(RUN, rollout, line_of({"model_call_id": call, "completed_at": at}, 0.0))
    store.store.put(put.key, put.body)  # what tests prepare is not counted


def seen(store, following) -> list[tuple[str, int, str]]:
    return [(one.rollout_id, one.call_index, one.name.call) for one in run(look(following), store)]


def test_each_capture_is_found_once_and_only_if_it_is_new(store):
    capture(store, "0-0", "old", at=10.0)
    following = Following(RUN, since=50_000_000)
    assert seen(store, following) == []
    capture(store, "0-0", "c1", at=51.0)
    capture(store, "1-0", "c2", at=52.0)
    found = [one for _ in range(9) for one in seen(store, following)]
    assert sorted(found) == [("0-0", 1, "c1"), ("1-0", 0, "c2")]


def test_a_rollout_that_appears_is_looked_into_at_once_however_many_wait(store):
    for number in range(300):
        capture(store, f"{number}-0", "old", at=10.0)
    following = Following(RUN, since=50_000_000)
    assert seen(store, following) == []
    capture(store, "new", "c1")
    assert seen(store, following) == [("new", 0, "c1")]
    capture(store, "new", "c2", at=101.0)
    assert seen(store, following) == [("new", 1, "c2")]


def test_an_idle_rollout_is_looked_into_in_its_turn(store):
    for number in range(300):
        capture(store, f"{number}-0", "old", at=10.0)
    following = Following(RUN, since=50_000_000)
    capture(store, "77-0", "c1")
    looks = 0
    while not seen(store, following):
        looks += 1
        for busy in range(64):
            capture(store, f"busy-{busy}", f"c{looks}", at=10.0)
    assert looks <= 300 / 16 + 1


def test_a_look_costs_one_listing_and_at_most_sixty_four(store):
    for number in range(200):
        capture(store, f"{number}-0", "old", at=10.0)
    following = Following(RUN, since=50_000_000)
    for _ in range(3):
        before = store.costs.requests.get("LIST", 0)
        seen(store, following)
        assert store.costs.requests["LIST"] - before == 1 + 64


def test_a_run_where_nothing_happens_is_asked_ever_less(store):
    for number in range(16):
        capture(store, f"{number}-0", "old", at=10.0)
    following = Following(RUN, since=50_000_000)
    seen(store, following)
    before = store.costs.requests["LIST"]
    for _ in range(16):
        seen(store, following)
    assert store.costs.requests["LIST"] - before <= 16 + 16 * 2


def test_one_rollout_costs_one_listing(store):
    capture(store, "0-0", "c1")
    capture(store, "1-0", "c2")
    following = Following(RUN, since=0, only="1-0")
    assert seen(store, following) == [("1-0", 0, "c2")]
    before = store.costs.requests["LIST"]
    assert seen(store, following) == []
    assert store.costs.requests["LIST"] - before == 1


def test_a_follower_remembers_10000_captures_in_less_than_a_megabyte():
    store, following = MemoryStore(), Following(RUN, since=0)
    for number in range(10_000):
        name = CaptureName(f"{number:016d}", f"call{number}", f"{number:064x}", "zst")
        store.put(f"captures/{RUN}/{number % 40}-0/records/{name.text}", b"x")
    tracemalloc.start()
    try:
        assert len(run(look(following), store)) == 10_000
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 1 << 20
