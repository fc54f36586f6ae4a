# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Objects of other programs below our root: none of them spoils a listing, and none that we cannot name is in one.

On moto, because it keeps every name as S3 does; servers over a file system change or refuse such names.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gym_objstore.store import Store
from gym_objstore.store.opening import open_store
from gym_objstore.testing.servers import Server, s3_client
from tests.server_pool import BUCKET

STRANGE = ("b//c", "b/./d", "b/e\x01f", "b/ünïcödé", "b/marker/", "/leading", "//", "b/../up")
OURS = {"a/1", "b/2", "b/with space", "b/empty", "c/deep/3"}


@pytest.fixture(scope="module")
def root(moto_server: Server) -> str:
    client = s3_client(moto_server)
    for name in (*STRANGE, *OURS):
        stored = {} if name.endswith(("/", "empty")) else {"Body": b"x"}
        client.put_object(Bucket=BUCKET, Key=f"strange/{name}", **stored)
    return f"s3://{BUCKET}/strange"


@pytest.fixture(params=["obstore", "boto", "fsspec"])
def store(request: pytest.FixtureRequest, moto_server: Server, root: str) -> Iterator[Store]:
    store = open_store(root, backend=request.param, **moto_server.settings())
    yield store
    store.close()


def test_a_listing_is_what_we_could_have_written(store: Store):
    found = list(store.scan(""))
    assert sorted(meta.key for meta in found) == sorted(OURS)
    assert {meta.key: meta.size for meta in found}["b/empty"] == 0
    assert sorted(meta.key for meta in store.scan("b/")) == ["b/2", "b/empty", "b/with space"]


def test_folders_are_those_we_could_have_named(store: Store):
    assert sorted(store.folders("")) == ["a", "b", "c"]
    assert sorted(store.folders("b/")) == ["marker"]


async def test_the_async_form_agrees(store: Store):
    assert sorted([meta.key async for meta in store.scan_async("")]) == sorted(OURS)
    assert sorted([name async for name in store.folders_async("")]) == ["a", "b", "c"]
    await store.close_async()


def test_what_a_listing_names_can_be_removed(store: Store, moto_server: Server):
    key = f"d/{id(store)}"
    store.put(key, b"x")
    store.delete([meta.key for meta in store.scan("d/")])
    assert list(store.scan("d/")) == []
