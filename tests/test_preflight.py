# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The preflight of each identity: it passes with that identity's policy, needs no more, and says what is refused."""

from __future__ import annotations

import time
from fnmatch import fnmatchcase

import pytest

from gym_objstore import diagnosis
from gym_objstore.checking import runs
from gym_objstore.cli.doctor import Identity
from gym_objstore.errors import Unavailable
from gym_objstore.flow import Put, run
from gym_objstore.keys import FAMILIES, writer_key
from gym_objstore.objects import announcement
from gym_objstore.preflight import JOBS, Preflight, fly
from gym_objstore.run_keys import descriptor_key, probe_key
from gym_objstore.runs import close_run, create_run
from gym_objstore.settings import Settings
from gym_objstore.spill import Spill
from gym_objstore.store.opening import open_store
from gym_objstore.store.options import StoreOptions
from gym_objstore.testing.servers import make_bucket, s3_client
from gym_objstore.testing.wrapping import WrappedStore
from tests.identities import IDENTITIES, document, make_user
from tests.places import place_of
from tests.server_pool import BUCKET


async def checks(identity, store, options, *, run_id=None, spill_dir="unused"):
    return {one.name: one for one in [one async for one in fly(Preflight(identity, options, run_id, spill_dir), store)]}


def verdicts(found) -> dict[str, str]:
    return {name: one.kind or one.verdict for name, one in found.items()}


@pytest.fixture
def place(request):
    settings = Settings.of(**place_of("memory", request))
    return open_store(settings.store), settings


async def of_place(place, identity, *, run_id=None):
    store, settings = place
    return await checks(identity, store, settings.store, run_id=run_id, spill_dir=settings.spill_dir)


def test_the_identities_are_those_of_terraform_and_of_the_command_line():
    assert tuple(JOBS) == IDENTITIES == tuple(Identity)


@pytest.mark.parametrize("identity", IDENTITIES)
def test_a_job_needs_nothing_that_its_policy_does_not_allow(identity):
    policy, job = document(identity, bucket=BUCKET, prefix="rl/"), JOBS[identity]
    wanted = [("s3:GetObject", probe_key(family, "absent")) for family in job.reads]
    wanted += [("s3:PutObject", probe_key(family, kind)) for family, kinds in job.writes.items() for kind in kinds]
    wanted += [("s3:DeleteObject", probe_key(family, kind)) for family, kinds in job.removes.items() for kind in kinds]
    refused = [(action, key) for action, key in wanted if not allowed(policy, action, f"rl/{key}")]
    assert refused == []


@pytest.mark.parametrize("identity", IDENTITIES)
def test_a_policy_allows_no_family_that_its_job_does_not_need(identity):
    policy, job = document(identity, bucket=BUCKET, prefix=""), JOBS[identity]
    for action, families in (
        ("s3:GetObject", job.reads),
        ("s3:PutObject", job.writes),
        ("s3:DeleteObject", job.removes),
    ):
        named = {
            resource.split("/")[1]
            for statement in policy["Statement"]
            if statement["Effect"] == "Allow" and action in statement["Action"]
            for resource in statement["Resource"]
            if "!probe" not in resource
        }
        assert named == set(families), action


def allowed(policy, action: str, key: str) -> bool:
    def effects(effect):
        return any(
            fnmatchcase(f"arn:aws:s3:::{BUCKET}/{key}", resource)
            for statement in policy["Statement"]
            if statement["Effect"] == effect and action in statement["Action"]
            for resource in statement["Resource"]
        )

    return effects("Allow") and not effects("Deny")


async def test_a_good_store_passes_for_every_identity_and_keeps_what_nobody_may_remove(place):
    for identity in ("inference-worker", "model-server", "trainer", "sweeper", "viewer"):
        found = await of_place(place, identity)
        assert [one for one in found.values() if one.verdict != "ok"] == []
    store, _ = place
    assert [meta.key for meta in sorted(store.scan(""))] == [
        "captures/!probe/!run/probe",
        "ledger/!probe/!run/probe",
        "staged/!probe/!run/probe",
        "tokens/!probe/!run/probe",
    ]
    assert run(runs(), store) == {}


async def test_a_worker_is_asked_for_its_own_operations_only(place):
    found = await of_place(place, "inference-worker")
    assert list(found) == ["reach", "list staged/", "read staged/", "write staged/"]
    assert found["write staged/"].detail == "kinds=!run,rows, left below staged/!probe/"


