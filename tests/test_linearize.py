# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A receipt and its staged rows become one sequence, or the one code of what is wrong with them."""

from __future__ import annotations

from typing import Any

import pytest

from gym_objstore.errors import Corrupt
from gym_objstore.linearize import CallSpan, verify_and_linearize
from gym_objstore.reasons import Verdict
from gym_objstore.staging_digests import compute_extras_digest, hash_token_ids
from gym_objstore.testing.staged_rollouts import ledger_row, receipt_of, staged_call
from gym_objstore.wire_ledger import CallRecord
from gym_objstore.wire_staging import StagedCallBaseSnapshot, StagedCallRecord

ROOT = staged_call("root", prompt=[1, 2, 3], generated=[4, 5], logprobs=[-0.5, -0.25])
LEFT = staged_call("left", after=[ROOT], prompt=[6], generated=[7], weight_version=8, extras={"a": 1})
RIGHT = staged_call("right", after=[ROOT], prompt=[], generated=[9])
LEAF = staged_call("leaf", after=[ROOT, RIGHT], prompt=[10, 11], generated=[12, 13, 14])
ALL = [ROOT, LEFT, RIGHT, LEAF]
ROWS = [ledger_row(record) for record in ALL]


def changed(record: Any, **fields: Any) -> Any:
    """Return a copy that no validation has seen, as damage inside a trainer would leave it."""
    return record.model_copy(update=fields)


def code(records: list[StagedCallRecord], rows: list[CallRecord] | None = None, **receipt: Any) -> str:
    """Return the code with which these rows are refused under a receipt that no validation has seen."""
    valid = receipt_of(ALL)
    fields = {"manifest": tuple(ROWS if rows is None else rows), **receipt}
    with pytest.raises(Corrupt) as refused:
        verify_and_linearize(changed(valid, **fields), records)
    assert refused.value.kind in set(Verdict)
    return refused.value.kind


def both(index: int, **fields: Any) -> tuple[list[StagedCallRecord], list[CallRecord]]:
    """Return all snapshots and rows with the same fields of one call replaced on both sides, resealed."""
    record = ALL[index]
    kept = {name: value for name, value in dict(record).items() if name not in {"digest", "extras_digest"}}
    forged = StagedCallRecord.seal(**{**kept, **fields})
    records = [*ALL[:index], forged, *ALL[index + 1 :]]
    return records, [ledger_row(one) for one in records]


def test_the_terminal_chain_is_joined_from_root_to_terminal() -> None:
    row = verify_and_linearize(receipt_of(ALL), ALL)
    assert row.rollout_id == "rollout-1"
    assert row.token_ids == (1, 2, 3, 4, 5, 9, 10, 11, 12, 13, 14)
    assert row.token_mask == (0, 0, 0, 1, 1, 1, 0, 0, 1, 1, 1)
    assert row.logprobs == (0, 0, 0, -0.5, -0.25, -0.5, 0, 0, -0.5, -0.5, -0.5)
    assert [(span.model_call_id, span.start, span.end) for span in row.spans] == [
        ("root", 0, 5),
        ("right", 5, 6),
        ("leaf", 6, 11),
    ]
    assert [(span.carry_len, span.generation_len) for span in row.spans] == [(3, 2), (0, 1), (2, 3)]
    assert row.prompt_len == 3


def test_a_span_carries_its_policy_and_the_digest_its_extras_must_have() -> None:
    row = verify_and_linearize(receipt_of([ROOT, LEFT]), [ROOT, LEFT])
    digest = compute_extras_digest({"a": 1})
    assert row.spans[1] == CallSpan("left", 5, 1, 1, 8, 1, digest)


def test_base_snapshots_are_enough() -> None:
    snapshots = [StagedCallBaseSnapshot.model_validate(one.model_dump(exclude={"extras"})) for one in ALL]
    assert verify_and_linearize(receipt_of(ALL), snapshots) == verify_and_linearize(receipt_of(ALL), ALL)


def test_a_long_chain_is_joined() -> None:
    chain = [ROOT]
    for number in range(200):
        chain.append(staged_call(f"call-{number}", after=chain, prompt=[], generated=[number]))
    assert verify_and_linearize(receipt_of(chain), chain).token_ids == (1, 2, 3, 4, 5, *range(200))


