# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Every command, on a real folder, for people and for machines."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from gym_objstore import CaptureStore, ledger
from gym_objstore.captures import Line, capture_put
from gym_objstore.cli.app import EXIT_CODES, app
from gym_objstore.errors import ObjstoreError
from gym_objstore.flow import run
from gym_objstore.keys import rollout_prefix, tombstone_key
from gym_objstore.objects import announcement
from gym_objstore.spill import Spill
from gym_objstore.store.opening import open_store
from gym_objstore.tokens import begin_call, mark, put_entry
from tests.entries import make_chain, make_entry
from tests.finished import finish
from tests.whole_run import RUN, contents, make_run


@pytest.fixture
def url(tmp_path):
    return f"file://{tmp_path}/store"


@pytest.fixture
def store(url):
    found = open_store(url)
    for entry in make_chain("good", 3):
        run(put_entry("run-1", entry, [announcement("tokens", "run-1")]), found)
    run(begin_call("run-1", "lost", "c1"), found)
    return found


def call(*arguments: str):
    return CliRunner().invoke(app, [*arguments], catch_exceptions=False)


def document(*arguments: str):
    return json.loads(call(*arguments, "--json").stdout)


def damage(store) -> None:
    key = next(meta.key for meta in store.scan("tokens/run-1/good/entries/") if "/c1." in meta.key)
    store.put(key, store.get(key)[:-1])


def test_ls_lists_runs_and_rollouts(url, store):
    assert document("ls", "--url", url) == [{"run_id": "run-1", "families": ["tokens"]}]
    rows = document("ls", "--url", url, "--run-id", "run-1")
    assert [(one["rollout_id"], one["state"], one["entries"]) for one in rows] == [
        ("good", "complete", 3),
        ("lost", "incomplete", 0),
    ]
    shown = call("ls", "--url", url, "--run-id", "run-1").stdout
    assert "dangling_intent" in shown
    assert "run-1" in call("ls", "--url", url).stdout


def test_show_tells_calls_parents_tokens_and_problems(url, store):
    found = document("show", "good", "--url", url, "--run-id", "run-1")
    assert [(one["model_call_id"], one["parent_call_id"], one["prompt_tokens"]) for one in found["calls"]] == [
        ("c0", "", 1),
        ("c1", "c0", 4),
        ("c2", "c1", 7),
    ]
    assert found["findings"] == []
    assert "dangling_intent" in call("show", "lost", "--url", url, "--run-id", "run-1").stdout


def test_check_exits_with_one_for_damage_and_zero_for_losses(url, store):
    assert call("check", "--url", url, "--run-id", "run-1").exit_code == 0
    assert [one["kind"] for one in document("check", "--url", url, "--run-id", "run-1")["findings"]] == [
        "dangling_intent"
    ]
    damage(store)
    damaged = call("check", "good", "--url", url, "--run-id", "run-1")
    assert damaged.exit_code == 1
    assert "corrupt" in damaged.stdout
    assert document("check", "--url", url, "--run-id", "run-1")["damaged"] is True


def test_ls_shows_every_rollout_with_the_families_that_hold_it(url, store):
    CaptureStore(url, "run-1").record("asked", {"model_call_id": "c1", "completed_at": 1.0})
    rows = document("ls", "--url", url, "--run-id", "run-1")
    assert [(one["rollout_id"], one["families"], one["state"]) for one in rows] == [
        ("asked", ["captures"], ""),
        ("good", ["tokens"], "complete"),
        ("lost", ["tokens"], "incomplete"),
    ]


def test_check_reads_what_no_snapshot_covers(tmp_path):
    url = f"file://{tmp_path}/whole"
    store = make_run(open_store(url))
    sound = document("check", "--url", url, "--run-id", RUN)
    assert (sound["damaged"], sound["objects"]) == (False, len(others(store)))
    for key in others(store):
        body = store.get(key)
        damage_object(store, key, bytes([body[0] ^ 1]) + body[1:])
        found = document("check", "--url", url, "--run-id", RUN)
        assert found["damaged"], key
        assert any(key.split("/", 3)[3] in one["detail"] for one in found["findings"]), key
        damage_object(store, key, body)
    assert call("check", "good", "--url", url, "--run-id", RUN).exit_code == 0
    damage_object(store, next(key for key in others(store) if key.startswith("captures/")), b"x")
    assert call("check", "good", "--url", url, "--run-id", RUN).exit_code == 1
    assert call("check", "twice", "--url", url, "--run-id", RUN).exit_code == 0


