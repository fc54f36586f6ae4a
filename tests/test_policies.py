# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Terraform's policies, on servers that enforce them: each identity's whole job, and nothing beyond it.

moto evaluates neither the conditions of a listing nor the keys of a bulk removal; the other servers do both.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import time
import uuid
from fnmatch import fnmatchcase
from types import SimpleNamespace

import numpy as np
import pytest
from botocore.exceptions import ClientError

from gym_objstore import (
    CaptureLedger,
    LineageResolver,
    StagingSink,
    StagingSource,
    TokenSink,
    TokenSource,
    TrainerClient,
)
from gym_objstore.capture_store import CaptureStore
from gym_objstore.checking import check_rollout, rollouts, runs
from gym_objstore.diagnosis import verdict
from gym_objstore.errors import NotFound, Retired
from gym_objstore.flow import run
from gym_objstore.preflight import Preflight, fly
from gym_objstore.records import ParentResolutionStatus
from gym_objstore.run_removal import remove_run
from gym_objstore.store.opening import open_store
from gym_objstore.store.options import StoreOptions
from gym_objstore.sweeping import find_orphans, remove_orphans
from gym_objstore.testing.servers import s3_client
from gym_objstore.testing.staged_rollouts import staged_call
from gym_objstore.tokens import publish, put_entry
from tests.entries import make_chain, make_entry, request_after
from tests.finished import commit_of, finish, receipt_for, record_calls
from tests.identities import CONTROL, EXPIRY, IDENTITIES, document, enforcing_moto, make_user
from tests.server_pool import BUCKET

SERVERS = ("minio", "seaweedfs", "moto")
FULLY_ENFORCING = ("minio", "seaweedfs")
LATER = 1_000_000.0

KEYS = tuple(
    f"{folder}/{name}"
    for folder, names in {
        "captures/run/r": ("records/1", "markers/1"),
        "captures/run/!run": ("writer",),
        "tokens/run/r": (
            "intents/c",
            "entries/c",
            "markers/c",
            "refusals/c",
            "packs/p",
            "fences/tombstone",
            "fences/drop.s.c",
        ),
        "tokens/run/!run": ("writer",),
        "staged/run/r": ("rows/c",),
        "staged/run/!run": ("writer",),
        "ledger/run/r": ("rows/c/1", "failures/c", "fences/tombstone", "fences/drop.s.c"),
        "ledger/run/!run": ("writer",),
        "manifests/run/r": ("receipts/1", "consumed/c", "fences/tombstone", "fences/drop.s.c"),
        "manifests/run/!run": ("writer",),
    }.items()
    for name in names
)
"""One key of every kind there is."""

FAMILIES = ("captures/*", "tokens/*", "staged/*", "ledger/*", "manifests/*")
RECORDS = "captures/run/*"
CALLS = ("tokens/run/r/[!fp]*", "ledger/run/r/rows/*", "ledger/run/r/failures/*")
READS = {
    "model-server": ("captures/*", "tokens/*", "ledger/*"),
    "inference-worker": ("staged/*",),
    "trainer": FAMILIES,
    "sweeper": FAMILIES,
    "viewer": FAMILIES,
}
WRITES = {
    "model-server": (RECORDS, *CALLS, "tokens/run/!run/*", "ledger/run/!run/*"),
    "inference-worker": ("staged/*",),
    "trainer": ("tokens/run/r/fences/*", "tokens/run/r/packs/*", "ledger/run/r/fences/*", "manifests/*"),
    "sweeper": (),
    "viewer": (),
}
REMOVALS = {
    "model-server": ("ledger/run/r/rows/*", "ledger/run/r/failures/*"),
    "inference-worker": (),
    "trainer": ("captures/*", "tokens/*", "ledger/*", "manifests/*"),
    "sweeper": (
        *CALLS,
        "tokens/run/r/packs/*",
        "tokens/run/r/fences/drop.*",
        "staged/run/r/*",
        "manifests/run/r/receipts/*",
        "manifests/run/r/consumed/*",
    ),
    "viewer": (),
}


def matching(patterns) -> set[str]:
    return {key for key in KEYS if any(fnmatchcase(key, pattern) for pattern in patterns)}


@pytest.fixture(scope="module")
def moto():
    with enforcing_moto() as server:
        yield server


@pytest.fixture(scope="module")
def places():
    """What was made on each server: the administrator, and a user for every identity below one prefix."""
    return {}