@pytest.mark.parametrize(
    ("receipt", "expected"),
    [
        ({"schema_version": 3}, "unsupported_schema"),
        ({"digest_version": 1}, "unsupported_digest"),
        ({"extras_digest_version": 2}, "unsupported_extras_digest"),
        ({"capture_poisoned": True, "failure_reason": "unresolved_parent"}, "rollout_failed"),
        ({"failure_reason": ""}, "rollout_failed"),
        ({"capture_poisoned": True}, "capture_poisoned"),
        ({"manifest": ()}, "empty_manifest"),
        ({"terminal_model_call_id": None}, "missing_terminal"),
        ({"terminal_model_call_id": "stranger"}, "missing_terminal"),
        ({"rollout_id": "rollout-2"}, "wrong_rollout"),
    ],
)
def test_a_receipt_that_may_not_be_trained_is_refused(receipt: dict[str, Any], expected: str) -> None:
    assert code(ALL, **receipt) == expected


def test_a_poisoned_receipt_is_refused_before_its_rows_are_looked_at() -> None:
    assert code([], capture_poisoned=True) == "capture_poisoned"


def test_rows_that_are_not_one_per_call_are_refused() -> None:
    twice = [ROWS[0], ROWS[0], *ROWS[2:]]
    same_key = [ROWS[0], changed(ROWS[1], staging_key=ROWS[0].staging_key), *ROWS[2:]]
    assert code(ALL, twice) == "duplicate_manifest_row"
    assert code(ALL, same_key) == "duplicate_staging_key"


def test_snapshots_that_are_not_the_manifests_rows_in_order_are_refused() -> None:
    stranger = staged_call("stranger")
    assert code(ALL[:-1]) == "row_count_mismatch"
    assert code([*ALL, stranger]) == "row_count_mismatch"
    assert code([ROOT, ROOT, RIGHT, LEAF]) == "duplicate_snapshot"
    assert code([ROOT, LEFT, RIGHT, stranger]) == "snapshot_identity_mismatch"
    assert code([ROOT, RIGHT, LEFT, LEAF]) == "snapshot_order_mismatch"


def test_a_row_of_another_rollout_is_refused_though_it_is_sound() -> None:
    foreign = staged_call("root", prompt=[1, 2, 3], generated=[4, 5], rollout_id="rollout-2")
    assert code([foreign, *ALL[1:]]) == "wrong_rollout"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("parent_call_id", "right"),
        ("mode", "text"),
        ("prev_len", 4),
        ("delta_len", 3),
        ("cum_len", 8),
        ("weight_version", 9),
        ("digest", "0" * 64),
        ("extras_digest", "0" * 64),
        ("chain_hash", "0" * 64),
        ("cumulative_hash", "0" * 64),
        ("schema_version", 3),
        ("digest_version", 3),
        ("extras_digest_version", 3),
    ],
)
def test_a_row_that_says_otherwise_than_the_manifest_is_refused(field: str, value: object) -> None:
    assert code([ROOT, changed(LEFT, **{field: value}), RIGHT, LEAF]) == f"wrong_{field}"
    assert code(ALL, [ROWS[0], changed(ROWS[1], **{field: value}), *ROWS[2:]]) == f"wrong_{field}"


@pytest.mark.parametrize(
    "fields",
    [
        {"token_ids_delta": (6, 8)},
        {"token_mask_delta": (1.0, 1.0)},
        {"generation_log_probs_delta": (0.0, -0.75)},
    ],
)
def test_tokens_changed_after_the_row_was_read_are_refused(fields: dict[str, Any]) -> None:
    assert code([ROOT, changed(LEFT, **fields), RIGHT, LEAF]) == "corrupt_digest"


@pytest.mark.parametrize(
    "fields",
    [
        {"token_ids_delta": (6,)},
        {"token_ids_delta": (6, -7)},
        {"token_ids_delta": (6, 2**64)},
        {"token_ids_delta": (6, "7")},
        {"token_mask_delta": (0.0, 0.5)},
        {"generation_log_probs_delta": (-0.5, -0.5)},
        {"generation_log_probs_delta": (0.0, float("nan"))},
        {"generation_log_probs_delta": (0.0, -1e39)},
        {"token_ids_delta": None},
    ],
)
def test_tokens_that_no_row_can_have_are_refused(fields: dict[str, Any]) -> None:
    assert code([ROOT, changed(LEFT, **fields), RIGHT, LEAF]) == "invalid_snapshot"


