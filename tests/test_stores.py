# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The store suite on every backend and server.

What runs where, on purpose: a backend's own behaviour (both forms, threads, loops, forks, closing, bad input)
is tested once for each backend, on SeaweedFS; what a service answers (``ServiceLaws``) is tested for each pair.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gym_objstore.store import Store
from gym_objstore.testing.servers import Server, make_bucket, seaweedfs
from gym_objstore.testing.store_suite import (
    DenialLaws,
    LargeBodyLaws,
    ServiceLaws,
    StoreSuite,
    StrangerLaws,
    Target,
    Users,
)
from gym_objstore.testing.store_suite.denials import BLIND, FORGER, READER, WRITER
from tests.server_pool import BUCKET
from tests.store_targets import file_target, memory_target, open_on_server, server_target

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


class TestObstoreOnMinio(ServiceLaws, LargeBodyLaws):
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


RIGHTS = {READER: ["Read", "List"], WRITER: ["Write"], BLIND: ["Read", "Write"]}
"""What each user may do in the bucket, as SeaweedFS says it."""


@pytest.fixture(scope="module")
def guarded_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A SeaweedFS that knows the users of the laws of permissions, each with its name as key and secret."""
    identities = [
        {
            "name": name,
            "credentials": [{"accessKey": name, "secretKey": SECRET}],
            "actions": [f"{right}:{BUCKET}" for right in rights],
        }
        for name, rights in RIGHTS.items()
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