@pytest.fixture(params=SERVERS)
def place(request, places):
    return place_on(request.param, request, places)


@pytest.fixture(params=FULLY_ENFORCING)
def strict_place(request, places):
    return place_on(request.param, request, places)


def place_on(kind, request, places):
    if kind not in places:
        admin = request.getfixturevalue("moto" if kind == "moto" else f"{kind}_server")
        prefix = f"t-{uuid.uuid4().hex}/team"
        documents = {
            name: document(name, bucket=BUCKET, prefix=f"{prefix}/") for name in (*IDENTITIES, CONTROL, EXPIRY)
        }
        users = {name: make_user(admin, documents[name]) for name in IDENTITIES}
        users[CONTROL] = make_user(admin, documents["model-server"], documents[CONTROL])
        users[EXPIRY] = make_user(admin, documents["sweeper"], documents[EXPIRY])
        places[kind] = SimpleNamespace(admin=admin, client=s3_client(admin), prefix=prefix, users=users, raws={})
    return places[kind]


@pytest.fixture
def scene(place, tmp_path):
    """A run of its own for each test: the policies name the prefix."""
    url, run_id, spill = f"s3://{BUCKET}/{place.prefix}", f"run-{uuid.uuid4().hex[:12]}", tmp_path / "spill"

    def at(user):
        return {"url": url, "run_id": run_id, "spill_dir": str(spill), **user.settings()}

    def store(user):
        return open_store(url, **user.settings(), retry_seconds=0)

    return SimpleNamespace(
        run_id=run_id,
        spill=spill,
        at=lambda name: at(place.users[name]),
        store=lambda name: store(place.users[name]),
        options=lambda name: StoreOptions.of(url, **place.users[name].settings()),
        admin=store(place.admin),
        as_admin=at(place.admin),
    )


async def test_a_model_server_does_its_whole_job(scene):
    first, second = make_chain("r1", 2)
    run(put_entry(scene.run_id, first), scene.admin)
    sink, resolver = TokenSink(**scene.at("model-server")), LineageResolver(**scene.at("model-server"))
    await sink.begin_call("r1", "c1")
    assert (await resolver.resolve("r1", request_after("t0"))).status == ParentResolutionStatus.RESOLVED
    await sink.put(second)
    await sink.mark_incomplete("r2", "c0")
    await sink.record_engine_refusal("r3", model_call_id="c0", code="context_length")
    store = CaptureStore(**scene.at("model-server"))
    await store.record_async("r1", {"model_call_id": "c0", "completed_at": 1.0})
    await store.mark_incomplete_async("r1", "c1")
    assert (len(await store.read_async("r1")), await store.is_incomplete_async("r1")) == (1, True)
    for component in (sink, resolver, store):
        await component.close()
    assert [path for path in scene.spill.rglob("*") if path.is_file()] == [], "a marker was refused and is kept"


async def test_a_model_server_keeps_the_ledger_and_takes_its_late_rows_back(scene):
    model = CaptureLedger(**scene.at("model-server"))
    row = staged_call("c0", rollout_id="r1")
    await model.record(commit_of(row, "r1/c0"))
    await model.record(commit_of(row, "r1/c0"))
    await model.record_failure("r1", "c1", "upstream_error")
    assert await model.has_rows("r1")
    assert (await model.resolve("r1", request_after("t0"))).status == ParentResolutionStatus.UNRESOLVED
    assert [one["model_call_id"] for one in (await model.manifest("r1"))["failures"]] == ["c1"]
    admin = CaptureLedger(**scene.as_admin)
    await admin.retire(["r2"])
    await model.record(commit_of(staged_call("late", rollout_id="r2"), "r2/late"))
    await model.record_failure("r2", "later", "upstream_error")
    left = {meta.key.rpartition("/r2/")[2] for meta in scene.admin.scan(f"ledger/{scene.run_id}/r2/")}
    assert left == {"fences/tombstone"}
    await model.close()
    await admin.close()


async def test_a_model_server_retires_ledgers_where_that_was_allowed(scene):
    model = CaptureLedger(**scene.at(CONTROL))
    await model.record(commit_of(staged_call("c0", rollout_id="r1"), "r1/c0"))
    assert (await model.retire(["r1"])).removed == ("r1",)
    assert (await model.delete(["r1"])).removed == ("r1",)
    assert not await model.has_rows("r1")
    await model.close()


