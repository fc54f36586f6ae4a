# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A bounded memory of immutable objects. Eviction only costs another read; an entry can never be stale."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sized

    from gym_objstore.lineage import Parent
    from gym_objstore.staged_chains import Columns

V = TypeVar("V")

CACHED_TOKENS = 8_000_000
"""Tokens of calls that a process remembers, as nemo-gym's reference does; 8 bytes each."""

CACHED_CALL = 128
"""Tokens that every remembered call counts for beside its own: a kilobyte of ids, digests and keys."""


class LruCache(Generic[V]):
    """Keeps the values used last, up to a total weight. Callable from many threads."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._weight = 0
        self._values: OrderedDict[str, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str) -> V | None:
        """Return the remembered value and count it as used."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def put(self, key: str, value: V, weight: int) -> None:
        """Remember a value; one that outweighs the whole cache is not kept."""
        if weight > self._limit:
            return
        with self._lock:
            self._weight += weight - self._values.pop(key, (None, 0))[1]
            self._values[key] = (value, weight)
            while self._weight > self._limit:
                self._weight -= self._values.popitem(last=False)[1][1]


class _CallMemory(ABC, Generic[V]):
    """Calls by the key of their object, bounded by their tokens."""

    def __init__(self, limit: int = CACHED_TOKENS) -> None:
        self._kept: LruCache[V] = LruCache(limit)

    def get(self, key: str) -> V | None:
        """Return the remembered call, if it still is."""
        return self._kept.get(key)

    def put(self, key: str, call: V) -> None:
        """Remember a call."""
        self._kept.put(key, call, len(self._tokens(call)) + CACHED_CALL)

    @abstractmethod
    def _tokens(self, call: V) -> Sized: ...


class ParentMemory(_CallMemory["Parent"]):
    """What lineage keeps of token entries."""

    def _tokens(self, call: Parent) -> Sized:
        return call.tokens


class ColumnMemory(_CallMemory["Columns"]):
    """The token ids of staged rows."""

    def _tokens(self, call: Columns) -> Sized:
        return call.token_ids
