# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Codes that frameworks switch on never change."""

from __future__ import annotations

from gym_objstore.reasons import FailureReason, SelectionReason, Verdict


def test_the_codes_are_pinned() -> None:
    assert [str(code) for code in FailureReason] == [
        "unresolved_parent",
        "request_finished_without_staged_coordinates",
        "ledger_row_missing_response_id",
        "ledger_row_missing_chain_hash",
        "worker_response_missing_commit_coordinates",
        "invalid_worker_commit_coordinates",
        "worker_capture_failed",
        "invalid_manifest_row",
        "conflicting_ledger_rows",
    ]
    assert [str(code) for code in SelectionReason] == [
        "selected",
        "no_records",
        "duplicate_call_id",
        "orphaned_row",
        "no_root",
        "ambiguous_terminal",
    ]
    assert " ".join(Verdict) == (
        "unsupported_schema unsupported_digest unsupported_extras_digest rollout_failed capture_poisoned "
        "empty_manifest duplicate_manifest_row duplicate_staging_key row_count_mismatch duplicate_snapshot "
        "snapshot_identity_mismatch snapshot_order_mismatch wrong_rollout wrong_parent_call_id wrong_mode "
        "wrong_prev_len wrong_delta_len wrong_cum_len wrong_weight_version wrong_digest wrong_extras_digest "
        "wrong_chain_hash wrong_cumulative_hash wrong_schema_version wrong_digest_version "
        "wrong_extras_digest_version invalid_snapshot corrupt_digest missing_parent parent_length_mismatch "
        "lineage_cycle missing_terminal chain_hash_mismatch invalid_mask_order empty_generation "
        "cumulative_hash_mismatch"
    )