def test_an_inference_worker_does_its_whole_job(scene):
    theirs = StagingSink(**scene.as_admin)
    parent = staged_call("c0", rollout_id="r1")
    key = theirs.stage(parent).staging_key
    theirs.close_now()
    sink, source = StagingSink(**scene.at("inference-worker")), StagingSource(**scene.at("inference-worker"))
    assert source.prefix([key], parent_chain_hash=parent.chain_hash) == [11, 12, 21, 22]
    several_parts = {"media": np.zeros(20 << 20, dtype=np.uint8)}
    result = sink.stage(staged_call("c1", after=[parent], rollout_id="r1"), attachments=several_parts)
    assert result.ok, result.error
    assert source.load_attachments(result.staging_key)["media"].nbytes == 20 << 20
    with pytest.raises(NotFound):
        source.fetch([key.replace("/c0.", "/gone.")])
    sink.close_now()
    source.close_now()


async def test_a_trainer_does_its_whole_job_with_token_entries(scene):
    for entry in (*make_chain("r1", 2), make_entry("r2"), make_entry("r3")):
        run(put_entry(scene.run_id, entry), scene.admin)
    source = TokenSource(**scene.at("trainer"))
    run(publish(scene.run_id, "r1"), scene.store("trainer"))
    seen = await source.freeze("r1")
    assert (len(seen.entries), seen.incomplete) == (2, False)
    assert await source.drop("r1", snapshot_id=seen.snapshot_id, version=seen.version)
    with pytest.raises(Retired):
        await source.freeze("r1")
    assert (await source.retire(["r2"])).removed == ("r2",)
    assert (await source.delete(["r1", "r2", "r3"])).removed == ("r1", "r2", "r3")
    await source.close()


async def test_a_trainer_does_its_whole_job_with_staged_rows(scene):
    keys = record_calls(scene.admin, "r1", run_id=scene.run_id)
    client, source = TrainerClient(**scene.at("trainer")), StagingSource(**scene.at("trainer"))
    ledger = CaptureLedger(**scene.at("trainer"))
    assert len((await ledger.manifest("r1"))["records"]) == 2
    await client.publish(receipt_for(scene.admin, "r1", run_id=scene.run_id))
    assert [one.rollout_id for one in await client.finished()] == ["r1"]
    (trainable,) = await client.read(["r1"])
    assert trainable.rollout_id == "r1"
    assert len(await source.fetch_async(keys)) == 2
    assert await client.mark_consumed(["r1"], "step-1") == ("r1",)
    assert (await client.retire_consumed(["step-1"])).removed == ("r1",)
    assert len(await source.fetch_async(keys)) == 2
    await ledger.delete(["r1"])
    for component in (client, source, ledger):
        await component.close()


async def test_a_collector_reads_and_clears_captures_as_a_trainer(scene):
    theirs = CaptureStore(**scene.as_admin)
    await theirs.record_async("r1", {"model_call_id": "c0", "completed_at": 1.0})
    await theirs.close()
    store = CaptureStore(**scene.at("trainer"))
    assert len(await store.read_async("r1")) == 1
    assert (await store.clear_async(["r1", "r2"])).removed == ("r1",)
    assert await store.read_async("r1") == []
    await store.close()


def test_a_sweeper_does_its_whole_job(scene):
    finish(scene.admin, "r1", run_id=scene.run_id)
    orphan = record_calls(scene.admin, "r2", calls=1, run_id=scene.run_id)
    for name in ("tokens", "ledger"):
        scene.admin.put(f"{name}/{scene.run_id}/r2/fences/tombstone", b"{}")
    scene.admin.put(f"tokens/{scene.run_id}/r2/intents/late", b"{}")
    sweeper = scene.store("sweeper")
    found = run(find_orphans(scene.run_id, now=time.time() + LATER, grace=1.0), sweeper)
    removed = run(remove_orphans(found), sweeper)
    kinds = sorted(one.kind for one in removed)
    assert (kinds, orphan[0] in {one.name for one in removed}) == (["late_write", "late_write", "orphan"], True)
    assert [meta.key.rpartition("/r2/")[2] for meta in scene.admin.scan(f"tokens/{scene.run_id}/r2/")] == [
        "fences/tombstone"
    ]


