# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``doctor --identity``: one document and one exit code for init containers, a table for people."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from gym_objstore.cli.app import app
from tests.identities import document, make_user
from tests.server_pool import BUCKET


def call(*arguments: str):
    return CliRunner().invoke(app, ["doctor", *arguments], catch_exceptions=False)


def test_the_document_of_a_good_store(tmp_path):
    url = f"file://{tmp_path}/store"
    ended = call("--url", url, "--identity", "model-server", "--spill-dir", str(tmp_path / "spill"), "--json")
    found = json.loads(ended.stdout)
    assert ended.exit_code == 0
    assert list(found) == ["ok", "identity", "checks", "settings"]
    assert (found["ok"], found["identity"]) == (True, "model-server")
    assert {tuple(one) for one in found["checks"]} == {("name", "ok", "kind", "detail", "hint")}
    assert [one["name"] for one in found["checks"]] == [
        "reach",
        "list captures/",
        "read captures/",
        "list tokens/",
        "read tokens/",
        "list ledger/",
        "read ledger/",
        "write captures/",
        "write tokens/",
        "write ledger/",
        "remove ledger/",
        "spill",
    ]
    assert {one["kind"] for one in found["checks"]} == {"ok"}
    assert {"name": "url", "value": url, "source": "argument"} in found["settings"]


@pytest.mark.parametrize("as_json", [True, False])
def test_a_refused_operation_fails_the_verdict_and_no_secret_is_shown(seaweedfs_server, prefix, monkeypatch, as_json):
    viewer = make_user(seaweedfs_server, document("viewer", bucket=BUCKET, prefix=f"{prefix}/"))
    for name, value in viewer.environment().items():
        monkeypatch.setenv(name, value)
    place = ("--url", f"s3://{BUCKET}/{prefix}")
    assert call(*place, "--identity", "viewer").exit_code == 0
    ended = call(*place, "--identity", "inference-worker", "--run-id", "run-1", *(["--json"] if as_json else []))
    assert ended.exit_code == 1
    assert viewer.secret_key not in ended.stdout
    if as_json:
        found = json.loads(ended.stdout)
        refused = [(one["name"], one["kind"]) for one in found["checks"] if not one["ok"]]
        assert (found["ok"], refused) == (False, [("write staged/", "access_denied")])
        sources = {one["name"]: (one["value"], one["source"]) for one in found["settings"]}
        assert sources["endpoint"] == (viewer.endpoint, "environment variable AWS_ENDPOINT_URL")
        assert sources["bucket"] == (BUCKET, "argument")
        assert sources["identity"][0] == viewer.access_key
    else:
        assert "verdict: failed" in ended.stdout
        assert "write staged/" in ended.stdout


def test_a_url_of_the_variable_is_said_to_be_that(tmp_path, monkeypatch):
    monkeypatch.setenv("GYM_OBJSTORE_URL", f"file://{tmp_path}/store")
    (url,) = (one for one in json.loads(call("--json").stdout)["settings"] if one["name"] == "url")
    assert url["source"] == "environment variable GYM_OBJSTORE_URL"


def test_an_unknown_identity_is_a_wrong_command_line(tmp_path):
    ended = call("--url", f"file://{tmp_path}", "--identity", "root")
    assert ended.exit_code == 2
    assert "inference-worker" in ended.stderr
