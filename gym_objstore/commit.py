# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""From a worker's complete answer to what the client may see and what the ledger records.

Owns which fields are internal, when a worker's coordinates are believed, and the ledger's commit. Pure; the
row is written elsewhere, and whether staged tokens are what their digests say is for whoever reads them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gym_objstore.admission import Refusal
from gym_objstore.errors import Invalid
from gym_objstore.fingerprint import FINGERPRINT_VERSION, assistant_fingerprint
from gym_objstore.reasons import FailureReason
from gym_objstore.responses import TOKEN_FIELDS, response_to_output_items
from gym_objstore.wire_ledger import CallRecord, CaptureLedgerCommit
from gym_objstore.wire_staging import CommitCoords, StagedCall

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gym_objstore.wire_staging import CaptureAdmission

    Item = dict[str, Any]

COORDINATES: Final = "ng_commit_coords"
"""The answer's field that carries a worker's acknowledgement."""

_INTERNAL_PREFIX = "ng_"
_INTERNAL = {*TOKEN_FIELDS, "token_ids", "compact_prompt_token_ids", "prompt_logprobs"}
_INTERNAL_OF_CHOICE = {*_INTERNAL, "logprobs"}
_OUTPUTS = ("output", "content")


def served_answer(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return a worker's answer without token ids, log probabilities, routes and ``ng_*`` fields.

    Log probabilities of chat choices go too: with capture on, their tokens are written as ids. What has
    another shape than its dialect's is left as it is.
    """
    served: dict[str, Any] = _without(dict(answer), _INTERNAL)
    for name in _OUTPUTS:
        if isinstance(served.get(name), list):
            served[name] = [_without(one, _INTERNAL) for one in served[name]]
    if isinstance(served.get("choices"), list):
        served["choices"] = [_served_choice(choice) for choice in served["choices"]]
    return served


def commit_of(
    admission: CaptureAdmission,
    answer: Mapping[str, Any],
    *,
    served: Mapping[str, Any],
    request_items: Sequence[Item],
    admitted_at: float,
) -> CaptureLedgerCommit | Refusal:
    """Return the ledger's commit of an admitted call that was answered, or why there is none.

    ``answer`` is the worker's, with its coordinates; ``served`` is what the client gets, from which the next
    request is recognized. Every reason returned here poisons the rollout.
    """
    coordinates = answer.get(COORDINATES)
    if coordinates is None:
        return Refusal(FailureReason.MISSING_COORDINATES, "the worker answered without coordinates")
    try:
        coords = CommitCoords.model_validate(coordinates)
        _require_same(coords, admission, "rollout_id", "model_call_id")
        if coords.disposition == "capture_failed":
            return Refusal(FailureReason.CAPTURE_FAILED, "the worker could not stage the call")
        _require_same(coords, admission, "parent_call_id", "prev_len")
        _require_new(coords, admission)
        return _commit(coords, admission, served, request_items, admitted_at)
    except (TypeError, ValueError) as error:
        return Refusal(FailureReason.INVALID_COORDINATES, " ".join(str(error).split()))


def _require_same(coords: CommitCoords, admission: CaptureAdmission, *names: str) -> None:
    """Raise ``Invalid`` for coordinates of another call than the admitted one, or of another place."""
    for name in names:
        said, admitted = getattr(coords, name), getattr(admission, name)
        if said != admitted:
            raise Invalid(f"coordinates of another call, {name}={said!r}, admitted={admitted!r}", kind="bad_coords")


def _require_new(coords: CommitCoords, admission: CaptureAdmission) -> None:
    """Raise ``Invalid`` for a row or a chain that an ancestor's coordinates named already."""
    if coords.staging_key in admission.staging_chain:
        raise Invalid(f"an ancestor's coordinates again, staging_key={coords.staging_key!r}", kind="bad_coords")
    if coords.chain_hash == admission.parent_chain_hash:
        raise Invalid("the parent's chain_hash again", kind="bad_coords")


def _commit(
    coords: CommitCoords,
    admission: CaptureAdmission,
    served: Mapping[str, Any],
    request_items: Sequence[Item],
    admitted_at: float,
) -> CaptureLedgerCommit:
    response_id = served.get("id")
    if not isinstance(response_id, str) or not response_id:
        raise Invalid("the served response has no id, so nobody could say which call earned a reward", kind="no_id")
    output = response_to_output_items(served)
    shared = set(StagedCall.model_fields) & set(CommitCoords.model_fields)
    record = CallRecord(
        **coords.model_dump(include=shared),
        staging_key=str(coords.staging_key),
        mode=admission.mode,
        response_id=response_id,
        admitted_at=admitted_at,
        output_fingerprint=_fingerprint(output),
        continuation_fingerprint=_fingerprint([*request_items, *output]),
        fingerprint_version=FINGERPRINT_VERSION,
    )
    return CaptureLedgerCommit(
        rollout_id=admission.rollout_id,
        record=record,
        staging_chain=(*admission.staging_chain, str(coords.staging_key)),
        request_items=tuple(request_items),
        response_items=tuple(output),
    )


def _fingerprint(items: Sequence[Item]) -> str | None:
    return assistant_fingerprint(items) or None


def _served_choice(choice: Any) -> Any:
    served = _without(choice, _INTERNAL_OF_CHOICE)
    if isinstance(served, dict) and "message" in served:
        served["message"] = _without(served["message"], _INTERNAL)
    return served


def _without(value: Any, names: set[str]) -> Any:
    """Return a copy of an object without these and all ``ng_*`` fields; any other value as it is."""
    if not isinstance(value, dict):
        return value
    return {name: one for name, one in value.items() if name not in names and not name.startswith(_INTERNAL_PREFIX)}
