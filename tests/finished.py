# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Finished rollouts as worker, model server and collector leave them in a store."""

from __future__ import annotations

from gym_objstore import ledger, staging
from gym_objstore.flow import run
from gym_objstore.receipts import build_receipt
from gym_objstore.receipts_published import publish
from gym_objstore.testing.staged_rollouts import ledger_row, staged_call
from gym_objstore.wire_ledger import CaptureLedgerCommit, RolloutReceipt

RUN = "run-1"


def stage_call(store, call, *, after=(), rollout_id="rollout-1", run_id=RUN, **fields):
    """Stage one call; return its record and its staging key."""
    record = staged_call(call, after=after, rollout_id=rollout_id, **fields)
    return record, run(staging.stage(run_id, record), store).key.text


def commit_of(record, staging_key, **fields) -> CaptureLedgerCommit:
    return CaptureLedgerCommit(
        rollout_id=record.rollout_id,
        record=ledger_row(record, staging_key=staging_key, admitted_at=1.0, **fields),
        staging_chain=(staging_key,),
        request_items=(),
        response_items=(),
    )


def record_calls(store, rollout_id="rollout-1", calls=2, run_id=RUN) -> list[str]:
    """Stage and record a chain of calls ``c0``, ``c1`` ...; return their staging keys."""
    chain, keys = [], []
    for number in range(calls):
        fields = {"prompt": (number, 12), "generated": (21, 100 + number)}
        record, key = stage_call(store, f"c{number}", after=chain, rollout_id=rollout_id, run_id=run_id, **fields)
        run(ledger.record(run_id, commit_of(record, key)), store)
        chain.append(record)
        keys.append(key)
    return keys


def receipt_for(store, rollout_id="rollout-1", reward=1.0, run_id=RUN, **evidence) -> RolloutReceipt:
    return build_receipt(run(ledger.manifest(run_id, rollout_id), store), reward, **evidence)


def finish(store, rollout_id="rollout-1", calls=2, reward=1.0, run_id=RUN) -> list[str]:
    """Stage, record and publish a rollout; return its staging keys."""
    keys = record_calls(store, rollout_id, calls, run_id)
    run(publish(run_id, receipt_for(store, rollout_id, reward, run_id)), store)
    return keys
