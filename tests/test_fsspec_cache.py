# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Objects never change, so fsspec's local caches may keep them for ever: a second epoch costs no request.

Requests are counted where botocore sends them. The second epoch is read by new file systems, as a process that
was started again reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import fsspec
import pytest
import s3fs
from aiobotocore.session import AioSession

from gym_objstore import TrainerClient
from gym_objstore.errors import Corrupt
from gym_objstore.keys import StagingKey, parse_staging_key, staged_key
from gym_objstore.staged_rows import unpack_snapshot
from tests.finished import RUN, finish
from tests.places import place_of

CACHES = {"simplecache": {}, "filecache": {"expiry_time": False}}
"""Each cache with what makes it keep objects for ever."""

TOKENS = [(0, 12, 21, 100), (1, 12, 21, 101)] * 3


class Epoch(NamedTuple):
    """One pass over a run's staged rows: their new tokens, and the requests that were sent for them."""

    tokens: list[tuple[int, ...]]
    requests: list[str]


class Run(NamedTuple):
    """A run with three finished rollouts on a server: its staging keys, and how to read them through a cache."""

    keys: list[StagingKey]
    epoch: Callable[..., Epoch]


@pytest.fixture(params=["seaweedfs"])
def finished(request, tmp_path):
    place = place_of(request.param, request)
    with_secrets = {name: place[name] for name in ("endpoint", "region", "access_key_id", "secret_access_key")}
    client = TrainerClient(**place)
    keys = [parse_staging_key(key) for name in ("a", "b", "c") for key in finish(client.connection.store, name)]
    client.close_now()

    def epoch(cache: str, **changed: str) -> Epoch:
        requests: list[str] = []
        storage = {
            **CACHES[cache],
            "cache_storage": str(tmp_path / "cache"),
            "target_protocol": "s3",
            "target_options": s3_options({**with_secrets, **changed}, requests),
            "skip_instance_cache": True,
        }
        system = fsspec.filesystem(cache, **storage)
        bodies = [system.cat_file(f"{place['url'].removeprefix('s3://')}/{staged_key(RUN, key)}") for key in keys]
        return Epoch([tokens_of(key, body) for key, body in zip(keys, bodies, strict=True)], requests)

    return Run(keys, epoch)