async def test_a_sweeper_removes_whole_runs_where_that_was_allowed(scene):
    finish(scene.admin, "r1", run_id=scene.run_id)
    run(put_entry(scene.run_id, make_entry("r1")), scene.admin)
    theirs = CaptureStore(**scene.as_admin)
    await theirs.record_async("r1", {"model_call_id": "c0", "completed_at": 1.0})
    await theirs.close()
    assert run(remove_run(scene.run_id, doomed=lambda _: True), scene.store(EXPIRY)) > 0
    # Not from a list of runs: some servers go on showing the folders of what was removed.
    assert [meta.key for one in FAMILIES for meta in scene.admin.scan(f"{one[:-1]}{scene.run_id}/")] == []


async def test_a_viewer_does_its_whole_job(scene):
    keys = finish(scene.admin, "r1", run_id=scene.run_id)
    run(put_entry(scene.run_id, make_entry("r1")), scene.admin)
    viewer = scene.store("viewer")
    assert scene.run_id in run(runs(), viewer)
    ((rollout_id, prefix),) = run(rollouts("tokens", scene.run_id), viewer).items()
    assert run(check_rollout(rollout_id, prefix), viewer).findings == ()
    client, source = TrainerClient(**scene.at("viewer")), StagingSource(**scene.at("viewer"))
    assert [one.rollout_id for one in await client.read(["r1"])] == ["r1"]
    assert len(await source.fetch_async(keys)) == 2
    await client.close()
    await source.close()


@pytest.mark.parametrize("identity", IDENTITIES)
async def test_the_preflight_of_an_identity_finds_nothing_wrong(scene, identity):
    assert await preflight(scene, identity, identity) == "ok"


@pytest.mark.parametrize(
    ("identity", "other"), [("inference-worker", "model-server"), ("viewer", "sweeper"), ("sweeper", "trainer")]
)
async def test_the_preflight_notices_that_somebody_is_not_who_it_should_be(scene, identity, other):
    assert await preflight(scene, identity, other) == "failed"


async def preflight(scene, identity, job):
    plan = Preflight(job, scene.options(identity), None, str(scene.spill))
    store = scene.store(identity)
    probes = [one async for one in fly(plan, store)]
    await store.close_async()
    return verdict(probes)


REFUSED = (403, 501)
"""What a server answers to whoever may not, and to whoever asks for what it cannot."""


def with_md5(request, **_):
    digest = hashlib.md5(request.body if isinstance(request.body, bytes) else request.body.encode())
    request.headers["Content-MD5"] = base64.b64encode(digest.digest()).decode()


class Raw:
    """Single requests of one user, below the prefix; each says whether it was allowed."""

    def __init__(self, place, identity):
        self.place = place
        self.client = s3_client(place.users[identity])
        # Without it MinIO takes no bulk removal, and botocore sends another checksum by now.
        self.client.meta.events.register("before-sign.s3.DeleteObjects", with_md5)
        self.admin = place.client

    def path(self, key):
        return f"{self.place.prefix}/{key}"

    def allowed(self, operation, **arguments):
        try:
            getattr(self.client, operation)(Bucket=BUCKET, **arguments)
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] not in REFUSED:
                raise
            return False
        return True

    def fill(self):
        for key in set(KEYS) - self.left():
            self.admin.put_object(Bucket=BUCKET, Key=self.path(key), Body=b"theirs")

    def left(self):
        start = self.path("")
        found = self.admin.list_objects_v2(Bucket=BUCKET, Prefix=start).get("Contents", [])
        return {one["Key"].removeprefix(start) for one in found} & set(KEYS)


def raw_of(place, identity):
    """Return an identity's client, which takes longer to make than most tests take."""
    if identity not in place.raws:
        place.raws[identity] = Raw(place, identity)
    return place.raws[identity]


@pytest.fixture(params=IDENTITIES)
def identity(request):
    return request.param


def test_an_identity_reads_its_families_and_nothing_else(place, identity):
    raw = raw_of(place, identity)
    raw.fill()
    assert {key for key in KEYS if raw.allowed("get_object", Key=raw.path(key))} == matching(READS[identity])


def test_an_identity_writes_what_is_its_own_and_nothing_else(place, identity):
    raw = raw_of(place, identity)
    found = {key for key in KEYS if raw.allowed("put_object", Key=raw.path(key), Body=b"mine")}
    assert found == matching(WRITES[identity])
    large = ("tokens/run/r/fences/tombstone", "staged/run/r/rows/c", "manifests/run/r/receipts/1")
    parts = {key for key in large if raw.allowed("create_multipart_upload", Key=raw.path(key))}
    assert parts == found & set(large)