def others(store) -> list[str]:
    """The objects of a whole run that are neither entries nor tombstones."""
    return [key for key in contents(store) if "/entries/" not in key and not key.endswith("/tombstone")]


def damage_object(store, key: str, body: bytes) -> None:
    store.delete([key])
    store.put(key, body)


def test_check_counts_the_losses_that_captures_and_ledgers_name(url, store):
    CaptureStore(url, "run-1").mark_incomplete("good")
    found = document("check", "good", "--url", url, "--run-id", "run-1")
    assert ([one["kind"] for one in found["findings"]], found["damaged"]) == (["incomplete_marker"], False)


def test_check_finds_a_capture_that_is_no_record(url, store):
    put = capture_put("run-1", "good", Line(b"[1]", 5))
    store.put(put.key, put.body)
    found = document("check", "good", "--url", url, "--run-id", "run-1")
    assert [(one["kind"], one["severity"]) for one in found["findings"]] == [("corrupt", "error")]


def test_a_rollout_whose_id_is_too_long_for_its_key_is_checked_too(url, store):
    run(put_entry("run-1", make_entry("x" * 300)), store)
    found = document("check", "--url", url, "--run-id", "run-1")
    assert (found["rollouts"], found["damaged"]) == (3, False)
    alone = document("check", "x" * 300, "--url", url, "--run-id", "run-1")
    assert (alone["rollouts"], alone["damaged"]) == (1, False)


def test_a_run_whose_id_is_too_long_for_its_key_is_known_by_it(url, store):
    store.put(tombstone_key(rollout_prefix("tokens", "y" * 300, "r1")), b"{}")
    assert document("check", "--url", url, "--run-id", "y" * 300)["damaged"] is False


def test_spill_lists_and_replays(url, tmp_path):
    spill = Spill(tmp_path / "spill", open_store(url).url)
    marker = mark("run-1", "r1", "c1", {"at": 1.0})
    spill.keep(marker)
    arguments = ("spill", "--url", url, "--spill-dir", str(tmp_path / "spill"))
    assert [(one["key"], one["outcome"]) for one in document(*arguments)] == [(marker.key, "kept")]
    assert [one["outcome"] for one in document(*arguments, "--replay")] == ["stored"]
    assert document(*arguments) == []
    assert "nothing is kept" in call(*arguments).stdout


def test_doctor_finds_a_good_store_good(url):
    found = document("doctor", "--url", url)
    assert found["ok"] is True
    assert {one["name"]: one["kind"] for one in found["checks"]} == {
        "list": "ok",
        "write": "ok",
        "read": "ok",
        "clock": "ok",
        "visibility": "ok",
        "absence": "ok",
        "delete": "ok",
    }
    assert {"name": "url", "value": url, "source": "argument"} in found["settings"]
    assert "verdict: ok" in call("doctor", "--url", url).stdout
    assert list(open_store(url).scan("")) == []


@pytest.mark.parametrize("kind", ["seaweedfs", "minio"])
def test_doctor_on_a_real_server(kind, request, prefix):
    server = request.getfixturevalue(f"{kind}_server")
    request.getfixturevalue("monkeypatch").setenv("AWS_ACCESS_KEY_ID", server.access_key)
    request.getfixturevalue("monkeypatch").setenv("AWS_SECRET_ACCESS_KEY", server.secret_key)
    found = document("doctor", "--url", f"s3://tests/{prefix}", "--endpoint", server.endpoint, "--region", "us-east-1")
    assert found["ok"] is True, found["checks"]
    assert {one["name"] for one in found["checks"]} >= {"versioning", "object_lock"}
    assert server.secret_key not in json.dumps(found)


