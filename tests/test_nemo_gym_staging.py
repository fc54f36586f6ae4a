# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Staging and the capture ledger inside the real nemo-gym: its protocols, its records, its verdicts, its manifests."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nemo_gym.token_id_capture import config as gym_config
from nemo_gym.token_id_capture import protocols
from nemo_gym.token_id_capture.fingerprint import FINGERPRINT_VERSION
from nemo_gym.token_id_capture.lineage import FileLineageStore
from nemo_gym.token_id_capture.records import ParentResolutionStatus
from nemo_gym.token_id_capture.staging import conformance, rebuild
from nemo_gym.token_id_capture.staging import protocols as staging_protocols
from nemo_gym.token_id_capture.staging import records as gym
from nemo_gym.token_id_capture.staging.capture import CaptureHost, install_capture

import gym_objstore_nemo_gym as ours
from gym_objstore.errors import Conflict, Retired
from gym_objstore.testing.staged_rollouts import ledger_row, staged_call
from gym_objstore_nemo_gym.shim import rollout_retired_error
from tests.entries import QUESTION, answer
from tests.gym_side import server_side
from tests.places import PLACES, place_of

ROLLOUT = "rollout-1"


@pytest.fixture
def place(request):
    return place_of("memory", request)


def theirs(record) -> gym.StagedCallRecord:
    return gym.StagedCallRecord.model_validate(record.model_dump(mode="json"))


def commit(call="c1", *, request=QUESTION, text="hi", chain=("k1",), **fields) -> gym.CaptureLedgerCommit:
    row = ledger_row(staged_call(call), admitted_at=1.0, fingerprint_version=FINGERPRINT_VERSION, **fields)
    return gym.CaptureLedgerCommit(
        rollout_id=ROLLOUT,
        record=gym.CallRecord.model_validate(row.model_dump(mode="json")),
        staging_chain=chain,
        request_items=request,
        response_items=answer(text),
    )


@server_side
def test_gym_builds_the_ledger_that_its_yaml_names(place, monkeypatch):
    monkeypatch.setenv("NEMO_GYM_TOKEN_CAPTURE_CONTROL_TOKEN", "secret")
    block = {
        "enabled": True,
        "external_staging": True,
        "rebuild_response": False,
        "lineage_store": "gym_objstore_nemo_gym:CaptureLedger",
        "lineage_store_kwargs": place,
    }
    built = gym_config.TokenIdCaptureConfig.model_validate({"token_id_capture": block})
    ledger = built.build_lineage_store()
    assert type(ledger) is ours.CaptureLedger
    assert isinstance(ledger, protocols.CaptureLedger)
    assert built.token_id_capture.resolve_control_auth_token() == "secret"


def test_gyms_staging_vectors_hold_here():
    conformance.assert_golden_vectors()


def test_sink_and_source_satisfy_gyms_protocols(place):
    assert isinstance(ours.StagingSink(**place), staging_protocols.StagingSink)
    assert isinstance(ours.StagingSource(**place), staging_protocols.StagingSource)


def test_results_and_snapshots_are_gyms_own(place):
    sink, source = ours.StagingSink(**place), ours.StagingSource(**place)
    record = theirs(staged_call("c1", extras={"a": [1, 2.5]}))
    result = sink.stage(record, attachments={"image": b"x"})
    assert (type(result), result.ok) == (gym.StageResult, True)
    (found,) = source.fetch([result.staging_key])
    assert type(found) is gym.StagedCallBaseSnapshot
    assert found == gym.StagedCallBaseSnapshot.model_validate(record.model_dump(exclude={"extras"}))
    assert found.model_dump() == record.model_dump(exclude={"extras"})
    assert source.load_extras({result.staging_key: record.extras_digest}) == {result.staging_key: {"a": [1, 2.5]}}
    refused = sink.stage(record, attachments={"image": None})
    assert (type(refused), refused.ok) == (gym.StageResult, False)
    assert "'/image'" in refused.error


async def test_the_async_form_gives_gyms_snapshots_too(place):
    key = ours.StagingSink(**place).stage(theirs(staged_call("c1"))).staging_key
    assert type((await ours.StagingSource(**place).fetch_async([key]))[0]) is gym.StagedCallBaseSnapshot


def test_a_miss_is_a_key_error(place):
    source = ours.StagingSource(**place)
    with pytest.raises(KeyError):
        source.fetch([f"rollout-1/c1.{'0' * 64}.10.0.r1"])


@pytest.mark.parametrize("kind", PLACES)
def test_gyms_own_worker_stages_a_rollout_that_gym_linearizes(kind, request):
    place = place_of(kind, request)
    sink, source, host = ours.StagingSink(**place), ours.StagingSource(**place), CaptureHost()
    capture = install_capture(host, sink=sink, weight_version_fn=lambda: 7)
    rows, chain, parent = [], [], None
    for turn in range(4):
        admission = gym.CaptureAdmission(
            rollout_id=ROLLOUT,
            model_call_id=f"c{turn}",
            mode="token_in" if parent else "text",
            parent_call_id=parent and parent.model_call_id,
            prev_len=parent.cum_len if parent else 0,
            staging_chain=chain,
            parent_chain_hash=parent and parent.chain_hash,
        )
        prefix = source.prefix(chain, parent_chain_hash=admission.parent_chain_hash) if chain else None
        call = capture.begin_call(admission, prefix_token_ids=prefix)
        coords = capture.complete_call(
            call,
            prompt_token_ids=[*(prefix or []), 100 + turn],
            generated_token_ids=[200 + turn, 300 + turn],
            generated_logprobs=[-0.5, -0.25],
            attachments={"image": b"pixels"} if turn == 2 else None,
        )
        assert coords.disposition == "staged"
        chain = [*chain, coords.staging_key]
        parent = gym.CallRecord(
            **coords.model_dump(exclude={"rollout_id", "disposition"}),
            mode=admission.mode,
            response_id=f"response-{turn}",
        )
        rows.append(parent)
    receipt = gym.RolloutReceipt(
        rollout_id=ROLLOUT,
        reward=1.0,
        terminal_model_call_id="c3",
        terminal_selection="response_id",
        manifest=rows,
    )
    row = rebuild.verify_and_linearize(receipt, ours.StagingSource(**place).fetch(chain))
    assert row.token_ids == [100, 200, 300, 101, 201, 301, 102, 202, 302, 103, 203, 303]
    assert row.token_mask == [0.0, 1.0, 1.0] * 4
    assert bytes(source.load_attachments(chain[2])["image"]) == b"pixels"


