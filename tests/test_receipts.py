# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Which manifests may be trained, by which call, and receipts as bytes."""

from __future__ import annotations

import orjson
import pytest

from gym_objstore.digests import canonical_json, sha256_hex
from gym_objstore.errors import Corrupt, Invalid
from gym_objstore.receipts import build_receipt, pack_receipt, terminal_chain, unpack_receipt
from gym_objstore.testing.staged_rollouts import ledger_row, receipt_of, staged_call
from gym_objstore.wire_ledger import ManifestFailure, RolloutManifest, RolloutReceipt

C0 = staged_call("c0")
C1 = staged_call("c1", after=[C0])
C2 = staged_call("c2", after=[C0], generated=(31,))
"""A sibling of ``C1``."""


def manifest(*records, failures=(), **fields) -> RolloutManifest:
    rows = tuple(ledger_row(record, **fields) for record in records)
    failed = tuple(ManifestFailure(model_call_id=call, reason=reason) for call, reason in failures)
    return RolloutManifest(rollout_id="rollout-1", records=rows, failures=failed)


def found(receipt: RolloutReceipt):
    return receipt.terminal_model_call_id, receipt.terminal_selection, receipt.failure_reason


def test_the_scored_response_names_the_terminal_call():
    receipt = build_receipt(manifest(C0, C1), 0.5, response={"id": "response-c1"})
    assert found(receipt) == ("c1", "response_id", None)
    assert (receipt.reward, receipt.capture_poisoned, len(receipt.manifest)) == (0.5, False, 2)
    assert receipt.terminal_attribution_reason == "response_has_no_output"


def test_a_declared_response_names_the_terminal_call():
    receipt = build_receipt(manifest(C0, C1, C2), 1, declared_response_id="response-c2")
    assert found(receipt) == ("c2", "declared", None)


def test_a_call_the_caller_knows_counts_as_declared():
    assert found(build_receipt(manifest(C0, C1, C2), terminal_call_id="c1")) == ("c1", "declared", None)


def test_an_unknown_call_only_abstains():
    receipt = build_receipt(manifest(C0, C1), terminal_call_id="c9", response={"id": "response-c0"})
    assert found(receipt) == ("c0", "response_id", None)


@pytest.mark.parametrize(
    ("evidence", "reason"),
    [
        ({"declared_response_id": "other"}, "declared_terminal_not_captured"),
        ({"declared_response_id": "other", "terminal_call_id": "c9"}, "declared_terminal_not_captured"),
        ({"declared_response_id": "response-c1", "response": {"id": "response-c2"}}, "witness_disagreement"),
    ],
)
def test_a_declaration_that_names_no_call_poisons(evidence, reason):
    receipt = build_receipt(manifest(C0, C1, C2), **evidence)
    assert found(receipt) == (None, "declared", reason)
    assert receipt.capture_poisoned


def test_two_calls_of_a_declared_response_poison():
    receipt = build_receipt(manifest(C1, C2, C0, response_id="same"), declared_response_id="same")
    assert found(receipt) == (None, "declared", "declared_ambiguous")


def test_without_witnesses_parent_links_decide():
    receipt = build_receipt(manifest(C0, C1))
    assert found(receipt) == ("c1", "heuristic", None)
    assert receipt.terminal_attribution_reason == "no_response_object"


def test_two_ends_are_ambiguous():
    receipt = build_receipt(manifest(C0, C1, C2))
    assert found(receipt) == (None, "heuristic", "ambiguous_terminal")
    assert receipt.capture_poisoned


def test_witnesses_that_contradict_each_other_leave_a_single_chain_to_its_end():
    receipt = build_receipt(manifest(C0, C1), terminal_call_id="c0", response={"id": "response-c1"})
    assert found(receipt) == ("c1", "heuristic", None)
    assert "witness_disagreement[explicit=c0;response_id=c1]" in receipt.terminal_attribution_reason


def test_witnesses_that_contradict_each_other_poison_branches():
    extended = staged_call("c3", after=[C0, C1])
    calls = manifest(C0, C1, C2, extended)
    assert found(build_receipt(calls)) == ("c3", "heuristic", None)
    contested = build_receipt(calls, terminal_call_id="c2", response={"id": "response-c3"})
    assert found(contested) == (None, "heuristic", "ambiguous_terminal")


def test_a_rollout_without_calls_is_poisoned():
    assert found(build_receipt(manifest())) == (None, "heuristic", "no_records")


def test_a_failed_call_poisons_and_the_terminal_call_stays():
    failed = manifest(C0, C1, failures=[("c9", "worker_capture_failed")])
    receipt = build_receipt(failed, 1.0, response={"id": "response-c1"})
    assert found(receipt) == ("c1", "response_id", "worker_capture_failed")
    assert receipt.capture_poisoned


