# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Where an event loop's heavier computations run, so that its other callbacks wait for at most a few milliseconds.

Python's threads share one interpreter lock. A thread that computes beside an event loop takes it away at every
system call of the loop, which then waits up to 5 ms to get it back; the computation itself takes twice as long. So
what takes about a millisecond runs on the loop, one at a time with everybody's turn in between; what takes longer
runs in one thread, which rests after each.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from gym_objstore.store.scopes import PerLoop
from gym_objstore.threads import Threads

SHARED_BYTES = 131_072
"""A computation over fewer bytes than this stays on the event loop."""

REST_SECONDS = 0.0002
"""How long the thread lets go of the interpreter lock: longer than a loop that waits for it needs to take it."""

_turn: PerLoop[asyncio.Lock] = PerLoop(asyncio.Lock)
_threads = Threads("cpu", 1)  # two already stall the event loop for 49 ms


async def computed(function: Callable[..., Any], arguments: tuple[Any, ...], size: int) -> Any:
    """Return what a function over about ``size`` bytes returns."""
    if size >= SHARED_BYTES:
        return await asyncio.get_running_loop().run_in_executor(_threads(), _resting, function, arguments)
    async with _turn():
        answer = function(*arguments)
        await asyncio.sleep(0)  # whatever else is ready goes before the next of these
    return answer


def _resting(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return function(*arguments)
    finally:
        time.sleep(REST_SECONDS)
