# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Who a store acts as and which address it uses, as the requests that arrive tell it."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gym_objstore.errors import Denied, Invalid
from gym_objstore.store import Store, credentials
from gym_objstore.store.opening import open_store
from gym_objstore.store.options import StoreOptions
from tests.canned_s3 import OBJECT, CannedS3, Reply, Request, listing, refusal

CANARY = "canary-in-a-coal-mine"


@pytest.fixture(params=["obstore", "boto", "fsspec"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def server() -> Iterator[CannedS3]:
    with CannedS3(lambda request: Reply(200, b"x" if request.method == "GET" else b"", OBJECT)) as server:
        yield server


@pytest.fixture
def aws() -> Path:
    folder = Path.home() / ".aws"
    folder.mkdir()
    return folder


def signed(request: Request) -> tuple[str, str, str]:
    """Return the access key, the region and the session token that a request was signed with."""
    found = re.search(r"Credential=([^/]+)/\d+/([^/]+)/s3", request.headers["authorization"])
    assert found is not None
    return found.group(1), found.group(2), request.headers.get("x-amz-security-token", "")


def last(server: CannedS3, store: Store) -> Request:
    """Put an object and return the request that came."""
    store.put("a/b", b"x")
    store.close()
    return server.requests[-1]


def test_explicit_credentials_are_not_mixed_with_those_of_the_environment(server: CannedS3, backend: str, monkeypatch):
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"):
        monkeypatch.setenv(f"AWS_{name}", "from-the-environment")
    keys = {"access_key_id": "explicit", "secret_access_key": CANARY}
    store = open_store("s3://bucket", backend=backend, endpoint=server.endpoint, region="r-1", **keys)
    assert signed(last(server, store)) == ("explicit", "r-1", "")


def test_the_environment_is_used_where_nothing_is_explicit(server: CannedS3, backend: str, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "env-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CANARY)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "env-token")
    monkeypatch.setenv("AWS_REGION", "r-2")
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
    store = open_store("s3://bucket", backend=backend)
    assert signed(last(server, store)) == ("env-key", "r-2", "env-token")


def test_an_endpoint_argument_beats_every_variable(server: CannedS3, backend: str, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    keys = {"access_key_id": "explicit", "secret_access_key": CANARY}
    store = open_store("s3://bucket", backend=backend, endpoint=server.endpoint, retry_seconds=0, **keys)
    assert last(server, store).path == "/bucket/a/b"


def test_a_profile_gives_credentials_region_and_endpoint(server: CannedS3, backend: str, aws: Path, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "not-this-one")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CANARY)
    (aws / "config").write_text(f"[profile lab]\nregion = r-3\nendpoint_url = {server.endpoint}\n")
    (aws / "credentials").write_text(f"[lab]\naws_access_key_id = lab-key\naws_secret_access_key = {CANARY}\n")
    store = open_store("s3://bucket", backend=backend, profile="lab")
    request = last(server, store)
    assert signed(request) == ("lab-key", "r-3", "")
    assert request.path == "/bucket/a/b"


def test_the_services_section_of_a_profile_names_the_endpoint(server: CannedS3, aws: Path):
    (aws / "config").write_text(
        f"[default]\nservices = mine\n[services mine]\ns3 =\n  endpoint_url = {server.endpoint}\n"
    )
    (aws / "credentials").write_text(f"[default]\naws_access_key_id = k\naws_secret_access_key = {CANARY}\n")
    assert last(server, open_store("s3://bucket")).path == "/bucket/a/b"


def test_a_profile_that_nobody_defined_is_a_wrong_setting(backend: str):
    store = open_store("s3://bucket", backend=backend, profile="nobody", retry_seconds=0)
    with pytest.raises(Invalid, match="profile=nobody") as caught:
        store.put("a/b", b"x")
    assert caught.value.kind == "no_such_profile"


def test_no_credentials_at_all_are_told_at_the_first_use(backend: str):
    store = open_store("s3://bucket", backend=backend, endpoint="http://127.0.0.1:9", retry_seconds=0)
    with pytest.raises(Invalid) as caught:
        store.put("a/b", b"x")
    assert caught.value.kind == "no_credentials"
    with pytest.raises(Invalid):
        asyncio.run(store.put_async("a/b", b"x"))
    store.close()


def process(folder: Path, *, seconds: int) -> str:
    """Return a credential process that gives another key each time, valid for so many seconds."""
    script = folder / "process.py"
    answer = {"Version": 1, "SecretAccessKey": CANARY, "SessionToken": "t"}
    script.write_text(
        "import datetime, json, pathlib\n"
        f"counter = pathlib.Path({str(folder / 'counter')!r})\n"
        "number = int(counter.read_text()) + 1 if counter.exists() else 1\n"
        "counter.write_text(str(number))\n"
        f"ends = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds={seconds})\n"
        f"print(json.dumps({answer!r} | {{'AccessKeyId': f'key-{{number}}', 'Expiration': ends.isoformat()}}))\n"
    )
    return f"[default]\ncredential_process = {sys.executable} {script}\n"


def test_credentials_of_a_process_are_kept_while_they_last(server: CannedS3, backend: str, aws: Path):
    (aws / "config").write_text(process(aws, seconds=3600))
    store = open_store("s3://bucket", backend=backend, endpoint=server.endpoint)
    for _ in range(3):
        store.put("a/b", b"x")
    assert {signed(request)[0] for request in server.requests} == {"key-1"}
    store.close()


def test_credentials_that_are_about_to_expire_are_renewed_between_requests(server: CannedS3, backend: str, aws: Path):
    """botocore renews what has less than ten minutes left, and obstore what has less than five."""
    (aws / "config").write_text(process(aws, seconds=240))
    store = open_store("s3://bucket", backend=backend, endpoint=server.endpoint)
    for _ in range(100):
        store.put("a/b", b"x")
        if len({signed(request)[0] for request in server.requests}) == 3:
            break
        time.sleep(0.02)  # obstore asks at most ten times a second
    else:
        pytest.fail("the credentials were not renewed")
    store.close()


def test_obstore_asks_again_before_any_credentials_of_the_chain_can_have_expired(aws: Path):
    (aws / "config").write_text(process(aws, seconds=3600))
    options = StoreOptions.of("s3://bucket")
    given = credentials.provider(options, credentials.session(options))()
    assert given["access_key_id"] == "key-1"
    kept = given["expires_at"] - datetime.now(UTC)
    assert timedelta(minutes=9) < kept <= timedelta(minutes=10)


def test_expired_credentials_that_somebody_renewed_lose_no_write(server: CannedS3, backend: str, aws: Path):
    """A key file is replaced behind our back, as login tools do; boto3 reads it only once."""
    file = aws / "credentials"

    def answer(request: Request) -> Reply:
        if signed(request)[0] == "new":
            return Reply(200, b"", OBJECT)
        file.write_text(f"[default]\naws_access_key_id = new\naws_secret_access_key = {CANARY}\n")
        return refusal(400, "ExpiredToken")

    server.answer = answer
    for form in ("blocking", "async"):
        file.write_text(f"[default]\naws_access_key_id = old\naws_secret_access_key = {CANARY}\n")
        store = open_store("s3://bucket", backend=backend, endpoint=server.endpoint, retry_seconds=0)
        server.requests.clear()
        if form == "blocking":
            store.put("a/b", b"x")
        else:
            asyncio.run(store.put_async("a/b", b"x"))
        assert [signed(request)[0] for request in server.requests] == ["old", "new"]
        store.close()


def test_a_listing_whose_credentials_expire_goes_on_with_new_ones(server: CannedS3, backend: str, aws: Path):
    file = aws / "credentials"
    file.write_text(f"[default]\naws_access_key_id = old\naws_secret_access_key = {CANARY}\n")

    def answer(request: Request) -> Reply:
        if signed(request)[0] == "new":
            return listing("a/b")
        file.write_text(f"[default]\naws_access_key_id = new\naws_secret_access_key = {CANARY}\n")
        return refusal(400, "ExpiredToken")

    server.answer = answer
    store = open_store("s3://bucket", backend=backend, endpoint=server.endpoint, retry_seconds=0)
    assert [meta.key for meta in store.scan("a/")] == ["a/b"]
    store.close()


def test_credentials_that_stay_expired_are_denied_with_the_next_step(server: CannedS3, backend: str, aws: Path):
    (aws / "credentials").write_text(f"[default]\naws_access_key_id = old\naws_secret_access_key = {CANARY}\n")
    server.answer = lambda _: refusal(400, "ExpiredToken")
    store = open_store("s3://bucket", backend=backend, endpoint=server.endpoint)
    with pytest.raises(Denied, match="aws sso login") as caught:
        store.put("a/b", b"x")
    assert caught.value.kind == "expired_token"
    assert len(server.requests) == 2
    store.close()


def test_a_credential_process_that_fails_is_told_as_what_it_is(server: CannedS3, backend: str, aws: Path):
    (aws / "config").write_text("[default]\ncredential_process = /no/such/program\n")
    store = open_store("s3://bucket", backend=backend, endpoint=server.endpoint, retry_seconds=0)
    with pytest.raises(ConnectionError) as caught:
        store.put("a/b", b"x")
    assert caught.value.kind == "credentials_failed"
    assert server.requests == []
    store.close()


# Addresses ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "given", "place"),
    [
        ("s3://bucket", {}, (None, "us-east-1", False)),
        ("s3://bucket", {"region": "eu-west-1"}, (None, "eu-west-1", False)),
        ("s3://buck.et", {}, (None, "us-east-1", True)),
        ("s3://bucket", {"endpoint": "http://host:9000"}, ("http://host:9000", "us-east-1", True)),
        ("s3://bucket", {"endpoint": "http://host", "path_style": False}, ("http://host", "us-east-1", False)),
        (
            "s3://bucket",
            {"endpoint": "https://s3.eu-west-1.amazonaws.com", "region": "eu-west-1"},
            ("https://s3.eu-west-1.amazonaws.com", "eu-west-1", False),
        ),
    ],
)
def test_servers_other_than_aws_are_addressed_by_path(url, given, place):
    assert tuple(credentials.place(StoreOptions.of(url, **given))) == place


def test_virtual_hosts_put_the_bucket_before_the_host(server: CannedS3, backend: str, monkeypatch):
    """Nothing resolves such a name here, so the request is caught by a proxy."""
    keys = {"access_key_id": "k", "secret_access_key": CANARY, "path_style": False, "proxy": server.endpoint}
    store = open_store("s3://bucket/root", backend=backend, endpoint="http://storage.invalid", **keys)
    assert last(server, store).path == "http://bucket.storage.invalid/root/a/b"


def test_boto_adds_no_checksum_that_older_servers_refuse(server: CannedS3):
    keys = {"access_key_id": "k", "secret_access_key": CANARY}
    for backend in ("boto", "fsspec"):
        store = open_store("s3://bucket", backend=backend, endpoint=server.endpoint, **keys)
        headers = last(server, store).headers
        assert [name for name in headers if "checksum" in name or "trailer" in name] == []
