# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The cache is bounded by weight and evicts what was used longest ago."""

from __future__ import annotations

from gym_objstore.cache import LruCache


def test_what_was_used_last_is_kept():
    cache = LruCache(10)
    cache.put("a", 1, 4)
    cache.put("b", 2, 4)
    assert cache.get("a") == 1
    cache.put("c", 3, 4)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (1, None, 3)


def test_putting_again_does_not_count_twice():
    cache = LruCache(10)
    for _ in range(5):
        cache.put("a", 1, 6)
    cache.put("b", 2, 4)
    assert (cache.get("a"), cache.get("b")) == (1, 2)


def test_a_value_heavier_than_the_cache_is_not_kept_and_evicts_nothing():
    cache = LruCache(10)
    cache.put("a", 1, 10)
    cache.put("b", 2, 11)
    assert (cache.get("a"), cache.get("b")) == (1, None)
