# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Laws of refusals: what a user may not do is ``Denied``, and never looks like absence or success."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gym_objstore.errors import Denied
from gym_objstore.store import Store
from gym_objstore.testing.store_suite.playing import Colour
from gym_objstore.testing.store_suite.target import Laws

READER, WRITER, BLIND, STRANGER, FORGER = "reader", "writer", "blind", "stranger", "forger"
"""Users: reads and lists; only writes; reads and writes but lists nothing; unknown; known, but with a wrong secret."""

Users = Callable[[str], Store]
"""Open the root under test as one of those users."""

REFUSED = {
    READER: ("put", "delete"),
    WRITER: ("get", "get_range", "head", "scan", "folders"),
    BLIND: ("scan", "folders"),
    STRANGER: ("put", "get", "get_range", "head", "scan", "folders", "delete"),
    FORGER: ("put", "get", "get_range", "head", "scan", "folders", "delete"),
}
"""What each user may not do; the rest it may."""


class DenialLaws(Laws):
    """Every method, in both forms, as users with few rights. A test class overrides ``users`` too."""

    @pytest.fixture(scope="class")
    @classmethod
    def users(cls) -> Users:
        """Return how to open the root as another user. Overridden where the suite is run."""
        msg = "a class that runs denial laws must override the fixture 'users'"
        raise NotImplementedError(msg)

    @pytest.mark.parametrize("waits", [False, True], ids=["blocking", "async"])
    @pytest.mark.parametrize("user", list(REFUSED))
    def test_what_a_user_may_not_do_is_denied_and_changes_nothing(
        self, store: Store, users: Users, folder: str, user: str, *, waits: bool
    ) -> None:
        key = f"{folder}sub/object"
        store.put(key, b"0123456789")
        with acting(users, user, waits=waits) as colour:
            for method, *arguments in calls(key, folder):
                if method not in REFUSED[user]:
                    colour.call(method, *arguments)
                    continue
                with pytest.raises(Denied):
                    colour.call(method, *arguments)
        assert store.get(key) == b"0123456789"

    @pytest.mark.parametrize("user", [WRITER, STRANGER, FORGER])
    def test_an_absent_object_is_denied_too_where_reading_is(self, users: Users, folder: str, user: str) -> None:
        """Whether it exists is unknown, and None would say that it does not."""
        with acting(users, user, waits=False) as colour:
            for method, *arguments in (("get",), ("get_range", 0, 1), ("head",)):
                with pytest.raises(Denied):
                    colour.call(method, f"{folder}absent", *arguments)

    def test_a_refused_removal_names_the_object_and_leaves_it(self, store: Store, users: Users, folder: str) -> None:
        keys = [folder + name for name in ("a", "b", "c")]
        for key in keys:
            store.put(key, b"x")
        with acting(users, READER, waits=False) as colour, pytest.raises(Denied) as caught:
            colour.call("delete", keys)
        assert caught.value.key in keys
        assert {meta.key for meta in store.scan(folder)} == set(keys)


@contextmanager
def acting(users: Users, user: str, *, waits: bool) -> Iterator[Colour]:
    """Open the root as a user for the length of a block."""
    store = users(user)
    try:
        yield Colour(store, waits=waits)
    finally:
        store.close()


def calls(key: str, folder: str) -> list[tuple[Any, ...]]:
    """Return every method with arguments that an administrator may use, none of which changes ``key``."""
    return [
        *[("put", f"{folder}new", b"x"), ("get", key), ("get_range", key, 2, 3), ("head", key)],
        *[("scan", folder), ("folders", folder), ("delete", [f"{folder}new"])],
    ]
