# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``du`` on a real folder."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from gym_objstore.cli.app import app
from gym_objstore.cli.du import _human
from gym_objstore.store.opening import open_store
from tests.finished import RUN, finish
from tests.whole_run import contents


@pytest.fixture
def url(tmp_path):
    found = f"file://{tmp_path}/store"
    finish(open_store(found), "r1")
    finish(open_store(found), "r1", run_id="run-2")
    return found


def du(url, *arguments):
    return CliRunner().invoke(app, ["du", "--url", url, *arguments])


def test_every_object_is_counted_with_its_price(url):
    found = json.loads(du(url, "--json").stdout)
    size = sum(map(len, contents(open_store(url)).values()))
    assert (found["url"], found["objects"], found["bytes"]) == (url, 10, size)
    assert found["usd_per_month"] == pytest.approx(size / 2**30 * 0.023)
    assert (found["usd_written"], found["usd_read"]) == (pytest.approx(5e-5), pytest.approx(4e-6))
    assert [(one["run_id"], one["family"], one["objects"]) for one in found["used"]] == [
        (RUN, "ledger", 2),
        (RUN, "manifests", 1),
        (RUN, "staged", 2),
        ("run-2", "ledger", 2),
        ("run-2", "manifests", 1),
        ("run-2", "staged", 2),
    ]


def test_one_run_for_people(url):
    shown = du(url, "--run-id", "run-2").stdout
    assert "5 objects" in shown
    assert RUN not in shown.replace("run-2", "")


@pytest.mark.parametrize(
    ("name", "text"), [("p.json", '{"storage_gb_month": 1}'), ("p.toml", "storage_gb_month = 1.0")]
)
def test_prices_come_from_a_file(url, tmp_path, name, text):
    (tmp_path / name).write_text(text)
    found = json.loads(du(url, "--json", "--prices", str(tmp_path / name)).stdout)
    assert found["prices"] == {"storage_gb_month": 1.0, "put_million": 5.0, "get_million": 0.4}
    assert found["usd_per_month"] == pytest.approx(found["bytes"] / 2**30)


@pytest.mark.parametrize("text", ["[]", "{", '{"storage": 1}', None])
def test_a_price_table_that_is_none_is_refused(url, tmp_path, text):
    if text is not None:
        (tmp_path / "p.json").write_text(text)
    assert du(url, "--prices", str(tmp_path / "p.json")).exit_code == 2


def test_an_empty_store_costs_nothing(tmp_path):
    found = json.loads(du(f"file://{tmp_path}/empty", "--json").stdout)
    assert (found["objects"], found["usd_per_month"], found["used"]) == (0, 0.0, [])


def test_sizes_are_readable():
    assert [_human(size) for size in (0, 1023, 1024, 3 * 2**20, 5 * 2**40, 5 * 2**50)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "3.0 MiB",
        "5.0 TiB",
        "5120.0 TiB",
    ]
