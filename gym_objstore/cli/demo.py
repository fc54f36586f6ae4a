# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``demo``: the main job, played on any store."""

from __future__ import annotations

import os
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gym_objstore.cli.options import Json
from gym_objstore.cli.printing import print_json, print_table, say
from gym_objstore.errors import Invalid
from gym_objstore.settings import URL_VARIABLE
from gym_objstore.store.opening import open_store

if TYPE_CHECKING:
    from gym_objstore.demo.play import Ending


class LocalServer(StrEnum):
    """The servers that the demonstration can start from their wheels."""

    SEAWEEDFS = "seaweedfs"
    MINIO = "minio"


def demo(
    url: Annotated[
        str | None, typer.Option("--url", envvar=URL_VARIABLE, help="Any store instead of a temporary folder.")
    ] = None,
    server: Annotated[LocalServer | None, typer.Option("--server", help="Start a real S3 server for it.")] = None,
    json: Json = False,  # noqa: FBT002
) -> None:
    """Capture rollouts in several processes, damage one, train, retire. Exits with 1 if a promise was broken."""
    began, run_id = time.monotonic(), f"demo-{uuid.uuid4().hex[:8]}"
    with ExitStack() as stack:
        place = _place(stack, url, server)
        ending = _watch(place, run_id, quiet=json)
        seconds = round(time.monotonic() - began, 1)
    if json:
        print_json({**ending._asdict(), "seconds": seconds})
    else:
        _show(ending, seconds)
        if url:
            say(f"the run stays, with its damage; remove it: gym-objstore runs delete {run_id} --url {url}")
    raise typer.Exit(int(bool(ending.broken)))


def _watch(url: str, run_id: str, *, quiet: bool) -> Ending:
    from gym_objstore.demo.play import Ending, play

    if not quiet:
        say(f"store {url}, run {run_id}")
    for scene in play(open_store(url), url, run_id):
        if isinstance(scene, Ending):
            return scene
        if not quiet:
            say(f"- {scene}")
    raise AssertionError  # pragma: no cover - the play always ends


def _place(stack: ExitStack, url: str | None, server: LocalServer | None) -> str:
    if url and server:
        hint = f"unset {URL_VARIABLE} if the url is that variable's"
        raise Invalid("--url and --server exclude each other", kind="bad_option", hint=hint)
    if url:
        return url
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gym-objstore-demo-")))
    return _served(stack, server, folder) if server else f"file://{folder}/store"


def _served(stack: ExitStack, server: LocalServer, folder: Path) -> str:
    """Start a server; its address and credentials reach every process through the environment alone."""
    from gym_objstore.testing import servers

    start = {LocalServer.SEAWEEDFS: servers.seaweedfs, LocalServer.MINIO: servers.minio_gateway}[server]
    running = stack.enter_context(start(folder))
    stack.enter_context(_environment(running.environment()))
    return f"s3://{servers.make_bucket(running, 'demo')}"


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set variables for this process and its children while the context is open."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _show(ending: Ending, seconds: float) -> None:
    rows = [
        (
            one["rollout"],
            "trained, retired" if one["retired"] else "masked",
            one["calls"],
            one.get("tokens", ""),
            one.get("generated", ""),
            "; ".join(one["reasons"]),
        )
        for one in ending.verdicts
    ]
    print_table("what the trainer found", ["rollout", "verdict", "calls", "tokens", "generated", "why"], rows)
    say("; ".join(f"late {attempt}: {answer}" for attempt, answer in ending.late.items()))
    for promise in ending.broken:
        say(f"BROKEN: {promise}")
    say(f"{'every promise was kept' if not ending.broken else 'promises were broken'}, {seconds} s")
