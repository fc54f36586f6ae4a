# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""docs/json.md has every field that ``--json`` prints, and every kind of finding."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from gym_objstore import CaptureStore
from gym_objstore.cli.app import app
from gym_objstore.store.opening import open_store
from tests.pages import text_of
from tests.whole_run import RUN, make_run

PAGE = text_of("docs/json.md")
ROWS = dict(re.findall(r"^\| `([a-z][\w -]*)` \| (.+) \|$", PAGE.split("\n## ")[0], re.MULTILINE))
ELSEWHERE = {"demo", "doctor", "spill", "up", "tail", "grep"}
"""Documented elsewhere, without a document here, or run below."""
COMMANDS = {
    "ls": ("ls",),
    "ls --run-id": ("ls", "--run-id", RUN),
    "show": ("show", "good", "--run-id", RUN),
    "check": ("check", "--run-id", RUN),
    "stats": ("stats", "--run-id", RUN),
    "export": ("export", "--run-id", RUN, "--to", "files"),
    "export --format parquet": ("export", "--run-id", RUN, "--format", "parquet", "--to", "table"),
    "import": ("import", "files", "--run-id", "again"),
    "cp": ("cp", RUN, "--to-run-id", "copy", "--to"),
    "du": ("du",),
    "gc": ("gc",),
    "runs create": ("runs", "create", "new"),
    "runs list": ("runs", "list", "--bytes"),
    "runs close": ("runs", "close", RUN),
    "retire": ("retire", "good", "--yes", "--run-id", RUN),
    "delete": ("delete", "good", "--yes", "--run-id", RUN),
    "runs delete": ("runs", "delete", RUN, "--yes"),
}
"""In an order in which each finds what it needs."""


@pytest.fixture
def url(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = f"file://{tmp_path}/store"
    make_run(open_store(found))
    return found


def fields_of(row: str) -> set[str]:
    """Return the fields of a row; options in it are those that add fields."""
    return set(re.findall(r"`([a-z]\w*)`", row))


def test_every_command_prints_the_fields_that_are_documented(url):
    assert set(ROWS) == set(COMMANDS) | ELSEWHERE
    for name, (*words,) in COMMANDS.items():
        done = CliRunner().invoke(app, [*words, *([url] if name == "cp" else []), "--url", url, "--json"])
        printed = json.loads(done.stdout)
        documented = fields_of(ROWS[name]) - ({"removed"} if name == "gc" else set())
        assert set(printed[0] if isinstance(printed, list) else printed) == documented, name


def test_every_line_has_the_fields_that_are_documented(url):
    exchange = {
        "model_call_id": "c1",
        "dialect": "chat",
        "completed_at": 1.5,
        "request": {"model": "m", "messages": [{"role": "user", "content": "Is it warm?"}]},
        "response": {"choices": [{"message": {"role": "assistant", "content": "Yes."}}]},
    }
    CaptureStore(url, RUN).record("talk", exchange)
    for words in (("grep", "warm"), ("tail", "--once")):
        done = CliRunner().invoke(app, [*words, "--url", url, "--run-id", RUN, "--json"])
        whole = [json.loads(line) for line in done.stdout.splitlines() if "talk" in line]
        assert whole, words
        assert fields_of(ROWS[words[0]]) - {"unreadable"} <= set(whole[0]), words


def test_every_kind_of_finding_is_documented(url):
    kinds = set(re.findall(r"^\| `(\w+)` \| (?:error|warning|note) \|", PAGE, re.MULTILINE))
    found = json.loads(CliRunner().invoke(app, ["check", "--url", url, "--run-id", RUN, "--json"]).stdout)["findings"]
    assert {one["kind"] for one in found} <= kinds
    assert {"dangling_intent", "corrupt", "conflict", "missing", "foreign", "newer_format", "failure_row"} <= kinds
