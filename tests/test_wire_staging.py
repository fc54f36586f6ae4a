# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Records between model server, worker and staging store hold what they promise, or do not exist."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import pytest
from pydantic import ValidationError

from gym_objstore.staging_digests import EMPTY_EXTRAS_DIGEST
from gym_objstore.testing.staged_rollouts import staged_call
from gym_objstore.wire_staging import (
    CaptureAdmission,
    CommitCoords,
    StagedCallBaseSnapshot,
    StagedCallRecord,
    StagedCallSnapshot,
    StageResult,
)

ROOT: dict[str, Any] = {"rollout_id": "r", "model_call_id": "c", "mode": "text"}
CHILD: dict[str, Any] = {
    "rollout_id": "r",
    "model_call_id": "c",
    "mode": "token_in",
    "parent_call_id": "p",
    "prev_len": 2,
    "required_prefix_token_ids": [1, 2],
    "parent_chain_hash": "a" * 64,
}
STAGED: dict[str, Any] = {
    "rollout_id": "r",
    "model_call_id": "c",
    "prev_len": 0,
    "delta_len": 4,
    "cum_len": 4,
    "weight_version": 0,
    "digest": "a" * 64,
    "extras_digest": "b" * 64,
    "staging_key": "r/c",
    "chain_hash": "c" * 64,
    "cumulative_hash": "d" * 64,
}
FAILED: dict[str, Any] = {
    "rollout_id": "r",
    "model_call_id": "c",
    "parent_call_id": "p",
    "prev_len": 5,
    "delta_len": 0,
    "cum_len": 5,
    "weight_version": 0,
    "disposition": "capture_failed",
}


def row(**fields: Any) -> dict[str, Any]:
    """Return the fields of a valid record of two prompt and two generated tokens, some of them replaced."""
    return {**staged_call("call-1", extras={"a": 1}).model_dump(mode="json"), **fields}


def resealed(**fields: Any) -> dict[str, Any]:
    """Return such fields under a digest that covers them."""
    kept = {name: value for name, value in row(**fields).items() if name not in {"digest", "extras_digest"}}
    return dict(StagedCallRecord.seal(**kept))


class TestAdmissions:
    def test_a_root_and_both_kinds_of_continuation_are_admitted(self) -> None:
        named = {**CHILD, "required_prefix_token_ids": [], "staging_chain": ["r/root", "r/p"]}
        assert CaptureAdmission(**ROOT).prev_len == 0
        assert CaptureAdmission(**CHILD).required_prefix_token_ids == (1, 2)
        assert CaptureAdmission(**named).staging_chain == ("r/root", "r/p")

    @pytest.mark.parametrize(
        "fields",
        [
            {**ROOT, "parent_call_id": "p"},
            {**ROOT, "prev_len": 1},
            {**ROOT, "required_prefix_token_ids": [1]},
            {**ROOT, "staging_chain": ["r/p"]},
            {**ROOT, "parent_chain_hash": "a" * 64},
            {**ROOT, "mode": "token_in"},
            {**ROOT, "mode": "tokens"},
            {**ROOT, "rollout_id": ""},
            {**ROOT, "model_call_id": ""},
            {**ROOT, "model_call_id": "lone \ud800"},
            {**ROOT, "capture_key": "a column of a newer writer"},
            {**ROOT, "schema_version": 3},
            {**CHILD, "mode": "text"},
            {**CHILD, "parent_call_id": None},
            {**CHILD, "parent_call_id": ""},
            {**CHILD, "prev_len": 3},
            {**CHILD, "prev_len": 0, "required_prefix_token_ids": []},
            {**CHILD, "required_prefix_token_ids": []},
            {**CHILD, "required_prefix_token_ids": [1, -2]},
            {**CHILD, "required_prefix_token_ids": [1, True]},
            {**CHILD, "required_prefix_token_ids": [1, 2.0]},
            {**CHILD, "parent_chain_hash": None},
            {**CHILD, "parent_chain_hash": "A" * 64},
        ],
    )
    def test_a_place_and_a_prefix_that_contradict_each_other_are_refused(self, fields: dict[str, Any]) -> None:
        with pytest.raises(ValidationError):
            CaptureAdmission(**fields)


