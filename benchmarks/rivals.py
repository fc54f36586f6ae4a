# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What the package is measured against: each stores the same bytes at the same place with the least work.

The loops of boto3, aioboto3 and s3fs get bodies that are encoded already and check no tombstone, so what they are
measured at is more than a user would see.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import subprocess
import sysconfig
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import obstore

from gym_objstore.testing.processes import log_tail, start, stop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from benchmarks.places import Place

    Put = Callable[[str, bytes], Awaitable[Any]]

LOOPS = ("boto3", "aioboto3", "s3fs")
_MOUNT_SECONDS = 30.0


def raw_put(place: Place) -> Put:
    """Return obstore's own put."""
    raw = place.raw()
    return lambda key, body: obstore.put_async(raw, key, body)


@asynccontextmanager
async def loops(place: Place, callers: int) -> AsyncIterator[dict[str, Put]]:
    """Yield the puts of the other clients that are installed; none where the place is no S3."""
    async with AsyncExitStack() as stack:
        if place.scheme != "s3":
            yield {}
            return
        made = {"boto3": _boto3, "aioboto3": _aioboto3, "s3fs": _s3fs}
        there = {name: one for name, one in made.items() if importlib.util.find_spec(name)}
        yield {name: await stack.enter_async_context(one(place, callers)) for name, one in there.items()}


def _client_options(place: Place, callers: int) -> dict[str, Any]:
    from botocore.config import Config

    options = place.options
    secret = options.secret_access_key
    return {
        "endpoint_url": options.endpoint,
        "region_name": options.region,
        "aws_access_key_id": options.access_key_id,
        "aws_secret_access_key": secret.reveal() if secret else None,
        "config": Config(max_pool_connections=callers, s3={"addressing_style": "path"}),
    }


@asynccontextmanager
async def _boto3(place: Place, callers: int) -> AsyncIterator[Put]:
    import boto3

    client = boto3.client("s3", **_client_options(place, callers))
    _, bucket, prefix = place.options.location
    with ThreadPoolExecutor(callers) as threads:

        async def put(key: str, body: bytes) -> None:
            call = asyncio.get_running_loop().run_in_executor
            await call(threads, lambda: client.put_object(Bucket=bucket, Key=f"{prefix}/{key}", Body=body))

        yield put
    client.close()


@asynccontextmanager
async def _aioboto3(place: Place, callers: int) -> AsyncIterator[Put]:
    import aioboto3
    from aiobotocore.config import AioConfig

    options = _client_options(place, callers)
    options["config"] = AioConfig(max_pool_connections=callers, s3={"addressing_style": "path"})
    _, bucket, prefix = place.options.location
    async with aioboto3.Session().client("s3", **options) as client:
        yield lambda key, body: client.put_object(Bucket=bucket, Key=f"{prefix}/{key}", Body=body)


@asynccontextmanager
async def _s3fs(place: Place, callers: int) -> AsyncIterator[Put]:
    import s3fs

    options = place.options
    secret = options.secret_access_key
    files = s3fs.S3FileSystem(
        key=options.access_key_id,
        secret=secret.reveal() if secret else None,
        endpoint_url=options.endpoint,
        client_kwargs={"region_name": options.region},
        config_kwargs={"max_pool_connections": callers},
        asynchronous=True,
        skip_instance_cache=True,
    )
    session = await files.set_session()
    _, bucket, prefix = options.location
    try:
        yield lambda key, body: files._pipe_file(f"{bucket}/{prefix}/{key}", body)  # noqa: SLF001 - its async form
    finally:
        await session.close()


def gym_put(folder: Path) -> Callable[[Any], Awaitable[None]] | None:
    """Return the put of nemo-gym's own file store on a folder; None where nemo-gym is not installed."""
    if importlib.util.find_spec("nemo_gym") is None:
        return None
    from nemo_gym.token_id_capture.store import TokenCaptureStore

    return TokenCaptureStore(folder).put  # type: ignore[no-any-return]


@contextmanager
def mounted(place: Place) -> Iterator[tuple[Path | None, str]]:
    """Yield the place's bucket as a folder that JuiceFS mounts, or None and the reason why not."""
    juicefs = shutil.which("juicefs", path=sysconfig.get_path("scripts")) or shutil.which("juicefs")
    secret = place.options.secret_access_key
    reasons = {"no juicefs": juicefs, "no /dev/fuse": Path("/dev/fuse").exists(), "no keys for a bucket": secret}
    if missing := [reason for reason, there in reasons.items() if not there]:
        yield None, f"Gym's file store on a mounted bucket was not measured: {missing[0]}"
        return
    with ExitStack() as stack:
        yield _mount(str(juicefs), place, stack)


def _mount(juicefs: str, place: Place, stack: ExitStack) -> tuple[Path | None, str]:
    """Format a volume in the bucket and mount it until the stack is closed."""
    options, name = place.options, place.name()
    home, folder = place.folder / name, place.folder / f"{name}-mounted"
    home.mkdir()
    folder.mkdir()
    secret = options.secret_access_key
    keys = {"ACCESS_KEY": options.access_key_id or "", "SECRET_KEY": secret.reveal() if secret else ""}
    database, bucket = f"badger://{home / 'names'}", f"{options.endpoint}/{options.location.bucket}"
    made = [juicefs, "format", "--storage", "s3", "--bucket", bucket, "--trash-days", "0", database, name]
    subprocess.run(made, check=True, capture_output=True, cwd=home, env={"PATH": os.defpath, **keys})
    served = ["--cache-dir", str(home / "cache"), "--backup-meta", "0", "--no-usage-report", "--metrics", "127.0.0.1:0"]
    command = [juicefs, "--no-agent", "mount", *served, database, str(folder)]
    process = start(command, directory=home, log=home / "mount.log", environment=keys)
    stack.callback(stop, process)
    stack.callback(subprocess.run, [juicefs, "umount", str(folder)], capture_output=True, check=False)
    end = time.monotonic() + _MOUNT_SECONDS
    while not folder.is_mount():
        if time.monotonic() > end or process.poll() is not None:
            return None, f"Gym's file store on a mounted bucket was not measured: {log_tail(home / 'mount.log')[-200:]}"
        time.sleep(0.1)
    return folder, ""
