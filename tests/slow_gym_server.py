# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Starts a server module of Gym whose captures, in files or in the bucket, take as long as they are told to.

``python -m tests.slow_gym_server {files|bucket} <seconds> MODULE``.
"""

from __future__ import annotations

import asyncio
import runpy
import sys
import time
from collections.abc import Callable
from typing import Any

from gym_objstore import connection
from gym_objstore.testing.wrapping import WrappedStore


class SlowStore(WrappedStore):
    """A store whose writes take ``seconds`` more."""

    def __init__(self, store: Any, seconds: float) -> None:
        super().__init__(store)
        self._seconds = seconds

    def put(self, key: str, body: Any) -> None:
        time.sleep(self._seconds)
        super().put(key, body)

    async def put_async(self, key: str, body: Any) -> None:
        await asyncio.sleep(self._seconds)
        await super().put_async(key, body)


def slow_files(seconds: float) -> None:
    """Have Gym's own store take its time for each capture."""
    from nemo_gym.base_responses_api_model import CaptureStore

    fast: Callable[..., None] = CaptureStore.record

    def record(self: Any, rollout_id: str, exchange: dict[str, Any]) -> None:
        time.sleep(seconds)
        fast(self, rollout_id, exchange)

    CaptureStore.record = record


def slow_bucket(seconds: float) -> None:
    """Have every store of this process take its time for each write."""
    fast = connection.open_store
    connection.open_store = lambda *place, **options: SlowStore(fast(*place, **options), seconds)


if __name__ == "__main__":
    _, kind, delay, module = sys.argv
    if kind == "files":
        slow_files(float(delay))
        sys.argv = [module]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        from gym_objstore_nemo_gym.entry import main

        slow_bucket(float(delay))
        main([module])
