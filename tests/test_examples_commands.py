# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The examples that are made of our commands: cleaning up, moving from files into a bucket, and asking with DuckDB."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from gym_objstore import TokenSource
from gym_objstore.captures import capture_put, line_of
from gym_objstore.flow import run
from gym_objstore.objects import announcement, write
from gym_objstore.store.opening import open_store
from tests.example_run import environment_of, example, printed
from tests.finished import RUN, finish, stage_call
from tests.gym_files import capture_file, exchange, token_files
from tests.places import place_of
from tests.whole_run import contents

MONTH = 31 * 86_400


@pytest.fixture
def place(request):
    return place_of("file", request)


def store_of(place):
    return open_store(**{name: value for name, value in place.items() if name not in {"run_id", "spill_dir"}})


def of_run(found, run_id) -> set[str]:
    return {key for key in found if key.split("/")[1] == run_id}


def age(folder: Path, run_id: str) -> None:
    """Let everything of a run have been written more than a month ago."""
    then = time.time() - MONTH
    for path in folder.glob(f"*/{run_id}/**/*"):
        os.utime(path, (then, then))


def reported(path: Path) -> list[tuple[str, str]]:
    return [(one["reason"], one["key"]) for one in map(json.loads, path.read_text().splitlines()[1:])]


@pytest.fixture
def cleanup(place, tmp_path):
    """Run the example on every run of the store."""
    environment = {name: value for name, value in environment_of(place).items() if name != "GYM_OBJSTORE_RUN_ID"}

    def run_it(*arguments: str, **told: str) -> str:
        done = example("cleanup.sh", *arguments, environment={**environment, **told}, folder=tmp_path)
        return "\n".join(printed(done))

    return run_it


@pytest.fixture
def store(place, tmp_path):
    """An old run, and a new one of the same rollout with two staged rows that nothing refers to."""
    found = store_of(place)
    for name in ("old", "new"):
        finish(found, "0-0", run_id=name)
    for rollout in ("9-0", "9-1"):
        stage_call(found, "c9", rollout_id=rollout, run_id="new")
    age(tmp_path / "store", "old")
    return found


def test_looking_reports_old_runs_and_changes_nothing(store, cleanup, tmp_path):
    before = contents(store)
    shown = cleanup()
    assert "a month" in shown
    assert "runs in file://" in shown
    assert set(reported(tmp_path / "gc-report.jsonl")) == {("expired", key) for key in of_run(before, "old")}
    assert contents(store) == before


def test_a_period_of_ones_own_is_taken(store, cleanup, tmp_path):
    cleanup(EXPIRE_AFTER="32d")
    assert reported(tmp_path / "gc-report.jsonl") == []


def test_applying_removes_what_was_reported_and_spares_what_checkpoints_list(store, cleanup, tmp_path):
    before = contents(store)
    kept = tmp_path / "kept.txt"
    kept.write_text("9-0\n")
    cleanup("look", "--grace", "0s", "--checkpoint", str(kept), REPORT="mine.jsonl")
    (orphan,) = (key for reason, key in reported(tmp_path / "mine.jsonl") if reason == "orphan")
    assert "/9-1/" in orphan
    cleanup("apply", "--checkpoint", str(kept), REPORT="mine.jsonl")
    assert set(contents(store)) == of_run(before, "new") - {orphan}
    assert "0 objects removed" in cleanup("apply", "--checkpoint", str(kept), REPORT="mine.jsonl")


def test_a_bucket_is_cleaned_up_as_a_folder_is(request, tmp_path):
    place = place_of("seaweedfs", request)
    store, environment = store_of(place), environment_of(place)
    finish(store, "0-0")
    stage_call(store, "c9", rollout_id="9-0")
    printed(example("cleanup.sh", "look", "--grace", "0s", environment=environment, folder=tmp_path))
    assert [reason for reason, _ in reported(tmp_path / "gc-report.jsonl")] == ["orphan"]
    printed(example("cleanup.sh", "apply", environment=environment, folder=tmp_path))
    assert [key for key in contents(store) if "/9-0/" in key] == []
    assert [key for key in contents(store) if "/0-0/" in key] != []


def test_an_unknown_step_of_the_cleanup_is_refused(place, tmp_path):
    done = example("cleanup.sh", "everything", environment=environment_of(place), folder=tmp_path)
    assert (done.returncode, "usage: cleanup.sh" in done.stderr) == (2, True)


@pytest.fixture
def files(tmp_path) -> Path:
    """A folder that nemo-gym's own stores wrote."""
    folder = tmp_path / "gym"
    folder.mkdir()
    for rollout in ("0-0", "0-1"):
        token_files(folder, rollout)
        capture_file(folder, rollout, exchange("call-0", 1.0), exchange("call-1", 2.0))
    return folder