def test_doctor_names_the_cause_of_a_store_that_cannot_be_reached():
    result = call("doctor", "--url", "s3://bucket/x", "--endpoint", "http://127.0.0.1:9", "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 1
    assert found["ok"] is False
    assert [(one["name"], one["kind"]) for one in found["checks"]] == [("list", "no_credentials")]


def test_an_error_is_one_line_and_an_exit_code(url):
    result = call("show", "absent", "--url", url, "--run-id", "run-1")
    assert result.exit_code == 3
    assert "no such rollout, run_id=run-1, rollout_id=absent" in result.stderr
    assert call("ls", "--url", "nonsense").exit_code == 2
    missing = call("check", "--url", url)
    assert missing.exit_code == 2
    assert "a run id is missing" in missing.stderr


@pytest.mark.parametrize("command", ["ls", "check", "du"])
def test_a_mistyped_run_is_not_an_empty_or_a_sound_one(url, store, command):
    result = call(command, "--url", url, "--run-id", "run-l")
    assert (result.exit_code, result.stdout) == (3, "")
    assert (
        "no such run in this store, run_id=run-l; check the url and the run id; list the runs: gym-objstore runs"
        in (result.stderr)
    )


def test_show_tells_what_the_ledger_says_of_a_rollout_without_entries(url, store):
    finish(store, "r1", calls=2)
    found = document("show", "r1", "--url", url, "--run-id", RUN)
    assert (found["state"], found["ledger"]["state"], found["ledger"]["failures"]) == ("empty", "complete", [])
    assert [(one["model_call_id"], one["parent_call_id"], one["new_tokens"]) for one in found["ledger"]["calls"]] == [
        ("c0", "", 4),
        ("c1", "c0", 4),
    ]
    assert "r1: ledger complete" in call("show", "r1", "--url", url, "--run-id", RUN).stdout
    run(ledger.record_failure(RUN, "r1", "c9", reason="worker_capture_failed"), store)
    assert "worker_capture_failed" in call("show", "r1", "--url", url, "--run-id", RUN).stdout
    assert document("show", "r1", "--url", url, "--run-id", RUN)["ledger"]["state"] == "incomplete"
    call("retire", "r1", "--yes", "--url", url, "--run-id", RUN)
    assert "r1: ledger retired" in call("show", "r1", "--url", url, "--run-id", RUN).stdout


def test_a_folder_that_cannot_be_written_is_one_line(url, store):
    result = call("export", "--to", "/dev/null/x", "--url", url, "--run-id", "run-1")
    assert result.exit_code == 2
    assert "the folder cannot be written, to=/dev/null/x, error=" in result.stderr


@pytest.mark.parametrize(("command", "said"), [("export", "repeat the command to finish"), ("check", "")])
def test_who_interrupts_a_command_is_told_whether_to_repeat_it(url, store, monkeypatch, command, said):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"gym_objstore.cli.{'moving' if command == 'export' else 'look'}.open_store", interrupt)
    arguments = ["--to", "/dev/null/x"] if command == "export" else []
    result = call(command, *arguments, "--url", url, "--run-id", "run-1")
    assert result.exit_code == 130
    assert said in result.stderr


def test_every_error_has_an_exit_code_of_its_own():
    assert set(EXIT_CODES) == set(ObjstoreError.__subclasses__())
    assert len(set(EXIT_CODES.values())) == len(EXIT_CODES)


def test_ids_are_printed_never_interpreted(url, store):
    run(put_entry("run-1", make_entry("[red]x\x1b[2J")), store)
    shown = call("ls", "--url", url, "--run-id", "run-1").stdout
    assert "[red]x" in shown
    assert "\x1b[2J" not in shown


def test_the_demo_keeps_every_promise():
    found = document("demo")
    assert found["broken"] == []
    assert {one["rollout"]: one["reasons"] for one in found["verdicts"] if one["reasons"]} == {
        "2-0": ["dangling_intent call-2-0-3"],
        "4-0": ["conflict call-4-0-3"],
        "6-0": ["corrupt call-6-0-3"],
        "11-0": ["corrupt"],
    }
    assert found["late"] == {"put": "refused", "freeze": "refused", "admission": "refused", "record": "refused"}
    assert sum(one["retired"] for one in found["verdicts"]) == 6 + 5


def test_the_demo_runs_on_a_server_it_starts():
    result = call("demo", "--server", "seaweedfs")
    assert result.exit_code == 0
    assert "every promise was kept" in result.stdout
