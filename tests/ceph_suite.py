# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The store suite and the token laws on Ceph, where its packages are installed: ``make test-ceph``.

No run collects this file unless it is named: the packages are no wheels, and the daemons need a minute.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial

import pytest

from gym_objstore import LineageResolver, TokenSink, TokenSource
from gym_objstore.store import Store
from gym_objstore.testing.ceph import ceph
from gym_objstore.testing.conformance import LAWS, Transport, assert_conformance
from gym_objstore.testing.servers import Server, make_bucket, s3_client
from gym_objstore.testing.store_suite import DenialLaws, LargeBodyLaws, ServiceLaws, StoreSuite, Target, Users
from gym_objstore.testing.store_suite.denials import BLIND, FORGER, HALF, HALF_PREFIX, READER, WRITER
from tests.server_pool import BUCKET
from tests.store_targets import ROOT, open_on_server, server_target

SECRET = "the-same-for-every-user"
OBJECTS, ALL = f"{BUCKET}/{ROOT}*", BUCKET
RIGHTS = {
    READER: [("GetObject", OBJECTS), ("ListBucket", ALL)],
    WRITER: [("PutObject", OBJECTS), ("DeleteObject", OBJECTS)],
    BLIND: [("GetObject", OBJECTS), ("PutObject", OBJECTS), ("DeleteObject", OBJECTS)],
    HALF: [
        ("GetObject", OBJECTS),
        ("ListBucket", ALL),
        ("PutObject", f"{BUCKET}/{ROOT}{HALF_PREFIX}*"),
        ("DeleteObject", f"{BUCKET}/{ROOT}{HALF_PREFIX}*"),
    ],
}
"""What each user may do, as the bucket's policy says it."""


@pytest.fixture(scope="session")
def ceph_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Ceph that all tests here share, and that knows the users of the laws of permissions."""
    statements = [
        {
            "Effect": "Allow",
            "Principal": {"AWS": [f"arn:aws:iam:::user/{user}"]},
            "Action": [f"s3:{action}"],
            "Resource": [f"arn:aws:s3:::{where}"],
        }
        for user, rights in RIGHTS.items()
        for action, where in rights
    ]
    with ceph(tmp_path_factory.mktemp("ceph"), users=dict.fromkeys(RIGHTS, SECRET)) as server:
        make_bucket(server, BUCKET)
        policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
        s3_client(server).put_bucket_policy(Bucket=BUCKET, Policy=policy)
        yield server


@pytest.fixture(scope="class", params=["obstore", "boto", "fsspec"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


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


class TestDenialsOfCeph(DenialLaws):
    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, ceph_server: Server, backend: str) -> Target:
        return server_target(ceph_server, backend)

    @pytest.fixture(scope="class")
    @classmethod
    def users(cls, ceph_server: Server, backend: str) -> Users:
        def open_as(user: str) -> Store:
            key = ceph_server.access_key if user == FORGER else user
            return open_on_server(ceph_server, backend, access_key_id=key, secret_access_key=SECRET)

        return open_as


async def test_every_law_of_tokens_holds(ceph_server: Server, prefix: str, tmp_path, backend: str) -> None:
    place = {"url": f"s3://{BUCKET}/{prefix}", "run_id": "run-1", "spill_dir": str(tmp_path), "backend": backend}
    place |= ceph_server.settings()
    transport = Transport(
        sink=partial(TokenSink, **place),
        source=partial(TokenSource, **place),
        resolver=partial(LineageResolver, **place),
    )
    outcomes = await assert_conformance(transport)
    assert {one.law for one in outcomes if one.verdict == "passed"} == set(LAWS)