class TestStagedRows:
    def test_a_record_reads_back_from_json_and_plain_data_as_itself(self) -> None:
        record = staged_call("call-1", extras={"a": [1, None]}, logprobs=[-0.1, -1e-40])
        assert StagedCallRecord.model_validate_json(record.model_dump_json()) == record
        assert StagedCallRecord.model_validate(record.model_dump(mode="json")) == record
        assert StagedCallSnapshot.model_validate(record.model_dump()).extras == {"a": [1, None]}

    def test_a_snapshot_has_the_same_digest_without_the_extras(self) -> None:
        record = staged_call("call-1", extras={"a": 1})
        snapshot = StagedCallBaseSnapshot.model_validate(record.model_dump(exclude={"extras"}))
        assert (snapshot.digest, snapshot.extras_digest) == (record.digest, record.extras_digest)
        assert snapshot.extras_digest != EMPTY_EXTRAS_DIGEST

    def test_a_snapshot_takes_no_extras(self) -> None:
        with pytest.raises(ValidationError, match="extra"):
            StagedCallBaseSnapshot.model_validate(row())

    def test_records_cannot_be_changed(self) -> None:
        record = staged_call("call-1")
        with pytest.raises(ValidationError, match="frozen"):
            record.cum_len = 5

    @pytest.mark.parametrize(
        "fields",
        [
            {"rollout_id": "rollout-2"},
            {"weight_version": 8},
            {"token_ids_delta": [11, 12, 21, 23]},
            {"token_mask_delta": [0.0, 1.0, 1.0, 1.0]},
            {"generation_log_probs_delta": [0.0, 0.0, -0.5, -0.6]},
            {"extras_digest": EMPTY_EXTRAS_DIGEST},
            {"chain_hash": "0" * 64},
            {"cumulative_hash": "0" * 64},
            {"digest": "0" * 64},
        ],
    )
    def test_a_row_whose_digest_is_of_other_fields_does_not_exist(self, fields: dict[str, Any]) -> None:
        with pytest.raises(ValidationError, match="digest does not cover the staged fields"):
            StagedCallRecord.model_validate(row(**fields))

    @pytest.mark.parametrize("extras", [None, {}, {"a": 1.0}, {"a": 1, "b": 2}])
    def test_a_row_with_other_extras_does_not_exist(self, extras: dict[str, Any] | None) -> None:
        with pytest.raises(ValidationError, match="extras_digest does not cover the extras"):
            StagedCallRecord.model_validate(row(extras=extras))

    @pytest.mark.parametrize(
        "fields",
        [
            {"prev_len": 1, "cum_len": 5},
            {"parent_call_id": "p"},
            {"parent_call_id": "p", "prev_len": 1, "cum_len": 5},
            {"mode": "token_in"},
            {"cum_len": 5},
            {"delta_len": 3, "cum_len": 3},
            {"delta_len": 5, "cum_len": 5},
            {
                "delta_len": 0,
                "cum_len": 0,
                "token_ids_delta": [],
                "token_mask_delta": [],
                "generation_log_probs_delta": [],
            },
            {"token_mask_delta": [0.0, 1.0, 1.0]},
            {"generation_log_probs_delta": [0.0, 0.0, -0.5, -0.5, -0.5]},
            {"token_mask_delta": [0.0, 0.0, 1.0, 0.5]},
            {"token_mask_delta": [0.0, 0.0, 1.0, -1.0]},
            {"generation_log_probs_delta": [0.0, -0.1, -0.5, -0.5]},
            {"token_mask_delta": [1.0, 1.0, 0.0, 0.0]},
        ],
    )
    def test_a_sealed_row_that_contradicts_itself_does_not_exist(self, fields: dict[str, Any]) -> None:
        with pytest.raises(ValidationError):
            resealed(**fields)

    @pytest.mark.parametrize(
        "fields",
        [
            {"token_ids_delta": [11, 12, 21, -22]},
            {"token_ids_delta": [11, 12, 21, 2**64]},
            {"token_ids_delta": [11, 12, 21, "22"]},
            {"generation_log_probs_delta": [0.0, 0.0, -0.5, -math.inf]},
            {"generation_log_probs_delta": [0.0, 0.0, -0.5, math.nan]},
            {"generation_log_probs_delta": [0.0, 0.0, -0.5, -1e39]},
            {"generation_log_probs_delta": [0.0, 0.0, -0.5, "-0.5"]},
            {"weight_version": -1},
            {"weight_version": 2**64},
            {"model_call_id": "lone \ud800"},
            {"finish_reason": "a column of a newer writer"},
            {"schema_version": 1},
            {"digest_version": 1},
            {"extras_digest_version": 2},
            {"extras": {"a": (1,)}},
        ],
    )
    def test_values_outside_their_range_are_refused(self, fields: dict[str, Any]) -> None:
        with pytest.raises(ValidationError):
            StagedCallRecord.model_validate(row(**fields))

    def test_integral_log_probs_are_floats_and_negative_zero_survives(self) -> None:
        record = StagedCallRecord.model_validate(
            resealed(generation_log_probs_delta=[0.0, 0.0, -0.0, -2.0], token_mask_delta=[-0.0, 0.0, 1.0, 1.0])
        )
        read = StagedCallRecord.model_validate_json(record.model_dump_json())
        assert [math.copysign(1, value) for value in read.generation_log_probs_delta] == [1, 1, -1, -1]
        assert math.copysign(1, read.token_mask_delta[0]) == -1

    def test_a_record_is_the_same_packed_or_not(self) -> None:
        record = staged_call("call-1", extras={"a": 1}, logprobs=[-0.1, -0.25])
        unpacked = StagedCallRecord.model_construct(**dict(record))
        assert record == unpacked
        assert repr(record) == repr(unpacked)
        assert record.model_dump() == unpacked.model_dump()
        assert record.packed == unpacked.packed

    def test_a_copy_has_the_columns_of_its_own_fields(self) -> None:
        record = staged_call("call-1")
        changed = record.model_copy(update={"token_ids_delta": (11, 12, 21, 23)})
        assert changed.packed.token_ids_delta.tolist() == [11, 12, 21, 23]
        assert changed.recompute_digest() != record.digest
        assert record.packed.token_ids_delta.tolist() == [11, 12, 21, 22]

    def test_a_digest_is_recomputed_from_the_fields_and_not_from_what_was_kept(self) -> None:
        record = staged_call("call-1")
        vars(record)["token_ids_delta"] = (11, 12, 21, 23)
        assert record.recompute_digest() != record.digest

    @pytest.mark.parametrize(
        "moved", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))], ids=["copy", "deep", "pickle"]
    )
    def test_a_record_that_was_moved_is_the_same(self, moved: Any) -> None:
        record = staged_call("call-1", logprobs=[-0.1, -0.25])
        assert moved(record) == record
        assert moved(record).packed == record.packed
        assert moved(record).recompute_digest() == record.digest

    def test_a_pickle_does_not_carry_the_columns_twice(self) -> None:
        record = staged_call("call-1", prompt=range(1000))
        plain = StagedCallRecord.model_construct(**dict(record))
        assert len(pickle.dumps(record)) == len(pickle.dumps(plain))

    def test_an_instance_that_no_validation_has_seen_is_looked_into(self) -> None:
        record = staged_call("call-1")
        ints = StagedCallRecord.model_construct(**{**dict(record), "token_mask_delta": (0, 0, 1, 1)})
        with pytest.raises(ValidationError, match="must hold finite floats only"):
            StagedCallRecord.model_validate(ints)

    def test_sealing_takes_lists_and_keeps_tuples(self) -> None:
        fields = {name: value for name, value in row().items() if name not in {"digest", "extras_digest"}}
        assert StagedCallRecord.seal(**fields) == staged_call("call-1", extras={"a": 1})
        assert type(StagedCallRecord.seal(**fields).token_ids_delta) is tuple

    @pytest.mark.parametrize(
        "fields",
        [
            {"token_ids_delta": [11, 12, 21, True]},
            {"token_mask_delta": [0, 0, 1, 1]},
            {"generation_log_probs_delta": [0.0, 0.0, -0.5, "-0.5"]},
            {"generation_log_probs_delta": [0.0, 0.0, -0.5, math.nan]},
            {"weight_version": True},
            {"mode": "tokens"},
        ],
    )
    def test_nothing_else_than_a_valid_row_is_sealed(self, fields: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=r"must hold|must be|should be"):
            resealed(**fields)

    def test_contents_stay_out_of_messages(self) -> None:
        with pytest.raises(ValidationError) as refused:
            StagedCallRecord.model_validate(row(extras={"prompt": "the secret prompt"}))
        assert "secret" not in str(refused.value)


