# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""From the entries of one snapshot to the token sequences a trainer learns from.

Every link between two calls is proven by digest, none is guessed. A call that cannot be placed is
reported and never part of a sequence. With nemo-gym installed its own builder reads the same entries.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from gym_objstore.digests import compute_digest
from gym_objstore.records import ParentResolutionStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gym_objstore.records import TokenEntry


class Trajectory(NamedTuple):
    """One path of calls from a root to a call that nothing continues.

    ``token_ids``, ``mask`` and ``log_probs`` have the same length: mask 1 and the sampling log
    probability where the policy generated the token, mask 0 and 0.0 where it was prompted.
    """

    model_call_ids: tuple[str, ...]
    token_ids: tuple[int, ...]
    mask: tuple[int, ...]
    log_probs: tuple[float, ...]


class Rebuilt(NamedTuple):
    """The sequences of a rollout, longest first, and each call that has no proven place with the reason."""

    trajectories: tuple[Trajectory, ...]
    unplaced: dict[str, str]


@dataclass(slots=True)
class _Call:
    entry: TokenEntry
    prompt: list[int] | None = None
    refused: str = ""
    parent: _Call | None = None
    continued: bool = False


@dataclass(slots=True)
class _Sequence:
    calls: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)

    def add(self, call: _Call) -> None:
        """Append what one call adds: the prompt's new part, then the generation."""
        added = (call.prompt or [])[len(self.token_ids) :]
        generated = call.entry.generation_token_ids
        self.calls.append(call.entry.model_call_id)
        self.token_ids += [*added, *generated]
        self.mask += [0] * len(added) + [1] * len(generated)
        self.log_probs += [0.0] * len(added) + list(call.entry.generation_log_probs)

    def done(self) -> Trajectory:
        return Trajectory(tuple(self.calls), tuple(self.token_ids), tuple(self.mask), tuple(self.log_probs))


def rebuild(entries: Iterable[TokenEntry]) -> Rebuilt:
    """Return the sequences that the entries of one rollout prove, in any order of entries."""
    calls = {entry.model_call_id: _Call(entry) for entry in entries}
    for call in calls.values():
        _place(call, calls)
    placed = [call for call in calls.values() if not call.refused]
    for call in placed:
        if call.parent is not None:
            call.parent.continued = True
    found = [_sequence(call) for call in placed if not call.continued]
    found.sort(key=lambda one: (-len(one.token_ids), one.model_call_ids))
    return Rebuilt(tuple(found), {name: call.refused for name, call in calls.items() if call.refused})


def _place(call: _Call, calls: dict[str, _Call]) -> None:
    """Prove a call's place and those of its ancestors, without recursion: rollouts can be thousands deep."""
    path: list[_Call] = []
    seen: set[int] = set()
    current: _Call | None = call
    while current is not None and current.prompt is None and not current.refused:
        if id(current) in seen:
            current.refused = "cycle"
            break
        seen.add(id(current))
        path.append(current)
        current = calls.get(current.entry.parent_call_id or "")
    for one in reversed(path):
        if not one.refused:
            _prove(one, calls.get(one.entry.parent_call_id or ""))


def _prove(call: _Call, parent: _Call | None) -> None:
    entry = call.entry
    if entry.parent_resolution == ParentResolutionStatus.ROOT:
        call.prompt = list(entry.prompt_token_ids)
    elif entry.parent_resolution != ParentResolutionStatus.RESOLVED:
        call.refused = "unresolved_parent"
    elif parent is None:
        call.refused = "missing_parent"
    elif parent.refused or parent.prompt is None:
        call.refused = "parent_refused"
    else:
        _continue(call, parent)
    if not call.refused and entry.digest and compute_digest(_cumulative(call)) != entry.digest:
        call.refused = "digest_mismatch"


def _continue(call: _Call, parent: _Call) -> None:
    before = _cumulative(parent)
    own = list(call.entry.prompt_token_ids)
    prompt = before + own if call.entry.prompt_is_delta else own
    if prompt[: len(before)] != before:
        call.refused = "not_a_continuation"
        return
    call.prompt, call.parent = prompt, parent


def _cumulative(call: _Call) -> list[int]:
    return [*(call.prompt or ()), *call.entry.generation_token_ids]


def _sequence(leaf: _Call) -> Trajectory:
    path = [leaf]
    while (parent := path[-1].parent) is not None:
        path.append(parent)
    sequence = _Sequence()
    for call in reversed(path):
        sequence.add(call)
    return sequence.done()
