# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Folders with Gym's files, written by nemo-gym's own stores."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
from nemo_gym.token_id_capture.lineage import FileLineageStore
from nemo_gym.token_id_capture.records import TokenEntry
from nemo_gym.token_id_capture.staging.records import CaptureLedgerCommit
from nemo_gym.token_id_capture.store import TokenCaptureStore

from gym_objstore.fingerprint import FINGERPRINT_VERSION
from gym_objstore.testing.staged_rollouts import ledger_row, staged_call
from tests.entries import QUESTION, answer, make_chain


def exchange(call: str, completed_at: float | None, **fields: Any) -> dict[str, Any]:
    """Return one raw capture."""
    return {"model_call_id": call, "dialect": "chat", "completed_at": completed_at, "status_code": 200, **fields}


def capture_file(folder: Path, rollout: str, *lines: dict[str, Any] | bytes, end: bytes = b"\n") -> Path:
    """Write captures as nemo-gym does; bytes are lines as they are."""
    path = folder / f"{rollout}.capture.jsonl"
    path.write_bytes(b"\n".join(line if isinstance(line, bytes) else orjson.dumps(line) for line in lines) + end)
    return path


def token_files(folder: Path, rollout: str, turns: int = 3, *, intents: bool = True) -> TokenCaptureStore:
    """Let nemo-gym's store write a chain of entries."""
    store = TokenCaptureStore(folder)
    for turn, ours in enumerate(make_chain(rollout, turns)):
        entry = TokenEntry.model_validate({**ours.model_dump(mode="json"), "created_at": float(turn)})
        if intents:
            asyncio.run(store.begin_call(rollout, entry.model_call_id))
        asyncio.run(store.put(entry))
    return store


def commit(rollout: str, call: str, *, after: Any = (), text: str = "hi", **fields: Any) -> CaptureLedgerCommit:
    """Return nemo-gym's commit of a staged call."""
    row = ledger_row(
        staged_call(call, after=after), **{"admitted_at": 1.5, "fingerprint_version": FINGERPRINT_VERSION, **fields}
    )
    said = {"record": row.model_dump(mode="json"), "staging_chain": ["k1"], "rollout_id": rollout}
    return CaptureLedgerCommit.model_validate(
        {**said, "schema_version": 2, "request_items": QUESTION, "response_items": answer(text)}
    )


def ledger_file(folder: Path, rollout: str) -> FileLineageStore:
    """Let nemo-gym's store write a ledger of two calls and a failure."""
    store = FileLineageStore(folder)
    asyncio.run(store.record(commit(rollout, "c1")))
    asyncio.run(store.record(commit(rollout, "c2", text="ho", admitted_at=2.5)))
    asyncio.run(store.record_failure(rollout, "c3", "worker_capture_failed"))
    return store


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file of a folder."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
