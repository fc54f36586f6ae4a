# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Any sequence of calls, in either form, answers as a dictionary would: the stores against a model."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from gym_objstore.errors import NotFound
from gym_objstore.ids import segment
from gym_objstore.store import Store
from gym_objstore.store.memory import MemoryStore
from gym_objstore.testing.store_suite.playing import Colour

SEGMENTS = [segment(one) for one in ("a", "ab", "A", "a.b", "!", "..", "x" * 300)]
KEYS = [f"{folder}/{name}" for folder in SEGMENTS for name in SEGMENTS]
PREFIXES = ["", *(f"{one}/" for one in SEGMENTS)]

keys = st.sampled_from(KEYS)
prefixes = st.sampled_from(PREFIXES)
offsets = st.integers(0, 40)
bodies = st.one_of(st.binary(max_size=40), st.lists(st.binary(max_size=10), max_size=4))


class StoreMachine(RuleBasedStateMachine):
    """One folder of a store beside the dictionary it should be."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.root = f"{uuid.uuid4().hex}/"
        self.colours = {waits: Colour(store, waits=waits) for waits in (False, True)}
        self.model: dict[str, bytes] = {}

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
            self.model.pop(name, None)

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
        names = sorted({key.split("/")[0] for key in self.model}) if not prefix else []
        assert self.ask(waits, "folders", self.root + prefix) == names

    def teardown(self) -> None:
        self.scan(waits=False, prefix="")
        self.ask(False, "delete", [self.root + key for key in self.model])


def play(store: Store, *, examples: int, steps: int) -> None:
    """Run the machine on a store, each example in a folder of its own."""
    machine: Callable[[], StoreMachine] = lambda: StoreMachine(store)  # noqa: E731 - hypothesis calls it per example
    limits = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,  # servers take what they take
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
    run_state_machine_as_test(machine, settings=limits)


def test_memory_is_a_dictionary() -> None:
    play(MemoryStore(), examples=60, steps=30)
