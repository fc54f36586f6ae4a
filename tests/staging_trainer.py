# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The trainer process of the staging proof: it shares nothing with workers and model servers but the bucket.

``python -m tests.staging_trainer '<json>'`` with ``place``, the arguments of our components, and ``scored``, which
maps each finished rollout to the response that earned its reward. It reads the manifests, publishes receipts, reads
what may be trained in one batch, consumes it into a checkpoint, retires that, and prints what it found as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from gym_objstore import CaptureLedger, StagingSource, TrainerClient, build_receipt
from gym_objstore.receipts import terminal_chain
from gym_objstore.receipts_reading import Masked, Trainable

CHECKPOINT = "step-1"


async def train(place: dict[str, Any], scored: dict[str, str]) -> dict[str, Any]:
    """Return, by rollout, the sequence that was trained, or why it was masked, with the responses on record."""
    ledger, client, source = CaptureLedger(**place), TrainerClient(**place), StagingSource(**place)
    manifests = await asyncio.gather(*map(ledger.manifest, scored))
    receipts = [
        build_receipt(manifest, 1.0, declared_response_id=scored[manifest["rollout_id"]]) for manifest in manifests
    ]
    await asyncio.gather(*map(client.publish, receipts))
    outcomes = await client.read([one.rollout_id for one in receipts])
    found = dict(zip(scored, await asyncio.gather(*(_told(source, one) for one in outcomes)), strict=True))
    for manifest in manifests:
        found[manifest["rollout_id"]]["responses"] = [one["response_id"] for one in manifest["records"]]
    await client.mark_consumed([one.rollout_id for one in outcomes if isinstance(one, Trainable)], CHECKPOINT)
    await client.retire_consumed([CHECKPOINT])
    for component in (ledger, client, source):
        await component.close()
    return found


async def _told(source: StagingSource, outcome: Trainable | Masked) -> dict[str, Any]:
    if isinstance(outcome, Masked):
        return {"masked": outcome.code, "detail": outcome.detail}
    keys = [call.staging_key for call in terminal_chain(outcome.receipt)]
    attachments = await source.load_attachments_async(keys[-1])
    return {
        "keys": keys,
        "token_ids": outcome.row.token_ids,
        "mask": outcome.row.token_mask,
        "log_probs": outcome.row.logprobs,
        "note": bytes(attachments["note"]).decode(),
    }


if __name__ == "__main__":
    json.dump(asyncio.run(train(**json.loads(sys.argv[1]))), sys.stdout)
