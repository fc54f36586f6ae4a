# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The benchmark runs, judges what it promises to judge, and says the same in every form. No timing is asserted."""

from __future__ import annotations

import json

import pytest

from benchmarks import __main__ as program
from benchmarks.harness import Check, Row, at_least, at_most, interleaved, turns
from benchmarks.places import TINY, place
from benchmarks.report import as_json, markdown
from benchmarks.workloads import WORKLOADS

NAMES = ["put", "cpu", "loop", "resolve", "freeze", "stage", "trainer", "retire", "million", "proxy", "start"]


def rows_of(name, url):
    (workload,) = [one for one in WORKLOADS if one.name == name]
    with place(url, TINY, [0.0]) as where:
        return workload, list(workload.rows(where))


def test_the_workloads_are_those_of_the_documents_and_each_has_a_target():
    assert [one.name for one in WORKLOADS] == NAMES
    assert all(one.target for one in WORKLOADS)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "proxy"])
def test_a_workload_runs_in_a_folder_and_is_judged(name, tmp_path):
    workload, rows = rows_of(name, f"file://{tmp_path}")
    assert rows
    assert any(row.checks for row in rows)
    assert all(value > 0 for row in rows for value in row.figures.values() if row.unit in ("put/s", "rows/s"))
    assert as_json({}, (), [(workload, rows)])["workloads"][0]["verdict"].startswith(("met", "missed"))


@pytest.mark.slow
def test_the_proxy_runs_in_front_of_a_folder_and_captures_every_stream(tmp_path):
    _, rows = rows_of("proxy", f"file://{tmp_path}")
    assert [row.case for row in rows] == ["2 streams, first", "2 streams, total"]
    assert [[check.name for check in row.checks] for row in rows] == 2 * [["% added", "captured, of all"]]
    assert [row.checks[1].value for row in rows] == [1.0, 1.0]


@pytest.mark.parametrize("name", ["put", "resolve", "freeze", "trainer", "retire"])
def test_a_workload_runs_in_memory(name):
    _, rows = rows_of(name, f"memory://benchmark-{name}")
    assert rows


def test_round_trips_and_requests_are_those_of_the_design(tmp_path):
    _, resolved = rows_of("resolve", f"file://{tmp_path / 'a'}")
    trips = {one.name: one.value for row in resolved for one in row.checks if one.name.startswith("round trips")}
    assert trips == {"round trips, fresh process": 2, "round trips, same process": 1}
    _, removed = rows_of("retire", f"file://{tmp_path / 'b'}")
    assert [{one.name: one.value for one in row.checks} for row in removed] == [
        {"round trips": 3, "PUT": 3, "LIST": 3, "DELETE": 1},
        {"round trips": 2, "PUT": 0, "LIST": 3, "DELETE": 1},
    ]


def test_a_rival_loop_stores_the_same_bytes_on_a_server(seaweedfs_server, prefix):
    from dataclasses import replace

    url = f"s3://tests/{prefix}"
    with place(url, TINY, [0.0]) as bare:
        where = replace(bare, settings=seaweedfs_server.settings())
        first = next(iter(WORKLOADS[0].rows(where)))
        assert set(first.figures) == {"ours", "raw", "boto3", "aioboto3", "s3fs"}
        sizes = {meta.key.split("/")[0]: meta.size for meta in where.store().scan("") if "!run" not in meta.key}
    assert len(set(sizes.values())) <= 2  # an entry of ours names its own rollout; the rivals' bytes are all alike
    assert [check.name for check in first.checks] == ["ours/raw", "p99 ours/raw", "ours/best loop"]


def test_a_latency_is_added_each_way_and_can_be_changed(seaweedfs_server, prefix):
    from dataclasses import replace

    from gym_objstore.testing.servers import Server

    server: Server = seaweedfs_server
    with pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment().items():
            patch.setenv(name, value)
        with place(f"s3://tests/{prefix}", TINY, [0.0, 20.0]) as found:
            for milliseconds in (20.0, 1.0):
                far = replace(found.away(milliseconds))
                assert far.options.endpoint == found.relayed != found.options.endpoint
                store = far.store()
                store.put("a", b"body")
                assert store.get("a") == b"body"


def test_a_check_is_met_on_its_limit_and_says_so():
    assert at_least("x", 0.85, 0.85).met
    assert not at_least("x", 0.84, 0.85).met
    assert at_most("x", 1.25, 1.25).met
    assert not at_most("x", 1.26, 1.25).met
    assert Check("ours/raw", 0.5, 0.85).text == "ours/raw 0.5 (≥ 0.85: MISSED)"
    assert at_most("MB", 83.2, 200.0).text == "MB 83.2 (≤ 200: met)"


def test_contenders_take_turns_and_each_is_first_once():
    assert list(turns(["a", "b"], 3)) == [(0, "a"), (0, "b"), (1, "b"), (1, "a"), (2, "a"), (2, "b")]
    called = []
    found = interleaved({"a": lambda: called.append("a"), "b": lambda: called.append("b")}, 2)
    assert called == ["a", "b", "b", "a"]
    assert found == {"a": [None, None], "b": [None, None]}


def test_json_and_table_hold_the_same_figures(tmp_path):
    files = tmp_path / "report.json", tmp_path / "report.md"
    arguments = ["retire", "--quick", "--url", f"file://{tmp_path / 'store'}", "--latency", "0"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "QUICK", TINY)
        assert program.main([*arguments, "--json", str(files[0]), "--markdown", str(files[1])]) == 0
    report, text = json.loads(files[0].read_text()), files[1].read_text()
    assert text == markdown(report)
    (found,) = report["workloads"]
    assert (found["workload"], found["verdict"]) == ("retire", "met")
    assert [row["case"] for row in found["rows"]] == ["retire 3 rollouts", "delete 3 rollouts"]
    for row in found["rows"]:
        assert all(check["met"] and check["text"] in text for check in row["checks"])
    assert report["machine"]["cores"] >= 1
    assert report["machine"]["versions"]["obstore"]


def test_the_verdict_counts_what_is_met():
    rows = [Row("a", "ms", {"ours": 1.0}, (at_most("x", 1, 2), at_most("y", 3, 2))), Row("b", "ms", {}, note="absent")]
    report = as_json(
        {"versions": {}, "time": "", "cpu": "", "cores": 2, "load": [1.0], "python": "", "system": ""},
        [2.0],
        [(WORKLOADS[0], rows)],
    )
    assert report["workloads"][0]["verdict"] == "missed, 1 of 2 met"
    assert "| a | ours 1 ms | x 1 (≤ 2: met); y 3 (≤ 2: MISSED) |" in markdown(report)
    assert "| b | ms | absent |" in markdown(report)


def test_a_workload_that_there_is_not_is_refused_by_name(capsys):
    with pytest.raises(SystemExit) as refused:
        program.main(["pot"])
    assert refused.value.code == 2
    assert "no such workload, workload=pot; there are put, cpu" in capsys.readouterr().err