class TestAnswers:
    def test_coordinates_are_staged_or_failed(self) -> None:
        assert CommitCoords(**STAGED).disposition == "staged"
        assert CommitCoords(**FAILED).staging_key is None

    @pytest.mark.parametrize(
        "fields",
        [
            *({**STAGED, name: None} for name in ("digest", "extras_digest", "staging_key", "chain_hash")),
            {**STAGED, "cumulative_hash": None},
            {**STAGED, "staging_key": ""},
            {**STAGED, "delta_len": 0, "cum_len": 0},
            {**STAGED, "cum_len": 5},
            {**STAGED, "prev_len": 1, "cum_len": 5},
            {**STAGED, "parent_call_id": "p"},
            {**STAGED, "disposition": "capture_failed"},
            {**STAGED, "disposition": "lost"},
            {**STAGED, "digest": "A" * 64},
            {**STAGED, "mode": "text"},
            {**FAILED, "disposition": "staged"},
            {**FAILED, "staging_key": "r/c"},
            {**FAILED, "digest": "a" * 64},
            {**FAILED, "delta_len": 1, "cum_len": 6},
            {**FAILED, "cum_len": 4},
            {**FAILED, "weight_version": True},
        ],
    )
    def test_coordinates_that_are_neither_are_refused(self, fields: dict[str, Any]) -> None:
        with pytest.raises(ValidationError):
            CommitCoords(**fields)

    def test_a_stage_result_has_a_key_or_an_error(self) -> None:
        assert StageResult(ok=True, staging_key="r/c").error is None
        assert StageResult(ok=False, error="bucket full").staging_key is None

    @pytest.mark.parametrize(
        "fields",
        [
            {"ok": True},
            {"ok": True, "staging_key": ""},
            {"ok": True, "error": "none"},
            {"ok": False},
            {"ok": False, "error": ""},
            {"ok": False, "staging_key": "r/c"},
            {"staging_key": "r/c"},
            {"ok": True, "staging_key": "r/c", "etag": "1"},
        ],
    )
    def test_a_stage_result_without_either_is_refused(self, fields: dict[str, Any]) -> None:
        with pytest.raises(ValidationError):
            StageResult(**fields)
