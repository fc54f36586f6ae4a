# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The rollouts of the staging proof: how agents play them, what goes wrong in each, and what must come of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Any

from tests.gym_agents import DIALECTS, ChatAgent, agents_client

ROLLOUTS = 60
TURNS = 4  # before a rollout's manner shows
AT_ONCE = 16  # agents that play at the same time


@dataclass(slots=True)
class Played:
    """A rollout as its agent knows it: the responses it got, the last of which is scored."""

    agent: ChatAgent
    manner: str
    servers: Iterator[str]
    responses: list[str] = field(default_factory=list)

    @property
    def rollout(self) -> str:
        return self.agent.rollout

    async def say(self, text: str, *, agent: ChatAgent | None = None) -> None:
        """Make a turn by the next model server."""
        asked = agent or self.agent
        asked.server = next(self.servers)
        self.responses.append((await asked.say(text))["id"])


async def plainly(played: Played) -> None:
    await played.say("one more")


async def with_a_branch(played: Played) -> None:
    """Follow another thought for two turns, then go on from where it began."""
    fork = played.agent.fork()
    await played.say("what if?", agent=fork)
    await played.say("and then?", agent=fork)
    await played.say("back to the point")


async def with_a_retry(played: Played) -> None:
    """Send one request twice at the same time, as a client does that lost patience, and go on with one answer."""
    fork = played.agent.fork()
    await asyncio.gather(played.say("again?", agent=fork), played.say("again?"))
    await played.say("thanks")


async def with_an_abandoned_call(played: Played) -> None:
    """Hang up on two calls, one at once and one at the first byte, then go on as if they had never been made."""
    with played.agent.asking("never mind"):
        pass
    with played.agent.asking("or this") as connection:
        await asyncio.to_thread(connection.recv, 1)
    await played.say("go on")


async def with_a_rewritten_history(played: Played) -> None:
    """Summarize what the model said, which then nobody can prove to be its words."""
    said = next(number for number, item in enumerate(played.agent.history) if item.get("role") == "assistant")
    played.agent.history[said] = {"role": "assistant", "content": "a summary"}
    await played.say("what did you say?")


def forged(how: str) -> Callable[[Played], Coroutine[Any, Any, None]]:
    """Meet a worker whose acknowledgement is no good."""
    return lambda played: played.say(f"once more FORGE:{how}")


async def over_a_killed_worker(played: Played) -> None:
    """Wait for an answer whose row is already staged, until a worker was killed."""
    await played.say(f"once more LINGER:{played.rollout}")


MANNERS: dict[str, Callable[[Played], Coroutine[Any, Any, None]]] = {
    "plain": plainly,
    "branched": with_a_branch,
    "retried": with_a_retry,
    "abandoned": with_an_abandoned_call,
    "killed": over_a_killed_worker,
    "late": plainly,
    "rewritten": with_a_rewritten_history,
    "unacknowledged": forged("nothing"),
    "replayed": forged("foreign"),
    "rejected": forged("failed"),
    "conflicting": plainly,
    "damaged": plainly,
}
UNRECORDED = {
    "rewritten": "unresolved_parent",
    "unacknowledged": "worker_response_missing_commit_coordinates",
    "replayed": "invalid_worker_commit_coordinates",
    "rejected": "worker_capture_failed",
}
"""The failure that poisons a rollout in which the last call was answered and not recorded."""
MASKED = {
    **{manner: ("rollout_failed", reason) for manner, reason in UNRECORDED.items()},
    "conflicting": ("rollout_failed", "conflicting_ledger_rows"),
    "damaged": ("corrupt", "the record of the row is damaged"),
}
"""What a trainer says of a rollout that it must not use: the code, and words of the detail."""


def rollout_id(number: int) -> str:
    return f"{number}-0"


async def play_all(urls: list[str]) -> list[Played]:
    """Play every rollout, some at the same time, each call by another model server than the one before."""
    gate, dialects = asyncio.Semaphore(AT_ONCE), list(DIALECTS.values())

    async def play(number: int, manner: str) -> Played:
        # Manners repeat with a period that the number of dialects divides.
        kind = dialects[(number + number // len(MANNERS)) % len(dialects)]
        played = Played(kind(client, "", rollout_id(number)), manner, islice(cycle(urls), number, None))
        async with gate:
            for turn in range(TURNS):
                await played.say(f"{played.rollout} turn {turn}")
            await MANNERS[manner](played)
        return played

    async with agents_client() as client:
        return await asyncio.gather(*(play(*one) for one in enumerate(islice(cycle(MANNERS), ROLLOUTS))))
