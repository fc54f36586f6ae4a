# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A run's calls as Parquet: what analysts read is what was captured, unknown is null, and memory is bounded."""

from __future__ import annotations

import json
import sys

import duckdb
import pandas as pd
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from gym_objstore import parquet
from gym_objstore.captures import capture_put, line_of, mark
from gym_objstore.cli.app import app
from gym_objstore.errors import Unusable
from gym_objstore.flow import run
from gym_objstore.objects import announcement, write
from gym_objstore.reading import open_rollout
from gym_objstore.store.memory import MemoryStore
from gym_objstore.store.opening import open_store

RUN = "run-1"
USAGE = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10, "input_tokens_details": {"cached_tokens": 2}}
GOOD = {
    "model_call_id": "c1",
    "dialect": "responses",
    "model_ref": {"type": "responses_api_models", "name": "policy"},
    "started_at": 1786032154.12,
    "completed_at": 1786032154.5,
    "latency_ms": 842.7,
    "status_code": 200,
    "request": {"model": "m", "input": "hé"},
    "response": {
        "id": "r1",
        "output": [{"type": "function_call", "call_id": "t1", "name": "f", "arguments": "{}"}],
        "usage": USAGE,
    },
}


def capture(store, rollout, **fields) -> str:
    put = capture_put(RUN, rollout, line_of(fields, 0.0))
    run(write(put, [announcement("captures", RUN)]), store)
    return put.key


@pytest.fixture
def url(tmp_path):
    return f"file://{tmp_path}/store"


@pytest.fixture
def store(url):
    found = open_store(url)
    capture(found, "0-0", **GOOD)
    capture(found, "0-0", model_call_id="c2", completed_at=1786032155.0, error_category="timeout")
    key = capture(found, "1-0", model_call_id="c3", completed_at=3.0)
    found.put(key, found.get(key)[:-1])
    run(write(mark(RUN, "1-0", "", {"at": 1.0})), found)
    return found


def export(url, folder, *arguments: str):
    base = ["export", "--format", "parquet", "--to", str(folder), "--url", url, "--run-id", RUN, "--json"]
    return CliRunner().invoke(app, [*base, *arguments], catch_exceptions=False)


def test_pandas_reads_what_was_captured(url, store, tmp_path):
    result = export(url, tmp_path / "out")
    said = json.loads(result.stdout)
    assert (said["calls"], said["damaged_captures"], said["rollouts"], result.exit_code) == (3, 1, 2, 1)
    frame = pd.read_parquet(said["file"])
    assert list(frame["rollout_id"]) == ["0-0", "0-0", "1-0"]
    first, second, damaged = (frame.iloc[row] for row in range(3))
    assert (first["model"], first["model_server"], first["tokens_in"], first["cached_tokens"]) == ("m", "policy", 7, 2)
    assert first["completed_at"] == pd.Timestamp(1786032154.5, unit="s", tz="UTC")
    assert json.loads(first["tool_calls"]) == [{"call_id": "t1", "name": "f", "arguments": {}}]
    assert (second["error_category"], pd.isna(second["tokens_in"]), pd.isna(second["model"])) == ("timeout", True, True)
    assert (bool(damaged["unreadable"]), bool(damaged["rollout_incomplete"])) == (True, True)
    assert "request" not in frame


def test_duckdb_queries_the_payloads(url, store, tmp_path):
    export(url, tmp_path, "--payloads", "--rollout", "0-0")
    query = "select call_index, request ->> 'input' from read_parquet(?) where request is not null"
    assert duckdb.execute(query, [str(tmp_path / "calls.parquet")]).fetchall() == [(0, "hé")]


def test_a_second_export_replaces_the_first(url, store, tmp_path):
    export(url, tmp_path)
    capture(store, "2-0", **GOOD)
    assert json.loads(export(url, tmp_path).stdout)["calls"] == 4
    assert [path.name for path in tmp_path.glob("*.parquet")] == ["calls.parquet"]


def test_rows_are_written_in_groups(tmp_path, monkeypatch):
    store = MemoryStore()
    for number in range(7):
        capture(store, "0-0", **{**GOOD, "completed_at": float(number)})
    monkeypatch.setattr(parquet, "_GROUP_ROWS", 3)
    path = tmp_path / "calls.parquet"
    assert parquet.write_calls(path, [open_rollout(store, RUN, "0-0")], payloads=True).calls == 7
    assert pyarrow.parquet.read_metadata(path).num_row_groups == 3


@pytest.mark.parametrize("number", [2**63, 2**64 - 1])
def test_a_count_that_no_column_holds_is_unknown(tmp_path, number):
    store = MemoryStore()
    capture(store, "0-0", completed_at=1e300, response={"usage": {"input_tokens": number}})
    path = tmp_path / "calls.parquet"
    parquet.write_calls(path, [open_rollout(store, RUN, "0-0")], payloads=False)
    assert pyarrow.parquet.read_table(path).to_pylist()[0]["tokens_in"] is None


def test_without_the_extra_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(Unusable, match=r"pip install 'gym-objstore\[parquet\]'"):
        parquet.write_calls(tmp_path / "calls.parquet", [], payloads=False)


def test_an_export_that_fails_leaves_no_file(tmp_path):
    def broken():
        yield open_rollout(MemoryStore(), RUN, "0-0")

    with pytest.raises(KeyError):
        parquet.write_calls(tmp_path / "calls.parquet", broken(), payloads=False)
    assert list(tmp_path.iterdir()) == []
