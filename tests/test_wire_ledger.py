# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Ledger rows, manifests and receipts hold what they promise, or do not exist."""

from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic import ValidationError

from gym_objstore.testing.staged_rollouts import ledger_row, receipt_of, staged_call
from gym_objstore.wire_ledger import (
    CallRecord,
    CaptureLedgerCommit,
    ManifestFailure,
    RolloutManifest,
    RolloutReceipt,
    RolloutRemoval,
)

ROOT = staged_call("root")
CHILD = staged_call("child", after=[ROOT])
ROW: dict[str, Any] = ledger_row(CHILD).model_dump(mode="json")


def receipt(**fields: Any) -> RolloutReceipt:
    return RolloutReceipt.model_validate({**receipt_of([ROOT, CHILD]).model_dump(mode="json"), **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {"parent_call_id": None},
        {"prev_len": 0, "cum_len": 4},
        {"mode": "text"},
        {"cum_len": 9},
        {"delta_len": 0, "cum_len": 4},
        {"response_id": ""},
        {"response_id": None},
        {"staging_key": ""},
        {"chain_hash": None},
        {"cumulative_hash": None},
        {"digest": "x"},
        {"admitted_at": math.nan},
        {"admitted_at": "yesterday"},
        {"output_fingerprint": "x"},
        {"fingerprint_version": -1},
        {"token_ids_delta": [1]},
        {"capture_key": "a column of a newer writer"},
        {"schema_version": 3},
        {"digest_version": 1},
    ],
)
def test_a_ledger_row_that_cannot_be_verified_later_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        CallRecord.model_validate({**ROW, **fields})


def test_a_ledger_row_without_mode_is_a_continuation() -> None:
    del (fields := dict(ROW))["mode"]
    assert CallRecord.model_validate(fields).mode == "token_in"


def test_a_commit_carries_a_row_and_what_later_calls_look_for() -> None:
    fields = {"rollout_id": "r", "record": ROW, "request_items": [{"role": "user"}], "response_items": []}
    commit = CaptureLedgerCommit.model_validate(fields)
    assert (commit.record.model_call_id, commit.staging_chain) == ("child", ())
    for name in ("rollout_id", "record", "request_items", "response_items"):
        with pytest.raises(ValidationError):
            CaptureLedgerCommit.model_validate({**fields, name: None})
    with pytest.raises(ValidationError):
        CaptureLedgerCommit.model_validate({**fields, "staging_chain": [""]})


def test_a_manifest_may_be_empty_and_keeps_the_commit_order() -> None:
    manifest = RolloutManifest(rollout_id="r", records=(ledger_row(CHILD), ledger_row(ROOT)))
    assert RolloutManifest(rollout_id="r").records == ()
    assert [row.model_call_id for row in manifest.records] == ["child", "root"]


@pytest.mark.parametrize(
    "fields", [{"rollout_id": ""}, {"schema_version": 1}, {"records": [{**ROW, "new": 1}]}, {"rows": []}]
)
def test_a_manifest_of_another_schema_or_with_unknown_fields_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        RolloutManifest.model_validate({"rollout_id": "r", **fields})


@pytest.mark.parametrize(
    ("reason", "poisons"),
    [
        ("request_finished_without_staged_coordinates", False),
        ("unresolved_parent", True),
        ("ledger_row_missing_response_id", True),
        ("ledger_row_missing_chain_hash", True),
        ("worker_response_missing_commit_coordinates", True),
        ("invalid_worker_commit_coordinates", True),
        ("worker_capture_failed", True),
        ("a code of a newer writer", True),
    ],
)
def test_every_failure_poisons_but_the_one_that_left_nothing(reason: str, *, poisons: bool) -> None:
    assert ManifestFailure(model_call_id="c", reason=reason).poisons is poisons


def test_a_removal_reads_with_and_without_its_schema_version() -> None:
    assert RolloutRemoval.model_validate({"removed": ["a"], "absent": []}).removed == ("a",)
    assert RolloutRemoval().model_dump(mode="json") == {"schema_version": 2, "removed": [], "absent": []}
    with pytest.raises(ValidationError):
        RolloutRemoval.model_validate({"removed": [""]})


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"reward": None},
        {"terminal_model_call_id": "root", "terminal_selection": "heuristic"},
        {"capture_poisoned": True},
        {"capture_poisoned": True, "failure_reason": "unresolved_parent"},
        {"capture_poisoned": True, "terminal_model_call_id": None},
        {
            "capture_poisoned": True,
            "terminal_model_call_id": None,
            "terminal_selection": None,
            "failure_reason": "invalid_manifest_row",
            "manifest": [],
        },
    ],
)
def test_a_receipt_is_trainable_or_poisoned(fields: dict[str, Any]) -> None:
    assert receipt(**fields).rollout_id == "rollout-1"


@pytest.mark.parametrize(
    "fields",
    [
        {"failure_reason": "unresolved_parent"},
        {"failure_reason": ""},
        {"terminal_model_call_id": None},
        {"terminal_selection": None},
        {"terminal_model_call_id": None, "terminal_selection": None, "failure_reason": "unresolved_parent"},
        {"capture_poisoned": True, "terminal_selection": None, "failure_reason": "unresolved_parent"},
        {"capture_poisoned": True, "terminal_selection": None, "terminal_model_call_id": None},
        {"terminal_model_call_id": "stranger"},
        {"terminal_selection": "guess"},
        {"manifest": [ROW, ROW]},
        {"manifest": []},
        {"manifest": [{**ROW, "new": 1}]},
        {"reward": math.nan},
        {"reward": math.inf},
        {"rollout_id": ""},
        {"schema_version": 3},
        {"digest_version": 3},
        {"extras_digest_version": 3},
        {"note": "unknown"},
    ],
)
def test_a_receipt_in_no_known_state_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        receipt(**fields)
