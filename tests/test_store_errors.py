# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Every way in which storage refuses or fails is one error of ours, the same from every backend and form."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import ssl
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gym_objstore.errors import Denied, Invalid, NotFound, ObjstoreError, Unavailable, Unusable
from gym_objstore.store import Store
from gym_objstore.store.opening import open_store
from gym_objstore.testing.servers import Server
from tests.canned_s3 import OBJECT, CannedS3, Reply, Request, listing, refusal
from tests.server_pool import BUCKET

BACKENDS = ("obstore", "boto", "fsspec")
CANARY = "canary-in-a-coal-mine"
KEYS = {"access_key_id": "somebody", "secret_access_key": CANARY, "region": "us-east-1"}

CALLS: dict[str, Callable[[Store], Any]] = {
    "put": lambda store: store.put("a/b", b"x"),
    "get": lambda store: store.get("a/b"),
    "get_range": lambda store: store.get_range("a/b", 0, 1),
    "head": lambda store: store.head("a/b"),
    "scan": lambda store: list(store.scan("a/")),
    "folders": lambda store: list(store.folders("a/")),
    "delete": lambda store: store.delete(["a/b", "a/c"]),
}


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def canned() -> Iterator[CannedS3]:
    with CannedS3(lambda _: Reply(500)) as server:
        yield server


@pytest.fixture(scope="module")
def store(canned: CannedS3, backend: str) -> Iterator[Store]:
    options = {**KEYS, "retry_seconds": 0, "timeout": 1, "connect_timeout": 1, "endpoint": canned.endpoint}
    store = open_store("s3://bucket/root", backend=backend, **options)
    yield store
    store.close()


@pytest.fixture(autouse=True)
def _forget_requests(canned: CannedS3) -> None:
    canned.requests.clear()


def stored(request: Request) -> Reply:
    """Take every object, and have one byte under every key."""
    return Reply(200, b"x" if request.method == "GET" else b"", OBJECT)


def waiting(store: Store, name: str) -> Any:
    """Make the same call in the async form."""

    async def conversation() -> Any:
        try:
            match name:
                case "put":
                    return await store.put_async("a/b", b"x")
                case "get_range":
                    return await store.get_range_async("a/b", 0, 1)
                case "delete":
                    return await store.delete_async(["a/b", "a/c"])
                case "scan" | "folders":
                    return [item async for item in getattr(store, f"{name}_async")("a/")]
                case _:
                    return await getattr(store, f"{name}_async")("a/b")
        finally:
            await store.close_async()

    return asyncio.run(conversation())


REFUSALS = [
    (404, "NoSuchBucket", Invalid, "no_such_bucket"),
    (403, "AccessDenied", Denied, "access_denied"),
    (403, "InvalidAccessKeyId", Denied, "bad_credentials"),
    (403, "SignatureDoesNotMatch", Denied, "bad_credentials"),
    (400, "ExpiredToken", Denied, "expired_token"),
    (403, "RequestTimeTooSkewed", Invalid, "clock_skew"),
    (400, "AuthorizationHeaderMalformed", Invalid, "wrong_region"),
    (503, "SlowDown", Unavailable, "throttled"),
    (429, "TooManyRequests", Unavailable, "throttled"),
    (500, "InternalError", Unavailable, "server_error"),
    (400, "RequestTimeout", Unavailable, "timeout"),
    (507, "XMinioStorageFull", Unavailable, "disk_full"),
    (403, "QuotaExceeded", Unavailable, "disk_full"),
    (400, "SomethingNew", Denied, "refused"),
]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(("status", "code", "error", "kind"), REFUSALS, ids=[one[1] for one in REFUSALS])
def test_a_refusal_is_the_same_error_from_every_backend_and_operation(
    canned: CannedS3, store: Store, name: str, status: int, code: str, error: type[ObjstoreError], kind: str
):
    canned.answer = lambda _: refusal(status, code, "the region 'us-east-1' is wrong; expecting 'eu-west-9'")
    with pytest.raises(error) as caught:
        CALLS[name](store)
    assert (type(caught.value), caught.value.kind) == (error, kind)
    assert "store=s3://bucket/root" in caught.value.message
    assert canned.endpoint in caught.value.message
    # A HEAD's answer has no body to say it, and fsspec's reads begin with one until the bucket was seen.
    assert f"code={code}" in caught.value.message or caught.value.message.startswith("head failed")
    assert caught.value.hint or kind in ("server_error", "refused")


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("code", ["AccessDenied", "NoSuchBucket"])
def test_the_async_form_refuses_alike(canned: CannedS3, store: Store, name: str, code: str):
    canned.answer = lambda _: refusal(404 if code == "NoSuchBucket" else 403, code)
    with pytest.raises(Invalid if code == "NoSuchBucket" else Denied):
        waiting(store, name)


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_gateway_that_fails_without_a_code_is_unavailable(canned: CannedS3, store: Store, status: int):
    canned.answer = lambda _: Reply(status, b"<html>Bad Gateway</html>")
    for call in CALLS.values():
        with pytest.raises(Unavailable):
            call(store)


