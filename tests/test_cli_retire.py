# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``retire`` and ``delete`` on a real folder: who is named, what is asked, what is gone, what a repetition finishes."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from gym_objstore import ledger
from gym_objstore.cli import retire as command
from gym_objstore.cli.app import app
from gym_objstore.errors import Retired, Unavailable
from gym_objstore.flow import run
from gym_objstore.store.opening import open_store
from gym_objstore.tokens import freeze, put_entry
from tests.entries import make_entry

ODD = "ünusual id/with %2e and [markup]"


@pytest.fixture
def url(tmp_path):
    return f"file://{tmp_path}/store"


@pytest.fixture
def store(url):
    """Rollouts r0 to r4 and one with an odd id; the first two have tokens, all have a ledger."""
    found = open_store(url)
    for rollout_id in ("r0", "r1"):
        run(put_entry("run-1", make_entry(rollout_id, "c1")), found)
    for rollout_id in ("r0", "r1", "r2", "r3", "r4", ODD):
        run(ledger.record_failure("run-1", rollout_id, "c1", reason="worker_capture_failed"), found)
    return found


def call(url: str, *arguments: str, **options: str):
    return CliRunner().invoke(app, [arguments[0], "--url", url, "--run-id", "run-1", *arguments[1:]], **options)


def document(url: str, *arguments: str, **options: str):
    ended = call(url, *arguments, "--yes", "--json", **options)
    assert ended.exit_code == 0, ended.output
    return json.loads(ended.stdout)


def retired(store, rollout_id: str) -> bool:
    try:
        run(ledger.manifest("run-1", rollout_id), store)
    except Retired:
        return True
    return False


def entries(store, rollout_id: str) -> int:
    return len(run(freeze("run-1", rollout_id), store).entries)


def test_retire_fences_both_families_and_says_who_had_objects(url, store):
    assert document(url, "retire", "r1", "r2", "r9", "r1") == {
        "run_id": "run-1",
        "removed": ["r1", "r2"],
        "absent": ["r9"],
    }
    assert [retired(store, one) for one in ("r0", "r1", "r2", "r9")] == [False, True, True, True]
    for rollout_id in ("r1", "r2", "r9"):
        with pytest.raises(Retired):
            run(freeze("run-1", rollout_id), store)
    assert entries(store, "r0") == 1


def test_repeating_changes_nothing_and_reports_absent(url, store):
    document(url, "retire", "r1")
    assert document(url, "retire", "r1")["absent"] == ["r1"]
    assert retired(store, "r1")


def test_delete_makes_an_id_new_again(url, store):
    document(url, "retire", "r1")
    assert document(url, "delete", "r1", "r2")["removed"] == ["r1", "r2"]
    assert not retired(store, "r1")
    assert not [meta.key for meta in store.scan("ledger/run-1/r1/")]
    assert document(url, "delete", "r1", "r2")["absent"] == ["r1", "r2"]


@pytest.mark.parametrize(("family", "ledger_gone", "tokens_left"), [("ledger", True, True), ("tokens", False, False)])
def test_one_family_alone(url, store, family, ledger_gone, tokens_left):
    document(url, "retire", "r1", "--family", family)
    assert retired(store, "r1") is ledger_gone
    if tokens_left:
        assert entries(store, "r1") == 1
    else:
        with pytest.raises(Retired):
            run(freeze("run-1", "r1"), store)


def test_a_twin_in_another_case_or_with_a_longer_name_is_left_alone(url, store):
    run(ledger.record_failure("run-1", "R1", "c1", reason="worker_capture_failed"), store)
    run(ledger.record_failure("run-1", "r1-a1", "c1", reason="worker_capture_failed"), store)
    document(url, "retire", "r1")
    assert [retired(store, one) for one in ("r1", "R1", "r1-a1")] == [True, False, False]


