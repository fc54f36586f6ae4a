# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Objects never change, so fsspec's local caches may keep them for ever: a second epoch costs no request.

The trainer's read path is played over reads through a cache. Requests are counted where botocore sends them, and
the second epoch has new file systems, as a process that was started again has, for which there is no server.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from threading import Lock
from typing import Any

import fsspec
import pytest
from aiobotocore.session import AioSession
from botocore.exceptions import EndpointConnectionError

from gym_objstore import TrainerClient
from gym_objstore.flow import run
from gym_objstore.receipts_published import Published
from gym_objstore.receipts_reading import Masked, Trainable, read_rows
from gym_objstore.store.memory import MemoryStore
from gym_objstore.testing.wrapping import WrappedStore
from tests.finished import RUN, finish
from tests.places import place_of

CACHES = {"simplecache": {}, "filecache": {"expiry_time": False}}
"""Each cache with what makes it keep objects for ever."""

TURNS = {"simplecache": nullcontext(), "filecache": Lock()}
"""``filecache`` has an index file, in which several readers at a time lose each other's entries."""

NOBODY = "http://127.0.0.1:1"
ROLLOUTS = ["a", "b", "c"]
CALLS = 2


class CachedReads(WrappedStore):
    """Whole objects through a cache of fsspec; nothing else can be done."""

    def __init__(self, cache: str, url: str, options: dict[str, Any]) -> None:
        super().__init__(MemoryStore())
        self._turn, self._url, self._options = TURNS[cache], f"{cache}::{url}", options

    def get(self, key: str) -> bytes:
        with self._turn, fsspec.open(f"{self._url}/{key}", "rb", **self._options) as file:
            return file.read()

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self.get(key)[start : start + length]


class Epochs:
    """The finished rollouts of a run on a server, read through one cache again and again."""

    def __init__(self, place: dict[str, Any], cache: str, folder: Path) -> None:
        self.place, self.cache, self.folder = place, cache, folder
        self.client = TrainerClient(**place)
        for name in ROLLOUTS:
            finish(self.client.connection.store, name, CALLS)
        self.published: list[Published] = self.client.finished_now()

    def read(self, endpoint: str) -> tuple[list[Trainable | Masked], list[str]]:
        """Return what one epoch found and the methods of the requests that it sent."""
        sent: list[str] = []
        session = AioSession()
        session.register("before-send.s3", lambda request, **_: sent.append(request.method))
        options = {
            self.cache: {"cache_storage": str(self.folder), "skip_instance_cache": True, **CACHES[self.cache]},
            "s3": {
                "key": self.place["access_key_id"],
                "secret": self.place["secret_access_key"],
                "endpoint_url": endpoint,
                "client_kwargs": {"region_name": self.place["region"]},
                "config_kwargs": {"retries": {"total_max_attempts": 1}},
                "session": session,
                "skip_instance_cache": True,
            },
        }
        store = CachedReads(self.cache, self.place["url"], options)
        return run(read_rows(RUN, self.published), store), sent


@pytest.fixture(params=CACHES)
def epochs(request, tmp_path):
    found = Epochs(place_of("seaweedfs", request), request.param, tmp_path / "cache")
    yield found
    found.client.close_now()


def test_a_second_epoch_is_served_without_requests(epochs):
    first, sent = epochs.read(epochs.place["endpoint"])
    assert sent.count("GET") == 3 + 3 * 2  # receipts and staged rows
    second, sent = epochs.read(NOBODY)
    assert sent == []
    assert second == first == epochs.client.read_now(epochs.published)
    assert [(one.rollout_id, one.row.token_ids) for one in second] == [
        (name, (0, 12, 21, 100, 1, 12, 21, 101)) for name in ROLLOUTS
    ]


def test_without_a_first_epoch_the_second_finds_nobody(epochs):
    with pytest.raises(EndpointConnectionError):
        epochs.read(NOBODY)


def test_an_object_that_the_cache_damaged_is_never_trained(epochs):
    first, _ = epochs.read(epochs.place["endpoint"])
    kept = [file for file in epochs.folder.iterdir() if len(file.name) == 64]
    assert len(kept) == 9
    for file in kept:
        file.write_bytes(file.read_bytes()[:-1] + b"x")
    found, _ = epochs.read(NOBODY)
    assert [type(one) for one in found] == [Masked] * 3
    assert [one.rollout_id for one in found] == [one.rollout_id for one in first]