@pytest.mark.parametrize("name", ["get", "get_range", "scan", "folders"])
def test_a_404_that_names_no_object_is_no_absence(canned: CannedS3, store: Store, name: str):
    """A router without a route to the storage answers so."""
    canned.answer = lambda _: Reply(404, b"default backend - 404")
    with pytest.raises(Unavailable) as caught:
        CALLS[name](store)
    assert caught.value.kind == "bad_answer"


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("body", [b"", b"<html>please log in</html>"], ids=["empty", "login page"])
def test_a_success_that_is_no_answer_of_an_object_store_is_not_believed(
    canned: CannedS3, backend: str, name: str, body: bytes
):
    """Neither as a stored object nor as an empty listing."""
    canned.answer = lambda _: Reply(200, body)
    store = open_store("s3://bucket", backend=backend, endpoint=canned.endpoint, retry_seconds=0, timeout=5, **KEYS)
    with pytest.raises(Unavailable):
        CALLS[name](store)
    store.close()


def test_an_empty_listing_is_believed_once_the_bucket_was_seen(canned: CannedS3, store: Store):
    canned.answer = lambda request: listing() if "list-type" in request.path else refusal(404, "NoSuchKey")
    assert list(store.scan("a/")) == []
    assert list(store.folders("a/")) == []


@pytest.mark.parametrize("name", ["scan", "folders"])
def test_a_listing_that_is_answered_as_an_object_says_what_endpoint_is(
    canned: CannedS3, store: Store, backend: str, name: str
):
    """So an endpoint with the bucket in its path is answered."""
    canned.answer = lambda _: refusal(404, "NoSuchKey")
    if backend == "fsspec":  # s3fs says the same of an empty listing
        assert not list(CALLS[name](store) or ())
        return
    with pytest.raises(NotFound) as caught:
        CALLS[name](store)
    assert caught.value.hint == "endpoint= is the server's address, without the bucket"


def test_absence_is_certain_only_after_a_get_named_it(canned: CannedS3, backend: str):
    """A HEAD's answer has no body, so its 404 may as well mean the bucket."""
    canned.answer = lambda request: listing() if "list-type" in request.path else refusal(404, "NoSuchKey")
    store = open_store("s3://bucket", backend=backend, endpoint=canned.endpoint, retry_seconds=0, **KEYS)
    assert store.head("a/b") is None
    assert "GET" in {request.method for request in canned.requests}
    canned.answer = lambda _: refusal(404, "NoSuchBucket")
    with pytest.raises(Invalid):
        store.get("a/b")
    store.close()


@pytest.mark.parametrize("name", ["get", "get_range", "scan", "folders"])
def test_a_body_that_breaks_off_is_never_returned(canned: CannedS3, store: Store, name: str):
    whole = listing("root/a/b").body

    def answer(request: Request) -> Reply:
        if request.method != "GET":
            return Reply(200, b"", OBJECT)
        if "range" in request.headers:
            return Reply(206, b"", {**OBJECT, "Content-Range": "bytes 0-0/9"}, claimed=1)
        return Reply(200, whole[:40], OBJECT, claimed=len(whole))

    canned.answer = answer
    with pytest.raises(Unavailable) as caught:
        CALLS[name](store)
    assert caught.value.kind == "connection_lost"


