# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A run that says with which settings it was created, and that it is closed."""

from __future__ import annotations

import pytest

from gym_objstore.errors import Conflict, Corrupt, Invalid, NotFound, Retired
from gym_objstore.flow import run
from gym_objstore.run_keys import descriptor_prefix
from gym_objstore.runs import close_run, create_run, describe_run, require_descriptor
from gym_objstore.store.memory import MemoryStore
from gym_objstore.testing.actors import Actor
from gym_objstore.testing.explorer import Bounds, explore
from tests.places import store_of

RUN = "run-1"
SETTINGS = {"model": "m-1", "seed": 7, "nested": {"a": [1, 2.5, None, True]}}


@pytest.fixture(params=["memory", "file", "seaweedfs"])
def store(request):
    with store_of(request.param, request) as found:
        yield found


def test_a_run_is_created_once_whoever_repeats_it(store):
    first = run(create_run(RUN, SETTINGS), store)
    created = run(describe_run(RUN), store).created
    assert run(create_run(RUN, dict(reversed(SETTINGS.items()))), store) == first
    described = run(describe_run(RUN), store)
    assert [one.settings for one in described.descriptors] == [SETTINGS]
    assert (described.conflict, described.closed, described.created) == (False, None, created)
    run(require_descriptor(RUN, SETTINGS), store)


def test_other_settings_are_a_conflict_and_change_nothing(store):
    run(create_run(RUN, SETTINGS), store)
    for flow in (create_run, require_descriptor):
        with pytest.raises(Conflict, match="settings=extra,seed"):
            run(flow(RUN, {**SETTINGS, "seed": 8, "extra": None}), store)
    assert not run(describe_run(RUN), store).conflict


def test_a_closed_run_takes_no_more_writers(store):
    run(create_run(RUN, SETTINGS), store)
    assert run(close_run(RUN), store) is True
    closed = run(describe_run(RUN), store).closed
    assert run(close_run(RUN), store) is False
    assert run(describe_run(RUN), store).closed == closed
    for flow in (create_run, require_descriptor):
        with pytest.raises(Retired, match="closed"):
            run(flow(RUN, SETTINGS), store)


def test_a_run_that_nobody_created_is_not_taken_for_one():
    store = MemoryStore()
    run(create_run("run-10", SETTINGS), store)
    with pytest.raises(NotFound, match="nobody created"):
        run(require_descriptor(RUN, SETTINGS), store)
    assert run(describe_run(RUN), store).descriptors == ()


@pytest.mark.parametrize("settings", [{"a": float("nan")}, {"a": (1, 2)}, {"a": "\ud800"}, {"a": 2**80}, {1: "a"}])
def test_settings_that_json_cannot_hold_exactly_are_refused(settings):
    store = MemoryStore()
    with pytest.raises(Invalid):
        run(create_run(RUN, settings), store)
    assert list(store.scan("")) == []


def test_a_run_may_have_no_settings():
    store = MemoryStore()
    run(create_run(RUN, {}), store)
    run(require_descriptor(RUN, {}), store)


@pytest.mark.parametrize("body", [b"{}", b"no", b'{"format":1,"settings":{}}', b'{"format":1,"settings":[]}'])
def test_a_descriptor_that_is_not_ours_is_corrupt(body):
    store = MemoryStore()
    store.put(f"{descriptor_prefix(RUN)}{64 * '0'}", body)
    with pytest.raises(Corrupt):
        run(require_descriptor(RUN, {}), store)


def test_of_two_that_are_created_at_once_with_other_settings_none_looks_good():
    """Whatever the order: never do both get the run, and who reads later sees one run or a conflict."""

    def creating(settings):
        def stage(log, _):
            yield from create_run(RUN, settings)
            log.answered("created", settings["seed"])

        return Actor(f"seed-{settings['seed']}", (stage,))

    def one_run(world):
        created = {event.value for event in world.log if event.what == "created"}
        if len(created) == 2:
            return "both were told that the run is theirs"
        bodies = [body for key, body in world.bucket.items() if key.startswith(descriptor_prefix(RUN))]
        if world.over and len(bodies) == 1 and created and str(*created).encode() not in bodies[0]:
            return "the run is another's"
        return None

    result = explore([creating({"seed": 1}), creating({"seed": 2})], {}, [one_run], Bounds(crashes=1, lost=1))
    assert not result.violations, str(result)
    assert result.schedules > 20
