# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``gc`` on a real folder: what it reports, removes, keeps and refuses."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from gym_objstore.cli.app import app
from gym_objstore.cli.options import seconds
from gym_objstore.errors import Invalid
from gym_objstore.keys import parse_staging_key, staged_key
from gym_objstore.objects import announcement
from gym_objstore.store.opening import open_store
from tests.finished import RUN, stage_call
from tests.whole_run import contents, make_run


@pytest.fixture
def url(tmp_path):
    found = f"file://{tmp_path}/store"
    store = open_store(found)
    store.put(announcement("staged", RUN).key, announcement("staged", RUN).body)
    return found


@pytest.fixture
def store(url):
    return open_store(url)


@pytest.fixture
def report(tmp_path):
    return tmp_path / "report.jsonl"


@pytest.fixture
def gc(url, report):
    def call(*arguments, run_id=RUN):
        chosen = ["--run-id", run_id] if run_id else []
        return CliRunner().invoke(app, ["gc", "--url", url, *chosen, "--report", str(report), *arguments])

    return call


def object_key(staging_key, run_id=RUN):
    return staged_key(run_id, parse_staging_key(staging_key))


def lines(report):
    return [json.loads(line) for line in report.read_text().splitlines()]


def test_nothing_is_changed_without_being_told_so(gc, store, report, url):
    _, key = stage_call(store, "c0")
    before = contents(store)
    shown = gc("--grace", "0s")
    assert (shown.exit_code, "nothing was changed; 1 objects are named in" in shown.stdout) == (0, True)
    assert contents(store) == before
    head, line = lines(report)
    assert head == {
        "gc_report": 1,
        "url": url,
        "runs": [RUN],
        "policy": {"grace": 0.0, "expire_after": None, "keep_captures": False},
    }
    assert (line["run_id"], line["reason"], line["key"]) == (RUN, "orphan", object_key(key))
    assert line["bytes"] == len(before[object_key(key)])


def test_a_report_is_applied_and_applied_again(gc, store, report):
    for number in range(3):
        stage_call(store, f"c{number}")
    found = json.loads(gc("--grace", "0s", "--json").stdout)
    assert (found["staged_rows"], found["young_rows"], found["found"]["orphan"]["objects"]) == (3, 0, 3)
    named = [line["key"] for line in lines(report)[1:]]
    report.write_text("\n".join(report.read_text().splitlines()[:3]) + "\n")
    applied = json.loads(gc("--apply", str(report), "--json").stdout)
    assert applied == {"report": str(report), "removed": 2}
    assert sorted(contents(store)) == sorted([named[2], announcement("staged", RUN).key])
    again = gc("--apply", str(report))
    assert (again.exit_code, "0 objects removed of 2 reported" in again.stdout) == (0, True)


def test_young_rows_stay(gc, store):
    stage_call(store, "c0")
    found = json.loads(gc("--delete", "--json").stdout)
    assert (found["found"], found["young_rows"], found["removed"]) == ({}, 1, 0)


def test_it_removes_at_once_when_told_so(gc, store):
    stage_call(store, "c0")
    assert json.loads(gc("--grace", "0s", "--delete", "--json").stdout)["removed"] == 1
    assert list(contents(store)) == [announcement("staged", RUN).key]


def test_every_run_is_looked_at_without_a_run_id(gc, store, report):
    stage_call(store, "c0")
    stage_call(store, "c0", run_id="run-2")
    found = json.loads(gc("--grace", "0s", "--json", run_id=None).stdout)
    assert (found["runs"], found["found"]["orphan"]["objects"]) == (2, 2)
    assert {line["run_id"] for line in lines(report)[1:]} == {RUN, "run-2"}


def test_expired_runs_go_whole(gc, store):
    make_run(store)
    assert json.loads(gc("--expire-after", "1d", "--json").stdout)["found"] == {}
    found = json.loads(gc("--grace", "0s", "--expire-after", "0s", "--delete", "--json").stdout)
    assert list(found["found"]) == ["expired"]
    assert contents(store) == {}


def test_what_checkpoints_list_stays(gc, store, tmp_path):
    keys = [stage_call(store, "c0", rollout_id=rollout)[1] for rollout in ("r1", "r2", "r3")]
    (tmp_path / "one").write_text(f"{keys[0]}\n")
    (tmp_path / "two").write_text("r2\n")
    lists = [f"--checkpoint={tmp_path / name}" for name in ("one", "two")]
    assert json.loads(gc("--grace", "0s", "--delete", "--json", *lists).stdout)["removed"] == 1
    assert object_key(keys[2]) not in contents(store)


@pytest.mark.parametrize("content", [None, b"", b"\n\n", b"\xff"])
def test_a_list_that_cannot_be_read_is_refused(gc, store, tmp_path, content):
    stage_call(store, "c0")
    if content is not None:
        (tmp_path / "list").write_bytes(content)
    refused = gc("--grace", "0s", "--delete", "--checkpoint", str(tmp_path / "list"))
    assert (refused.exit_code, "nothing is removed" in refused.stderr) == (2, True)
    assert len(contents(store)) == 2


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "{}\n",
        "no",
        '{"gc_report":9}',
        '{"gc_report":1,"url":"file:///elsewhere","runs":[],"policy":{"grace":1}}',
    ],
)
def test_a_report_that_is_none_of_this_store_is_refused(gc, store, tmp_path, text):
    stage_call(store, "c0")
    other = tmp_path / "other.jsonl"
    if text is not None:
        other.write_text(text)
    refused = gc("--grace", "0s", "--apply", str(other))
    assert (refused.exit_code, "report" in refused.stderr) == (2, True)
    assert len(contents(store)) == 2


def test_a_report_that_cannot_be_written_is_refused(gc, store, tmp_path):
    stage_call(store, "c0")
    refused = gc("--grace", "0s", "--delete", "--report", str(tmp_path / "absent" / "report"))
    assert (refused.exit_code, "cannot be written" in refused.stderr) == (2, True)
    assert len(contents(store)) == 2


def test_two_ways_to_remove_at_once_are_refused(gc, report):
    assert gc("--delete", "--apply", str(report)).exit_code == 2


def test_an_unknown_run_is_said(gc):
    missing = gc(run_id="run-9")
    assert (missing.exit_code, "no such run" in missing.stderr) == (3, True)


def test_periods_are_written_with_a_unit():
    assert [seconds(text) for text in ("90s", "30m", "24h", "7d")] == [90.0, 1800.0, 86_400.0, 604_800.0]
    for wrong in ("24", "-1h", "h", "1.5h", ""):
        with pytest.raises(Invalid, match="not a period"):
            seconds(wrong)
