# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Fill in the fields of a token entry that say where its call stands in the rollout.

Each function changes the entry it is given and returns it, after every check has passed. nemo-gym's own class of
entry is taken as well as ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from gym_objstore.digests import compute_digest
from gym_objstore.errors import Invalid
from gym_objstore.fingerprint import FINGERPRINT_VERSION, assistant_fingerprint, conversation_digest
from gym_objstore.records import require_parent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gym_objstore.records import ParentResolutionStatus


class Stampable(Protocol):
    """The fields of a token entry that stamping reads and writes."""

    model_call_id: str
    prompt_token_ids: list[int]
    generation_token_ids: list[int]
    prompt_is_delta: bool
    output_items: list[dict[Any, Any]]
    parent_call_id: str | None
    parent_resolution: Any
    cum_len: int | None
    digest: str | None
    continuation_fingerprint: str
    continuation_context_len: int
    continuation_context_digest: str
    fingerprint_version: int | None


Entry = TypeVar("Entry", bound=Stampable)


def cumulative_tokens(entry: Stampable) -> list[int]:
    """Return the whole sequence of a call, with which every child's prompt begins.

    Raises ``Invalid`` for a delta, whose sequence begins in its parent.
    """
    if entry.prompt_is_delta:
        reason = f"the call stores only the end of its prompt, model_call_id={entry.model_call_id!r}"
        raise Invalid(reason, kind="delta", hint="rebuild it through its parents")
    return [*entry.prompt_token_ids, *entry.generation_token_ids]


def stamp_lineage(
    entry: Entry,
    parent_call_id: str | None,
    *,
    parent_resolution: ParentResolutionStatus | None = None,
    cumulative: Sequence[int] | None = None,
) -> Entry:
    """Fill in the parent, and the length and digest of the call's whole sequence.

    ``cumulative`` is that sequence; a delta needs it, other entries have it in themselves. Raises ``Invalid`` if it
    disagrees with the entry's own tokens, or the parent with the resolution.
    """
    require_parent(parent_resolution, parent_call_id)
    whole = cumulative_tokens(entry) if cumulative is None else list(cumulative)
    own = [*entry.prompt_token_ids, *entry.generation_token_ids]
    before = len(whole) - len(own)
    if whole[before:] != own or (before and not entry.prompt_is_delta):
        reason = f"the sequence does not end in the entry's own tokens, model_call_id={entry.model_call_id!r}"
        raise Invalid(reason, kind="bad_record")
    entry.digest = compute_digest(whole)
    entry.cum_len = len(whole)
    entry.parent_call_id = parent_call_id
    entry.parent_resolution = parent_resolution
    return entry


def stamp_continuation(entry: Entry, request_items: Sequence[dict[str, Any]]) -> Entry:
    """Fill in how a later request finds this call: the fingerprint up to its output, and its context.

    ``request_items`` are the messages of this call's request as the harness sent them. An entry without this stamp is
    no candidate for lineage. Raises ``Invalid`` for messages that cannot be hashed.
    """
    context = list(request_items)
    fingerprint = assistant_fingerprint([*context, *entry.output_items])
    context_digest = conversation_digest(context)
    entry.continuation_fingerprint = fingerprint
    entry.continuation_context_len = len(context)
    entry.continuation_context_digest = context_digest
    entry.fingerprint_version = FINGERPRINT_VERSION
    return entry
