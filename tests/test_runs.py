# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A run that says with which settings it was created, and that it is closed."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from gym_objstore.checking import runs
from gym_objstore.cli.app import app
from gym_objstore.errors import Conflict, Corrupt, Denied, Invalid, NotFound, Retired
from gym_objstore.flow import run
from gym_objstore.ids import segment
from gym_objstore.keys import rollout_prefix, writer_key
from gym_objstore.objects import announcement, write_fenced
from gym_objstore.retirement import retire
from gym_objstore.run_keys import descriptor_prefix
from gym_objstore.runs import close_run, create_run, describe_run, name_runs, require_descriptor
from gym_objstore.store.memory import MemoryStore
from gym_objstore.testing.actors import Actor
from gym_objstore.testing.counting import Costs, CountingStore
from gym_objstore.testing.explorer import Bounds, explore
from gym_objstore.testing.wrapping import WrappedStore
from gym_objstore.tokens import put_entry
from gym_objstore.usage import usage
from tests.entries import make_entry
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


LONG = "Run/" * 60
OTHER_LONG = "Run/" * 60 + "2"


def long_run(store, *run_ids, families=("tokens",)):
    """Store a rollout of each run, with the markers that components leave."""
    for run_id in run_ids:
        for family in families:
            run(write_fenced(rollout_prefix(family, run_id, "r1"), [announcement(family, run_id)]), store)
        run(put_entry(run_id, make_entry("r1", "c")), store)


def test_a_run_id_too_long_for_its_segment_is_read_from_a_writer_marker(store):
    long_run(store, LONG, OTHER_LONG)
    long_run(store, RUN)
    assert run(runs(), store) == {LONG: ("tokens",), OTHER_LONG: ("tokens",), RUN: ("tokens",)}
    counted = run(usage(now=4e9), store)
    assert {one.run_id: one.objects for one in counted if one.state == "live"} == {LONG: 1, OTHER_LONG: 1, RUN: 1}
    assert {one.run_id for one in run(usage(LONG, now=4e9), store)} == {LONG}


def test_only_ids_that_are_too_long_cost_a_read():
    counted = CountingStore(MemoryStore())
    long_run(counted, RUN)
    counted.reset()
    assert run(name_runs([RUN, "!52un", "!probe", "FOREIGN"]), counted) == {
        RUN: RUN,
        "!52un": "Run",
        "!probe": "!probe",
        "FOREIGN": "FOREIGN",
    }
    assert counted.costs == Costs(0, {})
    long_run(counted, LONG, families=("captures", "tokens"))
    counted.reset()
    assert run(name_runs([segment(LONG)]), counted) == {segment(LONG): LONG}
    assert counted.costs == Costs(1, {"GET": 1})


DAMAGES = {"another run's": announcement("captures", OTHER_LONG).body, "no": b"no", "a list": b"[]", "empty": b"{}"}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_writer_marker_that_says_something_else_is_not_believed(damage):
    store = MemoryStore()
    long_run(store, LONG, families=("captures", "tokens"))
    store.put(writer_key("captures", LONG), DAMAGES[damage])
    assert run(name_runs([segment(LONG)]), store) == {segment(LONG): LONG}
    store.delete([writer_key("tokens", LONG)])
    assert run(name_runs([segment(LONG)]), store) == {segment(LONG): segment(LONG)}


def test_who_may_not_read_a_marker_reads_the_next():
    class Partly(WrappedStore):
        def get(self, key):
            if key.startswith("captures/"):
                raise Denied("not for you", kind="access_denied", key=key)
            return super().get(key)

    store = Partly(MemoryStore())
    long_run(store, LONG, families=("captures", "tokens"))
    assert run(name_runs([segment(LONG)]), store) == {segment(LONG): LONG}


def test_a_run_with_such_an_id_is_found_swept_closed_and_deleted_by_it(prefix, tmp_path, monkeypatch):
    """By the commands, as a user has it: gc of every run as well as of this one."""
    monkeypatch.chdir(tmp_path)
    store = MemoryStore.named(prefix)
    long_run(store, LONG)
    run(retire("tokens", LONG, ["r1"]), store)
    store.put(f"{rollout_prefix('tokens', LONG, 'r1')}intents/c9", b"{}")  # late, behind the tombstone

    def call(*words):
        ended = CliRunner().invoke(app, [*words, "--url", f"memory://{prefix}", "--json"])
        assert ended.exit_code == 0, ended.output
        return json.loads(ended.stdout)

    assert [one["run_id"] for one in call("ls")] == [LONG]
    for which in ((), ("--run-id", LONG)):
        assert call("gc", "--grace", "0s", *which)["found"].keys() == {"late_write"}
    assert call("retire", "r1", "--run-id", LONG, "--yes")
    assert call("runs", "close", LONG)["closed_now"] is True
    assert [(one["run_id"], one["closed"] is None) for one in call("runs", "list", "--bytes")] == [(LONG, False)]
    assert call("runs", "delete", LONG, "--yes")["removed"] > 2
    assert list(store.scan("")) == []
