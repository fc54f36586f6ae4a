# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The laws of lineage: a parent is proven or not named. Each docstring is the promise; see ``conformance``."""

from __future__ import annotations

from typing import Any

from gym_objstore.digests import compute_digest
from gym_objstore.records import ParentResolutionStatus
from gym_objstore.stamps import stamp_continuation, stamp_lineage
from gym_objstore.testing.token_laws import QUESTION, make_entry
from gym_objstore.testing.trials import Trial, law, require


def continuation(entry: Any) -> list[dict[str, Any]]:
    """Return the request that continues an entry's call."""
    return [*QUESTION, *entry.output_items, {"role": "user", "content": "And tomorrow?"}]


@law
async def a_conflicting_call_is_no_parent(trial: Trial) -> None:
    """A call with two payloads is no candidate for lineage."""
    resolver, entry = trial.resolver(), make_entry(trial, "c1")
    await trial.sink().put(entry)
    if not await trial.refuses(trial.sink().put(make_entry(trial, "c1", created_at=1.0))):
        resolution = await resolver.resolve(trial.rollout_id, continuation(entry))
        require(resolution.status == "unresolved", f"resolved to a call with two payloads: {resolution}")


@law
async def a_faithful_continuation_resolves(trial: Trial) -> None:
    """Once put returned, every resolver proves the parent and returns its exact tokens."""
    early, entry = trial.resolver(), make_entry(trial, "c1")
    await trial.sink().put(entry)
    for resolver in (early, trial.resolver()):
        resolution = await resolver.resolve(trial.rollout_id, continuation(entry))
        require(resolution.status == "resolved", f"not resolved: {resolution}")
        require(resolution.match.model_call_id == "c1", "the wrong parent")
        require(list(resolution.match.cumulative_token_ids) == [11, 12, 13, 14], "the wrong tokens")


@law
async def roots_and_rewritten_histories_are_told_apart(trial: Trial) -> None:
    """No model-authored history is a root; a rewritten context is unresolved."""
    resolver, entry = trial.resolver(), make_entry(trial, "c1")
    await trial.sink().put(entry)
    root = await resolver.resolve(trial.rollout_id, [{"role": "user", "content": "hello"}])
    rewritten = await resolver.resolve(trial.rollout_id, [{"role": "user", "content": "SUMMARY"}, *entry.output_items])
    require((root.status, rewritten.status) == ("root", "unresolved"), f"{root.status}, {rewritten.status}")


@law
async def identical_siblings_collapse_and_different_ones_are_ambiguous(trial: Trial) -> None:
    """Retries with equal tokens are one parent, the smallest id; with different tokens there is none."""
    sink, resolver, entry = trial.sink(), trial.resolver(), make_entry(trial, "c2")
    await sink.put(entry)
    await sink.put(make_entry(trial, "c1"))
    resolution = await resolver.resolve(trial.rollout_id, continuation(entry))
    require(resolution.status == "resolved" and resolution.match.model_call_id == "c1", f"{resolution}")
    await sink.put(make_entry(trial, "c3", generation_token_ids=[13, 99]))
    require((await resolver.resolve(trial.rollout_id, continuation(entry))).status == "unresolved", "a guess")


@law
async def a_delta_is_continued_with_its_whole_sequence(trial: Trial) -> None:
    """A record that stores only its prompt's new part resolves to the full sequence, in a fresh resolver."""
    sink, root = trial.sink(), make_entry(trial, "c1")
    await sink.put(root)
    request = continuation(root)
    delta = make_entry(trial, "c2", text="Rain.", prompt_token_ids=[20], prompt_is_delta=False)
    delta.prompt_is_delta = True
    stamp_continuation(delta, request)
    cumulative = [11, 12, 13, 14, 20, 13, 14]
    stamp_lineage(delta, "c1", parent_resolution=ParentResolutionStatus.RESOLVED, cumulative=cumulative)
    await sink.put(delta)
    again = [*request, *delta.output_items, {"role": "user", "content": "Thanks."}]
    resolution = await trial.resolver().resolve(trial.rollout_id, again)
    require(resolution.status == "resolved", f"not resolved: {resolution}")
    require(list(resolution.match.cumulative_token_ids) == cumulative, "the wrong sequence")
    require(resolution.match.digest == compute_digest(cumulative), "the wrong digest")
