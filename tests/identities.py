# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Users of the test servers who may do what terraform's policies say, and nothing else.

Each server is told in its own way: MinIO by its administration protocol, SeaweedFS and moto by the IAM API.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from string import Template

import boto3
import httpx
from botocore.exceptions import ClientError

from gym_objstore.testing.servers import Server, moto_server, s3_client
from tests.server_pool import BUCKET

POLICIES = Path(__file__).parents[1] / "terraform" / "policies"
IDENTITIES = ("model-server", "inference-worker", "trainer", "sweeper", "viewer")
CONTROL = "ledger-control"
"""What a model server may beside its own, where trainers retire ledgers through it."""
EXPIRY = "run-expiry"
"""What a sweeper may beside its own, where it removes whole runs."""


def document(name: str, *, bucket: str, prefix: str) -> dict:
    """Return a policy as terraform renders it; ``prefix`` ends in a slash or is empty."""
    text = (POLICIES / f"{name}.json.tftpl").read_text(encoding="utf-8")
    return json.loads(Template(text).substitute(bucket_arn=f"arn:aws:s3:::{bucket}", prefix=prefix))


def make_user(server: Server, *policies: dict) -> Server:
    """Make a user to whom these policies apply; return the server as that user reaches it."""
    name = f"u-{secrets.token_hex(8)}"
    policy = {**policies[0], "Statement": [one for each in policies for one in each["Statement"]]}
    user = _minio_user(server, name, policy) if server.kind == "minio" else _iam_user(server, name, policy)
    _wait_until_known(user)
    return user


@contextmanager
def enforcing_moto() -> Iterator[Server]:
    """Run a moto of its own that evaluates policies, unlike the shared one. It has users, but no administrator."""
    with moto_server() as server:
        s3_client(server).create_bucket(Bucket=BUCKET)
        everything = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
        administrator = _iam_user(server, "administrator", everything)
        httpx.post(f"{server.endpoint}/moto-api/reset-auth", content=b"0").raise_for_status()
        yield administrator


def _minio_user(server: Server, name: str, policy: dict) -> Server:
    from minio.credentials import StaticProvider
    from minio.minioadmin import MinioAdmin

    secret = secrets.token_hex(20)
    provider = StaticProvider(server.access_key, server.secret_key)
    admin = MinioAdmin(endpoint=server.endpoint.removeprefix("http://"), credentials=provider, secure=False)
    admin.user_add(name, secret)
    admin.policy_add(name, policy=policy)
    admin.policy_set(name, user=name)
    return replace(server, access_key=name, secret_key=secret)


def _iam_user(server: Server, name: str, policy: dict) -> Server:
    client = boto3.client(
        "iam",
        endpoint_url=server.endpoint,
        region_name=server.region,
        aws_access_key_id=server.access_key,
        aws_secret_access_key=server.secret_key,
    )
    if server.kind == "moto" and any("s3:DeleteObject" in one["Action"] for one in policy["Statement"]):
        # It asks for a bulk removal's right on the bucket, where S3 has no such right, and looks at no key.
        bulk = {"Effect": "Allow", "Action": "s3:DeleteObject", "Resource": f"arn:aws:s3:::{BUCKET}"}
        policy = {**policy, "Statement": [*policy["Statement"], bulk]}
    client.create_user(UserName=name)
    client.put_user_policy(UserName=name, PolicyName="policy", PolicyDocument=json.dumps(policy))
    keys = client.create_access_key(UserName=name)["AccessKey"]
    return replace(server, access_key=keys["AccessKeyId"], secret_key=keys["SecretAccessKey"])


def _wait_until_known(user: Server) -> None:
    """Wait until the S3 side has heard of the user, which SeaweedFS tells it by and by."""
    client = s3_client(user)
    while True:
        try:
            client.get_object(Bucket=BUCKET, Key="!nobody-made-this")
        except ClientError as error:
            if error.response["Error"]["Code"] not in {"InvalidAccessKeyId", "SignatureDoesNotMatch"}:
                return
        time.sleep(0.05)
