# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``up``: a real S3 server on this machine, without containers, for as long as the command runs."""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from gym_objstore.cli.options import Json
from gym_objstore.cli.printing import print_json, say
from gym_objstore.errors import Unavailable
from gym_objstore.settings import RUN_VARIABLE, URL_VARIABLE

if TYPE_CHECKING:
    from gym_objstore.testing.servers import Server

_POLL_SECONDS = 0.2


class WheelServer(StrEnum):
    """The servers that come in wheels, by the names that the command line gives them."""

    SEAWEEDFS = "seaweedfs"
    MINIO_GATEWAY = "minio-gateway"


def up(
    server: Annotated[WheelServer, typer.Argument(help="Which server; the extra 'servers' has both.")],
    data: Annotated[
        Path | None, typer.Option("--data", help="Folder that keeps everything.", show_default="below XDG_DATA_HOME")
    ] = None,
    bucket: Annotated[str, typer.Option("--bucket", help="Bucket to make.")] = "rollouts",
    json: Json = False,  # noqa: FBT002
) -> None:
    """Run an S3 server until Ctrl-C and print the settings that lead to it: new ones each time, on the same data."""
    folder = (data or default_data_dir() / server).expanduser().resolve()
    with _ended_by_signals(), _running(server, folder) as running:
        environment = {URL_VARIABLE: f"s3://{_bucket(running, bucket)}", **running.environment()}
        if json:
            print_json({"server": server, "data": str(folder), "pid": running.pid, "environment": environment})
        else:
            _show(server, folder, environment)
        _wait(running)


def default_data_dir() -> Path:
    """Return the folder below which servers keep their data where none was named."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "gym-objstore"


@contextmanager
def _running(server: WheelServer, folder: Path) -> Iterator[Server]:
    from gym_objstore.testing import servers

    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    start = {WheelServer.SEAWEEDFS: servers.seaweedfs, WheelServer.MINIO_GATEWAY: servers.minio_gateway}[server]
    with start(folder) as running:
        yield running


def _bucket(running: Server, name: str) -> str:
    from gym_objstore.testing.servers import make_bucket

    return make_bucket(running, name)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Leave the block without an error on Ctrl-C and on SIGTERM, after all that is open in it was closed."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    except KeyboardInterrupt:
        return
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(*_: Any) -> NoReturn:
    raise KeyboardInterrupt


def _show(server: WheelServer, folder: Path, environment: dict[str, str]) -> None:
    say(f"# {server} keeps its data in {folder} and runs until Ctrl-C; for other terminals:")
    for name, value in environment.items():
        say(f"export {name}={shlex.quote(value)}")
    say(f"export {RUN_VARIABLE}=run-1")


def _wait(running: Server) -> NoReturn:
    """Wait for a signal; raise ``Unavailable`` if the server ends by itself."""
    from gym_objstore.testing.processes import log_tail

    while os.waitpid(running.pid, os.WNOHANG) == (0, 0):
        time.sleep(_POLL_SECONDS)
    message = f"{running.kind} ended by itself, end of its log:\n{log_tail(running.log)}"
    raise Unavailable(message, kind="server_ended")
