# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Which call of a finished rollout produced the response that was scored.

Capture records every call, also retries, auxiliary calls and abandoned branches; reward belongs to one. Up
to four witnesses name it, none ranks above another, and each abstains rather than guesses:

- ``explicit``: the caller knows the call id.
- ``declared``: the harness reports the response id it kept. If that names no single call, nothing is attributed.
- ``response_id``: the scored response's own id was served by one call.
- ``content``: what the model said in the scored response is what one call said.

Witnesses that name calls with the same whole token sequence agree, whichever id is reported; witnesses that
contradict each other attribute nothing. Where none speaks, ``select_terminal_call`` may follow parent links.
Whether the attributed call's tokens may be trained is not decided here.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from gym_objstore.errors import Invalid
from gym_objstore.fingerprint import FINGERPRINT_VERSION, assistant_fingerprint
from gym_objstore.reasons import SelectionReason
from gym_objstore.wire_ledger import CallRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gym_objstore.records import TokenEntry

    Call = TokenEntry | CallRecord
    Named = tuple[str, Call]
    """A witness's method and the call it names."""


@dataclass(frozen=True, slots=True)
class TerminalAttribution:
    """The attributed call, or ``None``.

    ``method`` is the first agreeing witness: ``explicit``, ``declared``, ``response_id``, ``content`` for
    ledger rows, ``content_cumulative`` or ``content_output`` for entries, ``""`` if unattributed. ``reason``
    is the comma-separated trail of abstentions, corroboration or disagreement, kept on success too.
    """

    model_call_id: str | None
    method: str = ""
    reason: str = ""

    @property
    def attributed(self) -> bool:
        """Whether a call was named."""
        return self.model_call_id is not None


@dataclass(frozen=True, slots=True)
class TerminalSelection:
    """The call at the end of the parent links, or ``None`` and why."""

    terminal_model_call_id: str | None
    reason: SelectionReason


def resolve_terminal(
    calls: Sequence[TokenEntry] | Sequence[CallRecord],
    response: dict[str, Any] | None,
    explicit_call_id: str | None = None,
    *,
    declared_response_id: str | None = None,
) -> TerminalAttribution:
    """Attribute the scored response to one captured call. Malformed content makes a witness abstain; nothing raises.

    ``calls`` are a snapshot's entries or a manifest's rows.
    """
    testimonies: list[Named | str] = []
    if explicit_call_id:
        testimonies.append(_explicit(calls, explicit_call_id))
    if declared_response_id:
        declared = _declared(calls, declared_response_id)
        testimonies.append(declared)
        if isinstance(declared, str):
            return _unattributed(testimonies)
    if isinstance(response, dict):
        testimonies += [_response_id(calls, response), _content(calls, response)]
    else:
        testimonies.append("no_response_object")
    return _agreed(testimonies)


def select_terminal_call(rows: Sequence[CallRecord]) -> TerminalSelection:
    """Follow the parent links of a manifest to the one call at their end.

    Calls that were continued are preferred to their abandoned siblings. Among roots the earliest admitted
    is taken, then the first in the manifest; among continuations two candidates are ambiguous.
    """
    if not rows:
        return TerminalSelection(None, SelectionReason.NO_RECORDS)
    ids = {row.model_call_id for row in rows}
    if len(ids) != len(rows):
        return TerminalSelection(None, SelectionReason.DUPLICATE_CALL_ID)
    children: defaultdict[str | None, list[CallRecord]] = defaultdict(list)
    for row in rows:
        children[row.parent_call_id].append(row)
    if not children.keys() <= {None, *ids}:
        return TerminalSelection(None, SelectionReason.ORPHANED_ROW)
    if None not in children:
        return TerminalSelection(None, SelectionReason.NO_ROOT)
    return _descend(min(_continued(children, None), key=_admission), children)


def _explicit(calls: Sequence[Call], call_id: str) -> Named | str:
    named = {call.model_call_id: call for call in calls}.get(call_id)
    return "explicit_terminal_not_captured" if named is None else ("explicit", named)


def _declared(calls: Sequence[Call], response_id: str) -> Named | str:
    matches = [call for call in calls if call.response_id == response_id]
    if not matches:
        return "declared_terminal_not_captured"
    only = _only(matches)
    return "declared_ambiguous" if only is None else ("declared", only)


def _response_id(calls: Sequence[Call], response: dict[str, Any]) -> Named | str:
    response_id = str(response.get("id") or "")
    if not response_id:
        return "response_has_no_id"
    matches = [call for call in calls if call.response_id == response_id]
    if not matches:
        return "response_id_no_match"
    only = _only(matches)
    return "response_id_ambiguous" if only is None else ("response_id", only)