@pytest.mark.parametrize("fields", [{"prev_len": 0, "cum_len": 2}, {"mode": "text"}, {"cum_len": 9}, {"delta_len": 0}])
def test_a_contradiction_that_row_and_manifest_share_is_refused(fields: dict[str, Any]) -> None:
    records = [ROOT, changed(LEFT, **fields), RIGHT, LEAF]
    assert code(records, [ROWS[0], changed(ROWS[1], **fields), *ROWS[2:]]) == "invalid_snapshot"


def test_a_parent_that_is_not_in_the_manifest_is_refused_off_the_chain_too() -> None:
    records = [LEFT, RIGHT, LEAF, staged_call("other root")]
    rows = [ledger_row(one) for one in records]
    assert code(records, rows, terminal_model_call_id="other root") == "missing_parent"


def test_a_continuation_that_does_not_begin_where_its_parent_ends_is_refused() -> None:
    assert code(*both(3, prev_len=5, cum_len=10)) == "parent_length_mismatch"
    assert code(*both(3, parent_call_id="root")) == "parent_length_mismatch"


def test_a_cycle_is_refused() -> None:
    # Lengths grow along parent links, so a cycle's lengths disagree somewhere; the first row decides the code.
    looped, rows = both(0, parent_call_id="leaf", prev_len=11, cum_len=16, mode="token_in")
    assert code(looped, rows) == "lineage_cycle"
    assert code([*looped[1:], looped[0]], [*rows[1:], rows[0]]) == "parent_length_mismatch"
    its_own, rows = both(2, parent_call_id="right")
    assert code(its_own, rows) == "parent_length_mismatch"


def test_a_chain_hash_that_does_not_continue_the_parents_is_refused() -> None:
    assert code(*both(0, chain_hash="0" * 64)) == "chain_hash_mismatch"
    assert code(*both(3, chain_hash="0" * 64)) == "chain_hash_mismatch"


def test_another_root_of_the_same_length_is_refused() -> None:
    swapped = staged_call("root", prompt=[1, 2, 3], generated=[4, 6])
    records = [swapped, *ALL[1:]]
    assert code(records, [ledger_row(one) for one in records]) == "chain_hash_mismatch"


def test_calls_off_the_terminal_chain_may_break_it() -> None:
    records, rows = both(1, chain_hash="0" * 64)
    receipt = receipt_of(records, manifest=tuple(rows))
    assert verify_and_linearize(receipt, records).spans[-1].model_call_id == "leaf"


def test_a_mask_that_returns_to_the_prompt_is_refused() -> None:
    mixed = {"token_mask_delta": (0.0, 1.0, 0.0, 1.0, 1.0), "generation_log_probs_delta": (0.0, -0.5, 0.0, -0.5, -0.5)}
    assert code(*both(3, **mixed)) == "invalid_mask_order"


def test_a_call_that_generated_nothing_is_refused() -> None:
    silent = {"token_mask_delta": (0.0,) * 5, "generation_log_probs_delta": (0.0,) * 5}
    assert code(*both(3, **silent)) == "empty_generation"


def test_a_cumulative_hash_of_other_tokens_is_refused_at_the_terminal_call_only() -> None:
    assert code(*both(3, cumulative_hash=hash_token_ids([1]))) == "cumulative_hash_mismatch"
    records, rows = both(2, cumulative_hash=hash_token_ids([1]))
    assert verify_and_linearize(receipt_of(records, manifest=tuple(rows)), records).prompt_len == 3


def test_a_refusal_says_what_was_found_and_where() -> None:
    with pytest.raises(Corrupt, match="model_call_id=left, expected=8, found=9"):
        verify_and_linearize(receipt_of(ALL), [ROOT, changed(LEFT, weight_version=9), RIGHT, LEAF])


def test_values_of_other_types_are_no_verdict() -> None:
    with pytest.raises(TypeError):
        verify_and_linearize(receipt_of(ALL).model_dump(), ALL)
    with pytest.raises(TypeError):
        verify_and_linearize(receipt_of(ALL), ROWS)


def test_rows_that_were_sealed_when_they_were_read_are_compared_with_the_receipt_all_the_same() -> None:
    records = [StagedCallBaseSnapshot.model_validate(one.model_dump(exclude={"extras"})) for one in ALL]
    assert verify_and_linearize(receipt_of(ALL), records, sealed=True) == verify_and_linearize(receipt_of(ALL), ALL)
    other = staged_call("root", prompt=[1, 2, 3], generated=[4, 6], logprobs=[-0.5, -0.25])
    with pytest.raises(Corrupt) as refused:
        verify_and_linearize(receipt_of(ALL), [other, *ALL[1:]], sealed=True)
    assert refused.value.kind == "wrong_digest"
