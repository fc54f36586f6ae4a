# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Token entries to measure with: made up, repeatable, and as hard to compress as real ones.

Canonical JSON of 8,000 tokens of nemo-gym's transcripts shrinks to 40 % under zstd level 1, and of 30,000 to 33 %;
these to 33 % and 32 %.
"""

from __future__ import annotations

import itertools
import random
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_VOCABULARY = 152_000


def entry(tokens: int, seed: int = 1) -> dict[str, Any]:
    """Return a record as a served call has it: Zipf-like ids with repeated passages, float32 log probs, tool calls."""
    source = random.Random(seed)  # noqa: S311 - a reproducible sample, no secret
    ids = list(itertools.islice(_ids(source), tokens))
    generated = tokens // 8
    probs = [-(source.expovariate(1.0) ** 3) * 0.2 for _ in range(generated)]
    words = [f"word{source.randrange(5_000)}" for _ in range(generated // 2)]
    call = {
        "name": "run_tests",
        "arguments": '{"path": "src", "verbose": true}',
        "call_id": "call_7",
        "type": "function_call",
    }
    return {
        "schema_version": 1,
        "rollout_id": "task-17_g3",
        "model_call_id": f"call-{seed:032x}",
        "model": "policy",
        "prompt_token_ids": ids[generated:],
        "generation_token_ids": ids[:generated],
        "generation_log_probs": list(struct.unpack(f"{generated}f", struct.pack(f"{generated}f", *probs))),
        "routed_experts": None,
        "output_items": [{"type": "message", "role": "assistant", "content": " ".join(words)}, call],
        "response_id": f"resp_{seed:032x}",
        "created_at": 1_790_000_000.123456,
        "parent_call_id": f"call-{seed - 1:032x}",
        "cum_len": tokens,
        "digest": "5e" * 32,
        "parent_resolution": "resolved",
        "continuation_fingerprint": "c0" * 32,
        "continuation_context_digest": "d1" * 32,
        "prompt_is_delta": False,
        "prefix_supplied": False,
    }


def _ids(source: random.Random) -> Iterator[int]:
    """Yield ids of a log-uniform law; every fiftieth time, on average, a passage that was seen before."""
    seen: list[int] = []
    while True:
        start = source.randrange(len(seen)) if seen and source.random() < 0.02 else None
        passage = (
            [int(_VOCABULARY ** source.random())] if start is None else seen[start : start + source.randrange(10, 80)]
        )
        seen += passage
        yield from passage