def _content(calls: Sequence[Call], response: dict[str, Any]) -> Named | str:
    output = response.get("output")
    if not isinstance(output, list) or not output:
        return "response_has_no_output"
    items = [item for item in output if isinstance(item, dict)]
    try:
        whole = assistant_fingerprint(items)
    except Invalid:
        return "response_output_unfingerprintable"
    if not whole:
        return "no_model_authored_output"
    return _said_by(calls, whole, _last_turn(items))


def _said_by(calls: Sequence[Call], whole: str, last_turn: str) -> Named | str:
    """Match a response's fingerprints: a whole transcript, one turn, or a transcript's last turn.

    A first call's transcript is its one turn, so these readings can name different calls: all are pooled
    before deciding.
    """
    fingerprints = [(call, *_fingerprints(call)) for call in calls]
    matches = {
        call.model_call_id: call
        for call, transcript, turn in fingerprints
        if transcript == whole or (turn and turn in (whole, last_turn))
    }
    only = _only(list(matches.values()))
    if only is None:
        return "content_ambiguous" if matches else "no_content_match"
    if isinstance(only, CallRecord):
        return "content", only
    cumulative = any(transcript == whole for _, transcript, _ in fingerprints)
    return "content_cumulative" if cumulative else "content_output", only


def _last_turn(items: list[dict[str, Any]]) -> str:
    """Return the fingerprint of the model-authored items at the end; ``""`` if there are none or only those."""
    # An item that is not the model's has no fingerprint of its own.
    turn = list(takewhile(lambda item: assistant_fingerprint([item]), reversed(items)))
    return assistant_fingerprint(turn[::-1]) if len(turn) < len(items) else ""


def _fingerprints(call: Call) -> tuple[str | None, str | None]:
    """Return a call's fingerprints with its request and of its own output, as far as they are comparable."""
    if isinstance(call, CallRecord):
        comparable = call.fingerprint_version == FINGERPRINT_VERSION
        return (call.continuation_fingerprint, call.output_fingerprint) if comparable else (None, None)
    comparable = call.fingerprint_version in (None, FINGERPRINT_VERSION)
    try:
        turn = assistant_fingerprint(list(call.output_items))
    except Invalid:
        turn = ""
    return call.continuation_fingerprint if comparable else None, turn


def _only(calls: Sequence[Call]) -> Call | None:
    """Return the call with the smallest id if all calls carry one and the same token sequence."""
    same = len({_sequence(call) for call in calls}) == 1
    return min(calls, key=lambda call: call.model_call_id) if same else None


def _sequence(call: Call) -> tuple[object, ...]:
    if isinstance(call, CallRecord):
        return call.cumulative_hash, call.chain_hash, call.cum_len
    if call.digest and call.cum_len is not None:
        return call.digest, call.cum_len
    return tuple(call.prompt_token_ids), tuple(call.generation_token_ids)


def _agreed(testimonies: list[Named | str]) -> TerminalAttribution:
    witnesses = [testimony for testimony in testimonies if not isinstance(testimony, str)]
    if not witnesses:
        return _unattributed(testimonies)
    if _only([call for _, call in witnesses]) is None:
        detail = ";".join(f"{method}={call.model_call_id}" for method, call in witnesses)
        return _unattributed([*testimonies, f"witness_disagreement[{detail}]"])
    (method, call), *others = witnesses
    if others:
        testimonies = [*testimonies, "corroborated_by=" + "+".join(other for other, _ in others)]
    return TerminalAttribution(call.model_call_id, method, _trail(testimonies))


def _unattributed(testimonies: list[Named | str]) -> TerminalAttribution:
    return TerminalAttribution(None, reason=_trail(testimonies))


def _trail(testimonies: list[Named | str]) -> str:
    return ",".join(testimony for testimony in testimonies if isinstance(testimony, str))


def _descend(call: CallRecord, children: defaultdict[str | None, list[CallRecord]]) -> TerminalSelection:
    while children[call.model_call_id]:
        call, *others = _continued(children, call.model_call_id)
        if others:
            return TerminalSelection(None, SelectionReason.AMBIGUOUS)
    return TerminalSelection(call.model_call_id, SelectionReason.SELECTED)


def _continued(children: defaultdict[str | None, list[CallRecord]], parent: str | None) -> list[CallRecord]:
    """Return the parent's children that have children themselves; all of its children if none has."""
    return [child for child in children[parent] if children[child.model_call_id]] or children[parent]


def _admission(row: CallRecord) -> float:
    return math.inf if row.admitted_at is None else row.admitted_at
