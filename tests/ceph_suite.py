# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The store suite and the token laws on Ceph, where its packages are installed: ``make test-ceph``.

No run collects this file unless it is named: the packages are no wheels, and the daemons need a minute.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from gym_objstore import LineageResolver, TokenSink, TokenSource
from gym_objstore.testing.ceph import ceph
from gym_objstore.testing.conformance import LAWS, Transport, assert_conformance
from gym_objstore.testing.servers import Server, make_bucket
from gym_objstore.testing.store_suite import LargeBodyLaws, ServiceLaws, StoreSuite, StrangerLaws, Target, Users
from gym_objstore.testing.store_suite.denials import FORGER
from tests.server_pool import BUCKET
from tests.store_targets import open_on_server, server_target


@pytest.fixture(scope="session")
def ceph_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Ceph that all tests here share."""
    with ceph(tmp_path_factory.mktemp("ceph")) as server:
        make_bucket(server, BUCKET)
        yield server


class TestObstoreOnCeph(StoreSuite):
    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, ceph_server: Server) -> Target:
        return server_target(ceph_server, "obstore")


class TestBotoOnCeph(ServiceLaws, LargeBodyLaws):
    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, ceph_server: Server) -> Target:
        return server_target(ceph_server, "boto")


class TestFsspecOnCeph(ServiceLaws, LargeBodyLaws):
    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, ceph_server: Server) -> Target:
        return server_target(ceph_server, "fsspec")


class TestStrangersOfCeph(StrangerLaws):
    @pytest.fixture(scope="class", params=["obstore", "boto", "fsspec"])
    @classmethod
    def target(cls, ceph_server: Server, request: pytest.FixtureRequest) -> Target:
        return server_target(ceph_server, request.param)

    @pytest.fixture(scope="class")
    @classmethod
    def users(cls, ceph_server: Server) -> Users:
        def open_as(user: str):
            key = ceph_server.access_key if user == FORGER else user
            return open_on_server(ceph_server, "obstore", access_key_id=key, secret_access_key="not-its-secret")

        return open_as


@pytest.mark.parametrize("backend", ["obstore", "boto", "fsspec"])
async def test_every_law_of_tokens_holds(ceph_server: Server, prefix: str, tmp_path, backend: str) -> None:
    place = {"url": f"s3://{BUCKET}/{prefix}", "run_id": "run-1", "spill_dir": str(tmp_path), "backend": backend}
    place |= ceph_server.settings()
    transport = Transport(
        sink=partial(TokenSink, **place), source=partial(TokenSource, **place), resolver=partial(LineageResolver, **place)
    )
    outcomes = await assert_conformance(transport)
    assert {one.law for one in outcomes if one.verdict == "passed"} == set(LAWS)
