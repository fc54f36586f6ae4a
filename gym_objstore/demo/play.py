# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The plot of the demonstration and its verdict."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from gym_objstore.demo import script
from gym_objstore.demo.roles import PATIENCE, SERVERS
from gym_objstore.errors import Unusable
from gym_objstore.flow import get, put, run
from gym_objstore.index import read_index
from gym_objstore.keys import entry_key, rollout_prefix
from gym_objstore.tokens import FAMILY

if TYPE_CHECKING:
    from gym_objstore.store import Store

EXPECTED_REASONS = {
    script.LOST: [f"dangling_intent {script.call_id(script.LOST, script.TURNS - 1)}"],
    script.CONFLICT: [f"conflict {script.call_id(script.CONFLICT, script.TURNS - 1)}"],
    script.DAMAGED: [f"corrupt {script.call_id(script.DAMAGED, script.TURNS - 1)}"],
}


class Ending(NamedTuple):
    """How it ended: the trainer's verdict on each rollout, the late writes, and every promise that was broken."""

    verdicts: list[dict[str, Any]]
    late: dict[str, str]
    broken: list[str]


def play(store: Store, url: str, run_id: str) -> Iterator[str | Ending]:
    """Play it, yielding a line before each act and the ending last."""
    yield f"{SERVERS} model servers capture {len(script.ROLLOUTS)} rollouts of {script.TURNS} calls each"
    servers = [_start("serve", url, run_id, str(number)) for number in range(SERVERS)]
    stored = sum(_result(server)["stored"] for server in servers)
    yield "somebody flips one byte of a stored object"
    _damage(store, run_id)
    yield "a trainer freezes, verifies, rebuilds and retires"
    verdicts = _result(_start("train", url, run_id))["rollouts"]
    yield "an agent that was given up on writes to a retired rollout"
    late = _result(_start("come_late", url, run_id, script.ROLLOUTS[0]))
    yield Ending(verdicts, late, list(_broken(stored, verdicts, late)))


def _start(*arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "gym_objstore.demo.roles", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _result(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    out, complaints = process.communicate(timeout=2 * PATIENCE)
    if process.returncode:
        raise Unusable(f"a process of the demonstration failed: {complaints.decode(errors='replace')}", kind="demo")
    found: dict[str, Any] = orjson.loads(out)
    return found


def _damage(store: Store, run_id: str) -> None:
    rollout = rollout_prefix(FAMILY, run_id, script.DAMAGED)
    (name,) = run(read_index(rollout), store).entries[script.call_id(script.DAMAGED, script.TURNS - 1)]
    key = entry_key(rollout, name)
    body = bytearray(run(get(key), store))
    body[len(body) // 2] ^= 1
    run(put(key, bytes(body)), store)


def _broken(stored: int, verdicts: list[dict[str, Any]], late: dict[str, str]) -> Iterator[str]:
    if stored != len(script.ROLLOUTS) * script.TURNS - 1:
        yield f"calls were not stored: {stored}"
    for verdict in verdicts:
        rollout, expected = verdict["rollout"], EXPECTED_REASONS.get(verdict["rollout"], [])
        if verdict["reasons"] != expected:
            yield f"{rollout} is masked for {verdict['reasons']}, expected {expected}"
        if not expected and (not verdict["retired"] or verdict["digest"] != script.digest(rollout)):
            yield f"{rollout} was not trained on exactly what was generated, or not retired"
    for attempt, answer in late.items():
        if answer != "refused":
            yield f"a late {attempt} was {answer}"
