# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``runs`` on a real folder."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from gym_objstore.cli.app import app
from gym_objstore.flow import run
from gym_objstore.runs import require_descriptor
from gym_objstore.store.opening import open_store
from tests.finished import RUN, finish
from tests.whole_run import contents


@pytest.fixture
def url(tmp_path):
    return f"file://{tmp_path}/store"


@pytest.fixture
def runs(url):
    def call(command, *arguments, **options):
        return CliRunner().invoke(app, ["runs", command, "--url", url, *arguments], **options)

    return call


def test_create_list_close_and_delete(runs, url):
    made = runs("create", RUN, "--setting", "model=m-1", "--setting", "seed=7")
    assert (made.exit_code, "with these 2 settings" in made.stdout) == (0, True)
    run(require_descriptor(RUN, {"model": "m-1", "seed": 7}), open_store(url))
    finish(open_store(url), "r1")
    (row,) = json.loads(runs("list", "--bytes", "--json").stdout)
    assert (row["run_id"], row["families"]) == (RUN, ["staged", "ledger", "manifests"])
    assert (row["settings"], row["conflict"], row["closed"]) == ([{"model": "m-1", "seed": 7}], False, None)
    assert (row["objects"], row["bytes"] > 100, row["created"] > 1e9) == (6, True, True)
    assert "model=m-1 seed=7" in runs("list").stdout
    assert "is closed" in runs("close", RUN).stdout
    assert json.loads(runs("close", RUN, "--json").stdout) == {"run_id": RUN, "closed_now": False}
    assert json.loads(runs("list", "--json").stdout)[0]["closed"] > 1e9
    assert runs("create", RUN, "--setting", "model=m-1", "--setting", "seed=7").exit_code == 4
    assert json.loads(runs("delete", RUN, "--yes", "--json").stdout)["removed"] >= 6
    assert json.loads(runs("list", "--json").stdout) == []


def test_other_settings_exit_with_eight(runs, tmp_path):
    (tmp_path / "a.toml").write_text('model = "m-1"\nseed = 7\n')
    (tmp_path / "b.json").write_text('{"seed": 8, "model": "m-1"}')
    assert runs("create", RUN, "--from", str(tmp_path / "a.toml")).exit_code == 0
    assert runs("create", RUN, "--from", str(tmp_path / "a.toml")).exit_code == 0
    other = runs("create", RUN, "--from", str(tmp_path / "b.json"))
    assert (other.exit_code, "settings=seed" in other.stderr) == (8, True)
    assert runs("create", RUN, "--from", str(tmp_path / "b.json"), "--setting", "seed=7").exit_code == 0


@pytest.mark.parametrize("wrong", [["--setting", "seed"], ["--setting", "=7"], ["--from", "absent.json"]])
def test_wrong_settings_are_refused(runs, url, wrong):
    assert runs("create", RUN, *wrong).exit_code == 2
    assert contents(open_store(url)) == {}


def test_a_conflict_is_shown(runs, url):
    store = open_store(url)
    runs("create", RUN, "--setting", "seed=1")
    runs("create", "run-2", "--setting", "seed=2")
    key = next(meta.key for meta in store.scan("manifests/run-2/"))
    store.put(key.replace("run-2", RUN), store.get(key))
    assert "CONFLICT" in runs("list").stdout


@pytest.mark.parametrize(("typed", "code", "gone"), [(f"{RUN}\n", 0, True), ("run\n", 2, False), ("", 1, False)])
def test_the_id_must_be_typed(runs, url, typed, code, gone):
    finish(open_store(url), "r1")
    ended = runs("delete", RUN, input=typed)
    assert (ended.exit_code, contents(open_store(url)) == {}) == (code, gone)
    assert f"everything of run {RUN} in {url} goes; type its id" in ended.stderr


def test_what_checkpoints_list_stays(runs, url, tmp_path):
    keys = finish(open_store(url), "r1")
    (tmp_path / "list").write_text(keys[0])
    runs("delete", RUN, "--yes", "--checkpoint", str(tmp_path / "list"))
    assert [key for key in contents(open_store(url)) if key.startswith("staged/")] == [
        f"staged/{RUN}/r1/rows/{keys[0][3:]}"
    ]


@pytest.mark.parametrize("command", ["close", "delete"])
def test_an_unknown_run_is_said(runs, url, command):
    finish(open_store(url), "r1")
    missing = runs(command, "run-9", *(["--yes"] if command == "delete" else []))
    assert (missing.exit_code, "no such run" in missing.stderr) == (3, True)
