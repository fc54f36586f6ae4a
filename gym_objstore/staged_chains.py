# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""From the staged rows that an admission names to the prefix its prompt must begin with.

Owns what makes rows a chain. Where they are read from is for ``staging``, what is remembered for ``staging_sinks``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gym_objstore.errors import Corrupt
from gym_objstore.staging_digests import compute_chain_hash

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Columns:
    """What a continuation needs of a staged row: its token ids and its place in the chain."""

    rollout_id: str
    model_call_id: str
    parent_call_id: str | None
    prev_len: int
    chain_hash: str
    token_ids: array[int]


def join_prefix(chain: Sequence[Columns], chain_hash: str | None = None) -> list[int]:
    """Return the tokens of a chain of rows, root first, after making sure that each continues the one before.

    Raises ``Corrupt`` (kind ``broken_chain``) naming the first call that does not, or if the last one is not sealed
    by ``chain_hash``, unless that is None.
    """
    before: Columns | None = None
    tokens: list[int] = []
    for one in chain:
        if not (_placed(one, before, len(tokens)) and _hash(before, one) == one.chain_hash):
            reason = f"a staged row does not continue the one before it, model_call_id={one.model_call_id}"
            raise Corrupt(reason, kind="broken_chain")
        tokens += one.token_ids
        before = one
    if chain_hash is not None and (before is None or before.chain_hash != chain_hash):
        raise Corrupt(f"the staged rows are not the parent's chain, chain_hash={chain_hash}", kind="broken_chain")
    return tokens


def _placed(one: Columns, before: Columns | None, length: int) -> bool:
    rollout_id, parent = (one.rollout_id, None) if before is None else (before.rollout_id, before.model_call_id)
    return (one.rollout_id, one.parent_call_id, one.prev_len) == (rollout_id, parent, length)


def _hash(before: Columns | None, one: Columns) -> str:
    return compute_chain_hash(before.chain_hash if before else None, one.token_ids)
