# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The store suite on every backend and server.

What runs where, on purpose: a backend's own behaviour (both forms, threads, loops, forks, closing, bad input)
is tested once for each backend, on SeaweedFS; what a service answers (``ServiceLaws``) is tested for each pair.
"""

from __future__ import annotations

import pytest

from gym_objstore.testing.servers import Server
from gym_objstore.testing.store_suite import ServiceLaws, StoreSuite, Target
from tests.store_targets import file_target, memory_target, server_target


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


class TestObstoreOnMinio(ServiceLaws):
    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, minio_server: Server) -> Target:
        return server_target(minio_server, "obstore")


class TestBotoOnMinio(ServiceLaws):
    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, minio_server: Server) -> Target:
        return server_target(minio_server, "boto")


class TestFsspecOnMinio(ServiceLaws):
    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, minio_server: Server) -> Target:
        return server_target(minio_server, "fsspec")


class TestObstoreOnMoto(ServiceLaws):
    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, moto_server: Server) -> Target:
        return server_target(moto_server, "obstore")
