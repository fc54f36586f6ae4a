# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Copies are exact, leave memory when they grow, and end where a body does not."""

from __future__ import annotations

import tracemalloc

from gym_objstore import middleware_copies
from gym_objstore.middleware_copies import Copy


def test_a_copy_is_exact_and_can_be_read_again():
    copy = Copy()
    for chunk in (b"a", b"", b"bc"):
        copy.add(chunk)
    assert (copy.read(), copy.read(), copy.size, copy.whole) == (b"abc", b"abc", 3, True)
    copy.close()


def test_a_long_body_is_not_kept_in_memory():
    copy, chunk = Copy(), b"x" * 65536
    tracemalloc.start()
    for _ in range(256):
        copy.add(chunk)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4_000_000
    assert copy.read() == chunk * 256
    copy.close()


def test_a_body_over_the_limit_gives_its_disk_back_at_once_and_is_only_counted(monkeypatch):
    monkeypatch.setattr(middleware_copies, "COPY_BYTES", 5)
    copy = Copy()
    for _ in range(3):
        copy.add(b"abc")
    assert (copy.read(), copy.size, copy.whole) == (b"", 9, False)
    assert copy._file.closed
    copy.close()