def test_an_identity_removes_what_it_must_and_nothing_else(place, identity):
    raw = raw_of(place, identity)
    expected = matching(REMOVALS[identity])
    raw.fill()
    for key in KEYS:
        raw.allowed("delete_object", Key=raw.path(key))
    assert set(KEYS) - raw.left() == expected


def test_a_bulk_removal_goes_no_further(strict_place, identity):
    raw = raw_of(strict_place, identity)
    expected = matching(REMOVALS[identity])
    raw.fill()
    raw.allowed("delete_objects", Delete={"Objects": [{"Key": raw.path(key)} for key in KEYS]})
    assert set(KEYS) - raw.left() == expected


def test_an_identity_lists_its_families_and_learns_there_what_is_absent(strict_place, identity):
    raw = raw_of(strict_place, identity)
    raw.fill()
    listed, absent = set(), set()
    for family in FAMILIES:
        folder = family.removesuffix("*")
        if raw.allowed("list_objects_v2", Prefix=raw.path(folder)) and raw.allowed(
            "list_objects_v2", Prefix=raw.path(folder), Delimiter="/"
        ):
            listed.add(family)
        try:
            raw.client.head_object(Bucket=BUCKET, Key=raw.path(f"{folder}run/r/fences/none"))
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
                absent.add(family)
    assert listed == set(READS[identity])
    assert absent == set(READS[identity])
    for prefix in ("", raw.path(""), f"{strict_place.prefix}x/tokens/"):
        assert not raw.allowed("list_objects_v2", Prefix=prefix)
    assert not raw.allowed("list_objects_v2")


def test_a_prefix_that_begins_alike_is_another_place(place, identity):
    raw = raw_of(place, identity)
    for neighbour in (f"{place.prefix}x/", ""):
        for name in ("tokens/run/r/entries", "staged/run/r/rows"):
            key = f"{neighbour}{name}/{uuid.uuid4().hex}"
            assert not raw.allowed("put_object", Key=key, Body=b"mine")
            raw.admin.put_object(Bucket=BUCKET, Key=key, Body=b"theirs")
            assert not raw.allowed("get_object", Key=key)
            raw.allowed("delete_object", Key=key)
            raw.admin.head_object(Bucket=BUCKET, Key=key)


def test_no_identity_administers_the_bucket(place, identity):
    raw = raw_of(place, identity)
    anybody = {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{BUCKET}/*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [anybody]})
    assert not raw.allowed("put_bucket_policy", Policy=policy)
    assert not raw.allowed("delete_bucket")
    rule = {"ID": "x", "Status": "Enabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": 1}}
    assert not raw.allowed("put_bucket_lifecycle_configuration", LifecycleConfiguration={"Rules": [rule]})


@pytest.mark.parametrize("identity", ["model-server", "inference-worker"])
def test_a_copy_does_not_read_what_a_read_may_not(strict_place, identity):
    raw = raw_of(strict_place, identity)
    raw.fill()
    target = raw.path({"model-server": "tokens/run/r/entries/c", "inference-worker": "staged/run/r/rows/c"}[identity])
    source = raw.path(
        {"model-server": "manifests/run/r/receipts/1", "inference-worker": "tokens/run/r/entries/c"}[identity]
    )
    assert not raw.allowed("copy_object", Key=target, CopySource={"Bucket": BUCKET, "Key": source})


@pytest.mark.parametrize("name", [*IDENTITIES, CONTROL, EXPIRY])
def test_a_policy_keeps_within_the_limits_of_iam(name):
    """6,144 characters are a managed policy's limit; a bucket's name has 63, and a prefix may be long, too."""
    found = document(name, bucket="b" * 63, prefix="p" * 60 + "/")
    assert len(json.dumps(found, separators=(",", ":"))) < 6144
    for statement in found["Statement"]:
        assert set(statement) <= {"Sid", "Effect", "Action", "Resource", "Condition"}
        wildcards = [action for action in statement["Action"] if "*" in action]
        assert wildcards == []
        assert all(resource.startswith("arn:aws:s3:::" + "b" * 63) for resource in statement["Resource"])


def test_no_two_identities_are_the_same():
    said = [json.dumps(document(name, bucket="bbb", prefix="")) for name in (*IDENTITIES, CONTROL, EXPIRY)]
    assert all(one != other for one, other in itertools.combinations(said, 2))
