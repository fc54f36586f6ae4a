# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What is said in the demonstration.

Everything follows from the rollout and the turn, so that the trainer can say what it must find without
having been told.
"""

from __future__ import annotations

import json
import zlib
from functools import cache
from typing import Any

from gym_objstore.digests import compute_digest, sha256_hex
from gym_objstore.records import LineageResolution, ParentResolutionStatus, TokenEntry
from gym_objstore.stamps import stamp_continuation, stamp_lineage

TURNS = 4
ROLLOUTS = tuple(f"{number}-0" for number in range(9))
LOST, CONFLICT, DAMAGED = ROLLOUTS[2], ROLLOUTS[4], ROLLOUTS[6]
"""The rollouts that something happens to: a call is lost, a call id is used twice, a stored byte is flipped."""

STAGED = tuple(f"{number}-0" for number in range(9, 15))
FORGED = STAGED[2]
"""The rollouts of the second act, and the one of which somebody replaces a staged row."""

CITIES = ("Paris", "Lagos", "Lima", "Oslo", "Osaka", "Quito", "Tunis", "Turin", "Wuhan")


def call_id(rollout_id: str, turn: int) -> str:
    """Return the id of the call that a turn makes."""
    return f"call-{rollout_id}-{turn}"


def request(rollout_id: str, turn: int) -> list[dict[str, Any]]:
    """Return the conversation up to a turn: a question, then each tool call with its result."""
    city = CITIES[int(rollout_id.partition("-")[0]) % len(CITIES)]
    items: list[dict[str, Any]] = [{"role": "user", "content": f"Is it warmer in {city} than yesterday?"}]
    for before in range(turn):
        items += [answer(rollout_id, before), _tool_result(rollout_id, before)]
    return items


def answer(rollout_id: str, turn: int) -> dict[str, Any]:
    """Return what the model says in a turn: tool calls, and at last a message."""
    if turn == TURNS - 1:
        return {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": f"Yes, in {rollout_id}."}],
        }
    arguments = json.dumps({"day": -turn, "unit": "C"})
    return {"type": "function_call", "call_id": f"tool-{rollout_id}-{turn}", "name": "weather", "arguments": arguments}


def _tool_result(rollout_id: str, turn: int) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": f"tool-{rollout_id}-{turn}", "output": f"{20 - turn} degrees"}


def tokens(item: dict[str, Any]) -> list[int]:
    """Return the tokens of one item: any deterministic tokenization serves."""
    words = json.dumps(item, sort_keys=True).split()
    return [zlib.crc32(word.encode()) % 150_000 for word in words]


def log_probs(generated: list[int]) -> list[float]:
    """Return the log probability of each token of an answer."""
    return [-1 / (2 + position) for position in range(len(generated))]


def experts(rollout_id: str, turn: int) -> bytes:
    """Return the experts that an answer's tokens were routed to, two bytes each: what a worker attaches to its row."""
    return b"".join((token % 64).to_bytes(2, "little") for token in tokens(answer(rollout_id, turn)))


def response(rollout_id: str, turn: int) -> dict[str, Any]:
    """Return the response that the agent gets for a turn."""
    return {"id": f"response-{rollout_id}-{turn}", "object": "response", "output": [answer(rollout_id, turn)]}


@cache
def sequence(rollout_id: str, turn: int) -> tuple[int, ...]:
    """Return the exact tokens that the model had seen and said when a turn ended."""
    prompt = [one for item in request(rollout_id, turn) for one in tokens(item)]
    return (*prompt, *tokens(answer(rollout_id, turn)))


def entry(rollout_id: str, turn: int, parent: LineageResolution) -> TokenEntry:
    """Return the entry that a model server stores for a turn."""
    said = answer(rollout_id, turn)
    generated = tokens(said)
    made = TokenEntry(
        rollout_id=rollout_id,
        model_call_id=call_id(rollout_id, turn),
        model="demo",
        prompt_token_ids=list(sequence(rollout_id, turn)[: -len(generated)]),
        generation_token_ids=generated,
        generation_log_probs=log_probs(generated),
        output_items=[said],
        token_item_index=0,
    )
    stamp_continuation(made, request(rollout_id, turn))
    match = parent.match
    return stamp_lineage(made, match.model_call_id if match else None, parent_resolution=parent.status)


def root() -> LineageResolution:
    """Return the resolution of a call that continues nothing."""
    return LineageResolution(ParentResolutionStatus.ROOT)


def digest(rollout_id: str) -> str:
    """Return the digest of the whole sequence that a rollout must be trained on."""
    return compute_digest(sequence(rollout_id, TURNS - 1))


def attached(rollout_id: str) -> str:
    """Return the SHA-256 of what the workers attached to a rollout's calls, in order."""
    return sha256_hex(b"".join(experts(rollout_id, turn) for turn in range(TURNS)))
