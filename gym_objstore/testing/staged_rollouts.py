# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Valid staged calls, ledger rows and receipts to test with, each in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gym_objstore.staged_calls import Generation, admit, seal
from gym_objstore.wire_ledger import CallRecord, RolloutReceipt
from gym_objstore.wire_staging import CaptureAdmission, StagedCall, StagedCallRecord

if TYPE_CHECKING:
    from collections.abc import Sequence


def admission(
    model_call_id: str, *, after: Sequence[StagedCallRecord] = (), rollout_id: str = "rollout-1"
) -> CaptureAdmission:
    """Return the admission of a root, or of a continuation of the chain of calls ``after``, prefix inline."""
    if not after:
        return CaptureAdmission(rollout_id=rollout_id, model_call_id=model_call_id, mode="text")
    return CaptureAdmission(
        rollout_id=rollout_id,
        model_call_id=model_call_id,
        mode="token_in",
        parent_call_id=after[-1].model_call_id,
        prev_len=after[-1].cum_len,
        required_prefix_token_ids=_tokens(after),
        parent_chain_hash=after[-1].chain_hash,
    )


def staged_call(
    model_call_id: str,
    *,
    after: Sequence[StagedCallRecord] = (),
    prompt: Sequence[int] = (11, 12),
    generated: Sequence[int] = (21, 22),
    **fields: Any,
) -> StagedCallRecord:
    """Return a sealed row whose delta is ``prompt`` and ``generated``.

    ``fields`` are ``rollout_id``, ``weight_version`` (7), ``logprobs`` (-0.5 each) and ``extras``.
    """
    call = admit(
        admission(model_call_id, after=after, rollout_id=fields.get("rollout_id", "rollout-1")),
        fields.get("weight_version", 7),
        None,
    )
    logprobs = fields.get("logprobs", [-0.5] * len(generated))
    return seal(call, Generation([*_tokens(after), *prompt], generated, logprobs, fields.get("extras")))


def ledger_row(record: StagedCallRecord, **fields: Any) -> CallRecord:
    """Return the ledger row of a staged call, ``fields`` put over the obvious ones."""
    obvious = {
        "staging_key": f"{record.rollout_id}/{record.model_call_id}",
        "response_id": f"response-{record.model_call_id}",
    }
    return CallRecord(**record.model_dump(include=set(StagedCall.model_fields)), **{**obvious, **fields})


def receipt_of(records: Sequence[StagedCallRecord], **fields: Any) -> RolloutReceipt:
    """Return the receipt of staged calls whose last one earned the reward, ``fields`` put over the obvious ones."""
    obvious = {
        "rollout_id": records[-1].rollout_id,
        "reward": 1.0,
        "terminal_model_call_id": records[-1].model_call_id,
        "terminal_selection": "response_id",
        "manifest": tuple(ledger_row(record) for record in records),
    }
    return RolloutReceipt(**{**obvious, **fields})


def _tokens(chain: Sequence[StagedCallRecord]) -> tuple[int, ...]:
    return tuple(token_id for record in chain for token_id in record.token_ids_delta)
