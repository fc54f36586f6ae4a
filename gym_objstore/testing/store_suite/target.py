# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What the store suite is told about the store under test, and the fixtures every group of laws shares.

Owns: ``Target`` and the three fixtures ``target``, ``store`` and ``folder``. Does not own: any law.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Protocol

import pytest

from gym_objstore.store import Store


class Behind(Protocol):
    """The same root as the store's, through another client that shares no code with the backend."""

    def read(self, key: str) -> bytes | None:
        """Return the bytes under a key, ``None`` if there are none."""
        ...

    def keys(self, prefix: str) -> set[str]:
        """Return every key that begins with the prefix."""
        ...

    def write(self, key: str, body: bytes) -> None:
        """Store an object. A key that ends in ``/`` is the folder marker other programs leave."""
        ...

    def delete(self, key: str) -> None:
        """Remove an object if it is there."""
        ...


@dataclass(frozen=True, slots=True)
class Target:
    """A store under test: how to open it, how to look behind its back, and what its service can do.

    ``open`` returns a store with clients of its own each time, always on the same root, which may be shared
    with other targets: every test works in a folder of its own. A capability that is said to be absent is
    not skipped: its refusal is asserted.
    """

    open: Callable[[], Store]
    behind: Behind
    object_beside_folder: bool = True
    """Whether ``a`` and ``a/b`` can both be objects; not so in a file system."""
    folders_vanish: bool = True
    """Whether a folder is gone with its last object; services over a file system may keep it, empty, for ever."""
    replaces_whole: bool = True
    """Whether other bytes replace an object under a reader's eyes whole. Nothing in this package replaces any."""
    secrets: tuple[str, ...] = ()
    """Texts that may never appear in a URL, a repr, an error or a pickle of the store."""


class Laws:
    """The fixtures of every group of laws. A test class overrides ``target`` and inherits the groups it runs."""

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls) -> Target:
        """Return the store under test. Overridden where the suite is run."""
        msg = "a class that runs store laws must override the fixture 'target'"
        raise NotImplementedError(msg)

    @pytest.fixture(scope="class")
    @classmethod
    def store(cls, target: Target) -> Iterator[Store]:
        """Open one store for all tests of the class, as a process does for a whole run."""
        with opened(target) as store:
            yield store

    @pytest.fixture
    def folder(self) -> str:
        """Return a prefix that nothing else uses."""
        return f"{uuid.uuid4().hex[:16]}/"


@contextmanager
def opened(target: Target) -> Iterator[Store]:
    """Open a fresh store for the length of a block."""
    with closing(target.open()) as store:
        yield store
