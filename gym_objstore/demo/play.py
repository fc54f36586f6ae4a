# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The plot of the demonstration and its verdict."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from gym_objstore import staging, tokens
from gym_objstore.demo import script
from gym_objstore.errors import Unusable
from gym_objstore.flow import get, put, run, scan
from gym_objstore.index import read_index
from gym_objstore.keys import entry_key, rollout_prefix
from gym_objstore.ledger import manifest
from gym_objstore.staged_rows import pack
from gym_objstore.store import joined
from gym_objstore.wire_staging import StagedCallRecord

if TYPE_CHECKING:
    from gym_objstore.store import Store

SERVERS = 3
WORKERS = 2
PATIENCE = 120.0
"""How long one process may take, in seconds."""

EXPECTED_REASONS = {
    script.LOST: [f"dangling_intent {script.call_id(script.LOST, script.TURNS - 1)}"],
    script.CONFLICT: [f"conflict {script.call_id(script.CONFLICT, script.TURNS - 1)}"],
    script.DAMAGED: [f"corrupt {script.call_id(script.DAMAGED, script.TURNS - 1)}"],
    script.FORGED: ["corrupt"],
}


class Ending(NamedTuple):
    """How it ended: the trainer's verdict on each rollout, the late writes, and every promise that was broken."""

    verdicts: list[dict[str, Any]]
    late: dict[str, str]
    broken: list[str]


def play(store: Store, url: str, run_id: str) -> Iterator[str | Ending]:
    """Play it, yielding a line before each scene and the ending last."""
    first = yield from _entries(store, url, run_id)
    second = yield from _staging(store, url, run_id)
    yield Ending(first.verdicts + second.verdicts, first.late | second.late, first.broken + second.broken)


def _entries(store: Store, url: str, run_id: str) -> Generator[str, None, Ending]:
    """Play the first act: model servers that have the tokens themselves store them as entries."""
    yield f"{SERVERS} model servers capture {len(script.ROLLOUTS)} rollouts of {script.TURNS} calls each"
    stored = _stored("token", SERVERS, url, run_id)
    yield "somebody flips one byte of a stored object"
    _damage(store, run_id)
    yield "a trainer freezes, verifies, rebuilds and retires"
    verdicts = _result(_start("token", "train", url, run_id))["rollouts"]
    yield "an agent that was given up on writes to a retired rollout"
    late = _result(_start("token", "come_late", url, run_id, script.ROLLOUTS[0]))
    lost = len(script.ROLLOUTS) * script.TURNS - stored
    # The script loses one of them.
    return Ending(verdicts, late, list(_broken(lost - 1, verdicts, late)))


def _staging(store: Store, url: str, run_id: str) -> Generator[str, None, Ending]:
    """Play the second act: inference workers stage the tokens, and model servers see coordinates only."""
    yield f"{WORKERS} inference workers stage {len(script.STAGED)} rollouts, {WORKERS} model servers keep the ledger"
    stored = _stored("staging", WORKERS, url, run_id)
    yield "somebody puts a sealed row of other tokens in a staged row's place"
    _forge(store, run_id)
    yield "a trainer reads manifests, publishes receipts, verifies, linearizes, and retires what its checkpoint has"
    verdicts = _result(_start("staging", "train", url, run_id))["rollouts"]
    yield "a worker and a model server that were cut off go on with a retired rollout"
    late = _result(_start("staging", "come_late", url, run_id, script.STAGED[0]))
    lost = len(script.STAGED) * script.TURNS - stored
    return Ending(verdicts, late, list(_broken(lost, verdicts, late)))


def _stored(act: str, servers: int, url: str, run_id: str) -> int:
    """Have an act's model servers play their parts at the same time, and return how many calls they stored."""
    started = [_start(act, "serve", url, run_id, str(number), str(servers)) for number in range(servers)]
    return sum(_result(server)["stored"] for server in started)


def _start(*arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "gym_objstore.demo.roles", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _result(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    out, complaints = process.communicate(timeout=PATIENCE)
    if process.returncode:
        raise Unusable(f"a process of the demonstration failed: {complaints.decode(errors='replace')}", kind="demo")
    found: dict[str, Any] = orjson.loads(out)
    return found


def _damage(store: Store, run_id: str) -> None:
    rollout = rollout_prefix(tokens.FAMILY, run_id, script.DAMAGED)
    (name,) = run(read_index(rollout), store).entries[script.call_id(script.DAMAGED, script.TURNS - 1)]
    key = entry_key(rollout, name)
    body = bytearray(run(get(key), store))
    body[len(body) // 2] ^= 1
    run(put(key, bytes(body)), store)


def _forge(store: Store, run_id: str) -> None:
    """Replace a row by one that differs in a token and is just as well sealed, which its key does not promise."""
    named = run(manifest(run_id, script.FORGED), store).records[-1].staging_key
    (genuine,) = run(staging.fetch(run_id, [named]), store)
    other = (genuine.token_ids_delta[0] + 1, *genuine.token_ids_delta[1:])
    kept = {name: value for name, value in genuine if name not in {"digest", "extras_digest"}}
    forged = StagedCallRecord.seal(**{**kept, "token_ids_delta": other, "extras": None})
    listed = run(scan(rollout_prefix(staging.FAMILY, run_id, script.FORGED)), store)
    (key,) = (meta.key for meta in listed if meta.key.endswith(named.partition("/")[2]))
    run(put(key, joined(pack(forged, None).body)), store)


def _broken(lost: int, verdicts: list[dict[str, Any]], late: dict[str, str]) -> Iterator[str]:
    if lost:
        yield f"not every call was stored exactly once, lost={lost}"
    for verdict in verdicts:
        rollout, expected = verdict["rollout"], EXPECTED_REASONS.get(verdict["rollout"], [])
        if verdict["reasons"] != expected:
            yield f"{rollout} is masked for {verdict['reasons']}, expected {expected}"
        if not expected and (not verdict["retired"] or verdict["digest"] != script.digest(rollout)):
            yield f"{rollout} was not trained on exactly what was generated, or not retired"
        if "attached" in verdict and verdict["attached"] != script.attached(rollout):
            yield f"the attachments of {rollout} are not what was staged"
    for attempt, answer in late.items():
        if answer != "refused":
            yield f"a late {attempt} was {answer}"
