# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from gym_objstore.errors import Invalid, Unusable
from gym_objstore.store import Store
from gym_objstore.store.boto_store import BotoStore
from gym_objstore.store.file_store import FileStore
from gym_objstore.store.fsspec_store import FsspecStore
from gym_objstore.store.memory import MemoryStore
from gym_objstore.store.obstore_store import ObstoreStore
from gym_objstore.store.opening import open_store
from gym_objstore.store.options import StoreOptions
from gym_objstore.store.retrying import RetryingStore


@pytest.mark.parametrize(
    ("url", "backend", "served_by"),
    [
        ("s3://bucket/x", None, ObstoreStore),
        ("s3://bucket/x", "auto", ObstoreStore),
        ("s3://bucket/x", "obstore", ObstoreStore),
        ("s3://bucket/x", "boto", BotoStore),
        ("s3://bucket/x", "fsspec", FsspecStore),
        ("gs://bucket/x", None, ObstoreStore),
        ("gs://bucket/x", "fsspec", FsspecStore),
        ("az://container/x", None, ObstoreStore),
        ("sftp://host/x", None, FsspecStore),
    ],
)
def test_a_url_is_served_by_the_named_backend_or_the_best(url, backend, served_by):
    store = open_store(url, backend=backend)
    assert isinstance(store, RetryingStore)
    assert isinstance(store, Store)
    assert type(store._store) is served_by
    assert store.url == url


def test_local_places_are_not_retried(tmp_path):
    assert type(open_store(f"file://{tmp_path}")) is FileStore
    assert open_store("memory://here") is open_store("memory://here/") is MemoryStore.named("here")


@pytest.mark.parametrize(
    ("url", "backend"),
    [
        ("gs://bucket", "boto"),
        ("az://container", "boto"),
        ("sftp://host/x", "obstore"),
        ("sftp://host/x", "boto"),
        ("file:///folder", "obstore"),
        ("file:///folder", "fsspec"),
        ("memory://name", "fsspec"),
    ],
)
def test_a_backend_that_does_not_serve_the_url_is_refused(url, backend):
    with pytest.raises(Invalid, match=f"backend={backend}") as caught:
        open_store(url, backend=backend)
    assert caught.value.kind == "bad_option"


def test_options_open_the_store_they_describe():
    options = StoreOptions.of("s3://bucket/x", retry_seconds=3, concurrency=5)
    store = open_store(options)
    assert isinstance(store, RetryingStore)
    assert (store.url, store._seconds, store._limit) == ("s3://bucket/x", 3.0, 5)


def test_options_beside_finished_options_are_refused():
    with pytest.raises(Invalid):
        open_store(StoreOptions.of("s3://bucket"), region="r")


def test_the_environment_names_the_store(monkeypatch, tmp_path):
    monkeypatch.setenv("GYM_OBJSTORE_URL", f"file://{tmp_path}/store")
    store = open_store()
    store.put("a/b", b"x")
    assert (tmp_path / "store" / "a" / "b").read_bytes() == b"x"


def test_a_place_that_nothing_reaches_is_told_at_the_first_use():
    store = open_store("nosuchscheme://host/x", retry_seconds=0)
    with pytest.raises(Invalid) as caught:
        store.get("a/b")
    assert caught.value.kind == "bad_url"


def test_a_file_system_whose_package_is_missing_names_it():
    store = open_store("smb://host/x", retry_seconds=0)
    with pytest.raises(Unusable) as caught:
        store.get("a/b")
    assert caught.value.kind == "missing_extra"


def test_nothing_is_written_where_a_reader_could_see_a_part(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "object").write_bytes(b"0123456789")
    store = open_store(f"local://{tmp_path}")
    with pytest.raises(Invalid) as caught:
        store.put("folder/new", b"x")
    assert caught.value.kind == "not_supported"
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["object"]


async def test_any_other_file_system_can_be_read_in_both_forms(tmp_path):
    (tmp_path / "folder" / "sub").mkdir(parents=True)
    (tmp_path / "folder" / "object").write_bytes(b"0123456789")
    (tmp_path / "folder" / "sub" / "other").write_bytes(b"x")
    store = open_store(f"local://{tmp_path}", retry_seconds=0)
    assert store.get("folder/object") == await store.get_async("folder/object") == b"0123456789"
    assert store.get_range("folder/object", 7, 9) == b"789"
    assert store.head("folder/object").size == 10
    assert store.head("folder/sub") is None
    assert store.head("folder/missing") is None
    assert sorted(meta.key for meta in store.scan("folder/")) == ["folder/object", "folder/sub/other"]
    assert list(store.folders("folder/")) == ["sub"]
    assert [meta.size async for meta in store.scan_async("folder/sub/")] == [1]
    assert list(store.scan("nowhere/")) == list(store.folders("nowhere/")) == []
