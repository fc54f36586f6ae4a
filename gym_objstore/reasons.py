# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Every code of external staging that a framework switches on. Codes are added, never repurposed or removed."""

from __future__ import annotations

from enum import StrEnum


class FailureReason(StrEnum):
    """Why a call did not commit, or why a manifest could not be read."""

    UNRESOLVED_PARENT = "unresolved_parent"
    UNCOMMITTED = "request_finished_without_staged_coordinates"
    MISSING_RESPONSE_ID = "ledger_row_missing_response_id"
    MISSING_CHAIN_HASH = "ledger_row_missing_chain_hash"
    MISSING_COORDINATES = "worker_response_missing_commit_coordinates"
    INVALID_COORDINATES = "invalid_worker_commit_coordinates"
    CAPTURE_FAILED = "worker_capture_failed"
    INVALID_MANIFEST_ROW = "invalid_manifest_row"
    CONFLICTING_ROWS = "conflicting_ledger_rows"


class SelectionReason(StrEnum):
    """How following parent links through a manifest to its terminal call ended."""

    SELECTED = "selected"
    NO_RECORDS = "no_records"
    DUPLICATE_CALL_ID = "duplicate_call_id"
    ORPHANED_ROW = "orphaned_row"
    NO_ROOT = "no_root"
    AMBIGUOUS = "ambiguous_terminal"


class Verdict(StrEnum):
    """Why a receipt and its staged rows may not be trained."""

    UNSUPPORTED_SCHEMA = "unsupported_schema"
    UNSUPPORTED_DIGEST = "unsupported_digest"
    UNSUPPORTED_EXTRAS_DIGEST = "unsupported_extras_digest"
    ROLLOUT_FAILED = "rollout_failed"
    CAPTURE_POISONED = "capture_poisoned"
    EMPTY_MANIFEST = "empty_manifest"
    DUPLICATE_MANIFEST_ROW = "duplicate_manifest_row"
    DUPLICATE_STAGING_KEY = "duplicate_staging_key"
    ROW_COUNT_MISMATCH = "row_count_mismatch"
    DUPLICATE_SNAPSHOT = "duplicate_snapshot"
    SNAPSHOT_IDENTITY_MISMATCH = "snapshot_identity_mismatch"
    SNAPSHOT_ORDER_MISMATCH = "snapshot_order_mismatch"
    WRONG_ROLLOUT = "wrong_rollout"
    WRONG_PARENT_CALL_ID = "wrong_parent_call_id"
    WRONG_MODE = "wrong_mode"
    WRONG_PREV_LEN = "wrong_prev_len"
    WRONG_DELTA_LEN = "wrong_delta_len"
    WRONG_CUM_LEN = "wrong_cum_len"
    WRONG_WEIGHT_VERSION = "wrong_weight_version"
    WRONG_DIGEST = "wrong_digest"
    WRONG_EXTRAS_DIGEST = "wrong_extras_digest"
    WRONG_CHAIN_HASH = "wrong_chain_hash"
    WRONG_CUMULATIVE_HASH = "wrong_cumulative_hash"
    WRONG_SCHEMA_VERSION = "wrong_schema_version"
    WRONG_DIGEST_VERSION = "wrong_digest_version"
    WRONG_EXTRAS_DIGEST_VERSION = "wrong_extras_digest_version"
    INVALID_SNAPSHOT = "invalid_snapshot"
    CORRUPT_DIGEST = "corrupt_digest"
    MISSING_PARENT = "missing_parent"
    PARENT_LENGTH_MISMATCH = "parent_length_mismatch"
    LINEAGE_CYCLE = "lineage_cycle"
    MISSING_TERMINAL = "missing_terminal"
    CHAIN_HASH_MISMATCH = "chain_hash_mismatch"
    INVALID_MASK_ORDER = "invalid_mask_order"
    EMPTY_GENERATION = "empty_generation"
    CUMULATIVE_HASH_MISMATCH = "cumulative_hash_mismatch"