async def test_repeating_a_preflight_leaves_nothing_more(place):
    store, _ = place
    await of_place(place, "model-server")
    before = [meta.key for meta in sorted(store.scan(""))]
    await of_place(place, "model-server")
    assert [meta.key for meta in sorted(store.scan(""))] == before


@pytest.mark.parametrize("kind", ["seaweedfs", "minio"])
@pytest.mark.parametrize("identity", IDENTITIES)
async def test_with_its_own_policy_every_identity_passes(kind, identity, request, prefix, tmp_path):
    server = request.getfixturevalue(f"{kind}_server")
    user = make_user(server, document(identity, bucket=BUCKET, prefix=f"{prefix}/"))
    options = StoreOptions.of(f"s3://{BUCKET}/{prefix}", **user.settings())
    store = open_store(options)
    found = await checks(identity, store, options, run_id="run-1", spill_dir=str(tmp_path))
    assert {name: one for name, one in found.items() if one.verdict == "failed"} == {}
    assert found["clock"].verdict == "ok"
    await store.close_async()


async def test_an_s3_server_passes_with_every_check_answered(moto_server, prefix, tmp_path):
    options = StoreOptions.of(f"s3://{BUCKET}/{prefix}", **moto_server.settings())
    store = open_store(options)
    found = await checks("sweeper", store, options, run_id="run-1")
    assert list(verdicts(found).items()) == [
        ("reach", "ok"),
        *((f"{verb} {family}/", "ok") for family in FAMILIES for verb in ("list", "read")),
        *((f"remove {family}/", "ok") for family in ("tokens", "staged", "ledger", "manifests")),
        ("run", "no_writer"),
        ("descriptor", "ok"),
        ("clock", "ok"),
        ("versioning", "ok"),
        ("object_lock", "ok"),
    ]
    await store.close_async()


async def test_what_a_reader_may_not_do_is_refused_by_name_with_a_next_step(seaweedfs_server, prefix, tmp_path):
    viewer = make_user(seaweedfs_server, document("viewer", bucket=BUCKET, prefix=f"{prefix}/"))
    options = StoreOptions.of(f"s3://{BUCKET}/{prefix}", **viewer.settings())
    store = open_store(options)
    found = await checks("trainer", store, options)
    assert {name for name, one in found.items() if one.verdict == "failed"} == {
        "write tokens/",
        "write ledger/",
        "write manifests/",
        "remove captures/",
        "remove tokens/",
        "remove ledger/",
        "remove manifests/",
    }
    refused = found["write tokens/"]
    assert (refused.kind, "kind=fences" in refused.detail) == ("access_denied", True)
    assert "terraform/policies/trainer.json.tftpl" in refused.hint
    worker = await checks("inference-worker", store, options)
    assert list(verdicts(worker).items())[:5] == [
        ("reach", "ok"),
        ("list staged/", "ok"),
        ("read staged/", "ok"),
        ("write staged/", "access_denied"),
        ("clock", "ok"),
    ]
    assert list(open_store(StoreOptions.of(options.url, **seaweedfs_server.settings())).scan("")) == []
    await store.close_async()


async def test_a_wrong_secret_is_one_cause_and_not_ten(seaweedfs_server, prefix, tmp_path):
    wrong = {**seaweedfs_server.settings(), "secret_access_key": "not-the-secret"}
    options = StoreOptions.of(f"s3://{BUCKET}/{prefix}", **wrong)
    found = await checks("model-server", open_store(options), options, spill_dir=str(tmp_path))
    assert verdicts(found) == {"reach": "bad_credentials", "clock": "ok", "spill": "ok"}
    assert found["reach"].hint == "check the secret access key"


async def test_a_wrong_bucket_is_named(moto_server, prefix):
    options = StoreOptions.of(f"s3://{prefix}", **moto_server.settings())
    found = await checks("viewer", open_store(options), options)
    assert verdicts(found) == {"reach": "no_such_bucket", "clock": "ok"}


async def test_an_endpoint_that_does_not_answer_is_named(prefix):
    settings = {"access_key_id": "a", "secret_access_key": "b", "region": "us-east-1", "retry_seconds": 0}
    options = StoreOptions.of("s3://bucket", endpoint="http://127.0.0.1:9", **settings)
    found = await checks("viewer", open_store(options), options)
    assert verdicts(found) == {"reach": "unreachable", "clock": "unknown"}


@pytest.mark.parametrize(("ahead", "kind"), [(30, "ok"), (-30, "ok"), (3600, "clock_skew"), (-3600, "clock_skew")])
def test_a_clock_that_is_off_is_found_from_any_answer(moto_server, prefix, monkeypatch, ahead, kind):
    now = time.time
    monkeypatch.setattr(diagnosis.time, "time", lambda: now() + ahead)
    options = StoreOptions.of(f"s3://{prefix}", **moto_server.settings())
    found = diagnosis.server_clock(options)
    assert (found.kind or found.verdict) == kind
    assert bool(found.hint) == (kind == "clock_skew")


