# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The processes of the first act: model servers store token entries, a trainer freezes and rebuilds them.

Turns of one rollout are served by different model servers, which hand it on through the bucket alone: a
server waits until it can resolve the parent that another one stored.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from gym_objstore.demo import script
from gym_objstore.digests import compute_digest
from gym_objstore.errors import Retired
from gym_objstore.records import LineageResolution, ParentResolutionStatus
from gym_objstore.sinks import LineageResolver, TokenSink, TokenSource
from gym_objstore.trajectories import rebuild

PATIENCE = 60.0
_PAUSE = 0.02


async def serve(url: str, run_id: str, server: str, servers: str) -> dict[str, Any]:
    """Serve this server's turns of every rollout at the same time, as a model server does."""
    sink, resolver = TokenSink(url, run_id), LineageResolver(url, run_id)
    mine = [
        (rollout, turn)
        for number, rollout in enumerate(script.ROLLOUTS)
        for turn in range(script.TURNS)
        if (number + turn) % int(servers) == int(server)
    ]
    outcomes = await asyncio.gather(*(_serve_turn(sink, resolver, rollout, turn) for rollout, turn in mine))
    await sink.close()
    await resolver.close()
    return {"stored": sum(outcomes)}


async def _serve_turn(sink: TokenSink, resolver: LineageResolver, rollout: str, turn: int) -> bool:
    parent = await parent_of(resolver, rollout, turn)
    await sink.begin_call(rollout, script.call_id(rollout, turn))
    entry = script.entry(rollout, turn, parent)
    last = turn == script.TURNS - 1
    if rollout == script.LOST and last:
        return False
    await sink.put(entry)
    if rollout == script.CONFLICT and last:
        entry.generation_log_probs[0] = -9.0
        await sink.put(entry)
    return True


async def parent_of(resolver: LineageResolver, rollout: str, turn: int) -> LineageResolution:
    """Return the resolution of a turn's request, once the server before has stored what it continues."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found = await resolver.resolve(rollout, script.request(rollout, turn))
        if found.status != ParentResolutionStatus.UNRESOLVED or time.monotonic() > deadline:
            return found
        await asyncio.sleep(_PAUSE)


async def train(url: str, run_id: str) -> dict[str, Any]:
    """Freeze, verify, rebuild and retire every rollout that may be trained; say why the others may not."""
    source = TokenSource(url, run_id)
    verdicts = await asyncio.gather(*(_train_one(source, rollout) for rollout in script.ROLLOUTS))
    await source.close()
    return {"rollouts": verdicts}


async def _train_one(source: TokenSource, rollout: str) -> dict[str, Any]:
    snapshot = await source.freeze(rollout)
    rebuilt = rebuild(snapshot.entries)
    reasons = [f"{one.kind} {one.model_call_id}".strip() for one in snapshot.problems]
    reasons += [f"{reason} {call}" for call, reason in rebuilt.unplaced.items()]
    verdict: dict[str, Any] = {"rollout": rollout, "calls": len(snapshot.entries), "reasons": reasons}
    if reasons or len(rebuilt.trajectories) != 1:
        return {**verdict, "trained": False, "retired": False}
    (trajectory,) = rebuilt.trajectories
    dropped = await source.drop(rollout, snapshot_id=snapshot.snapshot_id, version=snapshot.version)
    return {
        **verdict,
        "trained": True,
        "retired": dropped,
        "tokens": len(trajectory.token_ids),
        "generated": sum(trajectory.mask),
        "digest": compute_digest(trajectory.token_ids),
    }


async def come_late(url: str, run_id: str, rollout: str) -> dict[str, Any]:
    """Write to a rollout that was retired, as an agent that was given up on does."""
    sink, source = TokenSink(url, run_id), TokenSource(url, run_id)
    answers = {}
    for name, attempt in {
        "put": sink.put(script.entry(rollout, 0, script.root())),
        "freeze": source.freeze(rollout),
    }.items():
        try:
            await attempt
            answers[name] = "accepted"
        except Retired:
            answers[name] = "refused"
    await sink.close()
    await source.close()
    return answers