@pytest.mark.parametrize("name", CALLS)
def test_a_connection_that_is_reset_is_unavailable(canned: CannedS3, store: Store, name: str):
    canned.answer = lambda _: Reply(cut=True)
    with pytest.raises(Unavailable) as caught:
        CALLS[name](store)
    assert caught.value.kind in ("connection_lost", "unreachable")


def test_a_server_that_does_not_answer_is_unavailable(canned: CannedS3, store: Store):
    canned.answer = lambda _: Reply(hang=True)
    with pytest.raises(Unavailable) as caught:
        store.get("a/b")
    assert caught.value.kind == "timeout"
    canned.released.set()
    canned.released.clear()


def test_the_pause_a_server_asks_for_reaches_the_retries(canned: CannedS3, backend: str):
    """obstore does not tell the answer's headers."""
    from gym_objstore.store.boto_client import retry_after

    canned.answer = lambda _: refusal(503, "SlowDown", **{"Retry-After": "17"})
    store = open_store("s3://bucket", backend=backend, endpoint=canned.endpoint, retry_seconds=0, **KEYS)
    with pytest.raises(Unavailable) as caught:
        store.put("a/b", b"x")
    assert retry_after(caught.value) == (0.0 if backend == "obstore" else 17.0)
    store.close()


def test_a_range_behind_the_end_is_empty(canned: CannedS3, store: Store):
    canned.answer = lambda _: refusal(416, "InvalidRange")
    assert store.get_range("a/b", 10, 5) == b""


def one_by_one(request: Request) -> Reply:
    """Refuse bulk removals, and take single ones."""
    if request.method == "POST":
        return refusal(501, "NotImplemented")
    return Reply(204) if request.method == "DELETE" else refusal(404, "NoSuchKey")


def test_where_bulk_removal_is_unknown_objects_are_removed_one_by_one(canned: CannedS3, backend: str):
    canned.answer = one_by_one
    store = open_store("s3://bucket/root", backend=backend, endpoint=canned.endpoint, retry_seconds=0, **KEYS)
    store.delete(["a/b", "a/c"])
    store.delete(["a/d"])
    removed = [request.path.split("?")[0] for request in canned.requests if request.method == "DELETE"]
    assert removed == ["/bucket/root/a/b", "/bucket/root/a/c", "/bucket/root/a/d"]
    assert [request.method for request in canned.requests].count("POST") == 1
    store.close()


def test_where_bulk_removal_is_refused_as_a_whole_objects_are_removed_one_by_one(canned: CannedS3, backend: str):
    """Ceph asks for a right on the bucket that no policy by prefix gives."""
    denied = {"POST", "/bucket/root/a/c"}

    def answer(request: Request) -> Reply:
        refused = denied & {request.method, request.path.split("?")[0]}
        return refusal(403, "AccessDenied") if refused else one_by_one(request)

    canned.answer = answer
    store = open_store("s3://bucket/root", backend=backend, endpoint=canned.endpoint, retry_seconds=0, **KEYS)
    with pytest.raises(Denied) as caught:
        store.delete(["a/b", "a/c", "a/d"])
    assert caught.value.key == "a/c"
    store.delete(["a/e"])
    removed = {request.path.split("?")[0] for request in canned.requests if request.method == "DELETE"}
    assert removed == {f"/bucket/root/a/{name}" for name in "bcde"}
    assert [request.method for request in canned.requests].count("POST") == 1
    store.close()


def test_who_may_remove_nothing_is_refused_after_two_requests_and_not_a_thousand(canned: CannedS3, backend: str):
    canned.answer = lambda _: refusal(403, "AccessDenied")
    store = open_store("s3://bucket/root", backend=backend, endpoint=canned.endpoint, retry_seconds=0, **KEYS)
    with pytest.raises(Denied) as caught:
        store.delete(["a/b", "a/c", "a/d"])
    assert caught.value.key == "a/b"
    assert [request.method for request in canned.requests] == ["POST", "DELETE"]
    store.close()


