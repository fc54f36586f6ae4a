# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The token path as Gym's YAML names it: ours underneath, Gym's own records, matcher and errors outside."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import gym_objstore
from gym_objstore.errors import Retired
from gym_objstore_nemo_gym.captures import Capturing
from gym_objstore_nemo_gym.shim import retired_error, symbol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gym_objstore.lineage import Items, Parent
    from gym_objstore.records import LineageResolution, TokenEntry


class GymMatcher:
    """Gym's ``RolloutLineage`` over candidates from a bucket."""

    def fingerprint(self, items: Items) -> str:
        """Return Gym's fingerprint of the model-authored items."""
        found: str = symbol("fingerprint", "assistant_fingerprint")(items)
        return found

    def choose(self, candidates: Sequence[Parent], items: Items) -> tuple[Parent | None, str]:
        """Return the parent that Gym's matcher proves, or None and its reason."""
        lineage, node = symbol("lineage", "RolloutLineage")(), symbol("lineage", "LineageNode")
        version = symbol("fingerprint", "FINGERPRINT_VERSION")
        for one in candidates:
            if one.fingerprint_version not in (None, version):
                continue
            lineage.by_fingerprint.setdefault(one.fingerprint, []).append(one.model_call_id)
            lineage.by_call_id[one.model_call_id] = node(
                call_id=one.model_call_id,
                cum_tokens=None,
                cum_len=one.cum_len,
                digest=one.digest,
                context_len=one.context_len,
                context_digest=one.context_digest,
                parent_call_id=one.parent_call_id,
                prompt_is_delta=one.prompt_is_delta,
            )
        _, chosen, reason = lineage.resolve_node(items)
        by_id = {one.model_call_id: one for one in candidates}
        return (by_id[chosen.call_id], "") if chosen is not None else (None, reason)


class TokenSink(Capturing, gym_objstore.TokenSink):
    """A Gym ``TokenSink`` into a bucket. It takes Gym's ``TokenEntry`` as it is; the promises are the parent's."""

    async def put(self, entry: Any) -> None:
        """Store one call's entry; see ``gym_objstore.TokenSink.put``. Raises Gym's retired error where it has one."""
        with _gym_errors():
            await super().put(entry)

    async def begin_call(self, rollout_id: str, model_call_id: str) -> None:
        """Record that a call is about to generate; see ``gym_objstore.TokenSink.begin_call``."""
        with _gym_errors():
            await super().begin_call(rollout_id, model_call_id)


class TokenSource(Capturing, gym_objstore.TokenSource):
    """A Gym ``TokenSource`` over a bucket, for ``install_token_source`` in the collector or trainer."""

    async def freeze(self, rollout_id: str) -> Any:
        """Return Gym's ``TokenCaptureSnapshot`` with Gym's entries; see ``gym_objstore.TokenSource.freeze``."""
        with _gym_errors():
            found = await super().freeze(rollout_id)
        return symbol("protocols", "TokenCaptureSnapshot")(
            rollout_id=rollout_id,
            entries=await asyncio.to_thread(lambda: tuple(gym_entry(one) for one in found.entries)),
            incomplete=found.incomplete,
            snapshot_id=found.snapshot_id,
            version=found.version,
        )


class LineageStore(Capturing, gym_objstore.LineageResolver):
    """A Gym ``LineageResolver`` over the entries that ``TokenSink`` stores, deciding by Gym's own matcher."""

    matcher = GymMatcher()

    async def resolve(self, rollout_id: str, request_items: Items) -> Any:
        """Return Gym's ``LineageResolution``; see ``gym_objstore.LineageResolver.resolve``."""
        return gym_resolution(await super().resolve(rollout_id, request_items))


def gym_entry(entry: TokenEntry) -> Any:
    """Return Gym's ``TokenEntry`` for a verified one of ours, without validating it again."""
    values = dict(entry)
    if entry.parent_resolution is not None:
        values["parent_resolution"] = symbol("records", "ParentResolutionStatus")(str(entry.parent_resolution))
    return symbol("records", "TokenEntry").model_construct(set(values), **values)


def gym_resolution(found: LineageResolution) -> Any:
    """Return Gym's ``LineageResolution`` for ours."""
    match = found.match and symbol("protocols", "LineageMatch")(
        model_call_id=found.match.model_call_id,
        cumulative_token_ids=found.match.cumulative_token_ids,
        digest=found.match.digest,
        staging_chain=found.match.staging_chain,
        prev_len=found.match.prev_len,
        chain_hash=found.match.chain_hash,
    )
    status = symbol("records", "ParentResolutionStatus")(str(found.status))
    return symbol("protocols", "LineageResolution")(status, match=match, reason=found.reason)


@contextmanager
def _gym_errors() -> Iterator[None]:
    try:
        yield
    except Retired as error:
        theirs: Any = retired_error()
        raise theirs(error.message, kind=error.kind, key=error.key, hint=error.hint) from error
