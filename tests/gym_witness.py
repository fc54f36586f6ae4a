# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Our sink and lineage store, noting in a local file which process stored a call and which one continued it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import gym_objstore_nemo_gym as ours

FILE_VARIABLE = "GYM_WITNESS_FILE"


class TokenSink(ours.TokenSink):
    async def put(self, entry: Any) -> None:
        await super().put(entry)
        _note("stored", entry.model_call_id)


class LineageStore(ours.LineageStore):
    async def resolve(self, rollout_id: str, request_items: Any) -> Any:
        found = await super().resolve(rollout_id, request_items)
        if found.match is not None:
            _note("continued", found.match.model_call_id)
        return found


def crossings(file: Path) -> int:
    """Return how often a process continued a call that another one had stored."""
    lines = [line.split() for line in file.read_text(encoding="utf-8").splitlines()]
    stored = {call: process for process, what, call in lines if what == "stored"}
    return sum(stored[call] != process for process, what, call in lines if what == "continued")


def _note(what: str, call: str) -> None:
    with Path(os.environ[FILE_VARIABLE]).open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()} {what} {call}\n")
