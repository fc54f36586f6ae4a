# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A set of keys for listings of millions: 17 bytes for each, where a set of strings takes some 200."""

from __future__ import annotations

from hashlib import blake2b

_SIZE = 16
"""Bytes kept of each text: its hash, so that two of 2**60 texts would be taken for one."""


class Marks:
    """A set of texts that remembers only their hashes. What is in it cannot be listed again."""

    def __init__(self) -> None:
        self._buckets: dict[int, bytearray] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, text: str) -> bool:
        return self.has(mark_of(text))

    def add(self, text: str) -> bool:
        """Put a text in; say whether it was not there yet."""
        return self.put(mark_of(text))

    def has(self, mark: bytes) -> bool:
        """Say whether a text with this mark is there."""
        return _within(self._buckets.get(_number(mark), b""), mark)

    def put(self, mark: bytes) -> bool:
        """Put a text in by its mark; see ``add``."""
        bucket = self._buckets.setdefault(_number(mark), bytearray())
        if _within(bucket, mark):
            return False
        bucket += mark
        self._count += 1
        return True

    def meets(self, other: Marks) -> bool:
        """Say whether any text is in both."""
        return any(
            other.has(bytes(bucket[start : start + _SIZE]))
            for bucket in self._buckets.values()
            for start in range(0, len(bucket), _SIZE)
        )


def mark_of(text: str) -> bytes:
    """Return the 16 bytes by which a text is remembered."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_SIZE).digest()


def _number(mark: bytes) -> int:
    return mark[0] << 4 | mark[1] >> 4


def _within(bucket: bytes | bytearray, mark: bytes) -> bool:
    """Say whether a mark stands in a bucket, and not across two of its marks."""
    at = bucket.find(mark)
    while at > 0 and at % _SIZE:
        at = bucket.find(mark, at + 1)
    return at >= 0
