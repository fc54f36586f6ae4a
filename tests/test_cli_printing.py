# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from gym_objstore.cli import printing
from gym_objstore.cli.printing import print_table, watched
from gym_objstore.errors import NotFound
from gym_objstore.flow import Put, delete, fold, get, together
from gym_objstore.store.memory import MemoryStore


def test_a_watched_flow_is_the_flow():
    def conversation():
        yield from together([Put("a/1", b"x"), Put("a/2", b"y")])
        seen = []
        yield from fold("a/", seen.extend)
        with pytest.raises(NotFound):
            yield from get("a/3")
        yield from delete(["a/1"])
        return sorted(meta.key for meta in seen)

    store = MemoryStore()
    assert watched(conversation(), store, "trying") == ["a/1", "a/2"]
    assert [meta.key for meta in store.scan("")] == ["a/2"]


def test_what_a_watched_flow_raises_is_raised():
    with pytest.raises(NotFound):
        watched(get("a/1"), MemoryStore(), "trying")


def test_a_long_id_stays_in_one_line_of_a_file(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    printing._console.cache_clear()
    print_table("ids", ["id", "other"], [("x" * 120, "y" * 30)])
    assert "x" * 120 in capsys.readouterr().out
