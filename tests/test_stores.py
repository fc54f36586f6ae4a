# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The store suite on every backend and server.

What runs where, on purpose: a backend's own behaviour (both forms, threads, loops, forks, closing, bad input)
is tested once for each backend, on SeaweedFS; what a service answers (``ServiceLaws``) is tested for each pair.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gym_objstore.errors import Denied
from gym_objstore.store import Store
from gym_objstore.store.opening import open_store
from gym_objstore.testing.servers import Server, make_bucket, seaweedfs
from gym_objstore.testing.store_suite import (
    CrowdLaws,
    DenialLaws,
    LargeBodyLaws,
    ServiceLaws,
    StoreSuite,
    StrangerLaws,
    Target,
    Users,
)
from gym_objstore.testing.store_suite.denials import BLIND, FORGER, HALF, HALF_PREFIX, READER, WRITER
from gym_objstore.testing.store_suite.playing import Colour
from tests.server_pool import BUCKET
from tests.store_targets import ROOT, file_target, memory_target, open_on_server, server_target

NOBODY = 65_534
SECRET = "the-same-for-every-user"


class TestMemory(StoreSuite):
    @pytest.fixture(scope="class")
    @classmethod
    def target(cls) -> Target:
        return memory_target("suite")


class TestFile(StoreSuite):
    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, tmp_path_factory: pytest.TempPathFactory) -> Target:
        return file_target(tmp_path_factory.mktemp("store"))


class TestObstoreOnSeaweedfs(StoreSuite):
    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, seaweedfs_server: Server) -> Target:
        return server_target(seaweedfs_server, "obstore")


class TestBotoOnSeaweedfs(StoreSuite):
    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, seaweedfs_server: Server) -> Target:
        return server_target(seaweedfs_server, "boto")


class TestFsspecOnSeaweedfs(StoreSuite):
    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, seaweedfs_server: Server) -> Target:
        return server_target(seaweedfs_server, "fsspec")


class TestObstoreOnMinio(ServiceLaws, LargeBodyLaws, CrowdLaws):
    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, minio_server: Server) -> Target:
        return server_target(minio_server, "obstore")


class TestBotoOnMinio(ServiceLaws, LargeBodyLaws):
    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, minio_server: Server) -> Target:
        return server_target(minio_server, "boto")


class TestFsspecOnMinio(ServiceLaws, LargeBodyLaws):
    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, minio_server: Server) -> Target:
        return server_target(minio_server, "fsspec")


class TestObstoreOnMoto(ServiceLaws):
    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, moto_server: Server) -> Target:
        return server_target(moto_server, "obstore")


@pytest.mark.parametrize("backend", ["obstore", "boto", "fsspec"])
def test_a_root_in_a_bucket_does_not_see_its_neighbours(seaweedfs_server: Server, prefix: str, backend: str) -> None:
    roots = [prefix, f"{prefix}2", f"{prefix}/deeper", f"{prefix}.x"]
    settings = seaweedfs_server.settings()
    check_roots([open_store(f"s3://{BUCKET}/{root}", backend=backend, **settings) for root in roots])


def test_a_root_folder_does_not_see_its_neighbours(tmp_path: Path) -> None:
    check_roots([open_store(f"file://{tmp_path}/{root}") for root in ("a", "ab", "a/deeper", "a.x")])


def check_roots(stores: list[Store]) -> None:
    """Write one object of the same key to every root; the third root is the folder ``deeper`` of the first."""
    for number, store in enumerate(stores):
        store.put("object", b"%d" % number)
    first, second, third, fourth = stores
    assert [store.get("object") for store in stores] == [b"0", b"1", b"2", b"3"]
    assert {meta.key for meta in first.scan("")} == {"object", "deeper/object"}
    assert list(first.folders("")) == ["deeper"]
    for store in (second, third, fourth):
        assert [meta.key for meta in store.scan("")] == ["object"]
        assert list(store.folders("")) == []
    third.delete(["object"])
    assert {meta.key for meta in first.scan("")} == {"object"}
    for store in stores:
        store.close()


RIGHTS = {
    READER: [f"Read:{BUCKET}", f"List:{BUCKET}"],
    WRITER: [f"Write:{BUCKET}"],
    BLIND: [f"Read:{BUCKET}", f"Write:{BUCKET}"],
    HALF: [f"Read:{BUCKET}", f"List:{BUCKET}", f"Write:{BUCKET}/{ROOT}{HALF_PREFIX}*"],
}
"""What each user may do, as SeaweedFS says it."""


@pytest.fixture(scope="module")
def guarded_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A SeaweedFS that knows the users of the laws of permissions, each with its name as access key."""
    identities = [
        {"name": name, "credentials": [{"accessKey": name, "secretKey": SECRET}], "actions": actions}
        for name, actions in RIGHTS.items()
    ]
    with seaweedfs(tmp_path_factory.mktemp("guarded"), identities=identities) as server:
        make_bucket(server, BUCKET)
        yield server


@pytest.fixture(scope="class", params=["obstore", "boto", "fsspec"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


class TestDenialsOfSeaweedfs(DenialLaws):
    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, guarded_server: Server, backend: str) -> Target:
        return server_target(guarded_server, backend)

    @pytest.fixture(scope="class")
    @classmethod
    def users(cls, guarded_server: Server, backend: str) -> Users:
        return users_of(guarded_server, backend)


class TestDenialsOfMinio(StrangerLaws):
    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, minio_server: Server, backend: str) -> Target:
        return server_target(minio_server, backend)

    @pytest.fixture(scope="class")
    @classmethod
    def users(cls, minio_server: Server, backend: str) -> Users:
        return users_of(minio_server, backend)


def users_of(server: Server, backend: str) -> Users:
    def open_as(user: str) -> Store:
        key = server.access_key if user == FORGER else user
        return open_on_server(server, backend, access_key_id=key, secret_access_key=SECRET)

    return open_as


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder whose files this process may read but neither change, remove nor hide, even if it runs as root."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with closing(file_target(folder).open()) as store:
            for key in ("open/object", "shut/object"):
                store.put(key, b"x")
        (folder / "shut").chmod(0)
        for one in (folder, folder / "open"):
            one.chmod(0o555)
        user = os.geteuid()
        if user == 0:
            os.seteuid(NOBODY)
        try:
            yield folder
        finally:
            os.seteuid(user)
            for one in (folder, folder / "open", folder / "shut"):
                one.chmod(0o755)


@pytest.mark.parametrize("waits", [False, True], ids=["blocking", "async"])
def test_what_file_modes_forbid_is_denied_and_never_looks_absent(shared_folder: Path, *, waits: bool) -> None:
    with closing(file_target(shared_folder).open()) as store, closing(Colour(store, waits=waits)) as colour:
        assert colour.call("get", "open/object") == b"x"
        assert [meta.key for meta in colour.call("scan", "open/")] == ["open/object"]
        for method, *arguments in (
            ("put", "open/object", b"y"),
            ("put", "new/object", b"y"),
            ("delete", ["open/object"]),
            ("get", "shut/object"),
            ("get", "shut/absent"),
            ("get_range", "shut/object", 0, 1),
            ("head", "shut/object"),
            ("head", "shut/absent"),
            ("scan", "shut/"),
            ("scan", ""),
            ("folders", "shut/"),
        ):
            with pytest.raises(Denied):
                colour.call(method, *arguments)
        assert colour.call("get", "open/object") == b"x"
