# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What the demonstration says of a promise that was broken; ``test_cli`` plays it, and none is."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from gym_objstore.cli.app import app
from gym_objstore.demo import play, script

TRAINED = {"reasons": [], "trained": True, "retired": True, "tokens": 75, "generated": 44, "calls": 4}


def verdict(rollout: str, **fields):
    return {"rollout": rollout, **TRAINED, "digest": script.digest(rollout), **fields}


def test_nothing_is_broken_where_all_is_as_the_script_has_it():
    staged = verdict("9-0", attached=script.attached("9-0"))
    masked = {"rollout": "11-0", "reasons": ["corrupt"], "trained": False, "retired": False}
    assert list(play._broken(0, [verdict("0-0"), staged, masked], {"put": "refused"})) == []


@pytest.mark.parametrize(
    ("lost", "found", "late", "complaint"),
    [
        (1, verdict("0-0"), {}, "not every call was stored exactly once, lost=1"),
        (0, verdict("0-0", digest="0"), {}, "0-0 was not trained on exactly what was generated, or not retired"),
        (0, verdict("0-0", retired=False), {}, "0-0 was not trained on exactly what was generated, or not retired"),
        (0, verdict("11-0"), {}, "11-0 is masked for [], expected ['corrupt']"),
        (0, verdict("9-0", attached="0"), {}, "the attachments of 9-0 are not what was staged"),
        (0, verdict("0-0"), {"record": "accepted"}, "a late record was accepted"),
    ],
)
def test_each_promise_is_missed_when_it_is_broken(lost, found, late, complaint):
    assert list(play._broken(lost, [found], late)) == [complaint]


def test_a_broken_promise_is_shown_and_is_the_exit_code(monkeypatch, tmp_path):
    ending = play.Ending([verdict("0-0")], {"put": "accepted"}, ["a late put was accepted"])
    monkeypatch.setattr("gym_objstore.demo.play.play", lambda *_: iter(["a scene", ending]))
    url = f"file://{tmp_path}/store"
    shown = CliRunner().invoke(app, ["demo", "--url", url])
    assert shown.exit_code == 1
    assert "BROKEN: a late put was accepted" in shown.stdout
    told = CliRunner().invoke(app, ["demo", "--url", url, "--json"])
    assert (told.exit_code, json.loads(told.stdout)["broken"]) == (1, ["a late put was accepted"])
