# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Laws of permissions: what a user may not do is ``Denied``, and never looks like absence or success."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from gym_objstore.errors import Denied
from gym_objstore.store import Store
from gym_objstore.testing.store_suite.playing import Colour
from gym_objstore.testing.store_suite.target import Laws

STRANGER, FORGER = "stranger", "forger"
"""Users that may do nothing: one whom the service does not know, one who has a name but a wrong secret."""

READER, WRITER, BLIND, HALF = "reader", "writer", "blind", "half"
"""Users with some rights: read and list; write; read and write; read and list all, and write below ``HALF_PREFIX``."""

HALF_PREFIX = "half/"

Users = Callable[[str], Store]
"""Opens the root under test as the user of a name."""

MAY = {
    STRANGER: (),
    FORGER: (),
    READER: ("get", "get_range", "head", "scan", "folders"),
    WRITER: ("put", "delete"),
    BLIND: ("put", "delete", "get", "get_range", "head"),
}
"""The methods that each user may call."""


class StrangerLaws(Laws):
    """Every method, in both forms, for whom the service does not let in. A test class overrides ``users`` too."""

    @pytest.fixture(scope="class")
    @classmethod
    def users(cls) -> Users:
        """Return how to open the root as another user. Overridden where the laws are run."""
        msg = "a class that runs laws of permissions must override the fixture 'users'"
        raise NotImplementedError(msg)

    @pytest.mark.parametrize("waits", [False, True], ids=["blocking", "async"])
    @pytest.mark.parametrize("user", [STRANGER, FORGER])
    def test_who_is_not_let_in_is_denied_everything(
        self, store: Store, users: Users, folder: str, user: str, *, waits: bool
    ) -> None:
        check_rights(store, users, folder, user=user, waits=waits)

    @pytest.mark.parametrize("user", [STRANGER, FORGER])
    def test_absence_is_not_told_to_who_is_not_let_in(self, users: Users, folder: str, user: str) -> None:
        check_absence_is_not_told(users, folder, user)


class DenialLaws(StrangerLaws):
    """The same for users with some rights, at services that know them."""

    @pytest.mark.parametrize("waits", [False, True], ids=["blocking", "async"])
    @pytest.mark.parametrize("user", [READER, WRITER, BLIND])
    def test_what_a_user_may_not_do_is_denied_and_changes_nothing(
        self, store: Store, users: Users, folder: str, user: str, *, waits: bool
    ) -> None:
        check_rights(store, users, folder, user=user, waits=waits)

    def test_absence_is_not_told_to_who_may_not_read(self, users: Users, folder: str) -> None:
        check_absence_is_not_told(users, folder, WRITER)

    @pytest.mark.parametrize("waits", [False, True], ids=["blocking", "async"])
    def test_a_right_to_a_prefix_ends_with_it(self, store: Store, users: Users, folder: str, *, waits: bool) -> None:
        """A removal that is refused in part names the object that was refused, and removes the others."""
        allowed, refused = [f"{HALF_PREFIX}{folder}{name}" for name in ("a", "z")], f"{folder}b"
        store.put(refused, b"x")
        with acting(users, HALF, waits=waits) as colour:
            for key in allowed:
                colour.call("put", key, b"x")
            with pytest.raises(Denied):
                colour.call("put", f"{folder}c", b"x")
            with pytest.raises(Denied) as caught:
                colour.call("delete", [allowed[0], refused, allowed[1]])
        assert caught.value.key == refused
        assert [meta.key for meta in store.scan(folder)] == [refused]
        assert list(store.scan(f"{HALF_PREFIX}{folder}")) == []

    def test_a_refused_removal_names_an_object_and_leaves_all(self, store: Store, users: Users, folder: str) -> None:
        keys = [folder + name for name in ("a", "b", "c")]
        for key in keys:
            store.put(key, b"x")
        with acting(users, READER, waits=False) as colour, pytest.raises(Denied) as caught:
            colour.call("delete", keys)
        assert caught.value.key in keys
        assert {meta.key for meta in store.scan(folder)} == set(keys)


def check_rights(store: Store, users: Users, folder: str, *, user: str, waits: bool) -> None:
    """Call every method as a user: what ``MAY`` names is answered, all else is denied and changes nothing."""
    key = f"{folder}sub/object"
    store.put(key, b"0123456789")
    with acting(users, user, waits=waits) as colour:
        for method, *arguments in calls(key, folder):
            if method in MAY[user]:
                colour.call(method, *arguments)
                continue
            with pytest.raises(Denied):
                colour.call(method, *arguments)
    assert store.get(key) == b"0123456789"
    assert [meta.key for meta in store.scan(folder)] == [key]


def check_absence_is_not_told(users: Users, folder: str, user: str) -> None:
    """Whether a missing object exists is unknown to who may not read, and None would say that it does not."""
    with acting(users, user, waits=False) as colour:
        for method, *arguments in (("get",), ("get_range", 0, 1), ("head",)):
            with pytest.raises(Denied):
                colour.call(method, f"{folder}absent", *arguments)


def calls(key: str, folder: str) -> list[tuple[Any, ...]]:
    """Return every method with arguments that an administrator may use, which together change nothing."""
    return [
        *[("put", f"{folder}new", b"x"), ("get", key), ("get_range", key, 2, 3), ("head", key)],
        *[("scan", folder), ("folders", folder), ("delete", [f"{folder}new"])],
    ]


@contextmanager
def acting(users: Users, user: str, *, waits: bool) -> Iterator[Colour]:
    """Open the root as a user for the length of a block."""
    with closing(users(user)) as store, closing(Colour(store, waits=waits)) as colour:
        yield colour
