# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A store of any size that takes no memory: its listings are made while they are read, and nothing can be stored."""

from __future__ import annotations

import tracemalloc

from gym_objstore.store import Meta
from gym_objstore.store.memory import MemoryStore

RUN = "run-1"
CALLS = 10


class SyntheticStore(MemoryStore):
    """``objects`` in all: finished rollouts of ``CALLS`` calls, each with an intent, a staged row and a ledger row.

    Every hundredth call left a row that nobody names.
    """

    def __init__(self, objects: int, modified: float = 1000.0) -> None:
        super().__init__("synthetic")
        self.rollouts, self.modified = objects // (3 * CALLS), modified
        self.deleted = 0

    def scan(self, prefix):
        family = prefix.split("/")[0]
        names = {"tokens": self._intents, "staged": self._rows, "ledger": self._ledger}.get(family)
        for rollout in range(self.rollouts if names else 0):
            for call in range(CALLS):
                yield Meta(f"{family}/{RUN}/r{rollout:08d}/{names(rollout, call)}", 1000, self.modified)

    def head(self, key):
        return Meta(key, 1000, self.modified) if "fences" not in key and "!run" not in key else None

    def put(self, key, body):
        """Keep nothing: guards and markers are as good as there."""

    def delete(self, keys):
        self.deleted += len(keys)

    async def scan_async(self, prefix):
        for meta in self.scan(prefix):
            yield meta

    @staticmethod
    def orphaned(rollout: int, call: int) -> bool:
        return call == 7 and rollout % 10 == 0

    def _intents(self, rollout, call):
        return f"intents/{'other' if self.orphaned(rollout, call) else f'c{call}'}"

    def _rows(self, rollout, call):
        return f"rows/c{call}.{rollout:032x}{call:032x}.900.0.r1"

    def _ledger(self, rollout, call):
        named = "other" if self.orphaned(rollout, call) else f"c{call}"
        return f"rows/{named}/none.{rollout:032x}{call:032x}"


def peak_of(function) -> int:
    """Return the bytes that a function had allocated at most."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