def test_a_call_that_left_nothing_behind_does_not_poison():
    failed = manifest(C0, C1, failures=[("c9", "request_finished_without_staged_coordinates")])
    assert not build_receipt(failed).capture_poisoned


def test_a_poisoning_failure_is_named_before_a_missing_terminal():
    failed = manifest(C0, C1, C2, failures=[("c9", "unresolved_parent")])
    assert found(build_receipt(failed)) == (None, "heuristic", "unresolved_parent")


@pytest.mark.parametrize("change", [{"schema_version": 3}, {"novel": 1}, {"records": [{"model_call_id": "c0"}]}])
def test_a_manifest_that_cannot_be_read_poisons(change):
    said = {**manifest(C0).model_dump(mode="json"), **change}
    receipt = build_receipt(said, 1.0)
    assert found(receipt) == (None, None, "invalid_manifest_row")
    assert (receipt.rollout_id, receipt.manifest) == ("rollout-1", ())


def test_a_manifest_that_names_a_call_twice_poisons():
    assert found(build_receipt(manifest(C0, C0))) == (None, None, "duplicate_call_id")


def test_nemo_gyms_own_manifest_is_taken():
    from nemo_gym.token_id_capture.staging.records import RolloutManifest as Theirs

    theirs = Theirs.model_validate(manifest(C0, C1).model_dump(mode="json"))
    assert build_receipt(theirs, 1.0) == build_receipt(manifest(C0, C1), 1.0)


@pytest.mark.parametrize(
    ("evidence", "failures"),
    [
        ({"response": {"id": "response-c1"}}, []),
        ({"declared_response_id": "other"}, []),
        ({}, [("c9", "unresolved_parent")]),
        ({"terminal_call_id": "c1"}, [("c9", "unresolved_parent")]),
    ],
)
def test_nemo_gym_accepts_every_receipt(evidence, failures):
    from nemo_gym.token_id_capture.staging.records import RolloutReceipt as Theirs

    receipt = build_receipt(manifest(C0, C1, failures=failures), 1.0, **evidence)
    said = receipt.model_dump(mode="json")
    assert Theirs.model_validate(said).model_dump(mode="json") == said


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), "much"])
def test_a_reward_that_is_no_finite_number_is_refused(reward):
    with pytest.raises(Invalid, match=r"field=reward.*rollout_id=rollout-1"):
        build_receipt(manifest(C0), reward)


def test_a_manifest_without_a_rollout_is_refused():
    with pytest.raises(Invalid, match="rollout_id must not be empty"):
        build_receipt({"records": []})


def test_the_chain_ends_in_the_terminal_call():
    receipt = receipt_of([C0, C2, C1])
    assert [row.model_call_id for row in terminal_chain(receipt)] == ["c0", "c1"]


def test_a_chain_without_its_parent_or_in_a_circle_is_corrupt():
    with pytest.raises(Corrupt, match="model_call_id=c0") as missing:
        terminal_chain(receipt_of([C1]))
    assert missing.value.kind == "missing_parent"
    looped = [ledger_row(one).model_copy(update={"parent_call_id": two}) for one, two in ((C1, "c2"), (C2, "c1"))]
    with pytest.raises(Corrupt) as cycle:
        terminal_chain(receipt_of([C1, C2], manifest=tuple(looped)))
    assert cycle.value.kind == "lineage_cycle"


def test_a_receipt_is_read_back_from_its_bytes():
    body = pack_receipt(receipt_of([C0, C1]))
    assert unpack_receipt("rollout-1", sha256_hex(body), body) == receipt_of([C0, C1])
    assert pack_receipt(receipt_of([C0, C1])) == body


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"schema_version": 3}, "invalid_manifest_row"),
        ({"novel": 1}, "invalid_manifest_row"),
        ({"rollout_id": "rollout-2"}, "misplaced"),
    ],
)
def test_a_receipt_of_another_kind_is_corrupt(change, kind):
    said = orjson.loads(pack_receipt(receipt_of([C0])))
    body = canonical_json({**said, "receipt": {**said["receipt"], **change}})
    with pytest.raises(Corrupt) as refused:
        unpack_receipt("rollout-1", sha256_hex(body), body)
    assert refused.value.kind == kind


def test_a_damaged_receipt_is_corrupt():
    body = pack_receipt(receipt_of([C0]))
    with pytest.raises(Corrupt) as refused:
        unpack_receipt("rollout-1", sha256_hex(body), body[:-1])
    assert refused.value.kind == "damaged_receipt"