@pytest.mark.parametrize("kind", ["file", "seaweedfs"])
async def test_a_run_moves_from_files_into_a_bucket_and_on(kind, request, files, tmp_path):
    place = place_of(kind, request)
    goal = f"{place['url']}-archive"
    arguments, told = [str(files), goal], environment_of(place)
    before = {path.name: path.read_bytes() for path in files.iterdir()}
    shown = printed(example("move_to_bucket.sh", *arguments, environment=told, folder=tmp_path))
    assert "0-0.capture.jsonl is back, byte for byte" in shown
    assert f"copied to {goal} as run run-1" in shown[-1]
    for url in (place["url"], goal):
        source = TokenSource(**{**place, "url": url})
        snapshot = await source.freeze("0-1")
        assert (len(snapshot.entries), snapshot.problems) == (3, ())
        await source.close()
    assert {path.name: path.read_bytes() for path in files.iterdir()} == before

    again = printed(example("move_to_bucket.sh", *arguments, environment=told, folder=tmp_path))
    assert any(line.startswith("0 stored") for line in again)
    assert "0 objects of 0 bytes copied" in again[-1]


def test_what_does_not_come_back_equal_stops_the_move(place, files, tmp_path):
    with (files / "0-1.capture.jsonl").open("ab") as capture:
        capture.write(b'{"cut off')  # an export ends every line
    done = example(
        "move_to_bucket.sh", str(files), f"{place['url']}-archive", environment=environment_of(place), folder=tmp_path
    )
    assert done.returncode != 0
    assert "copied to" not in done.stdout


@pytest.fixture
def captured(place):
    """Four calls of two rollouts; one failed, and two called a tool."""
    store = store_of(place)

    def capture(rollout: str, number: int, tokens: int, **fields) -> None:
        items = [
            {"type": "function_call", "call_id": "t1", "name": name, "arguments": "{}"}
            for name in fields.pop("tools", ())
        ]
        response = {
            "id": f"r{number}",
            "output": items,
            "usage": {"input_tokens": tokens, "output_tokens": 1, "total_tokens": tokens + 1},
        }
        said = {
            "model_call_id": f"c{number}",
            "completed_at": float(number),
            "dialect": "responses",
            "latency_ms": 100.0,
            "status_code": 200,
            "request": {"model": "policy"},
            "response": response,
            **fields,
        }
        put = capture_put(RUN, rollout, line_of(said, 0.0))
        run(write(put, [announcement("captures", RUN)]), store)

    capture("0-0", 1, 10, tools=("search", "search"))
    capture("0-0", 2, 30, tools=("shell",))
    capture("0-1", 3, 5)
    capture("0-1", 4, 5, status_code=503, response=None, error_category="upstream_error")


def cells(shown: list[str]) -> list[list[str]]:
    """Return the rows of the tables that DuckDB draws."""
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in shown if line.startswith("│")]


@pytest.mark.usefixtures("captured")
def test_duckdb_answers_from_the_exported_calls(place, tmp_path):
    shown = printed(example("read_with_duckdb.py", environment=environment_of(place), folder=tmp_path))
    rows = cells(shown)
    assert ["policy", "4", "45", "3", "100.0", "100.0"] in rows
    assert ["upstream_error", "503", "1"] in rows
    assert [row for row in rows if row[0] in {"0-0", "0-1"}] == [
        ["0-0", "2", "42", "false"],
        ["0-1", "2", "6", "false"],
    ]
    assert [row for row in rows if row[0] in {"search", "shell"}] == [["search", "2"], ["shell", "1"]]
    assert (tmp_path / "exported" / "calls.parquet").exists()


@pytest.mark.usefixtures("captured")
def test_a_question_of_ones_own_is_answered_alone(place, tmp_path):
    arguments = [
        f"--url={place['url']}",
        "--run-id=run-1",
        "--to=elsewhere",
        "--sql=SELECT max(tokens_in) AS most FROM calls",
    ]
    shown = printed(example("read_with_duckdb.py", *arguments, environment={}, folder=tmp_path))
    assert [row for row in cells(shown) if row[0].isdigit()] == [["30"]]
    assert not any("models" in line for line in shown)


def test_an_unknown_run_ends_the_question_with_the_commands_exit_code(place, tmp_path):
    store_of(place).put("captures/other/!run/writer", b"x")
    done = example("read_with_duckdb.py", environment=environment_of(place), folder=tmp_path)
    assert done.returncode == 3
    assert "no such run" in done.stderr
