# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The processes of the second act: inference workers stage rows, model servers keep the ledger, a trainer reads both.

A model server reaches its worker as it would over HTTP: an admission goes there, coordinates come back. All else
that these processes know of each other's rollouts they know from the bucket.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from gym_objstore.admission import Refusal, admission_for
from gym_objstore.client import TrainerClient
from gym_objstore.commit import COORDINATES, commit_of
from gym_objstore.demo import script
from gym_objstore.demo.token_roles import parent_of
from gym_objstore.digests import compute_digest, sha256_hex
from gym_objstore.errors import Retired, Unusable
from gym_objstore.flow import scan
from gym_objstore.keys import rollout_prefix, tombstone_key
from gym_objstore.ledger import FAMILY
from gym_objstore.ledgers import CaptureLedger
from gym_objstore.receipts import build_receipt, terminal_chain
from gym_objstore.receipts_reading import Masked, Trainable
from gym_objstore.rollout_capture import RolloutTokenCapture
from gym_objstore.staging_sinks import StagingSink, StagingSource

if TYPE_CHECKING:
    from gym_objstore.wire_staging import CaptureAdmission

T = TypeVar("T")

CHECKPOINT = "step-1"


class Worker:
    """An inference worker: it says what the script says, behind the exact prefix that the bucket gives it."""

    def __init__(self, url: str, run_id: str) -> None:
        self._source = StagingSource(url, run_id)
        self._capture = RolloutTokenCapture(sink=StagingSink(url, run_id), weight_version_fn=lambda: 7)

    def complete(self, admission: CaptureAdmission, turn: int) -> dict[str, Any]:
        """Generate a turn, stage its row with an attachment, and return the coordinates."""
        rollout, chain = admission.rollout_id, admission.staging_chain
        prefix = self._source.prefix(chain, parent_chain_hash=admission.parent_chain_hash) if chain else []
        generated = script.tokens(script.answer(rollout, turn))
        coords = self._capture.complete_call(
            self._capture.begin_call(admission, prefix_token_ids=prefix),
            prompt_token_ids=[*prefix, *script.sequence(rollout, turn)[len(prefix) : -len(generated)]],
            generated_token_ids=generated,
            generated_logprobs=script.log_probs(generated),
            attachments={"routed_experts": script.experts(rollout, turn)},
        )
        return coords.model_dump(mode="json")


@cache
def _worker(url: str, run_id: str) -> Worker:
    """Return this process's worker."""
    return Worker(url, run_id)


def _complete(url: str, run_id: str, admission: CaptureAdmission, turn: int) -> dict[str, Any]:
    return _worker(url, run_id).complete(admission, turn)


async def _completed_by(
    executor: Executor, url: str, run_id: str, admission: CaptureAdmission, turn: int
) -> dict[str, Any]:
    return await asyncio.get_running_loop().run_in_executor(executor, _complete, url, run_id, admission, turn)


class ModelServer(NamedTuple):
    """A model server: it keeps the ledger and has a worker complete what it admits."""

    ledger: CaptureLedger
    complete: Callable[[CaptureAdmission, int], Awaitable[dict[str, Any]]]

    async def serve_turn(self, rollout: str, turn: int) -> None:
        """Admit a turn once its parent is on record, have it generated and staged, and record it."""
        parent, began = await parent_of(self.ledger, rollout, turn), time.time()
        call, response = script.call_id(rollout, turn), script.response(rollout, turn)
        admission = _given(admission_for(rollout, call, resolution=parent, has_rows=True))
        answer = {**response, COORDINATES: await self.complete(admission, turn)}
        request = script.request(rollout, turn)
        commit = commit_of(admission, answer, served=response, request_items=request, admitted_at=began)
        await self.ledger.record(_given(commit))


def _given(answer: T | Refusal) -> T:
    if isinstance(answer, Refusal):
        raise Unusable(f"a call was not captured: {answer.why}", kind=answer.reason)
    return answer


async def serve(url: str, run_id: str, server: str, servers: str) -> dict[str, Any]:
    """Serve this server's turns of every staged rollout at the same time."""
    mine = [
        (rollout, turn)
        for number, rollout in enumerate(script.STAGED)
        for turn in range(script.TURNS)
        if (number + turn) % int(servers) == int(server)
    ]
    ledger = CaptureLedger(url, run_id)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as worker:
        served = ModelServer(ledger, partial(_completed_by, worker, url, run_id))
        await asyncio.gather(*(served.serve_turn(*one) for one in mine))
    await ledger.close()
    return {"stored": len(mine)}


async def train(url: str, run_id: str) -> dict[str, Any]:
    """Publish a receipt for every manifest, read what may be trained, consume it into a checkpoint and retire it."""
    ledger, client, source = CaptureLedger(url, run_id), TrainerClient(url, run_id), StagingSource(url, run_id)
    for manifest in await asyncio.gather(*map(ledger.manifest, script.STAGED)):
        scored = script.response(manifest["rollout_id"], script.TURNS - 1)
        await client.publish(build_receipt(manifest, 1.0, response=scored))
    outcomes = await client.read(script.STAGED)
    verdicts = [await _verdict(source, one) for one in outcomes]
    await client.mark_consumed([one["rollout"] for one in verdicts if one["trained"]], CHECKPOINT)
    removal = await client.retire_consumed([CHECKPOINT])
    for component in (ledger, client, source):
        await component.close()
    return {"rollouts": [{**one, "retired": one["rollout"] in removal.removed} for one in verdicts]}


async def _verdict(source: StagingSource, outcome: Trainable | Masked) -> dict[str, Any]:
    verdict: dict[str, Any] = {"rollout": outcome.rollout_id, "calls": script.TURNS, "trained": False}
    if isinstance(outcome, Masked):
        return {**verdict, "reasons": [outcome.code]}
    calls = terminal_chain(outcome.receipt)
    attached = [await source.load_attachments_async(one.staging_key) for one in calls]
    return {
        **verdict,
        "reasons": [],
        "trained": True,
        "tokens": len(outcome.row.token_ids),
        "generated": int(sum(outcome.row.token_mask)),
        "digest": compute_digest(outcome.row.token_ids),
        "attached": sha256_hex(b"".join(bytes(one["routed_experts"]) for one in attached)),
    }


async def come_late(url: str, run_id: str, rollout: str) -> dict[str, Any]:
    """Stage and record a call of a rollout that was retired, as a server does that was cut off for a while."""
    ledger = CaptureLedger(url, run_id)
    try:
        await ledger.has_rows(rollout)
        admitted = "accepted"
    except Retired:
        admitted = "refused"
    with ThreadPoolExecutor(1) as worker:
        await ModelServer(ledger, partial(_completed_by, worker, url, run_id)).serve_turn(rollout, 0)
    prefix = rollout_prefix(FAMILY, run_id, rollout)
    left = await ledger.connection.play(scan(prefix))
    await ledger.close()
    discarded = [meta.key for meta in left] == [tombstone_key(prefix)]
    return {"admission": admitted, "record": "refused" if discarded else "accepted"}
