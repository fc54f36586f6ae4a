# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Laws of races: what concurrent writers and readers of the same service see of each other."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

from gym_objstore.errors import ObjstoreError, Unavailable
from gym_objstore.store import Store
from gym_objstore.testing.store_suite.bodies import MB, noise
from gym_objstore.testing.store_suite.playing import in_threads, on_a_loop, sizes
from gym_objstore.testing.store_suite.target import Laws, Target

MANY = 128
RACING = 32
REPLACEMENTS = 10


class RaceLaws(Laws):
    """Many puts at once, the same put many times at once, and a reader in between."""

    def test_many_concurrent_puts_are_all_visible(self, target: Target, store: Store, folder: str) -> None:
        bodies = {f"{folder}{index:03d}": b"%d" % index * 100 for index in range(MANY)}

        async def conversation() -> None:
            await asyncio.gather(*(store.put_async(key, body) for key, body in bodies.items()))

        on_a_loop(store, conversation)
        assert sizes(store.scan(folder)) == {key: len(body) for key, body in bodies.items()}
        assert in_threads(8, store.get, bodies) == list(bodies.values())
        assert target.behind.keys(folder) == set(bodies)

    def test_racing_identical_puts_leave_one_object(self, target: Target, store: Store, folder: str) -> None:
        key, body = f"{folder}object", noise(100_000)

        async def conversation() -> None:
            await asyncio.gather(*(store.put_async(key, body) for _ in range(RACING)))

        on_a_loop(store, conversation)
        in_threads(8, lambda _: store.put(key, body), range(RACING))
        assert target.behind.keys(folder) == {key}
        assert target.behind.read(key) == body
        assert sizes(store.scan(folder)) == {key: len(body)}

    def test_a_reader_never_sees_a_part(self, target: Target, store: Store, folder: str) -> None:
        """Neither of an object that appears nor of one that is put again; a read that fails says so."""
        key, whole = f"{folder}object", [b"a" * MB, b"b" * (2 * MB) if target.replaces_whole else b"a" * MB]
        ready, written = threading.Barrier(4), threading.Event()

        def read() -> list[bytes]:
            seen, last = [], False
            ready.wait()
            while not last:
                last = written.is_set()
                try:
                    seen.append(store.get(key) if store.head(key) else b"")
                except ObjstoreError as error:
                    assert isinstance(error, Unavailable)  # noqa: PT017 - a poll may fail many times
            return seen

        with ThreadPoolExecutor(3) as pool:
            readers = [pool.submit(read) for _ in range(3)]
            ready.wait()
            try:
                for turn in range(REPLACEMENTS):
                    store.put(key, whole[turn % 2])
            finally:
                written.set()
            seen = [found for reader in readers for found in reader.result() if found]
        assert seen
        assert [len(found) for found in seen if found not in whole] == []
