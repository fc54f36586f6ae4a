# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``cp`` between real folders."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from gym_objstore.cli.app import app
from gym_objstore.store.opening import open_store
from tests.finished import RUN
from tests.whole_run import contents, make_run, views


@pytest.fixture
def url(tmp_path):
    found = f"file://{tmp_path}/store"
    make_run(open_store(found))
    return found


@pytest.fixture
def goal(tmp_path):
    return f"file://{tmp_path}/copy"


def cp(url, *arguments):
    return CliRunner().invoke(app, ["cp", "--url", url, *arguments])


def test_a_run_is_copied_and_copying_again_finds_it_there(url, goal):
    first = json.loads(cp(url, RUN, "--to", goal, "--json").stdout)
    assert contents(open_store(goal)) == contents(open_store(url))
    assert (first["run_id"], first["to"], first["to_run_id"], first["failed"]) == (RUN, goal, RUN, 0)
    again = cp(url, RUN, "--to", goal)
    assert again.exit_code == 0
    assert f"0 objects of 0 bytes copied to {goal} as run {RUN}, {first['objects']} were there" in again.stdout


def test_a_run_is_copied_beside_itself(url):
    assert cp(url, RUN, "--to", url, "--to-run-id", "run-2").exit_code == 0
    assert views(open_store(url), "run-2") == views(open_store(url))


def test_losses_are_named_and_exit_with_one(url, goal):
    store = open_store(url)
    key = next(meta.key for meta in store.scan(f"tokens/{RUN}/good/entries/"))
    store.put(key, store.get(key)[:-1])
    lost = cp(url, RUN, "--to", goal, "--json")
    assert lost.exit_code == 1
    assert key in [one["key"] for one in json.loads(lost.stdout)["failures"]]
    shown = cp(url, RUN, "--to", goal)
    assert (shown.exit_code, "not copied" in shown.stdout) == (1, True)


def test_a_run_is_not_copied_onto_itself(url):
    refused = cp(url, RUN, "--to", url)
    assert (refused.exit_code, "onto itself" in refused.stderr) == (2, True)


def test_nor_where_both_have_the_server_of_a_variable(seaweedfs_server, prefix, monkeypatch):
    for name, value in seaweedfs_server.environment().items():
        monkeypatch.setenv(name, value)
    place = f"s3://{prefix}"
    assert "onto itself" in cp(place, RUN, "--to", place).stderr


def test_an_unknown_run_is_said(url, goal):
    missing = cp(url, "run-9", "--to", goal)
    assert (missing.exit_code, "no such run" in missing.stderr) == (3, True)
