# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Bringing Gym's files into a run: all are looked at first, then stored and verified, rollout by rollout.

What the lines become is ``importing``'s, where they are is ``gym_folder``'s.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from gym_objstore import importing, ledger
from gym_objstore.flow import run
from gym_objstore.gym_pieces import pieces

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gym_objstore.gym_pieces import RolloutFiles
    from gym_objstore.importing import Piece
    from gym_objstore.store import Store

_BATCH = 64
_BATCH_BYTES = 32 << 20
"""What is stored and verified at a time, and so what an import holds in memory of a rollout's texts."""


def look(source: RolloutFiles, store: Store) -> Counter[str]:
    """Return what an import of this rollout would do, and what is remarkable about its files. Changes nothing.

    Counts: ``lines``, ``objects``, ``missing`` of them, ``damaged_captures``, ``unfinished_lines``,
    ``without_counterpart`` (rows of lineage alone), ``retired``. Raises ``Invalid`` naming file and line,
    ``Retired`` and ``Conflict`` as ``importing.plan``.
    """
    seen: Counter[str] = Counter()
    for family in source.families():
        plan = run(importing.plan(source.run_id, source.rollout_id, family, _keys(family, source, seen)), store)
        seen["missing"] += len(plan.missing)
    return seen


def bring(source: RolloutFiles, store: Store) -> Counter[str]:
    """Import a rollout.

    Returns when: every line's object is durable and was read back. Counts ``stored`` and ``verified`` objects.
    Repeating: stores what is missing. Raises: as ``look``, and ``Corrupt`` for an object that is not what its line is.
    """
    done: Counter[str] = Counter()
    for family in source.families():
        done += _bring(family, source, store)
    return done


def _bring(family: str, source: RolloutFiles, store: Store) -> Counter[str]:
    done: Counter[str] = Counter()
    place = (family, source.run_id, source.rollout_id)
    plan = run(importing.plan(source.run_id, source.rollout_id, family, _keys(family, source, Counter())), store)
    if plan.missing or plan.guarded:
        run(importing.begin(*place), store)
    for batch in _batches(pieces(family, source, Counter())):
        absent = [piece for piece in batch if piece.key in plan.missing]
        run(importing.store(absent), store)
        run(importing.verify(batch, plan.elsewhere), store)
        done.update(stored=len(absent), verified=len(batch))
    if plan.missing or plan.guarded:
        run(importing.finish(*place), store)
    return done


def _keys(family: str, source: RolloutFiles, seen: Counter[str]) -> list[Piece]:
    """Return a family's pieces as a plan needs them: without the texts of what may be large."""
    small = family == ledger.FAMILY
    found = {one.key: one if small else one._replace(text=b"") for one in pieces(family, source, seen)}
    seen["objects"] += len(found)
    return list(found.values())


def _batches(found: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Yield pieces of one kind, a few at a time: what is in a batch lands in any order, the next comes after it."""
    batch: list[Piece] = []
    size = 0
    for piece in found:
        if batch and (len(batch) >= _BATCH or size >= _BATCH_BYTES or piece.kind != batch[-1].kind):
            yield batch
            batch, size = [], 0
        batch.append(piece)
        size += len(piece.text)
    if batch:
        yield batch
