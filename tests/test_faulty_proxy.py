# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio

import pytest

from gym_objstore.errors import Denied, Invalid, ObjstoreError, Unavailable
from gym_objstore.store import retrying
from gym_objstore.store.opening import open_store
from gym_objstore.testing.faulty_proxy import FAULTS, FaultyProxy
from tests.canned_s3 import CannedS3, Reply
from tests.server_pool import BUCKET

BODY = bytes(range(256)) * 400


@pytest.fixture(params=["seaweedfs", "minio"])
def server(request):
    return request.getfixturevalue(f"{request.param}_server")


@pytest.fixture
def proxy(server):
    with FaultyProxy(server.endpoint) as running:
        yield running


def opened(proxy, server, prefix, *, backend="obstore", **options):
    settings = {**server.settings(), "endpoint": proxy.endpoint, "retry_seconds": 0, "timeout": 2, **options}
    return open_store(f"s3://{BUCKET}/{prefix}", backend=backend, **settings)


def only(method, fault, *, times=1):
    """Return what chooses the fault for the first requests of a method, and none for all others."""
    left = [fault] * times

    def choose(request):
        return left.pop() if left and request.start.startswith(method.encode()) else ""

    return choose


@pytest.mark.parametrize("backend", ["obstore", "boto", "fsspec"])
def test_signed_requests_pass_in_both_forms_and_are_counted(proxy, server, prefix, backend):
    async def talk(store):
        await store.put_async("a/2", BODY)
        return await store.get_async("a/2"), [meta.key async for meta in store.scan_async("a/")]

    store = opened(proxy, server, prefix, backend=backend)
    store.put("a/1", BODY)
    assert store.get("a/1") == BODY
    assert store.head("a/3") is None
    assert asyncio.run(talk(store)) == (BODY, ["a/1", "a/2"])
    store.delete(["a/1", "a/2"])
    assert list(store.scan("a/")) == []
    store.close()
    assert proxy.counts["PUT"] == 2
    assert not proxy.happened


@pytest.mark.parametrize("backend", ["obstore", "boto", "fsspec"])
@pytest.mark.parametrize(
    ("fault", "error", "kind"),
    [
        ("500", Unavailable, "server_error"),
        ("502", Unavailable, "server_error"),
        ("503", Unavailable, "throttled"),
        ("429", Unavailable, "throttled"),
        ("full", Unavailable, "disk_full"),
        ("denied", Denied, "access_denied"),
        ("expired", Denied, "expired_token"),
        ("skew", Invalid, "clock_skew"),
        ("reset", Unavailable, "connection_lost"),
        ("lost", Unavailable, "connection_lost"),
        ("hang", Unavailable, "timeout"),
    ],
)
def test_a_put_that_fails_is_our_error_and_is_done_or_not(seaweedfs_server, prefix, backend, fault, error, kind):
    with FaultyProxy(seaweedfs_server.endpoint) as proxy:
        store = opened(proxy, seaweedfs_server, prefix, backend=backend)
        # One renewal is always tried. Below s3fs, aiohttp repeats a request once whose connection was lost, and
        # aiobotocore then says that nobody answers.
        cut_off = backend == "fsspec" and kind == "connection_lost"
        proxy.choose = only("PUT", fault, times=2 if fault == "expired" or cut_off else 1)
        with pytest.raises(error) as caught:
            store.put("a/1", BODY)
        assert caught.value.kind == ("unreachable" if cut_off else kind)
        assert (store.head("a/1") is not None) == (fault in ("lost", "hang"))
        store.close()


@pytest.mark.parametrize("backend", ["obstore", "boto", "fsspec"])
@pytest.mark.parametrize("fault", ["cut", "truncated", "corrupted"])
def test_a_body_that_is_damaged_on_the_way(proxy, server, prefix, backend, fault):
    """Half a body is never returned. A changed bit is not seen here: digests find it."""
    store = opened(proxy, server, prefix, backend=backend)
    store.put("a/1", BODY)
    proxy.choose = only("GET", fault)
    if fault == "corrupted":
        damaged = store.get("a/1")
        assert sum((one ^ other).bit_count() for one, other in zip(damaged, BODY, strict=True)) == 1
    else:
        with pytest.raises(Unavailable) as caught:
            store.get("a/1")
        assert caught.value.kind == "connection_lost"
    assert store.get("a/1") == BODY
    store.close()


