# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A bounded memory of immutable objects. Eviction only costs another read; an entry can never be stale."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

V = TypeVar("V")


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
