# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Small token entries for tests: a chain of turns, each stamped as a model server stamps it."""

from __future__ import annotations

from typing import Any

from gym_objstore.records import ParentResolutionStatus, TokenEntry
from gym_objstore.stamps import stamp_continuation, stamp_lineage

CALL: dict[str, Any] = {
    "rollout_id": "task-0",
    "model_call_id": "call-1",
    "prompt_token_ids": [1, 2, 3],
    "generation_token_ids": [4, 5],
    "generation_log_probs": [-0.25, -1.5],
}
"""The fields that an entry cannot do without."""

QUESTION = [{"role": "user", "content": "hello"}]


def answer(text: str) -> list[dict[str, Any]]:
    return [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}]


def make_entry(rollout: str = "r1", call: str = "c1", *, text: str = "hi", **fields: Any) -> TokenEntry:
    """Return a stamped root entry; equal arguments give equal records."""
    values = {
        "prompt_token_ids": [1, 2],
        "generation_token_ids": [7, 8],
        "generation_log_probs": [-0.5, -0.25],
        "output_items": answer(text),
        "token_item_index": 0,
        **fields,
    }
    entry = TokenEntry(rollout_id=rollout, model_call_id=call, **values)
    stamp_continuation(entry, QUESTION)
    return stamp_lineage(entry, None, parent_resolution=ParentResolutionStatus.ROOT)


def request_after(*texts: str) -> list[dict[str, Any]]:
    """Return the request that follows these answers, one a turn."""
    items = list(QUESTION)
    for number, text in enumerate(texts):
        items += [*answer(text), {"role": "user", "content": f"and {number}?"}]
    return items


def make_chain(rollout: str, length: int, *, delta: bool = False, stamped: bool = True) -> list[TokenEntry]:
    """Return the entries of a rollout of ``length`` turns, ``c0`` to ``c<length-1>``, which say ``t0``, ...

    Without ``stamped`` no request can continue them, and thousands are made quickly.
    """
    entries, cumulative, parent = [], [], None
    for turn in range(length):
        new, said = [100 + turn], [1000 + turn, 2000 + turn]
        entry = TokenEntry(
            rollout_id=rollout,
            model_call_id=f"c{turn}",
            prompt_token_ids=new if delta and parent else cumulative + new,
            generation_token_ids=said,
            generation_log_probs=[-0.5, -0.25],
            output_items=answer(f"t{turn}"),
            token_item_index=0,
        )
        entry.prompt_is_delta = delta and parent is not None
        cumulative = cumulative + new + said
        if stamped:
            stamp_continuation(entry, request_after(*(f"t{before}" for before in range(turn))))
        status = ParentResolutionStatus.RESOLVED if parent else ParentResolutionStatus.ROOT
        entries.append(stamp_lineage(entry, parent, parent_resolution=status, cumulative=cumulative))
        parent = entry.model_call_id
    return entries