async def test_the_ledgers_answers_are_gyms_own(place):
    ledger = ours.CaptureLedger(**place)
    await ledger.record(commit())
    found = await ledger.resolve(ROLLOUT, [*QUESTION, *answer("hi"), {"role": "user", "content": "more"}])
    assert type(found) is protocols.LineageResolution
    assert type(found.match) is protocols.LineageMatch
    assert found.status is ParentResolutionStatus.RESOLVED
    gym.RolloutManifest.model_validate(await ledger.manifest(ROLLOUT))
    await ledger.retire([ROLLOUT])
    with pytest.raises(rollout_retired_error()):
        await ledger.manifest(ROLLOUT)
    with pytest.raises(Retired):
        await ledger.has_rows(ROLLOUT)
    await ledger.close()


def in_any_order(manifest: dict) -> dict:
    return {
        **manifest,
        "records": sorted(manifest["records"], key=lambda one: one["model_call_id"]),
        "failures": sorted(manifest["failures"], key=lambda one: (one["model_call_id"], one["reason"])),
    }


CALLS = st.sampled_from(["c1", "c2", "c3"])
COMMITS = st.builds(
    commit,
    CALLS,
    text=st.sampled_from(["hi", "bye"]),
    response_id=st.sampled_from(["r1", "r2"]),
    chain=st.sampled_from([(), ("k1",)]),
)
FAILURES = st.tuples(CALLS, st.sampled_from(["worker_capture_failed", "unresolved_parent"]))


@settings(max_examples=60)
@given(steps=st.lists(st.one_of(COMMITS, FAILURES), max_size=6))
def test_the_same_commits_give_the_manifest_that_gyms_file_store_gives(tmp_path_factory, steps):
    folder = tmp_path_factory.mktemp("ledger")

    async def main():
        reference = FileLineageStore(folder / "gym")
        mine = ours.CaptureLedger(f"memory://{folder.name}", "run-1", spill_dir=str(folder / "spill"))
        conflicted, failed = set(), set()
        for step in steps:
            if isinstance(step, tuple):
                failed.add(step[0])
                await reference.record_failure(ROLLOUT, *step)
                await mine.record_failure(ROLLOUT, *step)
                continue
            if step.record.model_call_id in failed:
                continue  # Gym refuses the row; here it stands beside the failure, which masks just the same
            try:
                await reference.record(step)
            except ValueError:
                # Gym keeps the first row. There is no compare-and-swap to tell first from second in a bucket, so
                # here neither is believed.
                conflicted.add(step.record.model_call_id)
                with pytest.raises(Conflict):
                    await mine.record(step)
            else:
                if step.record.model_call_id not in conflicted:
                    await mine.record(step)
        expected = in_any_order(await reference.manifest(ROLLOUT))
        found = in_any_order(await mine.manifest(ROLLOUT))
        assert await mine.has_rows(ROLLOUT) == await reference.has_rows(ROLLOUT)
        voided = {one["model_call_id"] for one in found["failures"] if one["reason"] == "conflicting_ledger_rows"}
        assert voided == conflicted
        expected["records"] = [one for one in expected["records"] if one["model_call_id"] not in conflicted]
        found["failures"] = [one for one in found["failures"] if one["reason"] != "conflicting_ledger_rows"]
        assert found == expected
        for text in ("hi", "bye"):
            request = [*QUESTION, *answer(text), {"role": "user", "content": "more"}]
            if not conflicted:
                assert await mine.resolve(ROLLOUT, request) == await reference.resolve(ROLLOUT, request)
        await mine.close()

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["file", "seaweedfs", "minio"])
async def test_a_rollout_of_commits_gives_gyms_manifest_on_every_store(kind, request, tmp_path):
    reference, mine = FileLineageStore(tmp_path / "gym"), ours.CaptureLedger(**place_of(kind, request))
    broken = commit("c9")
    broken = broken.model_copy(
        update={"record": gym.CallRecord.model_construct(**{**dict(broken.record), "response_id": ""})}
    )
    for ledger in (reference, mine):
        for number in range(20):
            await ledger.record(commit(f"call-{number}", text=f"said {number}"))
        await ledger.record(broken)
        await ledger.record_failure(ROLLOUT, "lost", "worker_capture_failed")
    assert in_any_order(await mine.manifest(ROLLOUT)) == in_any_order(await reference.manifest(ROLLOUT))
    request_items = [*QUESTION, *answer("said 7"), {"role": "user", "content": "more"}]
    assert await mine.resolve(ROLLOUT, request_items) == await reference.resolve(ROLLOUT, request_items)
    await mine.close()
