# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The records of the capture ledger and the trainer's receipt: schema 2 of nemo-gym 0.7.0.

Owns their shapes, and what must hold inside one record. All are token-free; the codes in them are in ``reasons``.
Which call a receipt names is for ``terminal``, whether its rows may be trained for ``linearize``.
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import StrictFloat, model_validator

from gym_objstore.errors import Invalid
from gym_objstore.reasons import FailureReason
from gym_objstore.wire_staging import (
    CaptureMode,
    Count,
    DigestedRecord,
    DigestHex,
    Identifier,
    StagedCall,
    WireRecord,
)

TerminalMethod = Literal["declared", "response_id", "content", "heuristic"]


class CallRecord(StagedCall):
    """One ledger row: a staged call without its tokens, joined to the response that served it.

    ``admitted_at`` is seconds since the epoch. The fingerprints are of this call's output and of the
    request with it; ``fingerprint_version`` 0 means there are none.
    """

    staging_key: Identifier
    mode: CaptureMode = "token_in"
    response_id: Identifier
    admitted_at: StrictFloat | None = None
    output_fingerprint: DigestHex | None = None
    continuation_fingerprint: DigestHex | None = None
    fingerprint_version: Count = 0


class CaptureLedgerCommit(WireRecord):
    """A ledger row with what later calls need to find it as their parent.

    ``staging_chain`` names the staged rows from the root to this call.
    """

    rollout_id: Identifier
    record: CallRecord
    staging_chain: tuple[Identifier, ...] = ()
    request_items: tuple[dict[str, Any], ...]
    response_items: tuple[dict[str, Any], ...]


class ManifestFailure(WireRecord):
    """A call that was served and did not commit. Writers use ``FailureReason``; readers take any code."""

    model_call_id: Identifier
    reason: Identifier

    @property
    def poisons(self) -> bool:
        """Whether the rollout may no longer be trained. A call that left nothing behind does not poison it."""
        return self.reason != FailureReason.UNCOMMITTED


class RolloutManifest(WireRecord):
    """A rollout's ledger, in commit order, token-free."""

    rollout_id: Identifier
    records: tuple[CallRecord, ...] = ()
    failures: tuple[ManifestFailure, ...] = ()


class RolloutRemoval(WireRecord):
    """The answer to retire and delete: which rollouts had data, and which had none."""

    removed: tuple[Identifier, ...] = ()
    absent: tuple[Identifier, ...] = ()


class RolloutReceipt(DigestedRecord):
    """The trainer's verdict on one rollout: its manifest, its reward and the call that earned it.

    Either the rollout may be trained, and names its terminal call and how that was found; or it is
    poisoned. Only a poisoned receipt may lack ``terminal_selection``, which means nobody looked for the
    terminal call; it then names a ``failure_reason`` and no terminal call.
    """

    rollout_id: Identifier
    reward: float | None = None
    terminal_model_call_id: Identifier | None = None
    manifest: tuple[CallRecord, ...] = ()
    capture_poisoned: bool = False
    failure_reason: str | None = None
    terminal_selection: TerminalMethod | None = None
    terminal_attribution_reason: str | None = None

    @model_validator(mode="after")
    def _names_its_calls(self) -> Self:
        calls = {row.model_call_id for row in self.manifest}
        if len(calls) != len(self.manifest):
            raise Invalid("the manifest names a model_call_id twice")
        if self.terminal_model_call_id not in {None, *calls}:
            raise Invalid("terminal_model_call_id is not in the manifest")
        return self

    @model_validator(mode="after")
    def _in_one_state(self) -> Self:
        found = self.terminal_model_call_id is not None and self.terminal_selection is not None
        if not self.capture_poisoned and (self.failure_reason is not None or not found):
            raise Invalid("a receipt that is not poisoned names its terminal call and how it was found, and no failure")
        unlooked = self.terminal_model_call_id is None and self.failure_reason is not None
        if self.terminal_selection is None and not unlooked:
            raise Invalid("a receipt without terminal_selection names a failure_reason and no terminal call")
        return self
