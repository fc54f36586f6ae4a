# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Any sequence of calls, in either form, answers as a dictionary would: the stores against a model."""

from __future__ import annotations

import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from gym_objstore.errors import NotFound
from gym_objstore.ids import segment
from gym_objstore.testing.servers import Server
from gym_objstore.testing.store_suite import Target
from gym_objstore.testing.store_suite.playing import Colour
from gym_objstore.testing.store_suite.target import opened
from tests.store_targets import file_target, memory_target, server_target

SEGMENTS = [segment(one) for one in ("a", "ab", "A", "a.b", "!", "..", "x" * 300)]
KEYS = [f"{folder}/{name}" for folder in SEGMENTS for name in SEGMENTS]
PREFIXES = ["", *(f"{one}/" for one in SEGMENTS)]

keys = st.sampled_from(KEYS)
prefixes = st.sampled_from(PREFIXES)
offsets = st.integers(0, 40)
bodies = st.one_of(st.binary(max_size=40), st.lists(st.binary(max_size=10), max_size=4))


class StoreMachine(RuleBasedStateMachine):
    """One folder of a store beside the dictionary it should be."""

    def __init__(self, colours: dict[bool, Colour], *, folders_vanish: bool) -> None:
        super().__init__()
        self.root = f"{uuid.uuid4().hex}/"
        self.colours = colours
        self.folders_vanish = folders_vanish
        self.model: dict[str, bytes] = {}
        self.emptied: set[str] = set()

    def ask(self, waits: bool, method: str, *arguments: Any) -> Any:
        return self.colours[waits].call(method, *arguments)

    @rule(waits=st.booleans(), key=keys, body=bodies)
    def put(self, waits: bool, key: str, body: bytes | list[bytes]) -> None:
        self.ask(waits, "put", self.root + key, body)
        self.model[key] = body if isinstance(body, bytes) else b"".join(body)

    @rule(waits=st.booleans(), names=st.lists(keys, max_size=6))
    def delete(self, waits: bool, names: list[str]) -> None:
        self.ask(waits, "delete", [self.root + name for name in names])
        for name in names:
            if self.model.pop(name, None) is not None and not self.folders_vanish:
                self.emptied.add(name.split("/")[0])

    @rule(waits=st.booleans(), key=keys)
    def get(self, waits: bool, key: str) -> None:
        if key in self.model:
            assert self.ask(waits, "get", self.root + key) == self.model[key]
        else:
            with pytest.raises(NotFound):
                self.ask(waits, "get", self.root + key)

    @rule(waits=st.booleans(), key=keys, start=offsets, length=offsets)
    def get_range(self, waits: bool, key: str, start: int, length: int) -> None:
        if key in self.model:
            part = self.ask(waits, "get_range", self.root + key, start, length)
            assert part == self.model[key][start : start + length]
        else:
            with pytest.raises(NotFound):
                self.ask(waits, "get_range", self.root + key, start, length)

    @rule(waits=st.booleans(), key=keys)
    def head(self, waits: bool, key: str) -> None:
        found = self.ask(waits, "head", self.root + key)
        expected = (self.root + key, len(self.model[key])) if key in self.model else None
        assert (found and found[:2]) == expected

    @rule(waits=st.booleans(), prefix=prefixes)
    def scan(self, waits: bool, prefix: str) -> None:
        below = sorted((self.root + key, len(body)) for key, body in self.model.items() if key.startswith(prefix))
        assert [meta[:2] for meta in self.ask(waits, "scan", self.root + prefix)] == below

    @rule(waits=st.booleans(), prefix=prefixes)
    def folders(self, waits: bool, prefix: str) -> None:
        there = {key.split("/")[0] for key in self.model} if not prefix else set()
        found = self.ask(waits, "folders", self.root + prefix)
        assert len(set(found)) == len(found)
        assert there <= set(found) <= there | self.emptied

    def teardown(self) -> None:
        self.scan(waits=False, prefix="")
        self.ask(False, "delete", [self.root + key for key in self.model])


def play(target: Target, *, examples: int, steps: int) -> None:
    """Run the machine on a store, each example in a folder of its own."""
    limits = settings(max_examples=examples, stateful_step_count=steps)
    with (
        opened(target) as store,
        closing(Colour(store, waits=False)) as blocking,
        closing(Colour(store, waits=True)) as waiting,
    ):
        colours = {False: blocking, True: waiting}
        run_state_machine_as_test(lambda: StoreMachine(colours, folders_vanish=target.folders_vanish), settings=limits)


def test_memory_is_a_dictionary() -> None:
    play(memory_target("machine"), examples=60, steps=30)


def test_a_folder_is_a_dictionary(tmp_path: Path) -> None:
    play(file_target(tmp_path), examples=30, steps=30)


@pytest.mark.parametrize("backend", ["obstore", "boto"])
def test_a_bucket_is_a_dictionary(seaweedfs_server: Server, backend: str) -> None:
    play(server_target(seaweedfs_server, backend), examples=8, steps=20)