def test_ids_come_from_a_file_one_in_each_line(url, store, tmp_path):
    listed = tmp_path / "ids"
    listed.write_bytes(f"r2\r\n\n   \n{ODD}\nr3".encode())
    assert document(url, "retire", "r1", "--from-file", str(listed))["removed"] == ["r1", "r2", ODD, "r3"]


def test_ids_come_from_standard_input(url, store):
    assert document(url, "retire", "--from-file", "-", input="r1\nr2\n")["removed"] == ["r1", "r2"]


def test_standard_input_cannot_also_answer(url, store):
    ended = call(url, "retire", "--from-file", "-", input="r1\ny\n")
    assert (ended.exit_code, retired(store, "r1")) == (2, False)
    assert "pass --yes" in ended.stderr


@pytest.mark.parametrize(("answer", "code", "done"), [("y\n", 0, True), ("n\n", 1, False), ("", 1, False)])
def test_a_person_is_asked_first(url, store, answer, code, done):
    ended = call(url, "retire", "r1", "r2", input=answer)
    assert (ended.exit_code, retired(store, "r1")) == (code, done)
    assert f"retire tokens and ledger of 2 rollouts of run run-1 in {url}?" in ended.stderr
    assert ("2 had objects, 0 had none" in ended.stdout) is done


def test_nobody_named_is_an_error(url, store):
    ended = call(url, "retire", "--yes")
    assert ended.exit_code == 2
    assert "no rollout was named" in ended.stderr


@pytest.mark.parametrize("operation", ["retire", "delete"])
def test_one_bad_id_refuses_all(url, store, operation):
    ended = call(url, operation, "r1", "", "--yes")
    assert (ended.exit_code, retired(store, "r1")) == (2, False)
    assert run(ledger.has_rows("run-1", "r1"), store)


def test_a_file_that_cannot_be_read_is_an_error(url, store, tmp_path):
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name in ("absent", "binary"):
        ended = call(url, "retire", "r1", "--from-file", str(tmp_path / name), "--yes")
        assert (ended.exit_code, retired(store, "r1")) == (2, False)
        assert "the file of rollout ids cannot be read" in ended.stderr


def test_an_unknown_run_is_not_fenced_by_a_slip_of_the_pen(url, store):
    ended = CliRunner().invoke(app, ["retire", "--url", url, "--run-id", "run-2", "r1", "--yes"])
    assert ended.exit_code == 3
    assert "no such run in this store, run_id=run-2" in ended.stderr
    assert not list(store.scan("ledger/run-2/"))


@pytest.mark.parametrize("error", [KeyboardInterrupt, Unavailable("no answer")])
def test_an_interrupted_command_is_finished_by_repeating_it(url, store, monkeypatch, error):
    batches = []

    def interrupted(flow, on):
        if flow.__name__ == "retire":
            batches.append(flow)
            if len(batches) == 4:
                raise error
        return run(flow, on)

    monkeypatch.setattr(command, "BATCH", 2)
    monkeypatch.setattr(command, "run", interrupted)
    ended = call(url, "retire", "r0", "r1", "r2", "r3", "r4", "--yes")
    assert ended.exit_code != 0
    assert "interrupted, done=2 of 5; repeat the command to finish" in ended.stderr
    assert [retired(store, one) for one in ("r0", "r1", "r2", "r3", "r4")] == [True, True, False, False, False]
    found = document(url, "retire", "r0", "r1", "r2", "r3", "r4")
    assert (found["removed"], found["absent"]) == (["r2", "r3", "r4"], ["r0", "r1"])


def test_thousands_are_retired_in_batches(url, store):
    ids = [f"many-{n}" for n in range(600)]
    run(ledger.record_failure("run-1", "many-599", "c1", reason="worker_capture_failed"), store)
    found = document(url, "retire", "--family", "ledger", "--from-file", "-", input="\n".join(ids))
    assert (found["removed"], len(found["absent"])) == (["many-599"], 599)
    assert all(retired(store, one) for one in (ids[0], ids[255], ids[256], ids[599]))