def test_a_refused_removal_is_named_and_the_others_are_done(canned: CannedS3, store: Store):
    deleted = "<Deleted><Key>root/a/b</Key></Deleted>"
    failed = "<Error><Key>root/a/c</Key><Code>AccessDenied</Code><Message>locked</Message></Error>"
    canned.answer = lambda request: (
        Reply(200, f"<DeleteResult>{deleted}{failed}</DeleteResult>".encode())
        if request.method == "POST"
        else refusal(404, "NoSuchKey")
    )
    with pytest.raises(Denied, match="code=AccessDenied") as caught:
        store.delete(["a/b", "a/c"])
    assert caught.value.key == "a/c"


def test_no_secret_is_in_an_error_a_log_or_a_traceback(
    canned: CannedS3, store: Store, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    canned.answer = lambda _: refusal(403, "SignatureDoesNotMatch")
    for call in CALLS.values():
        with pytest.raises(Denied) as caught:
            call(store)
        shown = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
        assert CANARY not in "".join(shown.format())
        assert CANARY not in repr(caught.value)
    assert CANARY not in caplog.text
    assert all(CANARY not in str(request.headers) for request in canned.requests)


# Real servers ---------------------------------------------------------------------------------------


def open_on(server: Server, backend: str, prefix: str, **other: object) -> Store:
    settings = {**server.settings(), "backend": backend, "retry_seconds": 0, "timeout": 10}
    return open_store(f"s3://{other.pop('bucket', BUCKET)}/{prefix}", **{**settings, **other})


@pytest.mark.parametrize("kind", ["seaweedfs", "minio"])
@pytest.mark.parametrize(
    ("wrong", "error", "error_kind", "next_step"),
    [
        ({"access_key_id": "nobody"}, Denied, "bad_credentials", "access key"),
        ({"secret_access_key": "wrong-secret"}, Denied, "bad_credentials", "secret"),
        ({"bucket": "no-such-bucket"}, Invalid, "no_such_bucket", "create the bucket"),
    ],
    ids=["unknown key", "wrong secret", "missing bucket"],
)
def test_wrong_settings_are_told_apart_on_real_servers(
    request: pytest.FixtureRequest,
    backend: str,
    prefix: str,
    kind: str,
    wrong: dict[str, str],
    error: type[ObjstoreError],
    error_kind: str,
    next_step: str,
):
    store = open_on(request.getfixturevalue(f"{kind}_server"), backend, prefix, **wrong)
    for name, call in CALLS.items():
        with pytest.raises(error) as caught:
            call(store)
        assert (name, caught.value.kind) == (name, error_kind)
        assert next_step in caught.value.hint
    store.close()


def test_an_unreachable_endpoint_is_named(backend: str):
    store = open_store("s3://bucket", backend=backend, endpoint="http://127.0.0.1:9", retry_seconds=0, **KEYS)
    for call in CALLS.values():
        with pytest.raises(Unavailable, match=r"endpoint=http://127\.0\.0\.1:9") as caught:
            call(store)
        assert caught.value.kind == "unreachable"
    store.close()


def test_a_host_that_does_not_exist_is_unreachable(backend: str):
    store = open_store("s3://bucket", backend=backend, endpoint="http://host.invalid", retry_seconds=0, **KEYS)
    with pytest.raises(Unavailable) as caught:
        store.get("a/b")
    assert caught.value.kind == "unreachable"
    store.close()


def test_tls_with_a_server_that_speaks_none_is_a_wrong_setting(canned: CannedS3, backend: str):
    endpoint = canned.endpoint.replace("http://", "https://")
    store = open_store("s3://bucket", backend=backend, endpoint=endpoint, retry_seconds=0, timeout=5, **KEYS)
    with pytest.raises(Invalid) as caught:
        store.put("a/b", b"x")
    assert caught.value.kind == "tls"
    store.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private authority's certificate; beside it, with its key, the one of 127.0.0.1."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    folder = tmp_path_factory.mktemp("authority")
    now = datetime.now(UTC)
    day = timedelta(days=1)
    keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("authority", "server")}
    names = {name: x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]) for name in keys}
    for name, key in keys.items():
        certificate = (
            x509.CertificateBuilder(names["authority"], names[name], key.public_key(), x509.random_serial_number())
            .not_valid_before(now - day)
            .not_valid_after(now + day)
            .add_extension(x509.BasicConstraints(ca=name == "authority", path_length=None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
            )
            .sign(keys["authority"], hashes.SHA256())
        )
        (folder / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "server.key").write_bytes(
        keys["server"].private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return folder / "authority.pem"


def test_a_private_authority_is_trusted_only_where_it_is_named(authority: Path, backend: str):
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(authority.with_name("server.pem"), authority.with_name("server.key"))
    with CannedS3(stored, tls=tls) as server:
        options = {"backend": backend, "endpoint": server.endpoint, "retry_seconds": 0, **KEYS}
        stranger = open_store("s3://bucket", **options)
        with pytest.raises(Invalid) as caught:
            stranger.put("a/b", b"x")
        assert caught.value.kind == "tls"
        assert "ca_bundle=" in caught.value.hint
        assert server.requests == []
        trusting = open_store("s3://bucket", ca_bundle=str(authority), **options)
        trusting.put("a/b", b"x")
        assert waiting(trusting, "get") == b"x"
        stranger.close()
        trusting.close()


def test_a_ca_bundle_that_cannot_be_read_is_a_wrong_setting(backend: str, tmp_path: Path):
    store = open_store(
        "s3://bucket",
        backend=backend,
        endpoint="https://127.0.0.1:9",
        ca_bundle=str(tmp_path / "no.pem"),
        retry_seconds=0,
        **KEYS,
    )
    with pytest.raises(Invalid) as caught:
        store.put("a/b", b"x")
    assert caught.value.kind == "bad_option"
    store.close()


def test_requests_go_through_the_proxy_except_to_its_excluded_hosts(
    canned: CannedS3, backend: str, monkeypatch: pytest.MonkeyPatch
):
    canned.answer = stored
    options = {
        "backend": backend,
        "endpoint": "http://storage.invalid",
        "proxy": canned.endpoint,
        "retry_seconds": 0,
        **KEYS,
    }
    store = open_store("s3://bucket", **options)
    store.put("a/b", b"x")
    waiting(store, "put")
    assert [request.path for request in canned.requests] == ["http://storage.invalid/bucket/a/b"] * 2
    store.close()
    monkeypatch.setenv("NO_PROXY", "storage.invalid")
    direct = open_store("s3://bucket", **options)
    with pytest.raises(Unavailable):
        direct.put("a/b", b"x")
    direct.close()


# The file system ------------------------------------------------------------------------------------


def test_errors_of_the_operating_system_are_translated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import errno
    import os

    store = open_store(f"file://{tmp_path}/store")
    for number, error, kind in (
        (errno.ENOSPC, Unavailable, "disk_full"),
        (errno.EDQUOT, Unavailable, "disk_full"),
        (errno.EACCES, Denied, "access_denied"),
        (errno.EROFS, Denied, "access_denied"),
        (errno.EIO, Unavailable, "io_error"),
    ):

        def fail(*_: object, number: int = number) -> None:
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fail)
            with pytest.raises(error) as caught:
                store.put("a/b", b"x")
        assert (type(caught.value), caught.value.kind, caught.value.key) == (error, kind, "a/b")
    assert list(store.scan("")) == []
    with pytest.raises(NotFound):
        store.get("a/b")


@pytest.mark.parametrize("scheme", ["s3", "file"])
def test_a_closed_store_refuses_everything(scheme: str, tmp_path: Path):
    store = open_store("s3://bucket" if scheme == "s3" else f"file://{tmp_path}")
    store.close()
    for call in CALLS.values():
        with pytest.raises(Unusable) as caught:
            call(store)
        assert caught.value.kind == "closed"
    with pytest.raises(Unusable):
        waiting(store, "get")