def test_versions_and_retention_of_a_bucket_are_warnings(moto_server, prefix):
    make_bucket(moto_server, prefix)
    options = StoreOptions.of(f"s3://{prefix}", **moto_server.settings())
    assert [one.verdict for one in diagnosis.administration(options)] == ["ok", "ok"]
    client = s3_client(moto_server)
    client.create_bucket(Bucket=f"{prefix}-l", ObjectLockEnabledForBucket=True)
    client.put_object_lock_configuration(
        Bucket=f"{prefix}-l",
        ObjectLockConfiguration={
            "ObjectLockEnabled": "Enabled",
            "Rule": {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 1}},
        },
    )
    locked = StoreOptions.of(f"s3://{prefix}-l", **moto_server.settings())
    assert [(one.name, one.verdict) for one in diagnosis.administration(locked)] == [
        ("versioning", "warning"),
        ("object_lock", "warning"),
    ]


async def test_a_run_that_nobody_wrote_is_fine_for_writers_and_strange_to_readers(place):
    writer = await of_place(place, "inference-worker", run_id="run-1")
    reader = await of_place(place, "viewer", run_id="run-1")
    assert (writer["run"].verdict, writer["run"].kind) == ("ok", "no_writer")
    assert (reader["run"].verdict, reader["run"].kind) == ("warning", "no_writer")
    store, _ = place
    run(_stored(announcement("staged", "run-1")), store)
    assert (await of_place(place, "viewer", run_id="run-1"))["run"].detail == "run_id=run-1, written=staged"


async def test_a_run_of_another_layout_fails(place):
    store, _ = place
    store.put(writer_key("tokens", "run-1"), b'{"format":2,"run_id":"run-1"}')
    store.put(writer_key("ledger", "run-1"), announcement("ledger", "run-2").body)
    found = await of_place(place, "trainer", run_id="run-1")
    assert {name: one.kind for name, one in found.items() if one.verdict == "failed"} == {
        "run tokens/": "foreign_object",
        "run ledger/": "foreign_object",
    }
    assert "another layout" in found["run ledger/"].detail


async def test_a_run_with_two_settings_fails_for_everybody_and_a_closed_one_for_writers(place):
    store, _ = place
    run(create_run("run-1", {"model": "a"}), store)
    assert (await of_place(place, "trainer", run_id="run-1"))["descriptor"].detail == "descriptors=1"
    run(close_run("run-1"), store)
    assert (await of_place(place, "trainer", run_id="run-1"))["descriptor"].kind == "run_closed"
    assert (await of_place(place, "viewer", run_id="run-1"))["descriptor"].verdict == "ok"
    digest = run(create_run("run-2", {"model": "b"}), store)
    store.put(descriptor_key("run-1", digest), store.get(descriptor_key("run-2", digest)))
    assert (await of_place(place, "viewer", run_id="run-1"))["descriptor"].kind == "run_settings"


async def test_a_spill_with_waiting_writes_is_a_warning_and_one_that_takes_none_a_failure(place, tmp_path):
    store, settings = place
    Spill(settings.spill_dir, store.url).keep(Put("tokens/run-1/r1/intents/c1", b"x"))
    waiting = (await of_place(place, "model-server"))["spill"]
    assert (waiting.verdict, waiting.kind) == ("warning", "spill_waiting")
    assert waiting.detail.endswith("waiting=1")
    (tmp_path / "file").write_bytes(b"")
    found = await checks("model-server", store, settings.store, spill_dir=str(tmp_path / "file"))
    assert (found["spill"].verdict, "GYM_OBJSTORE_SPILL_DIR" in found["spill"].hint) == ("failed", True)


async def test_a_store_that_stops_answering_in_the_middle_fails_what_it_did_not_answer(place):
    class Failing(WrappedStore):
        async def put_async(self, key, body):
            raise Unavailable("down", kind="server_error", hint="try again")

    store, settings = place
    found = await checks("inference-worker", Failing(store), settings.store)
    assert (found["write staged/"].kind, found["write staged/"].hint) == ("server_error", "try again")


def _stored(put: Put):
    yield put


def test_every_family_is_some_writers_and_some_removers():
    for what in ("writes", "removes"):
        assert {family for job in JOBS.values() for family in getattr(job, what)} == set(FAMILIES)
