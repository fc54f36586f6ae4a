# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""From an admission and what the engine generated to a staged row and its coordinates.

Owns the arithmetic of a call's delta: everything of prompt and generation behind the admitted prefix. Pure;
``rollout_capture`` decides when, the sink where.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gym_objstore.digests import are_token_ids
from gym_objstore.errors import Invalid
from gym_objstore.staged_columns import pack_ids
from gym_objstore.staging_digests import compute_chain_hash, hash_token_ids
from gym_objstore.wire_staging import CaptureAdmission, CommitCoords, StagedCallRecord

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class AdmittedCall:
    """A call that may be staged: the policy version at admission, and the prefix its prompt must begin with."""

    admission: CaptureAdmission
    weight_version: int
    prefix_token_ids: tuple[int, ...] = ()

    @property
    def where(self) -> str:
        """The call's ids, for messages."""
        return f"rollout_id={self.admission.rollout_id}, model_call_id={self.admission.model_call_id}"

    @property
    def ids(self) -> tuple[str, str]:
        """The rollout's and the call's id."""
        return self.admission.rollout_id, self.admission.model_call_id


@dataclass(frozen=True, slots=True)
class Generation:
    """What the engine did: the whole prompt, the generated ids with one log probability each, and extras."""

    prompt_token_ids: Sequence[int]
    token_ids: Sequence[int]
    logprobs: Sequence[float]
    extras: dict[str, Any] | None = None


def admit(admission: CaptureAdmission, weight_version: int, prefix_token_ids: Sequence[int] | None) -> AdmittedCall:
    """Return the admitted call behind its resolved prefix, or the admission's own if ``None`` is given.

    Raises ``Invalid`` for a prefix that is not the admission's or a version that is no count.
    """
    inline = admission.required_prefix_token_ids
    prefix = inline if prefix_token_ids is None else tuple(prefix_token_ids)
    call = AdmittedCall(admission, weight_version, prefix)
    if type(weight_version) is not int or weight_version < 0:
        raise Invalid(f"weight_version must be a count, {call.where}", kind="bad_weight_version")
    if not are_token_ids(prefix):
        raise Invalid(f"the prefix must hold token ids, {call.where}", kind="bad_prefix")
    if len(prefix) != admission.prev_len:
        reason = f"the prefix must hold prev_len tokens, prev_len={admission.prev_len}, len={len(prefix)}, {call.where}"
        raise Invalid(reason, kind="bad_prefix", hint="resolve the staging_chain and pass its tokens")
    if inline and prefix != inline:
        raise Invalid(f"the prefix contradicts the admission's own, {call.where}", kind="bad_prefix")
    return call


def seal(call: AdmittedCall, generation: Generation) -> StagedCallRecord:
    """Return the row of an admitted call. Raises ``ValueError`` or ``TypeError`` if it would not be a valid one."""
    admission = call.admission
    prompt, generated = tuple(generation.prompt_token_ids), tuple(generation.token_ids)
    if prompt[: admission.prev_len] != call.prefix_token_ids:
        raise Invalid(f"the prompt does not begin with the admitted prefix, {call.where}", kind="bad_prompt")
    carried = prompt[admission.prev_len :]
    delta = carried + generated
    packed = pack_ids(delta)
    return StagedCallRecord.seal(
        rollout_id=admission.rollout_id,
        model_call_id=admission.model_call_id,
        parent_call_id=admission.parent_call_id,
        mode=admission.mode,
        prev_len=admission.prev_len,
        delta_len=len(delta),
        cum_len=admission.prev_len + len(delta),
        weight_version=call.weight_version,
        token_ids_delta=delta,
        token_mask_delta=(0.0,) * len(carried) + (1.0,) * len(generated),
        generation_log_probs_delta=(0.0,) * len(carried) + tuple(generation.logprobs),
        chain_hash=compute_chain_hash(admission.parent_chain_hash, packed),
        cumulative_hash=hash_token_ids(prompt + generated if admission.prev_len else packed),
        extras=generation.extras,
    )


def staged_coords(record: StagedCallRecord, staging_key: str) -> CommitCoords:
    """Return the acknowledgement of a durable row."""
    return CommitCoords(staging_key=staging_key, **record.model_dump(include=set(CommitCoords.model_fields)))


def failed_coords(call: AdmittedCall) -> CommitCoords:
    """Return the acknowledgement of a call of which nothing was stored."""
    admission = call.admission
    return CommitCoords(
        rollout_id=admission.rollout_id,
        model_call_id=admission.model_call_id,
        parent_call_id=admission.parent_call_id,
        prev_len=admission.prev_len,
        delta_len=0,
        cum_len=admission.prev_len,
        weight_version=call.weight_version,
        disposition="capture_failed",
    )