def test_a_listing_that_says_too_little(proxy, server, prefix):
    store = opened(proxy, server, prefix)
    for number in range(5):
        store.put(f"a/{number}", b"x")
    proxy.choose = only("GET", "short")
    assert len(list(store.scan("a/"))) == 3
    assert len(list(store.scan("a/"))) == 5
    store.close()


def page(request):
    """Answer a listing of three pages of two keys, as S3 does."""
    number = int(request.path.partition("continuation-token=t")[2][:1] or 0)
    entries = "".join(
        f"<Contents><Key>p/a/{key}</Key><LastModified>2026-11-30T04:28:23.000Z</LastModified><ETag>0</ETag>"
        "<Size>1</Size></Contents>"
        for key in (2 * number, 2 * number + 1)
    )
    token = f"<NextContinuationToken>t{number + 1}</NextContinuationToken>" if number < 2 else ""
    more = str(bool(token)).lower()
    body = f"<ListBucketResult><Name>bucket</Name><IsTruncated>{more}</IsTruncated>{token}{entries}</ListBucketResult>"
    return Reply(200, body.encode(), {"Content-Type": "application/xml"})


@pytest.mark.parametrize("backend", ["obstore", "boto", "fsspec"])
@pytest.mark.parametrize("waits", [False, True])
def test_a_token_that_is_repeated_shows_nothing_twice_and_never_goes_on_for_ever(backend, waits):
    async def wait(store):
        return [meta.key async for meta in store.scan_async("a/")]

    def listed(store):
        return sorted(asyncio.run(wait(store)) if waits else [meta.key for meta in store.scan("a/")])

    options = {"region": "us-east-1", "access_key_id": "a", "secret_access_key": "b"}
    with CannedS3(page) as server, FaultyProxy(server.endpoint) as proxy:
        store = open_store("s3://bucket/p", backend=backend, endpoint=proxy.endpoint, retry_seconds=20, **options)
        left = ["repeat"]
        proxy.choose = lambda request: left.pop() if left and b"token=t1" in request.start else ""
        assert listed(store) == [f"a/{number}" for number in range(6)]
        assert proxy.happened["repeat"] == 1
        store.close()
        store = open_store("s3://bucket/p", backend=backend, endpoint=proxy.endpoint, retry_seconds=0, **options)
        proxy.choose = lambda _: "repeat"
        with pytest.raises(Unavailable, match="goes in a circle"):
            listed(store)
        store.close()


@pytest.mark.parametrize("backend", ["obstore", "boto"])
def test_what_is_lost_on_the_way_is_repeated_until_it_arrives(proxy, server, prefix, backend, monkeypatch):
    monkeypatch.setattr(retrying, "_FIRST_PAUSE", 0.0)
    proxy.faults = dict.fromkeys(("500", "503", "429", "reset", "lost", "cut", "truncated"), 0.05)
    store = opened(proxy, server, prefix, backend=backend, retry_seconds=30)
    for number in range(20):
        store.put(f"a/{number}", BODY)
    assert [store.get(f"a/{number}") == BODY for number in range(20)] == [True] * 20
    proxy.faults = {}
    assert len(list(store.scan("a/"))) == 20
    assert sum(proxy.happened.values()) > 5
    store.close()


def test_one_seed_gives_the_same_faults_again(seaweedfs_server, prefix):
    def outcomes(seed):
        with FaultyProxy(seaweedfs_server.endpoint, seed=seed, faults={"500": 0.3, "lost": 0.3}) as proxy:
            store = opened(proxy, seaweedfs_server, prefix)
            said = [_outcome(store, f"a/{number}") for number in range(20)]
            store.close()
        return said

    assert outcomes(1) == outcomes(1) != outcomes(2)


def _outcome(store, key):
    try:
        store.put(key, b"x")
    except ObjstoreError as error:
        return error.kind
    return "done"


def test_the_delay_is_set_while_it_runs(seaweedfs_server, prefix):
    """A request whose delay is longer than its client waits times out, and one without does not."""
    with FaultyProxy(seaweedfs_server.endpoint, latency_ms=60_000) as proxy:
        store = opened(proxy, seaweedfs_server, prefix, timeout=0.5)
        with pytest.raises(Unavailable):
            store.put("a/1", b"x")
        proxy.latency_ms = 0
        store.put("a/1", b"x")
        store.close()


def test_a_fault_that_there_is_not_is_refused():
    with pytest.raises(Invalid, match="unknown fault, fault=504"):
        FaultyProxy("http://127.0.0.1:1", faults={"504": 0.5})
    assert "hang" in FAULTS
