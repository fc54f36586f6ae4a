# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Bodies that go up in parts: whole in the end, or not at all and with no part left behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from gym_objstore.errors import Unavailable
from gym_objstore.store import Store
from gym_objstore.store.opening import open_store
from gym_objstore.store.parts import PART_BYTES, SINGLE_PUT_BYTES
from tests.canned_s3 import CannedS3, Reply, Request, refusal

KEYS = {"access_key_id": "somebody", "secret_access_key": "secret", "region": "us-east-1", "retry_seconds": 0}
BUFFERS = [b"a" * (SINGLE_PUT_BYTES // 2), b"b" * (SINGLE_PUT_BYTES // 2), b"c"]


class Uploads:
    """An S3 server's side of uploads in parts. ``broken`` refuses a part; ``gate`` holds it until it is set."""

    def __init__(self) -> None:
        self.broken, self.gate, self.reached = 0, threading.Event(), threading.Event()
        self.gate.set()
        self.parts: dict[int, int] = {}
        self.ended: list[str] = []

    def __call__(self, request: Request) -> Reply:
        if request.method == "POST" and request.path.rstrip("=").endswith("?uploads"):
            name = "InitiateMultipartUploadResult"
            return Reply(200, f"<{name}><UploadId>u-1</UploadId></{name}>".encode())
        if request.method == "PUT" and "partNumber=" in request.path:
            return self._part(request)
        self.ended.append(request.method)
        if request.method == "DELETE":
            return Reply(204)
        return Reply(200, b"<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>")

    def _part(self, request: Request) -> Reply:
        number = int(request.path.partition("partNumber=")[2].partition("&")[0])
        self.reached.set()
        self.gate.wait(10)
        if number == self.broken:
            return refusal(500, "InternalError")
        self.parts[number] = len(request.body)
        return Reply(200, b"", {"ETag": f'"{number}"'})


@pytest.fixture
def uploads() -> Uploads:
    return Uploads()


@pytest.fixture(params=["obstore", "boto"])
def store(request: pytest.FixtureRequest, uploads: Uploads) -> Iterator[Store]:
    with CannedS3(uploads) as server:
        store = open_store("s3://bucket/root", backend=request.param, endpoint=server.endpoint, **KEYS)
        yield store
        store.close()


def put(store: Store, form: str) -> None:
    if form == "blocking":
        store.put("a/b", BUFFERS)
    else:
        asyncio.run(store.put_async("a/b", BUFFERS))


@pytest.mark.parametrize("form", ["blocking", "async"])
def test_a_large_body_goes_up_in_equal_parts_and_is_completed(store: Store, uploads: Uploads, form: str):
    put(store, form)
    assert uploads.parts == {1: PART_BYTES, 2: PART_BYTES, 3: 1}
    assert uploads.ended == ["POST"]


@pytest.mark.parametrize("form", ["blocking", "async"])
def test_an_upload_that_fails_leaves_no_part_behind(store: Store, uploads: Uploads, form: str):
    uploads.broken = 2
    with pytest.raises(Unavailable):
        put(store, form)
    assert uploads.ended == ["DELETE"]


def test_an_upload_whose_caller_is_cancelled_is_finished(store: Store, uploads: Uploads):
    uploads.gate.clear()

    async def conversation() -> None:
        putting = asyncio.create_task(store.put_async("a/b", BUFFERS))
        await asyncio.to_thread(uploads.reached.wait, 10)
        putting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await putting
        uploads.gate.set()
        for _ in range(1000):
            if uploads.ended:
                break
            await asyncio.sleep(0.01)
        await store.close_async()

    asyncio.run(conversation())
    assert uploads.ended == ["POST"]
    assert uploads.parts == {1: PART_BYTES, 2: PART_BYTES, 3: 1}
