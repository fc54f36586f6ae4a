# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Laws of bad input: what is no key or prefix is refused before anything is read or written."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from gym_objstore.errors import Invalid, ObjstoreError
from gym_objstore.store import Store
from gym_objstore.testing.store_suite.playing import Colour
from gym_objstore.testing.store_suite.target import Laws, Target

ABSOLUTE = ("", "/", "/absolute")
"""Bad keys of the root itself."""

BAD_KEYS = (
    "",
    "/",
    "/absolute",
    "folder/",
    "a//b",
    ".",
    "..",
    "./a",
    "../a",
    "a/.",
    "a/..",
    "a/../b",
    "a/./b",
    "ünïcödé",
    "a/🙂",
    "\ud800",
    "a\x00b",
    "a\nb",
    "x" * 1001,
)
"""Bad keys below any folder."""

BAD_PREFIXES = ("folder", "/", "/absolute/", "a//", "../", "a/../", "./", "a/./b/", "ünïcödé/", "a\x00b/")


class RefusalLaws(Laws):
    """Keys and prefixes that must not be, in both forms."""

    @pytest.mark.parametrize("waits", [False, True], ids=["blocking", "async"])
    def test_a_bad_key_is_refused_before_anything_happens(
        self, target: Target, store: Store, folder: str, *, waits: bool
    ) -> None:
        good = f"{folder}good"
        store.put(good, b"x")
        with closing(Colour(store, waits=waits)) as colour:
            for key in (*ABSOLUTE, *(folder + bad for bad in BAD_KEYS)):
                refusals = [
                    refusal(colour, "put", key, b"x"),
                    refusal(colour, "get", key),
                    refusal(colour, "get_range", key, 0, 1),
                    refusal(colour, "head", key),
                    refusal(colour, "delete", [good, key]),
                ]
                assert refusals == [(Invalid, "bad_key", key)] * 5
        assert target.behind.keys(folder) == {good}

    @pytest.mark.parametrize("waits", [False, True], ids=["blocking", "async"])
    def test_a_bad_prefix_is_refused(self, store: Store, *, waits: bool) -> None:
        with closing(Colour(store, waits=waits)) as colour:
            for prefix in BAD_PREFIXES:
                refusals = [refusal(colour, method, prefix) for method in ("scan", "folders")]
                assert refusals == [(Invalid, "bad_key", prefix)] * 2


def refusal(colour: Colour, method: str, *arguments: Any) -> tuple[type, str, str]:
    """Call a method that must refuse; return what it raised."""
    with pytest.raises(ObjstoreError) as caught:
        colour.call(method, *arguments)
    return type(caught.value), caught.value.kind, caught.value.key
