# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Laws of the store object itself: opening, closing, and what it lets out about its secrets."""

from __future__ import annotations

import asyncio
import pickle
from contextlib import closing
from typing import Any

import pytest

from gym_objstore.errors import NotFound, Unusable
from gym_objstore.store import Store
from gym_objstore.testing.store_suite.playing import Colour, on_a_loop
from gym_objstore.testing.store_suite.target import Laws, Target, opened


class LifetimeLaws(Laws):
    """open, close, repr and pickling."""

    def test_it_is_a_store_that_says_where_it_is(self, store: Store) -> None:
        assert isinstance(store, Store)
        assert "://" in store.url

    def test_closing_twice_and_unused_is_no_error(self, target: Target) -> None:
        for _ in range(2):
            store = target.open()
            store.close()
            store.close()
            on_a_loop(store, store.close_async)

    def test_close_needs_no_flush(self, target: Target, folder: str) -> None:
        with opened(target) as store:
            store.put(f"{folder}blocking", b"x")
            on_a_loop(store, lambda: store.put_async(f"{folder}async", b"y"))
            assert target.behind.read(f"{folder}blocking") == b"x"
            assert target.behind.read(f"{folder}async") == b"y"

    def test_after_close_every_method_answers_or_every_method_refuses(self, target: Target, folder: str) -> None:
        key = f"{folder}sub/object"
        with opened(target) as store:
            store.put(key, b"x")
            on_a_loop(store, lambda: store.get_async(key))
        calls: list[tuple[Any, ...]] = [
            *[("put", key, b"x"), ("get", key), ("get_range", key, 0, 1), ("head", key)],
            *[("scan", folder), ("folders", folder), ("delete", [f"{folder}absent"])],
        ]
        answered: dict[tuple[str, bool], bool] = {}
        for waits in (False, True):
            with closing(Colour(store, waits=waits)) as colour:
                answered |= {(method, waits): answers(colour, method, *arguments) for method, *arguments in calls}
        store.close()
        assert len(set(answered.values())) == 1, answered
        assert target.behind.read(key) == b"x"

    def test_a_loop_that_ended_without_closing_breaks_nothing(self, target: Target, folder: str) -> None:
        with opened(target) as store:
            for loop in range(3):
                asyncio.run(store.put_async(f"{folder}{loop}", b"x"))
            assert len(list(store.scan(folder))) == 3

    def test_secrets_are_in_no_text(self, target: Target, store: Store, folder: str) -> None:
        with pytest.raises(NotFound) as caught:
            store.get(f"{folder}missing")
        texts = (store.url, repr(store), str(store), str(caught.value), repr(caught.value))
        assert [text for text in texts for secret in target.secrets if secret in text] == []

    def test_a_pickle_is_refused_or_keeps_the_secrets_out(self, target: Target, store: Store, folder: str) -> None:
        store.put(f"{folder}object", b"x")
        try:
            pickled = pickle.dumps(store)
        except (TypeError, pickle.PicklingError, Unusable):
            return
        assert not any(secret.encode() in pickled for secret in target.secrets)


def answers(colour: Colour, method: str, *arguments: Any) -> bool:
    """Say whether a call is answered; the one refusal that counts is ``Unusable``."""
    try:
        colour.call(method, *arguments)
    except Unusable:
        return False
    return True
