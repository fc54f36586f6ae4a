# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The ``ng_model_call_capture`` field of a rollout record: metrics, calls, and what is missing.

The attachment adds to a record and replaces nothing in it. This file owns its shape, the gap codes and the
rules for payloads: they are attached, and taken out again once the trajectory holds them; they stay where
projecting the trajectory failed, and are never attached where the producer redacted them. Reading the
captures is the client's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gym_objstore.calls import ModelCallRecord, aggregate

FIELD = "ng_model_call_capture"

INCOMPLETE = "model_call_capture_incomplete"
"""A capture of this rollout failed or was lost."""
NO_RECORDS = "model_call_capture_no_records"
"""Nothing was captured for this rollout."""
RECORDS_UNREADABLE = "model_call_capture_records_unreadable"
"""Some captures are damaged; ``detail`` is ``count=<n>``."""
UNREADABLE = "model_call_capture_unreadable"
"""The captures could not be read at all."""
PENDING = "model_call_capture_pending"
"""A capture was still being written when the wait for it ended."""
PROJECTION_FAILED = "trajectory_projection_failed"
"""The trajectory could not be made, so payloads stay attached; ``detail`` is the error's class."""
HISTORY_REDACTED = "multimodal_history_redacted"
"""The producer keeps multimodal payloads out of the record."""

_PAYLOADS = ("request", "response", "request_raw", "response_raw")
_EVIDENCE = ("ng_trajectory", "ng_agent_observations")

Gap = dict[str, str]
"""``{"code": ...}``, with a ``detail`` where there is one."""


def gap(code: str, detail: str | None = None) -> Gap:
    """Return one gap."""
    return {"code": code} if detail is None else {"code": code, "detail": detail}


def gaps_of(calls: Sequence[Any], *, unreadable: int = 0, incomplete: bool = False, pending: bool = False) -> list[Gap]:
    """Return what is missing of a rollout's captures, as read.

    ``unreadable`` is the number of damaged captures, ``incomplete`` whether a marker stands, ``pending``
    whether a write had not landed when the wait for it ended.
    """
    gaps = [gap(RECORDS_UNREADABLE, f"count={unreadable}")] if unreadable else []
    if incomplete:
        gaps.append(gap(INCOMPLETE))
    elif not calls and not unreadable:
        gaps.append(gap(NO_RECORDS))
    if pending:
        gaps.append(gap(PENDING))
    return gaps


def attachment(
    rollout_id: str, calls: Sequence[ModelCallRecord], *, gaps: Iterable[Gap] = (), payloads: bool = False
) -> dict[str, Any]:
    """Return the attachment of a rollout. ``gaps`` is left out where there are none.

    ``payloads`` says whether calls carry their requests and responses.
    """
    exclude = None if payloads else set(_PAYLOADS)
    attached: dict[str, Any] = {
        "rollout_id": rollout_id,
        "metrics": aggregate(calls),
        "calls": [call.model_dump(exclude=exclude) for call in calls],
    }
    missing = [dict(one) for one in gaps]
    return {**attached, "gaps": missing} if missing else attached


def payloads_allowed(record: Mapping[str, Any]) -> bool:
    """Whether payloads may be attached to a rollout record: not if its producer redacted its history."""
    for evidence in (record.get(field) for field in _EVIDENCE):
        gaps = evidence.get("gaps") if isinstance(evidence, Mapping) else None
        if isinstance(gaps, list) and any(
            isinstance(one, Mapping) and one.get("code") == HISTORY_REDACTED for one in gaps
        ):
            return False
    return True


def without_payloads(attached: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attachment without payloads, for a record whose trajectory holds them."""
    calls = [{name: value for name, value in call.items() if name not in _PAYLOADS} for call in attached["calls"]]
    return {**attached, "calls": calls}


def projection_failed(attached: Mapping[str, Any], error: BaseException) -> dict[str, Any]:
    """Return the attachment of a record whose trajectory could not be made: payloads stay, and a gap says so."""
    gaps = [*attached.get("gaps", ()), gap(PROJECTION_FAILED, type(error).__name__)]
    return {**attached, "gaps": gaps}
